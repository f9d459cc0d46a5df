"""What happens to a batch that its worker has returned. Owner: the loop thread."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any, assert_never

from keepfast.classify.classification import Classification
from keepfast.core import verdicts
from keepfast.core.batches import Batch, Search, Trial
from keepfast.core.errors import SchemaPending, error_type, named_in
from keepfast.core.events import BatchFailed, Discarded, Halted
from keepfast.core.lanes import Lanes
from keepfast.core.retry_topics import original
from keepfast.core.runs import Run
from keepfast.core.verdicts import Verdict
from keepfast.engine.batch_lanes import BatchLanes
from keepfast.engine.commits import Committer
from keepfast.engine.counts import Counts, Labels
from keepfast.engine.events import Events, run_finished
from keepfast.engine.failures import Failures, parts_of
from keepfast.engine.guards import Guards
from keepfast.engine.mailbox import DRAIN
from keepfast.engine.ownership import Ownership
from keepfast.engine.plan import Plan
from keepfast.redact.sensitive import SensitiveData
from keepfast.telemetry.clean import clean_message

Bad = dict[tuple[Run, int], BaseException]
"""Records, by part and sequence number, that are judged on their own, and the error of each."""


def batches_of(
    plan: Plan,
    lanes: Lanes,
    ownership: Ownership,
    committer: Committer,
    failures: Failures,
    *,
    guards: Guards,
    holds: Collection[str],
    counts: Counts,
    events: Events,
) -> Batches | None:
    """None for a consumer whose handler takes single records."""
    if not isinstance(lanes, BatchLanes):
        return None
    return Batches(
        plan,
        lanes,
        ownership=ownership,
        committer=committer,
        failures=failures,
        guards=guards,
        holds=holds,
        counts=counts,
        events=events,
    )


class Batches:
    """Finishes what succeeded, and searches for the bad record in what failed.

    After a retryable failure the whole batch runs again, after the delay. After a final one the bad record is searched
    for; once found, it is a failed record like any other, and the records behind it go back to their lanes. If the
    handler or a downstream asks for a longer wait than a lane should take, and there are retry topics, all records of
    the batch become failed records. During a drain nothing is judged.
    """

    def __init__(
        self,
        plan: Plan,
        lanes: BatchLanes,
        *,
        ownership: Ownership,
        committer: Committer,
        failures: Failures,
        guards: Guards,
        holds: Collection[str],
        counts: Counts,
        events: Events,
    ) -> None:
        self._plan = plan
        self._events = events
        self._lanes = lanes
        self._ownership = ownership
        self._committer = committer
        self._failures = failures
        self._guards = guards
        self._holds = holds
        self._counts = counts

    def step(self, now: float) -> None:
        """Before anything starts: what is judged now may hold the consumer."""
        self._lanes.settle(now)

    def returned(self, batch: Batch, now: float) -> None:
        """A worker has returned a batch."""
        failure, batch.failure = batch.failure, None
        if failure is not None:
            failure = self._failures.decisive(failure)
        bad: Bad = {}
        verdict: Verdict = verdicts.Done()
        if failure is not None or (batch.bad and batch.given is not None):  # else it never began
            verdict = self._judged(batch, failure, bad, now)
        discard = verdict if isinstance(verdict, verdicts.DiscardRecord) else None
        if discard is not None:
            batch.succeeded()  # all that was handed over
        done = self._finish(batch)
        self._give_back_closing(batch)
        if batch.parts:
            self._continue(batch, verdict, bad, now)
        for run in done:
            event, processed, skipped = None, run.handled - run.skipped_count, run.skipped_count
            if self._events.wants_runs:
                event = run_finished(self._events, run, 0, run.done)
            if failure is not None and batch.found is not None and discard is not None:
                self._discarded(run, batch, failure, batch.found, discard.reason)
                event = replace(event, records=()) if event is not None and event.filtered else None
                processed = skipped = 0
            self._counts[run.partition.place.topic].finished(processed, len(run.filtered), skipped)
            if event is not None:
                self._events.emit(event)

    def _judged(self, batch: Batch, failure: BaseException | None, bad: Bad, now: float) -> Verdict:
        """The verdict on all that was handed over; adds to `bad` what is judged on its own."""
        members = list(batch.members())
        given = range(len(members)) if batch.given is None else batch.given
        bad |= {members[index]: error for index, error in batch.bad.items()}
        if failure is None or not self._may_judge([members[index][0] for index in given]):
            return verdicts.Done()
        if len(given) == 1:  # it must be this one
            bad[members[given[0]]] = named_in(failure, 1).get(0, failure)
            return verdicts.Done()
        named = named_in(failure, len(given))
        if named:
            batch.named |= {members[given[index]]: error for index, error in named.items()}
            return verdicts.RetryAfter(0.0)
        verdict = self._judge(batch, failure, len(given), now)
        if isinstance(verdict, verdicts.Move) and verdict.asked:
            bad |= {members[index]: failure for index in given}
            return verdicts.Done()
        return verdict

    def _may_judge(self, given: list[Run]) -> bool:
        """`given`: the part of each record that was handed over. If none of them is still ours, the failure is late."""
        return DRAIN not in self._holds and any(self._ownership.is_current(part.partition) for part in given)

    def _continue(self, batch: Batch, verdict: Verdict, bad: Bad, now: float) -> None:
        """Continue with what is left of it."""
        match verdict:
            case verdicts.Done() | verdicts.DiscardRecord():
                if bad:
                    self._lanes.when_committed(batch, lambda now: self._isolate(batch, bad, now), now)
                elif batch.search is not None and batch.done:
                    self._continue_search(batch, batch.search.succeeded(len(batch.messages)), now)
                else:  # it never began
                    self._lanes.again(batch)
            case verdicts.RetryAfter(delay_s=delay_s):
                self._lanes.wait(batch, now + delay_s)
            case verdicts.DeadLetter() | verdicts.Move():
                count = len(batch.messages) - len(batch.leading)
                before = batch.search or Search(count, count, self._plan.atomic)
                asked_s = batch.found.retry_after_s if batch.found is not None else None
                self._continue_search(batch, before.failed(count), now, after_s=asked_s or 0.0)
            case verdicts.HaltConsumer(reason=reason):
                self._lanes.put_back(batch.parts)
                self._failures.halt(reason)
            case other:
                assert_never(other)

    def _discarded(self, run: Run, batch: Batch, error: BaseException, found: Classification, reason: str) -> None:
        labels, sensitive = Labels.of_error(error, found), isinstance(error, SensitiveData)
        text = clean_message(error, parts=parts_of(batch.messages))
        for position, message in enumerate(run.messages):
            if position in run.filtered:
                continue
            self._counts[run.partition.place.topic].was_discarded(labels, sensitive=sensitive)
            record = original(message)
            self._events.emit(
                Discarded(
                    *self._events.source,
                    topic=record.topic(),
                    partition=record.partition(),
                    offset=record.offset(),
                    attempt=batch.failures,
                    error=error,
                    error_type=error_type(error),
                    kind=found.kind,
                    code=found.code,
                    rule=found.rule,
                    retry_topic="" if record is message else run.partition.place.topic,
                    error_message=text,
                    reason=reason,
                )
            )

    def _finish(self, batch: Batch) -> list[Run]:
        """Finish what is done, of partitions that are still ours, without waiting for the rest. Returns it."""
        first = 0
        done: list[Run] = []
        left: list[Run] = []
        dropped, known = frozenset(batch.filtered), frozenset(batch.skipped if batch.done else ())
        for part in batch.parts:
            partition = part.partition
            part.done = 0
            finished = batch.finished_of(part, first)
            filtered = [at for at, index in enumerate(finished) if first + index in dropped] if dropped else ()
            skipped = [at for at, index in enumerate(finished) if first + index in known] if known else ()
            first += len(part.messages)
            if not self._ownership.is_current(partition):
                self._lanes.release(part)  # stale: nothing of it counts, but its lanes are free again
                continue
            if len(finished) == len(part.messages):
                part.done, part.filtered, part.skipped = len(finished), filtered, skipped
                part.outputs = batch.outputs
                done.append(part)
                partition.finish(part)
                self._committer.finished(partition, part, part.done)
                continue
            left.append(part)
            if finished:
                head = self._lanes.cut(part, finished)
                head.batch, head.filtered, head.skipped = batch, filtered, skipped
                head.outputs = batch.outputs
                batch.heads.append(head)
                done.append(head)
                partition.finish(head)
                self._committer.finished(partition, head, head.done)
        batch.parts = left
        return done

    def _give_back_closing(self, batch: Batch) -> None:
        """Give back the parts of partitions that are being revoked: their next owner reads them again."""
        going = [part for part in batch.parts if part.partition.closing or DRAIN in self._holds]
        for part in going:
            self._lanes.give_back(part)
        batch.parts = [part for part in batch.parts if part not in going]

    def _judge(self, batch: Batch, error: BaseException, records: int, now: float) -> Verdict:
        """All that was handed over failed together."""
        trial, guards = batch.trial or Trial(batch.messages[0], now), self._guards
        if isinstance(error, SchemaPending):
            guards.wait_for_schema(trial, error, now)
            return verdicts.RetryAfter(0.0)
        batch.failures += 1
        elapsed_s = guards.elapsed_s(trial, now) if guards.on else now - trial.begun_at
        tiers_s = self._plan.tiers.delays_s if self._plan.tiers else ()
        found, verdict = self._failures.weigh(
            error, batch.messages, attempt=batch.failures, elapsed_s=elapsed_s, tiers_s=tiers_s
        )
        batch.found = found
        counts = self._counts[batch.parts[0].partition.place.topic]
        counts.failed(Labels.of_error(error, found))
        wait_s = guards.holds_back(trial, found, verdict, now, several=True) if guards.on else None
        self._report(batch, error, found, verdict if wait_s is None else None, records)
        if wait_s is not None:  # a guard has it: the attempt does not count
            batch.failures -= 1
            return verdicts.RetryAfter(max(wait_s, found.retry_after_s or 0.0))
        if isinstance(verdict, verdicts.RetryAfter):
            counts.retried(batch.failures, verdict.delay_s)
        return verdict

    def _report(
        self, batch: Batch, error: BaseException, found: Classification, verdict: Verdict | None, records: int
    ) -> None:
        first, events = original(batch.messages[0]), self._events
        place: dict[str, Any] = {"topic": first.topic(), "partition": first.partition(), "offset": first.offset()}
        events.emit(
            BatchFailed(
                *events.source,
                **place,
                partitions=tuple({part.partition.place: None for part in batch.parts}),
                records=records,
                attempt=batch.failures,
                error=error,
                kind=found.kind,
                code=found.code,
                rule=found.rule,
                verdict=verdict,
                error_message=clean_message(error, parts=parts_of(batch.messages)),
                took_s=batch.failed_s,
            )
        )
        if isinstance(verdict, verdicts.HaltConsumer):
            events.emit(Halted(*events.source, **place, kind="halted", reason=verdict.reason, error=error))

    def _continue_search(self, batch: Batch, search: Search | None, now: float, *, after_s: float = 0.0) -> None:
        batch.search = search
        if search is None:
            self._lanes.when_committed(batch, lambda _: self._lanes.put_back(batch.parts), now)
        elif after_s > 0:
            self._lanes.wait(batch, now + after_s)
        else:
            self._lanes.again(batch)

    def _isolate(self, batch: Batch, bad: Bad, now: float) -> None:
        """Everything before these records in their lanes is finished: make failed records of them."""
        begun_at, parts, batch.parts = batch.begun_at, batch.parts, []
        rest: list[Run] = []
        for part in parts:
            at = [index for index, seq in enumerate(part.seqs) if (part, seq) in bad]
            if not at:
                rest.append(part)
                continue
            for failed_record in self._lanes.extract(part, at, begun_at):
                failed_record.partition.add_failed(failed_record)
                self._failures.failed(failed_record, bad[part, failed_record.seq], now)
        self._lanes.put_back(rest)

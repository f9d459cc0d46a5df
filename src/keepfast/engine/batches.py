"""What becomes of a batch when its worker is through with it. Owner: the loop thread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import assert_never

from keepfast.classify.classification import Classification
from keepfast.core import verdicts
from keepfast.core.lanes import Lanes
from keepfast.core.retry_topics import original
from keepfast.core.runs import Batch, Run, Search, Trial, named_in
from keepfast.core.verdicts import Verdict
from keepfast.engine.batch_lanes import BatchLanes
from keepfast.engine.commits import Committer
from keepfast.engine.counts import Labels
from keepfast.engine.failures import Failures
from keepfast.engine.guards import Guards
from keepfast.engine.mailbox import DRAIN
from keepfast.engine.ownership import Ownership
from keepfast.engine.plan import Plan
from keepfast.telemetry.logs import get_logger

log = get_logger("keepfast.consumer")

Bad = dict[tuple[Run, int], BaseException]
"""Records, by part and sequence number, that are to be judged on their own, and by what."""


def batches_of(
    plan: Plan,
    lanes: Lanes,
    ownership: Ownership,
    committer: Committer,
    failures: Failures,
    *,
    guards: Guards,
    holds: Collection[str],
) -> Batches | None:
    """None for a consumer that takes records one by one."""
    if not isinstance(lanes, BatchLanes):
        return None
    return Batches(plan, lanes, ownership=ownership, committer=committer, failures=failures, guards=guards, holds=holds)


class Batches:
    """Finishes what went well, and looks for the record to blame for what did not.

    A retryable failure: the whole batch runs again after the delay. A final one: the search for the bad record, which
    then is a case like any other; what lies behind the search is gathered anew. If the handler or a downstream asks for
    a longer wait than a lane should take, and there are retry topics, all of its records become cases. While it drains,
    nothing is judged any more: the consumer is about to go.
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
    ) -> None:
        self._plan = plan
        self._lanes = lanes
        self._ownership = ownership
        self._committer = committer
        self._failures = failures
        self._guards = guards
        self._holds = holds

    def returned(self, batch: Batch, now: float) -> None:
        """A worker handed back a batch."""
        failure, batch.failure = batch.failure, None
        if failure is not None:
            failure = self._failures.decisive(failure)
        bad: Bad = {}
        verdict: Verdict = verdicts.Done()
        if failure is not None or (batch.bad and batch.given is not None):  # else it never began
            verdict = self._judged(batch, failure, bad, now)
        discarded = isinstance(verdict, verdicts.DiscardRecord)
        if discarded:
            batch.succeeded()  # by its own word the handler is through with all that it was given
        done = self._finish(batch)
        self._let_go(batch)
        if batch.parts:
            self._go_on(batch, verdict, bad, now)
        if failure is not None and batch.found is not None and discarded:
            labels = Labels.of_error(failure, batch.found)
            for topic, count in done.items():
                for _ in range(count):
                    self._failures.by_topic[topic].was_discarded(labels, sensitive=False)
        elif not discarded:
            for topic, count in done.items():
                self._failures.by_topic[topic].processed += count

    def _judged(self, batch: Batch, failure: BaseException | None, bad: Bad, now: float) -> Verdict:
        """What becomes of all that was handed over; in `bad`, what is to be judged on its own."""
        members = list(batch.members())
        given = range(len(members)) if batch.given is None else batch.given
        bad |= {members[index]: error for index, error in batch.bad.items()}
        if failure is None or not self._has_a_say(batch):
            return verdicts.Done()
        if len(given) == 1:  # nobody else can be to blame
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

    def _has_a_say(self, batch: Batch) -> bool:
        return DRAIN not in self._holds and any(self._ownership.is_current(part.partition) for part in batch.parts)

    def _go_on(self, batch: Batch, verdict: Verdict, bad: Bad, now: float) -> None:
        """Something of it is left."""
        match verdict:
            case verdicts.Done() | verdicts.DiscardRecord():
                if bad:
                    self._lanes.when_committed(batch, lambda now: self._isolate(batch, bad, now), now)
                elif batch.search is not None and batch.done:
                    self._search_on(batch, batch.search.succeeded(len(batch.messages)), now)
                else:  # it never began
                    self._lanes.again(batch)
            case verdicts.RetryAfter(delay_s=delay_s):
                self._lanes.wait(batch, now + delay_s)
            case verdicts.DeadLetter() | verdicts.Move():
                count = len(batch.messages)
                before = batch.search or Search(count, count, self._plan.atomic)
                asked_s = batch.found.retry_after_s if batch.found is not None else None
                self._search_on(batch, before.failed(count), now, after_s=asked_s or 0.0)
            case verdicts.HaltConsumer(reason=reason):
                self._lanes.put_back(batch.parts)
                self._failures.halt(reason)
            case other:
                assert_never(other)

    def _finish(self, batch: Batch) -> Counter[str]:
        """What is done of partitions that are ours is finished and need not wait for the rest. Returns how much, by
        topic.
        """
        first = 0
        done: Counter[str] = Counter()
        left: list[Run] = []
        for part in batch.parts:
            partition = part.partition
            part.done = 0
            finished = batch.finished_of(part, first)
            first += len(part.messages)
            if not self._ownership.is_current(partition):
                self._lanes.release(part)  # stale: nothing of it counts, but its lanes are free again
                continue
            done[partition.place.topic] += len(finished)
            if len(finished) == len(part.messages):
                part.done = len(finished)
                partition.finish(part)
                self._committer.finished(partition, part, part.done)
                continue
            left.append(part)
            if finished:
                head = self._lanes.cut(part, finished)
                head.batch = batch
                batch.heads.append(head)
                partition.finish(head)
                self._committer.finished(partition, head, head.done)
        batch.parts = left
        return done

    def _let_go(self, batch: Batch) -> None:
        """Parts of partitions that are about to go are left to whoever has them next."""
        going = [part for part in batch.parts if part.partition.closing or DRAIN in self._holds]
        for part in going:
            self._lanes.give_back(part)
        batch.parts = [part for part in batch.parts if part not in going]

    def _judge(self, batch: Batch, error: BaseException, records: int, now: float) -> Verdict:
        """All that was handed over failed together."""
        batch.failures += 1
        trial, guards = batch.trial or Trial(batch.messages[0], now), self._guards
        elapsed_s = guards.elapsed_s(trial, now) if guards.on else now - trial.begun_at
        tiers_s = self._plan.tiers.delays_s if self._plan.tiers else ()
        found, verdict = self._failures.weigh(error, attempt=batch.failures, elapsed_s=elapsed_s, tiers_s=tiers_s)
        batch.found = found
        counts = self._failures.counts_of(batch.parts[0].partition)
        counts.failed(Labels.of_error(error, found))
        wait_s = guards.holds_back(trial, found, verdict, now, several=True) if guards.on else None
        about = {**self._about(batch, error, found), "records": records}
        if wait_s is not None:  # a guard has it: the attempt does not count
            batch.failures -= 1
            log.warning("batch_wait", **about | {"retry_count": batch.failures})
            return verdicts.RetryAfter(max(wait_s, found.retry_after_s or 0.0))
        match verdict:
            case verdicts.RetryAfter(delay_s=delay_s):
                counts.retried(batch.failures, delay_s)
                said = about | {"retry_count": batch.failures}
                log.warning("batch_retry", **said, backoff_delay_ms=round(delay_s * 1000))
            case verdicts.DeadLetter(reason=reason) | verdicts.Move(reason=reason):
                log.warning("batch_search", **about, reason=reason)
            case verdicts.DiscardRecord(reason=reason):
                log.warning("batch_discard", **about, reason=reason)
            case verdicts.HaltConsumer(reason=reason):
                log.error("halt", **about, reason=reason)
            case verdicts.Done():
                raise RuntimeError("the judge called a failure done")
            case other:
                assert_never(other)
        return verdict

    def _about(self, batch: Batch, error: BaseException, found: Classification) -> dict[str, object]:
        """What every line of the log says about a batch; its place is that of its first record."""
        first = original(batch.messages[0])
        return {
            "retry_count": max(0, batch.failures - 1),
            "error_type": type(error).__name__,
            "error_classification": found.kind,
            "code": found.code,
            "rule": found.rule,
            "consumer_group": self._plan.group,
            "topic": first.topic(),
            "partition": first.partition(),
            "offset": first.offset(),
            "partitions": sorted({str(part.partition.place) for part in batch.parts}),
        }

    def _search_on(self, batch: Batch, search: Search | None, now: float, *, after_s: float = 0.0) -> None:
        batch.search = search
        if search is None:
            self._lanes.when_committed(batch, lambda _: self._lanes.put_back(batch.parts), now)
        elif after_s > 0:
            self._lanes.wait(batch, now + after_s)
        else:
            self._lanes.again(batch)

    def _isolate(self, batch: Batch, bad: Bad, now: float) -> None:
        """Everything before these in their lanes is finished: from here on they are cases of their own."""
        begun_at, parts, batch.parts = batch.begun_at, batch.parts, []
        rest: list[Run] = []
        for part in parts:
            at = [index for index, seq in enumerate(part.seqs) if (part, seq) in bad]
            if not at:
                rest.append(part)
                continue
            for case in self._lanes.extract(part, at, begun_at):
                case.partition.cases.add(case)
                self._failures.failed(case, bad[part, case.seq], now)
        self._lanes.put_back(rest)

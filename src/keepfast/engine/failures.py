"""Failed records: judged, waiting for their next attempt, being moved or dead-lettered. Owner: the loop thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import assert_never

from keepfast.classify.classification import Classification, classify
from keepfast.classify.retry_policies import RetryPolicies
from keepfast.classify.rules.codes import CRASHED, OPERATOR
from keepfast.core import verdicts
from keepfast.core.errors import (
    BatchError,
    Crashed,
    OperatorDeadLetter,
    SchemaPending,
    Signal,
    SinkError,
    error_type,
    readable,
)
from keepfast.core.events import (
    DeadLettered,
    Discarded,
    Halted,
    Moved,
    RecordFailed,
    RetryScheduled,
    RetrySucceeded,
    Spooled,
)
from keepfast.core.judge import judge
from keepfast.core.ports import Clock, Mailbox
from keepfast.core.records import Message, Receipt, Record
from keepfast.core.retry_topics import Returned, moved, original
from keepfast.core.runs import Attempt, FailedRecord, Partition
from keepfast.core.verdicts import DeadLetter, DiscardRecord, HaltConsumer, Move, Verdict
from keepfast.deadletters.publisher import Publisher
from keepfast.engine.counts import Counts, Labels, TopicCounts, exemplar_of
from keepfast.engine.events import Events, record_fields
from keepfast.engine.forwarding import ForwardedRecord, Forwarder, Settled, Where
from keepfast.engine.guards import Guards
from keepfast.engine.plan import Plan
from keepfast.engine.timers import Timers
from keepfast.redact.record_values import without_values
from keepfast.redact.sensitive import SensitiveData
from keepfast.telemetry.clean import clean_message
from keepfast.telemetry.logs import get_logger

log = get_logger("keepfast.consumer")


def _waits(failed_record: FailedRecord) -> bool:
    """Whether it is still to run again."""
    return not failed_record.dropped and not isinstance(failed_record.verdict, DeadLetter)


def parts_of(messages: Sequence[Message]) -> Iterator[bytes | None]:
    """What stands in these messages, wherever they came from; its values must not be logged."""
    for message in messages:
        record = Record.of(original(message))
        yield from (record.key, record.value, *(value for _, value in record.headers))


class Failures:
    """Carries out the judge's verdicts.

    `finished` is called when a failed record has reached its terminal fact, `halt` when a verdict says so. A lane waits
    here, not a thread: a failed record that waits is one entry in a heap.
    """

    def __init__(
        self,
        plan: Plan,
        publisher: Publisher,
        mailbox: Mailbox,
        clock: Clock,
        random: Random,
        *,
        guards: Guards,
        finished: Callable[[FailedRecord], None],
        halt: Callable[[str], None],
        counts: Counts,
        events: Events,
    ) -> None:
        self._plan = plan
        self._events = events
        self._publisher = publisher
        self._clock = clock
        self._random = random
        self._guards = guards
        self._floor_s = plan.rate.min_delay_ms / 1000 if plan.rate else 0.0
        self._finished = finished
        self.halt = halt
        self._policies = RetryPolicies(plan.retry, plan.retry_by_error)
        self._timers: Timers[FailedRecord] = Timers(_waits)
        self.ready: deque[FailedRecord] = deque()
        self.forwarder = Forwarder(
            publisher,
            mailbox,
            finished=self._forwarded,
            stays=self._stays_in_place,
            events=events,
            in_transaction=plan.exactly_once,
        )
        self.settling = self.forwarder.settling
        self._counts = counts

    def _counts_of(self, failed_record: FailedRecord) -> TopicCounts:
        return self._counts[failed_record.partition.place.topic]

    def failed(
        self, failed_record: FailedRecord, error: BaseException, now: float, took_s: float | None = None
    ) -> None:
        """An attempt failed, after so long: decide, and begin what was decided."""
        wall = self._clock.wall()
        error = self.decisive(error)
        if isinstance(error, SchemaPending):
            self._guards.wait_for_schema(failed_record, error, now)
            self.ready.append(failed_record)
            return
        failed_record.note(self._attempt(failed_record, wall, error, took_s))
        plan, guards = self._plan, self._guards
        found, verdict = self.weigh(
            error,
            [failed_record.message],
            attempt=failed_record.failures,
            elapsed_s=guards.elapsed_s(failed_record, now) if guards.on else now - failed_record.begun_at,
            tiers_s=() if failed_record.stays or plan.tiers is None else plan.tiers.delays_s,
            moved=failed_record.message.past.step if isinstance(failed_record.message, Returned) else None,
        )
        failed_record.found = found
        counts = self._counts_of(failed_record)
        counts.failed(Labels.of(failed_record), exemplar_of(failed_record.message, 1.0, wall))
        wait_s = guards.holds_back(failed_record, found, verdict, now) if guards.on else None
        self._decided(failed_record, error, verdict if wait_s is None else None)
        if wait_s is not None:
            self._wait(failed_record, max(wait_s, found.retry_after_s or 0.0), now)
            return
        failed_record.verdict = verdict
        match verdict:
            case verdicts.RetryAfter(delay_s=delay_s):
                counts.retried(failed_record.failures, delay_s)
                self._retry(failed_record, error, delay_s, now)
            case verdicts.DeadLetter():
                self._dead_letter(failed_record, error, verdict, found, now)
            case verdicts.Move(delay_s=delay_s):
                counts.retried(failed_record.failures, delay_s)
                self._move(failed_record, error, verdict, wall, now)
            case verdicts.DiscardRecord(reason=reason):
                self._discard(failed_record, error, reason)
            case verdicts.HaltConsumer(reason=reason):
                self._halt(failed_record, error, reason)
            case verdicts.Done():
                raise RuntimeError("the judge called a failure done")
            case other:
                assert_never(other)

    def _attempt(
        self, failed_record: FailedRecord, wall: float, error: BaseException, took_s: float | None = None
    ) -> Attempt:
        text = clean_message(error, parts=parts_of([failed_record.message]))
        return Attempt(wall, error_type(error), text, self._publisher.place(error), took_s)

    def _decided(self, failed_record: FailedRecord, error: BaseException, verdict: Verdict | None) -> None:
        self._events.emit(RecordFailed(*self._events.source, **record_fields(failed_record, error), verdict=verdict))

    def _retry(self, failed_record: FailedRecord, error: BaseException | None, delay_s: float, now: float) -> None:
        self._timers.add(now + delay_s, failed_record)
        self._events.emit(RetryScheduled(*self._events.source, **record_fields(failed_record, error), delay_s=delay_s))

    def recovered(self, failed_record: FailedRecord) -> None:
        """It succeeded. A record that only guards have held back has not failed."""
        if failed_record.failures and failed_record.found is not None:
            self._events.emit(RetrySucceeded(*self._events.source, **record_fields(failed_record, None)))

    def _halt(self, failed_record: FailedRecord, error: BaseException, reason: str) -> None:
        record = original(failed_record.message)
        self._events.emit(
            Halted(
                *self._events.source,
                topic=record.topic(),
                partition=record.partition(),
                offset=record.offset(),
                kind="halted",
                reason=reason,
                error=error,
            )
        )
        self.halt(reason)

    def _wait(self, failed_record: FailedRecord, wait_s: float, now: float) -> None:
        """A guard has it: the attempt does not count, and the next one is made when nothing is held any more."""
        failed_record.failures -= 1
        if wait_s > 0:
            self._timers.add(now + wait_s, failed_record)
        else:
            self.ready.append(failed_record)

    def decisive(self, error: BaseException) -> BaseException:
        """What the attempt is judged by: a failed send replaces what the handler raised, unless that halts the app.

        Frames of a record that must not be kept anywhere end here: observers get the error.
        """
        error = readable(error)
        if isinstance(error, SensitiveData):
            error.__traceback__ = error.__context__ = error.__cause__ = None
        if not isinstance(error, SinkError) or error.raised is None:
            return error
        raised = readable(error.raised)
        several = raised.errors.values() if isinstance(raised, BatchError) else (raised,)
        return raised if any(self._classify(each).kind == "halt" for each in several) else error

    def _classify(self, error: BaseException) -> Classification:
        plan, wall = self._plan, self._clock.wall()
        return classify(error, plan.rules, unknown=plan.unknown_errors, not_found=plan.not_found, now_wall=wall)

    def weigh(
        self,
        error: BaseException,
        messages: Sequence[Message],
        *,
        attempt: int,
        elapsed_s: float,
        tiers_s: tuple[int, ...] = (),
        moved: int | None = None,
    ) -> tuple[Classification, Verdict]:
        """What the rules say of an error of these messages, and what the judge makes of it. A reason that the handler
        gave is without the values of the messages.
        """
        plan, found = self._plan, self._classify(error)
        verdict = judge(
            error,
            found,
            attempt=attempt,
            elapsed_s=elapsed_s,
            policy=self._policies.of(error),
            jitter=self._random.random(),
            tiers_s=tiers_s,
            moved=moved,
            floor_s=max(self._floor_s, plan.spacing.min_delay_s) if plan.spacing else self._floor_s,
        )
        if isinstance(error, Signal) and isinstance(verdict, DeadLetter | DiscardRecord | HaltConsumer):
            verdict = replace(verdict, reason=without_values(verdict.reason, parts_of(messages)))
        return found, verdict

    def crashed(self, failed_record: FailedRecord, starts: int, now: float) -> None:
        """The process died so often after it had started this record: dead-letter it, whatever rules say of errors."""
        self._finally(failed_record, Crashed(starts), CRASHED, "crash-guard", now)

    def give_up(self, failed_record: FailedRecord, by: str, why: str, now: float) -> None:
        """An operator dead-letters a record that waits for its next attempt, whatever rules and guards say."""
        last = failed_record.attempts[-1] if failed_record.attempts else None
        error = OperatorDeadLetter(by, f"{last.error_type}: {last.message}" if last else "", why=why)
        self._finally(failed_record, error, OPERATOR, "operator", now)
        self._timers.dropped(1)
        if failed_record in self.ready:
            self.ready.remove(failed_record)

    def _finally(self, failed_record: FailedRecord, error: BaseException, code: str, rule: str, now: float) -> None:
        failed_record.note(self._attempt(failed_record, self._clock.wall(), error))
        failed_record.found = Classification(kind="non-retryable", code=code, rule=rule)
        failed_record.verdict = verdict = verdicts.DeadLetter(str(error), code)
        self._decided(failed_record, error, verdict)
        self._dead_letter(failed_record, error, verdict, failed_record.found, now)

    def _dead_letter(
        self, failed_record: FailedRecord, error: BaseException, verdict: DeadLetter, found: Classification, now: float
    ) -> None:
        letter = self._publisher.letter(failed_record, error, verdict, classification=found.kind)
        self.forwarder.begin(failed_record, "dead-letter", letter, now, error=error)

    def _move(self, failed_record: FailedRecord, error: BaseException, verdict: Move, wall: float, now: float) -> None:
        if self._plan.tiers is None:
            raise RuntimeError("a record is to be moved without retry topics")
        attempts = [(attempt.at, attempt.error_type) for attempt in failed_record.attempts]
        copy = moved(
            failed_record.message,
            tiers=self._plan.tiers,
            step=verdict.step,
            wall_s=wall,
            failures=failed_record.failures,
            attempts=attempts,
            topic_id=failed_record.partition.topic_id,
        )
        self.forwarder.begin(failed_record, "move", copy, now, error=error)

    def _discard(self, failed_record: FailedRecord, error: BaseException, reason: str) -> None:
        sensitive = isinstance(error, SensitiveData)
        self._counts_of(failed_record).was_discarded(Labels.of(failed_record), sensitive=sensitive)
        self._events.emit(Discarded(*self._events.source, **record_fields(failed_record, error), reason=reason))
        self._finished(failed_record)

    def _forwarded(self, record: ForwardedRecord, where: Where, receipt: Receipt | None) -> None:
        failed_record, topic, events = record.failed_record, record.outgoing.topic, self._events
        counts, fields = self._counts_of(failed_record), record_fields(failed_record, record.raised)
        match failed_record.verdict:
            case verdicts.Move(delay_s=delay_s, reason=reason):
                counts.was_moved(Labels.of(failed_record))
                events.emit(Moved(*events.source, **fields, reason=reason, moved_to=topic, delay_s=delay_s))
            case verdicts.DeadLetter(reason=reason):
                counts.was_dead_lettered(
                    Labels.of(failed_record), exemplar_of(failed_record.message, 1.0, self._clock.wall())
                )
                fields |= {"reason": reason, "letter_topic": topic}
                if where == "spool":
                    events.emit(Spooled(*events.source, **fields))
                else:
                    if receipt is not None and receipt.offset >= 0:  # a publisher of the user's own knows no offset
                        fields |= {"letter_partition": receipt.partition, "letter_offset": receipt.offset}
                    events.emit(DeadLettered(*events.source, **fields))
            case verdict:
                raise RuntimeError(f"a record was published although its verdict is {verdict}")
        self._finished(failed_record)

    def _stays_in_place(self, failed_record: FailedRecord, now: float) -> None:
        """It does not fit into its retry topic: its lane waits, but for no longer than retries in place wait."""
        failed_record.stays = True
        delay_s = failed_record.verdict.delay_s if isinstance(failed_record.verdict, verdicts.Move) else 0.0
        failed_record.verdict = verdicts.RetryAfter(min(delay_s, self._plan.retry.max_delay_ms / 1000))
        self._retry(failed_record, None, failed_record.verdict.delay_s, now)

    def settled(self, answer: Settled, now: float) -> None:
        """The sink or the spool answered about a record that is being forwarded."""
        record = answer.record
        if isinstance(answer.outcome, SinkError) and record.kind == "dead-letter" and not record.failed_record.dropped:
            self._counts_of(record.failed_record).publish_failed()
        self.forwarder.settled(answer, now)

    def step(self, now: float) -> None:
        """Cases whose wait is over: run again, or publish again."""
        if self._guards.on:
            self._guards.step(now)
        self.forwarder.step(now)
        due = self._timers.due(now)
        if due:
            self.ready.extend(due)
            log.debug("retries_due", consumer=self._plan.name, records=len(due))

    def next_in(self, now: float) -> float:
        """Seconds until a wait is over. What is ready already waits for room or for a hold to go, not for time."""
        due_s = min(self._timers.next_in(now), self.forwarder.next_in(now))
        return min(due_s, self._guards.next_in(now)) if self._guards.on else due_s

    def drop(self, partition: Partition) -> list[FailedRecord]:
        """The partition goes: forget its failed records; returns those that were waiting or settling (not running)."""
        self._guards.forget(partition)
        dropped = list(partition.failed_records)
        for failed_record in dropped:
            failed_record.dropped = True
            self.forwarder.drop(failed_record)
            partition.drop_failed(failed_record)
        self.release_dropped(len(dropped))
        return dropped

    def release_dropped(self, count: int) -> None:
        """This many failed records were dropped: release them, because each keeps its record in memory."""
        self._timers.dropped(count)
        self.forwarder.release_dropped(count)
        if count and self.ready:
            kept = [failed_record for failed_record in self.ready if not failed_record.dropped]
            self.ready.clear()
            self.ready.extend(kept)

    def run_again(self, failed_record: FailedRecord, *, first: bool = False) -> None:
        """It may run at once, behind what is ready already, or before that."""
        if first:
            self.ready.appendleft(failed_record)
        else:
            self.ready.append(failed_record)

    def take_ready(self, limit: int) -> list[FailedRecord]:
        """Cases to run now, at most `limit`; those whose partition is held stay."""
        taken: list[FailedRecord] = []
        for _ in range(len(self.ready)):
            if len(taken) >= limit:
                break
            failed_record = self.ready.popleft()
            if not failed_record.dropped:
                (taken if failed_record.partition.startable else self.ready).append(failed_record)
        return taken

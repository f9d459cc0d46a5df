"""Events of a consumer as log lines, and as JSON lines for another process."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Final

from keepfast.classify.rules.codes import CRASHED
from keepfast.core import events, verdicts
from keepfast.core.errors import error_type
from keepfast.redact.sensitive import SensitiveData
from keepfast.telemetry.clean import Clean, clean_traceback, clean_value
from keepfast.telemetry.logs import Logger, get_logger, shows_tracebacks

consumer = get_logger("keepfast.consumer")
security = get_logger("keepfast.security")
"""Data that must not be there: one line for each record that was dropped because of it."""
guards = get_logger("keepfast.guards")
crash_guard = get_logger("keepfast.guard")
timeouts = get_logger("keepfast.timeouts")
rebalance = get_logger("keepfast.rebalance")
commits = get_logger("keepfast.commit")
loop = get_logger("keepfast.loop")

STORM_ADVICE: Final = (
    "nothing of this consumer runs until a probe succeeds: look into the dead letters, repair what fails or deploy a"
    " handler that can process these records, then restart it or release the hold"
)
HOLD_ADVICE: Final[Mapping[str, dict[str, str]]] = {
    "commit_refused": {
        "consequence": "nothing new of this partition starts, and what is finished is not committed",
        "what_to_do": "restore the topic, or the right to read it; the commit is retried until it is confirmed",
    }
}
RESET_CONSEQUENCE: Final[Mapping[str, str]] = {
    "offset_out_of_range": (
        "what is left is read from its beginning: records were deleted before they were processed, or the log is"
        " another one; if the topic was created again, topic_recreated follows"
    ),
    "topic_recreated": "the new topic is read from its beginning, some of its records perhaps a second time",
}


class EventLog:
    """Implements `core.events.Observer`. Which logger, level and fields each event has is here and nowhere else.

    `records` is where lines about records go instead of `keepfast.consumer`.
    """

    keeps_errors = False

    def __init__(self, records: RecordLog | None = None) -> None:
        about = records or RecordLog(consumer)
        self._lines: dict[type[events.Event], Callable[[Any], None]] = {
            events.RecordFailed: about.record_failed,
            events.RetryScheduled: about.retry_scheduled,
            events.RetrySucceeded: about.retry_succeeded,
            events.DeadLettered: about.dead_lettered,
            events.Spooled: about.spooled,
            events.Moved: about.moved,
            events.Discarded: about.discarded,
            events.PublishFailed: about.publish_failed,
            events.BatchFailed: about.batch_failed,
            events.HandlerTimedOut: _handler_timed_out,
            events.HandlerAbandoned: _handler_abandoned,
            events.LockExpired: _lock_expired,
            events.Assigned: _assigned,
            events.Revoked: _revoked,
            events.Lost: _lost,
            events.PartitionReset: _partition_reset,
            events.Sought: _sought,
            events.SubscriptionChanged: _subscription_changed,
            events.TopicRecreated: _topic_recreated,
            events.PreviousOwnerCrashed: _previous_owner_crashed,
            events.ProbationStarted: _probation_started,
            events.ProbationEnded: _probation_ended,
            events.CommitFailed: _commit_failed,
            events.Held: _held,
            events.Released: _released,
            events.BreakerOpened: _breaker_opened,
            events.BreakerClosed: _breaker_closed,
            events.StormGuardTripped: _storm_guard_tripped,
            events.StormGuardReleased: _storm_guard_released,
            events.Halted: _halted,
            events.DrainStarted: _drain_started,
            events.DrainFinished: _drain_finished,
        }
        self.wants = frozenset(self._lines)

    def on_event(self, event: events.Event) -> None:
        self._lines[type(event)](event)


class EventWriter:
    """Implements `core.events.Observer`: writes each event that the log has a line for to a file descriptor, as JSON.

    `{"event": "RetryScheduled", "consumer": …}`: the type of the event and its fields but `error`; a verdict is a type.
    The descriptor is that of a file opened for appending, so a line is never mixed with another writer's and writing
    never waits for a reader.
    """

    keeps_errors = False

    def __init__(self, fd: int) -> None:
        os.set_inheritable(fd, False)  # not for processes that a handler starts
        self._fd = fd
        self.wants = EventLog().wants

    def on_event(self, event: events.Event) -> None:
        os.write(self._fd, event_line(event))


def event_line(event: object) -> bytes:
    """A dataclass as a line of JSON, made safe as fields of the log are."""
    line: dict[str, Clean] = {"event": type(event).__name__}
    for field in fields(event):  # type: ignore[arg-type] # every event is a dataclass
        value = getattr(event, field.name)
        if field.name == "verdict":
            line["verdict"] = None if value is None else type(value).__name__
        elif field.name != "error":
            line[field.name] = clean_value(value)
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


# -- records


RecordContext = Callable[[events.RecordEvent], Mapping[str, object]]


class RecordLog:
    """Lines about records, on one logger. `context` gives further fields of a record; the loop calls it, so it must
    neither block nor raise.
    """

    def __init__(self, log: Logger, context: RecordContext | None = None) -> None:
        self.consumer = log
        self._context = context

    def _record(self, event: events.RecordEvent) -> dict[str, object]:
        """What every line about a record has: what it failed with, what the rules made of it, where it came from."""
        return {
            "retry_count": max(0, event.attempt - 1),
            "error_type": event.error_type,
            "error_classification": event.kind,
            "code": event.code,
            "rule": event.rule,
            **_place(event),
            **({"error_message": event.error_message} if event.error_message else {}),
            **({"at": event.raised_at} if event.raised_at else {}),
            **_took(event),
            **(self._context(event) if self._context is not None else {}),
        }

    def record_failed(self, event: events.RecordFailed) -> None:
        """What is decided and not yet a fact; a retry and a discard have events of their own."""
        about = self._record(event) | _trace(event)
        match event.verdict:
            case verdicts.DeadLetter(reason=reason):
                # An error that was retried to the end is an outage or a gap in the rules; a final one was expected.
                unexpected = event.kind == "retryable" or event.code == CRASHED
                (self.consumer.error if unexpected else self.consumer.warning)("dead_lettering", **about, reason=reason)
            case verdicts.Move(delay_s=delay_s, reason=reason):
                fields = about | {"retry_count": event.attempt}
                self.consumer.warning("moving_to_retry_topic", **fields, backoff_delay_ms=_ms(delay_s), reason=reason)
            case verdicts.HaltConsumer(reason=reason):
                self.consumer.error("halting", **about, reason=reason)
            case None:
                self.consumer.warning("retry_held", **about)
            case _:
                pass

    def retry_scheduled(self, event: events.RetryScheduled) -> None:
        about = self._record(event) | {"retry_count": event.attempt} | _trace(event)
        self.consumer.warning("retry_scheduled", **about, backoff_delay_ms=_ms(event.delay_s))

    def retry_succeeded(self, event: events.RetrySucceeded) -> None:
        self.consumer.info("retry_succeeded", **self._record(event) | {"retry_count": event.attempt})

    def dead_lettered(self, event: events.DeadLettered) -> None:
        # As `keepfast dlq show` takes it.
        letter = {} if event.letter_offset is None else {"letter": f"{event.letter_partition}:{event.letter_offset}"}
        self.consumer.info("dead_lettered", **self._record(event), dead_letter_topic=event.letter_topic, **letter)

    def spooled(self, event: events.Spooled) -> None:
        self.consumer.warning("dead_letter_spooled", **self._record(event), dead_letter_topic=event.letter_topic)

    def moved(self, event: events.Moved) -> None:
        self.consumer.info("moved_to_retry_topic", **self._record(event), to=event.moved_to)

    def discarded(self, event: events.Discarded) -> None:
        if not isinstance(event.error, SensitiveData):
            self.consumer.warning("record_discarded", **self._record(event), reason=event.reason)
            return
        found = event.error.finding  # named by its place and kind, never shown
        what = {} if found is None else {"part": found.part, "place": found.place, "digits": found.digits}
        security.error("sensitive_data_discarded", **self._record(event), reason=event.reason, **what)

    def publish_failed(self, event: events.PublishFailed) -> None:
        about = {**self._record(event), "publish_topic": event.publish_topic, "error": event.message}
        about |= {"full": event.full} if event.fault is None else {"fault": event.fault}
        if event.next_step == "retry":
            about["backoff_delay_ms"] = _ms(event.retry_in_s)
        match event.target, event.next_step:
            case "dead-letter-topic", "adjust":
                self.consumer.warning("dead_letter_adjusted", **about)
            case "dead-letter-topic", _:
                self.consumer.error("dead_letter_publish_failed", **about)
            case "retry-topic", "adjust":
                self.consumer.warning("retry_topic_record_adjusted", **about)
            case "retry-topic", "stay":
                consequence = "it is retried once more in place, then dead-lettered"
                self.consumer.error("retry_topic_publish_failed", **about, consequence=consequence)
            case "retry-topic", _:
                self.consumer.error("retry_topic_publish_failed", **about)
            case "spool", _:
                self.consumer.error("spool_write_failed", **about)

    def batch_failed(self, event: events.BatchFailed) -> None:
        about = {
            "retry_count": max(0, event.attempt - 1),
            "error_type": error_type(event.error),
            "error_classification": event.kind,
            "code": event.code,
            "rule": event.rule,
            **_place(event),
            "partitions": sorted(map(str, event.partitions)),
            "records": event.records,
            **({"error_message": event.error_message} if event.error_message else {}),
            **_took(event),
            **_trace(event),
        }
        match event.verdict:
            case verdicts.RetryAfter(delay_s=delay_s):
                fields = about | {"retry_count": event.attempt}
                self.consumer.warning("batch_retry_scheduled", **fields, backoff_delay_ms=_ms(delay_s))
            case verdicts.DeadLetter(reason=reason) | verdicts.Move(reason=reason):
                self.consumer.warning("batch_split", **about, reason=reason)
            case verdicts.HaltConsumer(reason=reason):
                self.consumer.error("halting", **about, reason=reason)
            case None:
                self.consumer.warning("batch_retry_held", **about)
            case _:
                pass


def _place(event: Any) -> dict[str, object]:
    """Where it came from, and the retry topic that it was in."""
    retry_topic = getattr(event, "retry_topic", "")
    return {**({"retry_topic": retry_topic} if retry_topic else {}), **_partition(event), "offset": event.offset}


def _partition(event: Any) -> dict[str, object]:
    return {**_source(event), "topic": event.topic, "partition": event.partition}


def _source(event: events.Event) -> dict[str, object]:
    return {"consumer": event.consumer, "consumer_group": event.group}


def _took(event: events.RecordEvent | events.BatchFailed) -> dict[str, object]:
    return {} if event.took_s is None else {"processing_ms": round(event.took_s * 1000, 1)}


def _trace(event: events.RecordEvent | events.BatchFailed) -> dict[str, list[str]]:
    """With `keepfast dev` and `--debug`."""
    return {"traceback": clean_traceback(event.error)} if event.error is not None and shows_tracebacks() else {}


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _handler_timed_out(event: events.HandlerTimedOut) -> None:
    about = {**_place(event), "attempt": event.attempt, "timeout_s": event.timeout_s, "abandoned": event.abandoned}
    if event.given_up:
        timeouts.error("handler_timed_out", **about)
    else:
        timeouts.error("handler_overdue", **about, consequence=event.consequence)


def _handler_abandoned(event: events.HandlerAbandoned) -> None:
    timeouts.error(
        "stale_handler_abandoned",
        **_place(event),
        attempt=event.attempt,
        waited_s=round(event.waited_s, 3),
        abandoned=event.abandoned,
        consequence="the partition continues, perhaps with the very record that this handler is still processing",
    )


def _lock_expired(event: events.LockExpired) -> None:
    timeouts.error(
        "lock_expired",
        **_place(event),
        records=event.records,
        in_flight=event.in_flight,
        lock_s=event.lock_s,
        consequence="they are delivered again, and what handlers still do with them counts for nothing",
    )


# -- partitions


def _assigned(event: events.Assigned) -> None:
    loop.info("partitions_assigned", **_source(event), partitions=list(map(str, event.partitions)))


def _revoked(event: events.Revoked) -> None:
    partitions = list(map(str, event.partitions))
    if event.unconfirmed:
        unconfirmed = list(map(str, event.unconfirmed))
        loop.warning("partitions_revoked", **_source(event), partitions=partitions, unconfirmed=unconfirmed)
    else:
        loop.info("partitions_revoked", **_source(event), partitions=partitions)


def _lost(event: events.Lost) -> None:
    loop.warning("partitions_lost", **_source(event), partitions=list(map(str, event.partitions)))


def _partition_reset(event: events.PartitionReset) -> None:
    rebalance.error(
        "partition_reset",
        **_place(event),
        reason=event.reason,
        policy=event.policy,
        consequence=RESET_CONSEQUENCE[event.reason],
    )


def _sought(event: events.Sought) -> None:
    consequence = "records are repeated" if event.to < event.offset else "records are skipped"
    rebalance.warning("partition_sought", **_place(event), to=event.to, by="operator", consequence=consequence)


def _subscription_changed(event: events.SubscriptionChanged) -> None:
    rebalance.info(
        "subscription_changed",
        **_source(event),
        added=list(event.added),
        removed=list(event.removed),
        topics=len(event.topics),
    )


def _topic_recreated(event: events.TopicRecreated) -> None:
    rebalance.error("topic_recreated", **_source(event), topic=event.topic, old_id=event.old_id, new_id=event.new_id)


def _previous_owner_crashed(event: events.PreviousOwnerCrashed) -> None:
    about = {**_place(event), "suspected": event.suspected}
    if event.in_flight is None:
        crash_guard.warning("previous_owner_crashed", **about, in_flight_below=event.in_flight_below)
    elif event.in_flight:
        crash_guard.warning("previous_owner_crashed", **about, in_flight=event.in_flight)
    elif event.suspected:  # else one line says it of all partitions of the assignment
        crash_guard.info("previous_owner_crashed", **about, in_flight=0)


def _probation_started(event: events.ProbationStarted) -> None:
    crash_guard.warning("probation_started", **_place(event), suspects=event.suspects)


def _probation_ended(event: events.ProbationEnded) -> None:
    crash_guard.info("probation_ended", **_partition(event), handed_over=event.handed_over)


def _commit_failed(event: events.CommitFailed) -> None:
    commits.warning("commit_failed", **_place(event), fault=event.fault, code=event.code)


# -- the consumer


def _held(event: events.Held) -> None:
    more = {**({"code": event.code} if event.code else {}), **({"by": event.by} if event.by else {})}
    if event.topic:
        advice = HOLD_ADVICE.get(event.hold, {})
        (guards.error if advice else guards.warning)(
            "partition_held", **_partition(event), hold=event.hold, **more, **advice
        )
    else:
        guards.warning("consumer_held", **_source(event), hold=event.hold, **more)


def _released(event: events.Released) -> None:
    by = {"by": event.by} if event.by else {}
    if event.topic:
        guards.info("partition_released", **_partition(event), hold=event.hold, **by)
    else:
        guards.info("consumer_released", **_source(event), hold=event.hold, **by)


def _breaker_opened(event: events.BreakerOpened) -> None:
    guards.warning(
        "breaker_opened",
        **_source(event),
        outages=event.outages,
        attempts=event.attempts,
        rule=event.rule,
        next_probe_s=round(event.next_probe_s, 3),
        consequence="records wait and are not dead-lettered; polling continues",
    )


def _breaker_closed(event: events.BreakerClosed) -> None:
    guards.warning("breaker_closed", **_source(event), by=event.by, held_s=round(event.held_s, 3))


def _storm_guard_tripped(event: events.StormGuardTripped) -> None:
    guards.error(
        "storm_guard_tripped",
        **_source(event),
        dead_lettered=event.dead_lettered,
        of_the_last=event.records,
        next_probe_s=round(event.next_probe_s, 3),
        what_to_do=STORM_ADVICE,
    )


def _storm_guard_released(event: events.StormGuardReleased) -> None:
    guards.warning("storm_guard_released", **_source(event), by=event.by, held_s=round(event.held_s, 3))


def _halted(event: events.Halted) -> None:
    place = _place(event) if event.topic else _source(event)
    # The error of a handler may hold what was in the record; that of the loop itself is a bug to be found.
    failure = {"exc": event.error} if event.kind == "failed" and event.error is not None else {}
    loop.error("consumer_halted", **place, kind=event.kind, reason=event.reason, **failure)


def _drain_started(event: events.DrainStarted) -> None:
    loop.info("drain_started", **_source(event), in_flight=event.in_flight)


def _drain_finished(event: events.DrainFinished) -> None:
    loop.info("drain_finished", **_source(event), unfinished=event.unfinished)

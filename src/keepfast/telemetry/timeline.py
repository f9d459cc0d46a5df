"""The last events of a process in memory, for the timeline of the desk."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from keepfast.core import events
from keepfast.telemetry.clean import clean_text
from keepfast.telemetry.state import HOLDS, Level, TimelineEvent

MAX_EVENTS: Final = 500
ALIKE_S: Final = 60.0
"""Events of one kind that follow each other within this time are one entry with a count."""

_LEVELS: Final[Mapping[type[events.Event], Level]] = {
    events.DeadLettered: "degraded",
    events.Spooled: "degraded",
    events.Discarded: "ok",
    events.PublishFailed: "failing",
    events.HandlerTimedOut: "degraded",
    events.HandlerAbandoned: "degraded",
    events.LockExpired: "degraded",
    events.Assigned: "ok",
    events.Revoked: "ok",
    events.Lost: "failing",
    events.PartitionReset: "degraded",
    events.Sought: "ok",
    events.SubscriptionChanged: "ok",
    events.TopicRecreated: "degraded",
    events.PreviousOwnerCrashed: "failing",
    events.ProbationStarted: "degraded",
    events.ProbationEnded: "ok",
    events.CommitFailed: "degraded",
    events.Held: "degraded",
    events.Released: "ok",
    events.BreakerOpened: "failing",
    events.BreakerClosed: "ok",
    events.StormGuardTripped: "failing",
    events.StormGuardReleased: "ok",
    events.Halted: "failing",
    events.DrainStarted: "ok",
    events.DrainFinished: "ok",
}


class Timeline:
    """Implements `core.events.Observer`. Several loops add to it; any thread may read it.

    Retries are not in it: a record that fails now and then would push everything else out. Events alike are counted.
    """

    keeps_errors = False

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        self._wall = wall
        self._entries: deque[TimelineEvent] = deque(maxlen=MAX_EVENTS)
        self._number = 0
        self.wants = frozenset(_LEVELS)

    def on_event(self, event: events.Event) -> None:
        at, text = self._wall(), clean_text(_text(event))
        last = self._entries[-1] if self._entries else None
        name = type(event).__name__
        count = 1
        alike = last is not None and (last.event, last.consumer, last.group) == (name, event.consumer, event.group)
        if alike and last is not None and isinstance(event, events.RecordEvent) and at - last.at <= ALIKE_S:
            self._entries.pop()
            count += last.count
        self._number += 1
        self._entries.append(
            TimelineEvent(
                number=self._number,
                at=at,
                event=name,
                consumer=event.consumer,
                group=event.group,
                text=text,
                level=_LEVELS[type(event)],
                count=count,
            )
        )

    def entries(self) -> tuple[TimelineEvent, ...]:
        """Oldest first."""
        while True:
            try:
                return tuple(self._entries)
            except RuntimeError:  # a loop added one meanwhile
                continue


def _text(event: events.Event) -> str:
    """What happened, in one sentence with its place."""
    return _of_record(event) or _of_partitions(event) or _of_consumer(event)


def _of_record(event: events.Event) -> str:
    match event:
        case events.DeadLettered(letter_topic=topic):
            return f"{_record(event)} was dead-lettered to {topic}: {event.error_type}, {event.reason}"
        case events.Spooled():
            return f"{_record(event)} was written to the spool: {event.error_type}, {event.reason}"
        case events.Discarded(reason=reason):
            return f"{_record(event)} was discarded: {reason}"
        case events.PublishFailed(publish_topic=topic, message=message):
            return f"{_record(event)} could not be published to {topic}: {message}"
        case events.HandlerTimedOut(timeout_s=limit_s, attempt=attempt):
            return f"The handler of {_record(event)} did not end within {limit_s:g} s (attempt {attempt})"
        case events.HandlerAbandoned(waited_s=waited_s):
            return (
                f"The handler of {_record(event)} still runs after {waited_s:.0f} s; its result does not count any more"
            )
        case events.LockExpired(records=records, lock_s=lock_s):
            again = f"{_count(records, 'record')} of {event.topic}[{event.partition}] will be delivered again"
            return f"The lock of {lock_s:g} s ran out: {again}"
        case _:
            return ""


def _of_partitions(event: events.Event) -> str:  # noqa: PLR0911 - a sentence for each event
    match event:
        case events.Assigned(partitions=places):
            return f"The consumer got {_places(places)}"
        case events.Revoked(partitions=places):
            return f"The consumer gave up {_places(places)}"
        case events.Lost(partitions=places):
            return f"The consumer lost {_places(places)}: another member may have processed records of them meanwhile"
        case events.PartitionReset(offset=offset, reason=reason):
            why = (
                "the committed offset is out of range" if reason == "offset_out_of_range" else "the topic was recreated"
            )
            return f"{event.topic}[{event.partition}] continues at offset {offset}: {why}"
        case events.Sought(offset=offset, to=to):
            return f"{event.topic}[{event.partition}] was moved from offset {offset} to {to}"
        case events.PreviousOwnerCrashed(suspected=suspected):
            guess = "the record may be the reason" if suspected else "the record is not suspected"
            return f"The process that had {_record(event)} in flight ended without a commit: {guess}"
        case events.ProbationStarted(suspects=suspects):
            return (
                f"{event.topic}[{event.partition}]: {_count(suspects, 'record')} that may end the process on probation"
            )
        case events.ProbationEnded(handed_over=handed_over):
            how = "another member continues" if handed_over else "all of them are finished"
            return f"{event.topic}[{event.partition}]: no record runs alone any more, {how}"
        case events.CommitFailed(code=code):
            return f"The commit of {_record(event)} failed: {code or 'no answer'}"
        case _:
            return ""


def _of_consumer(event: events.Event) -> str:  # noqa: PLR0911 - a sentence for each event
    match event:
        case events.SubscriptionChanged(added=added, removed=removed):
            parts = [f"{verb} {', '.join(names)}" for verb, names in (("reads", added), ("leaves", removed)) if names]
            return f"The consumer now {' and '.join(parts)}"
        case events.TopicRecreated(topic=topic):
            return f"The topic {topic} was deleted and created again: it is read from its beginning"
        case events.Held(hold=hold, by=by) | events.Released(hold=hold, by=by):
            return _hold(event, hold, by)
        case events.BreakerOpened(outages=outages, next_probe_s=probe_s):
            failures = _count(outages, "failure")
            return f"The breaker opened after {failures} of a dependency; next attempt in {probe_s:.0f} s"
        case events.BreakerClosed(held_s=held_s, by=by):
            return f"The breaker closed after {held_s:.0f} s{_by(by)}"
        case events.StormGuardTripped(dead_lettered=dead, records=records):
            of = f"{dead:,} of the last {_count(records, 'record')}"
            return f"The storm guard stopped the consumer: {of} were dead-lettered"
        case events.StormGuardReleased(held_s=held_s, by=by):
            return f"The storm guard let the consumer continue after {held_s:.0f} s{_by(by)}"
        case events.Halted(reason=reason):
            return f"The consumer halted: {reason}"
        case events.DrainStarted(in_flight=in_flight):
            return f"The consumer is stopping: {_count(in_flight, 'record')} in flight"
        case events.DrainFinished(unfinished=unfinished):
            left = (
                f"{_count(unfinished, 'record')} unfinished, which come again" if unfinished else "everything finished"
            )
            return f"The consumer has stopped with {left}"
        case _:
            raise TypeError(f"no sentence for {type(event).__name__}")


class _Placed(Protocol):
    """An event about one record."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...


def _record(event: _Placed) -> str:
    return f"{event.topic}[{event.partition}] offset {event.offset}"


def _hold(event: events.Held | events.Released, hold: str, by: str) -> str:
    what = f"{event.topic}[{event.partition}]" if event.topic else "The consumer"
    if isinstance(event, events.Released):
        return f"{what} continues: {hold} was released{_by(by)}"
    return f"{what} is held{_by(by)}: {HOLDS.get(hold, hold)}"


def _by(who: str) -> str:
    return f" by {who}" if who else ""


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"


def _places(places: events.Partitions) -> str:
    shown = ", ".join(map(str, places[:8]))
    return f"{shown} and {len(places) - 8} more" if len(places) > 8 else shown or "no partitions"

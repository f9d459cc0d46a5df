"""The last events of a process in memory, for the timeline of the desk."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Final

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
    match event:
        case events.DeadLettered(letter_topic=topic):
            return f"{_record(event)} was dead-lettered to {topic}: {event.error_type}, {event.reason}"
        case events.Spooled():
            return f"{_record(event)} was written to the spool: {event.error_type}, {event.reason}"
        case events.Discarded(reason=reason):
            return f"{_record(event)} was discarded: {reason}"
        case events.PublishFailed(publish_topic=topic, message=message):
            return f"{_record(event)} could not be published to {topic}: {message}"
        case events.Held(hold=hold, by=by) | events.Released(hold=hold, by=by):
            return _hold(event, hold, by)
        case events.Halted(reason=reason):
            return f"The consumer halted: {reason}"
        case events.Assigned(partitions=places) | events.Revoked(partitions=places) | events.Lost(partitions=places):
            return _places(places)
        case _:
            return _fields(event)


def _record(event: events.RecordEvent) -> str:
    return f"{event.topic}[{event.partition}] offset {event.offset}"


def _hold(event: events.Held | events.Released, hold: str, by: str) -> str:
    what = f"{event.topic}[{event.partition}]" if event.topic else "The consumer"
    who = f" by {by}" if by else ""
    if isinstance(event, events.Released):
        return f"{what} continues: {hold} was released{who}"
    return f"{what} is held{who}: {HOLDS.get(hold, hold)}"


def _places(places: events.Partitions) -> str:
    shown = ", ".join(map(str, places[:8]))
    return f"{shown} and {len(places) - 8} more" if len(places) > 8 else shown or "no partitions"


_COMMON: Final = frozenset(field.name for field in fields(events.Event)) | {"error"}


def _fields(event: Any) -> str:
    pairs = ((field.name, getattr(event, field.name)) for field in fields(event) if field.name not in _COMMON)
    return ", ".join(
        f"{name.replace('_', ' ')} {_short(value)}" for name, value in pairs if value not in ("", (), None)
    )


def _short(value: object) -> str:
    return f"{value:.1f}" if isinstance(value, float) else str(value)

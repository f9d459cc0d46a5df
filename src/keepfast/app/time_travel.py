"""A range of records through a consumer of the app again, by a group of its own: `keepfast replay-from`.

The group of the consumer is not touched: neither its offsets nor its members. Letters name that group, because their
cases are about its records.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from keepfast.app.application import App
from keepfast.app.inboxes import AppInboxes
from keepfast.app.instance import AppInstance, StartOptions
from keepfast.app.options import Consumer
from keepfast.core.events import DeadLettered, Discarded, Event, RunFinished
from keepfast.core.retry_topics import RetryTopics
from keepfast.engine.inbox import ConsumerInbox
from keepfast.engine.workers import HandlerLoop
from keepfast.groups.ranges import OffsetRange
from keepfast.settings import Settings
from keepfast.wiring.consumers import ConsumerSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class TravelCounts:
    """Records so far. `skipped`: processed before, as the inbox says."""

    processed: int = 0
    skipped: int = 0
    filtered: int = 0
    dead_lettered: int = 0
    discarded: int = 0

    @property
    def finished(self) -> int:
        return self.processed + self.skipped + self.filtered + self.dead_lettered + self.discarded


class TravelCounter:
    """Implements `core.events.Observer`. Any thread may read it."""

    wants: frozenset[type[Event]] = frozenset({RunFinished, DeadLettered, Discarded})
    keeps_errors = False

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = TravelCounts()

    @property
    def counts(self) -> TravelCounts:
        with self._lock:
            return self._counts

    def on_event(self, event: Event) -> None:
        with self._lock:
            now = self._counts
            match event:
                case RunFinished(records=records, filtered=filtered, skipped=skipped):
                    self._counts = replace(
                        now,
                        processed=now.processed + len(records),
                        filtered=now.filtered + len(filtered),
                        skipped=now.skipped + len(skipped),
                    )
                case DeadLettered():
                    self._counts = replace(now, dead_lettered=now.dead_lettered + 1)
                case Discarded():
                    self._counts = replace(now, discarded=now.discarded + 1)
                case _:
                    pass


class TimeTravel(AppInstance):
    """An app whose one consumer reads these ranges, and nothing else, as a member of `side_group`, whose offsets are
    where it begins. Records that fail are retried in place, not in retry topics. With `reprocess`, an inbox does not
    know what the consumer's own group has processed.

    `start` it, look at `counter`, and `stop` it when the group has committed the ends.
    """

    def __init__(
        self,
        app: App,
        consumer: Consumer,
        settings: Settings,
        *,
        side_group: str,
        ranges: Sequence[OffsetRange],
        reprocess: bool,
    ) -> None:
        self.counter = TravelCounter()
        lifespan = None if app.lifespan is None else partial(app.lifespan, app)
        super().__init__(
            settings,
            [consumer],
            schemas=app.schemas,
            lifespan=lifespan,
            hooks=app.hooks,
            options=StartOptions(observers=(self.counter,)),
        )
        self._side_group = side_group
        self._ends = {one.place: one.end for one in ranges}
        if reprocess:
            self.inboxes = _SideInboxes(settings, self._events, side_group)

    def _prepare(self, undo: ExitStack) -> list[ConsumerSpec]:
        return [self._to_the_side(spec) for spec in super()._prepare(undo)]

    def _to_the_side(self, spec: ConsumerSpec) -> ConsumerSpec:
        own = spec.settings
        topics = tuple(sorted({place.topic for place in self._ends}))
        side = replace(
            own,
            group=self._side_group,
            group_instance_id=None,
            topics=topics,
            pattern=None,
            retry_topics=RetryTopics(),
        )
        return replace(spec, settings=side, letter_group=own.group, ends=self._ends)


class _SideInboxes(AppInboxes):
    """Inboxes that know records by another group."""

    def __init__(self, settings: Settings, events: HandlerLoop, group: str) -> None:
        super().__init__(settings, events)
        self._group = group

    def of(self, consumer: Consumer, group: str, resources: Any) -> ConsumerInbox | None:  # noqa: ARG002 - replaced
        return super().of(consumer, self._group, resources)

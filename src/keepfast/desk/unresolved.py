"""How many cases of an app's or runner's consumers are unresolved, counted while it runs, for alerts.

One process of a group counts: the one that has partition 0 of the first topic of a dead-letter topic; of a queue, which
has no assignments, each. It reads nothing while the dead-letter topic is empty; otherwise only what is new, and never
for more than a tenth of the time.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from keepfast.core.errors import KeepfastError
from keepfast.desk.desk import Desk, DeskOptions
from keepfast.engine.flight_recorder import StateDirectory
from keepfast.engine.lifecycle import LoopThread
from keepfast.kafka.config import Connection
from keepfast.settings import Settings
from keepfast.telemetry import catalogue
from keepfast.telemetry.logs import get_logger
from keepfast.telemetry.metrics import MetricFamily, Sample

log = get_logger("keepfast.desk")

SOON_S: Final = 2.0
"""Until the next look while the depth of a dead-letter topic is not known yet."""
REST: Final = 9
"""Reading rests so many times as long as it took, so that handlers have the process for themselves."""
MAX_REST_S: Final = 5.0

OpenDesk = Callable[[str], Desk]
"""The desk of one dead-letter topic."""
Counted = dict[tuple[str, str], int]
"""By group and topic of the original records."""


class _Stopping(Exception):
    """The app ends."""


class UnresolvedCounter:
    """One thread a process. `start` and `stop` are called once each, by the owner of the app's or runner's life; any
    thread may ask for `families`.
    """

    def __init__(self, threads: Sequence[LoopThread], open_desk: OpenDesk, *, every_s: float) -> None:
        self._threads = threads
        self._open_desk = open_desk
        self._every_s = every_s
        self._desks: dict[str, Desk] = {}
        self._failing: set[str] = set()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self.counts: Mapping[tuple[str, str], int] = {}
        """As of the last look; what this process does not count, or cannot, is missing. Replaced as a whole."""

    @classmethod
    def of(cls, threads: Sequence[LoopThread], connection: Connection, settings: Settings) -> Self:
        """For these consumers, with an index in the directory of the state, or in memory without one."""
        index_dir: Path | None
        try:
            index_dir = StateDirectory.open(settings.state.dir).path / "desk"
        except OSError:
            index_dir = None
        by, desk_topic = settings.app.name, settings.desk.topic

        def open_desk(dlq: str) -> Desk:
            return Desk(connection, DeskOptions(topics=(dlq,), by=by, desk_topic=desk_topic, index_dir=index_dir))

        return cls(threads, open_desk, every_s=settings.desk.count_every_s)

    def families(self) -> list[MetricFamily]:
        samples = [Sample(labels, count) for labels, count in self.counts.items()]
        return [MetricFamily.of(catalogue.UNRESOLVED, samples)]

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="keepfast-unresolved", daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def look(self) -> bool:
        """Count once. Whether everything that this process counts is known. Blocks."""
        led = {dlq: (thread, sources) for thread in self._threads for dlq, sources in _led(thread).items()}
        for dlq in set(self._desks) - set(led):
            self._desks.pop(dlq).close()
        found: Counted = {}
        known = True
        for dlq, (thread, sources) in led.items():
            depth = thread.state.letter_topics.get(dlq)
            counted = self._count(dlq, thread.loop.plan.group, sources, depth)
            known = known and counted is not None
            found |= counted or {}
        self.counts = found
        return known

    def _run(self) -> None:
        try:
            while not self._ended.wait(self._every_s if self.look() else min(SOON_S, self._every_s)):
                pass
        except _Stopping:
            pass
        finally:
            for desk in self._desks.values():
                desk.close()

    def _count(self, dlq: str, group: str, sources: Sequence[str], depth: int | None) -> Counted | None:
        if depth is None:
            return None
        counted = dict.fromkeys(sources, 0)
        if depth:
            unresolved = self._read(dlq, group)
            if unresolved is None:
                return {}
            counted |= {topic: count for topic, count in unresolved.items() if topic in counted}
        return {(group, topic): count for topic, count in counted.items()}

    def _read(self, dlq: str, group: str) -> dict[str, int] | None:
        """None if it cannot be read."""
        try:
            desk = self._desks.get(dlq)
            if desk is None:
                desk = self._desks[dlq] = self._open_desk(dlq)
            desk.refresh(self._paced())
            desk.infer_outcomes()
            found = desk.index.unresolved(group)
        except (KeepfastError, sqlite3.Error, OSError) as error:
            if dlq not in self._failing:
                consequence = "keepfast_dlq_unresolved is missing; alerts count new letters instead"
                log.warning("unresolved_not_counted", topic=dlq, error=str(error), consequence=consequence)
                self._failing.add(dlq)
            return None
        self._failing.discard(dlq)
        return found

    def _paced(self) -> Callable[[int], None]:
        """Called after each part that was read. Raises _Stopping."""
        began = time.monotonic()

        def rest(_: int) -> None:
            nonlocal began
            if self._ended.wait(min(MAX_REST_S, REST * (time.monotonic() - began))):
                raise _Stopping
            began = time.monotonic()

        return rest


def _led(thread: LoopThread) -> dict[str, list[str]]:
    """The dead-letter topics that this process counts for a consumer, each with the topics of its records."""
    loop, assigned = thread.loop, {(one.topic, one.partition) for one in thread.state.partitions}
    sources: dict[str, list[str]] = {}
    for topic in sorted(loop.subscription.topics):
        dlq = loop.plan.dead_letter_topics.get(topic)
        if dlq is not None:
            sources.setdefault(dlq, []).append(topic)
    is_queue = loop.plan.lock_s is not None
    return {dlq: topics for dlq, topics in sources.items() if is_queue or (topics[0], 0) in assigned}

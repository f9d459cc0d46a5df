"""A running app as its server sees it. Any thread may ask; nothing here waits for a loop but what says so."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Protocol

import msgspec

from keepfast.deadletters.spool.service import SpoolService
from keepfast.engine.control import Answer, ControlOrder, Verb
from keepfast.engine.lifecycle import Lifecycle, LoopThread
from keepfast.engine.metrics import consumer_families, spool_families
from keepfast.http.health import Seen
from keepfast.telemetry import catalogue
from keepfast.telemetry.logs import get_logger
from keepfast.telemetry.metrics import MetricFamily, Sample, namesakes
from keepfast.telemetry.prometheus import REGISTERED
from keepfast.telemetry.state import AppState, ConsumerCounts, ConsumerDetail, ConsumerState, Phase, SpoolState

if TYPE_CHECKING:
    from prometheus_client.core import Metric

log = get_logger("keepfast.http")

REPLY_TIMEOUT_S = 3.0
"""A loop that is well answers within a tenth of a second."""


class Unanswered(Exception):
    """The loop did not answer in time: it is stuck, or the process was stopped."""


class Parts(Protocol):
    """What exists once an app is assembled."""

    @property
    def threads(self) -> Sequence[LoopThread]: ...
    @property
    def lifecycle(self) -> Lifecycle: ...
    @property
    def spool(self) -> SpoolService | None: ...


@dataclass(slots=True, kw_only=True)
class Running:
    """`parts` is None until the app is assembled: it waits for its brokers, perhaps for long."""

    app: str
    version: str = ""
    shutdown_timeout_s: float = 0.0
    parts: Parts | None = None
    started_at: float = field(default_factory=time.monotonic)

    def show(self, parts: Parts) -> None:
        """From now on there is something to see."""
        self.parts = parts
        for name, dotted in namesakes(self.families()).items():
            log.warning(
                "metric_names_collide",
                name=name,
                metrics=dotted,
                consequence="their series are told apart by the label topic only",
                what_to_do="give one of the consumers another domain or entity",
            )

    @property
    def threads(self) -> Sequence[LoopThread]:
        return self.parts.threads if self.parts else ()

    @property
    def spool(self) -> SpoolService | None:
        return self.parts.spool if self.parts else None

    def families(self) -> list[MetricFamily]:
        """All metrics of this app."""
        now = time.monotonic()
        found = [
            MetricFamily.of(catalogue.INFO, [Sample((self.app, self.version, keepfast_version()), 1)]),
            MetricFamily.of(catalogue.SHUTDOWN_TIMEOUT, [Sample((), self.shutdown_timeout_s)]),
            MetricFamily.of(catalogue.SHUTDOWN, [Sample((), self._draining_s(now))]),
        ]
        for thread in self.threads:
            found += consumer_families(thread, now, app=self.app)
        if self.spool is not None:
            found += spool_families(self.spool.status)
        return found

    def collect(self) -> list[Metric]:
        """All metrics of this process but those of other apps, as prometheus-client has them. Raises Collision if
        a metric of the user's has the name of one of ours.
        """
        return REGISTERED.collect_for(self)

    def seen(self) -> Seen:
        return Seen(
            app=self.app,
            uptime_s=time.monotonic() - self.started_at,
            consumers=self.states(),
            starting="" if self.parts else "It waits for its brokers, and looks at its topics.",
            draining=self._draining_since is not None,
            spool=self._spool_state(),
        )

    def states(self) -> dict[str, ConsumerState]:
        now = time.monotonic()
        return {thread.loop.plan.name: _aged(thread, now) for thread in self.threads}

    def state(self) -> AppState:
        """The whole app."""
        phase: Phase = "running" if self.parts else "starting"
        return AppState(
            app=self.app,
            version=self.version,
            keepfast=keepfast_version(),
            pid=os.getpid(),
            uptime_s=time.monotonic() - self.started_at,
            phase="draining" if self._draining_since is not None else phase,
            consumers=self.states(),
            spool=self._spool_state(),
            counts={thread.loop.plan.name: counts_of(thread) for thread in self.threads},
        )

    def find(self, consumer: str) -> LoopThread | None:
        return next((thread for thread in self.threads if thread.loop.plan.name == consumer), None)

    def detail(self, thread: LoopThread) -> ConsumerDetail:
        """Asks the loop, and waits for it. Raises Unanswered."""
        answer = self.order(thread, "show")
        if not isinstance(answer, tuple):
            raise TypeError(f"a loop showed {answer!r}")
        state, lanes, left_out = answer
        return ConsumerDetail(state=state, counts=counts_of(thread), lanes=lanes, left_out=left_out)

    @staticmethod
    def order(
        thread: LoopThread, verb: Verb, *, topic: str | None = None, partition: int | None = None, hold: str = ""
    ) -> Answer:
        """Tell the loop, and wait for its answer. Raises Unanswered."""
        answers: SimpleQueue[Answer] = SimpleQueue()
        thread.mailbox.post(ControlOrder(verb=verb, answer=answers.put, topic=topic, partition=partition, hold=hold))
        try:
            return answers.get(timeout=REPLY_TIMEOUT_S)
        except Empty:
            raise Unanswered from None

    @property
    def _draining_since(self) -> float | None:
        return self.parts.lifecycle.draining_since if self.parts else None

    def _draining_s(self, now: float) -> float:
        since = self._draining_since
        return 0.0 if since is None else now - since

    def _spool_state(self) -> SpoolState | None:
        if self.spool is None:
            return None
        status = self.spool.status
        return SpoolState(
            letters=status.fill.letters,
            bytes=status.fill.held_bytes,
            stuck=len(status.stuck),
            sent_on=status.sent_on,
            refusing=status.refusing,
        )


def _aged(thread: LoopThread, now: float) -> ConsumerState:
    """As it was seen last, and how long ago that was."""
    status = thread.loop.status
    return msgspec.structs.replace(
        thread.state, age_s=max(0.0, now - status.looked_at), turn_age_s=max(0.0, now - status.turned_at)
    )


def counts_of(thread: LoopThread) -> ConsumerCounts:
    loop = thread.loop
    total = loop.failures.by_topic.total()
    return ConsumerCounts(
        received=sum(loop.intake.received.copy().values()),
        processed=loop.processed,
        errors=total.errors,
        retries=total.retries,
        dead_lettered=total.buried,
        moved=total.moved,
        discarded=total.discarded,
        commits=loop.committer.commits,
        commit_failures=loop.committer.failed,
        handling_s=sum(tally.total_s for own in list(thread.tallies) for tally in list(own.values())),
    )


def keepfast_version() -> str:
    try:
        return version("keepfast")
    except PackageNotFoundError:
        return ""

"""A handler hangs without a time limit, its partition is revoked and comes back to the same process. What is in its
lane waits for `stuck_after_s`, visible as the hold `stale_run`, and then continues; nothing has to be restarted.
"""

from __future__ import annotations

import threading
from typing import Any, Literal

import pytest
from confluent_kafka import Consumer

from keepfast import Context
from keepfast.engine import status
from keepfast.testing import KafkaBroker
from keepfast.testing.pytest_plugin import TopicFactory
from tests.support.broker_client import QUIET, Client, NewRecord
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import DEADLINE_S, wait_until
from tests.support.web import web_of

STUCK_S = 2.0
GROUP = "scenario.work"
QUICK: dict[str, Any] = {
    "session_timeout_ms": 6000,
    "heartbeat_interval_ms": 300,
    "unsafe_timings": True,
    "revoke_timeout_s": 0.3,
    "assignor": "range",
}


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "POLL_INTERVAL_S", 0.1)


def take_away_and_give_back(kafka: KafkaBroker, topic: str, running: RunningApp) -> None:
    """Another member joins and leaves: with this assignor everything is revoked each time."""
    other = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": GROUP,
            "partition.assignment.strategy": "range",
            "enable.auto.commit": False,
            **QUIET,
        }
    )
    other.subscribe([topic])

    def revoked() -> bool:
        other.poll(0.05)
        return bool(running.log.of("partitions_revoked"))

    wait_until(revoked, "the partitions are revoked")
    other.close()
    running.wait_assigned(2)


class Hanging:
    """A handler that hangs at its first record until the gate opens, and only the first time."""

    def __init__(self) -> None:
        self.begun, self.gate = threading.Event(), threading.Event()
        self.done: list[tuple[int, int]] = []

    def __call__(self, value: bytes, ctx: Context) -> None:
        if value == b"hangs" and not self.begun.is_set():
            self.begun.set()
            self.gate.wait(200)
            return
        self.done.append((ctx.partition, ctx.offset))

    def of(self, partition: int) -> list[int]:
        """What is done of it, in order; more than once what was handled more than once."""
        return [offset for at, offset in list(self.done) if at == partition]


@pytest.mark.parametrize("order", ["partition", "key"])
def test_what_is_in_its_lane_goes_on_after_stuck_after_s(
    kafka: KafkaBroker, topic: TopicFactory, order: Literal["partition", "key"]
) -> None:
    name, client, app, handler = topic(partitions=2), Client(kafka), app_for(kafka), Hanging()

    @app.consumer(name, order=order, stuck_after_s=STUCK_S, **QUICK)
    def work(value: bytes, ctx: Context) -> None:
        handler(value, ctx)

    client.produce(name, [NewRecord(b"hangs", b"k", partition=0), NewRecord(b"next", b"k", partition=0)])
    with RunningApp(app) as running, web_of(running) as web:
        assert handler.begun.wait(DEADLINE_S)
        take_away_and_give_back(kafka, name, running)
        wait_until(lambda: client.is_committed(GROUP, name, 2), "the partition continues")
        assert handler.of(0) == [0, 1], "in order"
        [waits] = running.log.of("partition_held")
        assert (waits.fields["topic"], waits.fields["partition"]) == (name, 0)
        [report] = running.log.of("stale_handler_abandoned")
        assert (report.fields["partition"], report.fields["offset"]) == (0, 0)
        wait_until(lambda: web.get("/health").codes() == {"abandoned_threads"}, "the thread counts as abandoned")
        handler.gate.set()
        wait_until(lambda: running.log.of("abandoned_handler_ended"), "it comes back")
        wait_until(lambda: web.get("/health").codes() == set(), "and all is well")
    assert handler.of(0) == [0, 1], "what it did then is of no consequence"


def test_while_it_waits_that_is_visible_and_nothing_else_waits(kafka: KafkaBroker, topic: TopicFactory) -> None:
    name, client, app, handler = topic(partitions=2), Client(kafka), app_for(kafka), Hanging()

    @app.consumer(name, stuck_after_s=None, **QUICK)
    def work(value: bytes, ctx: Context) -> None:
        handler(value, ctx)

    client.produce(name, [NewRecord(b"hangs", b"k", partition=0), NewRecord(b"next", b"k", partition=0)])
    with RunningApp(app) as running, web_of(running) as web:
        assert handler.begun.wait(DEADLINE_S)
        take_away_and_give_back(kafka, name, running)
        wait_until(lambda: web.get("/health").codes() == {"stale_run"}, "it is visible")
        assert (web.get("/health/live").status, web.get("/health/ready").status) == (200, 200)
        [waits] = [one for one in web.get("/api/state").json["consumers"]["work"]["partitions"] if one["holds"]]
        assert (waits["partition"], waits["holds"]) == (0, ["stale_run"])
        client.produce(name, [NewRecord(b"v", b"other", partition=1)])
        wait_until(lambda: client.is_committed(GROUP, name, 1, partition=1), "the other partition continues")
        assert handler.of(0) == []
        handler.gate.set()
        wait_until(lambda: client.is_committed(GROUP, name, 2), "and so does this one, when the handler has ended")
        wait_until(lambda: web.get("/health").codes() == set(), "all is well")
    assert handler.of(0) == [0, 1]

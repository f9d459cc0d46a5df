"""Without any time limit, on a topic where nothing else happens: a handler that hangs is in the log with its stack and
in health, which stays live and ready; an event loop that is blocked fails liveness.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from keepfast import App
from keepfast.core import sizing
from keepfast.engine import status
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.scenarios.test_health_changes_when_something_is_wrong_and_not_otherwise import DEAD, WELL, becomes, statuses
from tests.support.broker_client import Client, NewRecord
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import wait_until
from tests.support.web import web_of

STUCK_S = 0.5
HANG_S = 60.0
GROUP = "scenario.work"


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "POLL_INTERVAL_S", 0.1)


def waits_here(gate: threading.Event) -> None:
    gate.wait(HANG_S)


async def awaits_here(gate: threading.Event) -> None:
    while not gate.is_set():
        await asyncio.sleep(0.01)


def thread(app: App, name: str, gate: threading.Event, **options: Any) -> None:
    @app.consumer(name, **options)
    def work(value: bytes) -> None:
        if value == b"hangs":
            waits_here(gate)


def batch(app: App, name: str, gate: threading.Event, **options: Any) -> None:
    @app.consumer(name, idempotent=True, **options)
    def work(values: list[bytes]) -> None:
        if b"hangs" in values:
            waits_here(gate)


def coroutine(app: App, name: str, gate: threading.Event, **options: Any) -> None:
    @app.consumer(name, **options)
    async def work(value: bytes) -> None:
        if value == b"hangs":
            await awaits_here(gate)


def blocking_coroutine(app: App, name: str, gate: threading.Event, **options: Any) -> None:
    @app.consumer(name, **options)
    async def work(value: bytes) -> None:
        if value == b"hangs":
            waits_here(gate)


@pytest.mark.parametrize("kind", [thread, batch, coroutine])
def test_a_handler_that_hangs_is_degraded_and_no_more(
    kafka: TopicAdmin, topic: TopicFactory, kind: Callable[..., None]
) -> None:
    name, client, app, gate = topic(), Client(kafka), app_for(kafka), threading.Event()
    kind(app, name, gate, stuck_after_s=STUCK_S)
    with RunningApp(app) as running, web_of(running) as web:
        client.produce(name, [b"quick"])
        wait_until(lambda: client.is_committed(GROUP, name, 1), "all is well")
        client.produce(name, [b"hangs"])
        becomes(web, WELL, {"handlers_hang"})
        [report] = web.get("/health").json["reasons"]
        assert (report["level"], f"{name}[0] offset 1" in report["text"]) == ("degraded", True)
        wait_until(lambda: len(running.log.of("handler_stuck")) >= 2, "it is logged again")
        first, second, *_ = running.log.of("handler_stuck")
        assert (first.fields["topic"], first.fields["partition"], first.fields["offset"]) == (name, 0, 1)
        assert any(place.split()[-1] in ("waits_here", "awaits_here") for place in first.fields["stack"])
        assert second.fields["for_s"] >= 2 * STUCK_S
        [shown] = web.get("/api/state").json["consumers"]["work"]["stuck"]
        assert (shown["offset"], shown["stack"]) == (1, first.fields["stack"])
        gate.set()
        wait_until(lambda: client.is_committed(GROUP, name, 2), "it ends after all, and counts")
        becomes(web, WELL, set())
        assert running.log.of("stuck_handler_ended")


def test_a_fast_handler_that_hangs_on_the_thread_that_drove_the_loop_is_found(
    kafka: TopicAdmin, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sizing, "FAST_S", 1.0)  # on a busy machine, too
    monkeypatch.setattr(sizing, "LONG_INLINE_S", 60.0)
    name, client, app, gate = topic(), Client(kafka), app_for(kafka), threading.Event()
    thread(app, name, gate, stuck_after_s=STUCK_S, idempotent=True, commit="interval")
    client.produce(name, [b"quick"] * 2000 + [b"hangs"])
    with RunningApp(app) as running, web_of(running) as web:
        wait_until(lambda: running.log.of("handler_stuck"), "it is logged")
        inline = running.loop.starter._inline
        assert inline is not None
        assert inline.takeovers > 0, "another thread drives the loop"
        [report, *_] = running.log.of("handler_stuck")
        assert report.fields["offset"] == 2000
        assert any(place.endswith(" waits_here") for place in report.fields["stack"])
        becomes(web, WELL, {"handlers_hang"})
        gate.set()
        wait_until(lambda: client.is_committed(GROUP, name, 2001), "it ends after all")


def test_a_blocked_event_loop_fails_liveness_and_its_record_is_named(kafka: TopicAdmin, topic: TopicFactory) -> None:
    name, client, app, gate = topic(partitions=2), Client(kafka), app_for(kafka), threading.Event()
    blocking_coroutine(app, name, gate, stuck_after_s=STUCK_S)
    with RunningApp(app) as running, web_of(running) as web:
        becomes(web, WELL, set())
        client.produce(name, [NewRecord(b"hangs", partition=1)])
        becomes(web, DEAD, {"event_loop_blocked"})
        [report, *_] = running.log.of("event_loop_blocked")
        assert report.fields["records"] == [{"topic": name, "partition": 1, "offset": 0}]
        assert any(place.endswith(" waits_here") for place in report.fields["stack"])
        [culprit] = running.loop.overdue.culprits()
        assert culprit.messages[culprit.current].value() == b"hangs"
        gate.set()
        becomes(web, WELL, set())
        assert not running.log.of("handler_stuck"), "that is another matter"


def test_it_can_be_switched_off(kafka: TopicAdmin, topic: TopicFactory) -> None:
    name, client, app, gate = topic(), Client(kafka), app_for(kafka), threading.Event()
    thread(app, name, gate, stuck_after_s=None)
    with RunningApp(app) as running, web_of(running) as web:
        client.produce(name, [b"hangs"])
        wait_until(lambda: running.loop.in_flight, "it hangs")
        wait_until(lambda: running.loop.status.state.oldest_in_flight_s > 2 * STUCK_S, "for a while")
        assert statuses(web) == WELL
        assert web.get("/health").codes() == set()
        assert not running.log.of("handler_stuck")
        gate.set()

"""A handler that does not end fills the buffer, so the client stops fetching: the lag that is shown grows all the same,
and the partition is called stuck.
"""

from __future__ import annotations

import threading
import time

import pytest

from keepfast.core.policies import BufferPolicy
from keepfast.engine import fetch_watch, status
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import Client
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import wait_until
from tests.support.web import web_of


def test_the_ends_of_paused_partitions_are_asked_for(
    kafka: TopicAdmin, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_watch, "ASK_S", 0.5)
    monkeypatch.setattr(status, "STUCK_S", 4.0)
    monkeypatch.setattr(status, "POLL_INTERVAL_S", 0.2)
    name, client, app, gate = topic(), Client(kafka), app_for(kafka), threading.Event()

    @app.consumer(name, buffer=BufferPolicy(records=10))
    def work(value: bytes) -> None:
        gate.wait(60)

    with RunningApp(app) as running, web_of(running) as web:
        begun = time.monotonic()
        client.produce(name, [b"v"] * 100)
        wait_until(lambda: any(one.pauses for one in running.loop.status.state.partitions), "the buffer is full")
        client.produce(name, [b"v"] * 100)
        wait_until(lambda: web.get("/health").json["consumers"]["work"]["lag_total"] == 200, "the lag is true")
        client.produce(name, [b"v"] * 100)
        wait_until(
            lambda: web.get("/health").json["consumers"]["work"]["lag_total"] == 300, "and stays so without a fetch"
        )
        wait_until(lambda: web.get("/health").codes() == {"stuck_partitions"}, "nothing finishes and the lag grows")
        assert (web.get("/health/live").status, web.get("/health/ready").status) == (200, 503)
        samples = web.samples()
        [oldest] = samples["kafka_consumer_lag_seconds"].values()
        in_hand_s = next(iter(samples["keepfast_oldest_in_flight_seconds"].values())).value
        assert in_hand_s - 1 <= oldest.value <= time.monotonic() - begun + 1, "as old as the first, which hangs"
        assert web.get("/health").json["consumers"]["work"]["lag_s"] >= 4.0
        gate.set()
        wait_until(lambda: web.get("/health").codes() == set(), "it continues")
        wait_until(lambda: web.get("/health").json["consumers"]["work"]["lag_total"] == 0, "and catches up")
        assert web.get("/health").json["consumers"]["work"]["lag_s"] == 0.0

"""P8, P4: while a service is away, a breaker makes records wait: few attempts, no letter, nobody evicted; when it is
back everything is processed, in order. Without a breaker the same outage ends in the dead-letter topic.
"""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from keepfast import App, BreakerPolicy, Context, RetryPolicy
from keepfast.core.guards import BreakerState
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.scenarios.downstream import Downstream
from tests.support.broker_client import Client, NewRecord, order_violations
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import wait_until

PARTITIONS = 4
BREAKER = BreakerPolicy(failures=3, share=0.1, window_s=3, open_s=0.3, max_open_s=0.6)
RETRY = RetryPolicy(max_retries=2, initial_delay_ms=20)


class Seen:
    """What the handler did."""

    def __init__(self, service: Downstream) -> None:
        self._service = service
        self._lock = threading.Lock()
        self.calls: list[Context] = []
        self.done: list[tuple[bytes | None, int]] = []

    def work(self, value: bytes, ctx: Context) -> None:
        with self._lock:
            self.calls.append(ctx)
        self._service.call()
        with self._lock:
            self.done.append((b"%d" % ctx.partition, ctx.offset))


def spread(count: int) -> list[NewRecord]:
    return [NewRecord(b"%d" % number, b"%d" % (number % 40), partition=number % PARTITIONS) for number in range(count)]


def consumer_of(app: App, topic: str, seen: Seen, **options: object) -> None:
    app.consumer(topic, name="work", retry=RETRY, dead_letter="{topic}.dlq", **options)(seen.work)  # type: ignore[arg-type]


@pytest.mark.parametrize("order", ["partition", "key"])
def test_with_a_breaker_all_is_processed_afterwards(kafka: TopicAdmin, topic: TopicFactory, order: str) -> None:
    name, client, app = topic(partitions=PARTITIONS), Client(kafka), app_for(kafka)
    with Downstream() as service:
        seen = Seen(service)
        consumer_of(app, name, seen, breaker=BREAKER, order=order, concurrency=8)
        with RunningApp(app) as running:
            client.produce(name, spread(40))
            wait_until(lambda: len(seen.done) == 40, "the first ones are processed")
            service.go_away()
            calls = len(seen.calls)
            client.produce(name, spread(160))
            wait_until(lambda: running.log.of("breaker_opened"), "the breaker opens")
            wait_until(lambda: len(running.log.of("breaker_probe_failed")) >= 3, "probes fail")
            probes = len(running.log.of("probe_started"))
            # Those that opened it (a tenth of what went well just before), those that were at it then, and the probes.
            assert len(seen.calls) - calls <= 5 + 8 + probes + 1, "of 160 records"
            status = running.loop.guards.status()
            assert status.breaker in (BreakerState.OPEN, BreakerState.HALF_OPEN)
            assert set(status.holds) == {"breaker"}
            service.come_back()
            wait_until(lambda: len(seen.done) == 200, "everything is processed")
            wait_until(
                lambda: sum(client.committed("scenario.work", name, number)[0] or 0 for number in range(4)) == 200,
                "everything is committed",
            )
            assert running.loop.guards.status().breaker is BreakerState.CLOSED
        assert client.edges(f"{name}.dlq") == (0, 0)
        assert order == "key" or order_violations(seen.done) == []
        assert not running.log.of("partitions_lost")
        assert len(running.log.of("breaker_closed")) == len(running.log.of("breaker_opened"))
        tries = Counter((ctx.partition, ctx.offset) for ctx in seen.calls)
        assert max(ctx.attempt for ctx in seen.calls) <= 3, "attempts during the outage do not count"
        assert len(tries) == 200


def test_without_a_breaker_the_same_outage_ends_in_letters(kafka: TopicAdmin, topic: TopicFactory) -> None:
    name, client, app = topic(partitions=PARTITIONS), Client(kafka), app_for(kafka)
    with Downstream() as service:
        seen = Seen(service)
        consumer_of(app, name, seen)
        service.go_away()
        with RunningApp(app):
            client.produce(name, spread(40))
            letters = client.read(f"{name}.dlq", 40, partitions=PARTITIONS)
    assert len(letters) == 40
    assert seen.done == []
    assert len(seen.calls) == 40 * (1 + 2)

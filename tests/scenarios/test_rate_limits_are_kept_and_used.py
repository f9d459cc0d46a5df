"""Rate limits: no more starts than allowed, nearly as many as allowed, however fast the handler is."""

from __future__ import annotations

import threading
import time

import pytest

from keepfast import CommitPolicy, Context, RatePolicy, RetryPolicy
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import Client, NewRecord
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import wait_until

PARTITIONS = 4


class Starts:
    """When handlers were called, and of which partition."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._at: list[tuple[float, int]] = []

    def note(self, ctx: Context) -> None:
        with self._lock:
            self._at.append((time.monotonic(), ctx.partition))

    def __len__(self) -> int:
        return len(self._at)

    def times(self, partition: int | None = None) -> list[float]:
        return sorted(at for at, of in self._at if partition in (None, of))


def most_within(times: list[float], seconds: float) -> int:
    """The largest number of starts in any stretch of that length."""
    return max(sum(first <= at < first + seconds for at in times) for first in times)


def spread(count: int) -> list[NewRecord]:
    return [NewRecord(b"v", b"%d" % (number % 7), partition=number % PARTITIONS) for number in range(count)]


@pytest.mark.timing
@pytest.mark.parametrize("mode", ["each", "interval"])
def test_a_rate_for_the_whole_consumer(kafka: TopicAdmin, topic: TopicFactory, mode: str) -> None:
    name, client, app, starts = topic(partitions=PARTITIONS), Client(kafka), app_for(kafka), Starts()

    @app.consumer(
        name,
        order="key",
        idempotent=True,
        commit=CommitPolicy(mode=mode),  # type: ignore[arg-type]
        rate=RatePolicy(per_s=100, burst=5),
    )
    def work(value: bytes, ctx: Context) -> None:
        starts.note(ctx)

    client.produce(name, spread(300))
    with RunningApp(app):
        wait_until(lambda: len(starts) == 300, "all have started")
    times = starts.times()
    # A worker takes a moment to begin what the loop has started, so a few may slip from one second into the next.
    assert most_within(times, 1.0) <= 100 + 5 + 5
    assert 2.9 <= times[-1] - times[0] + 0.05 <= 3 * 2


@pytest.mark.timing
def test_a_rate_for_each_partition(kafka: TopicAdmin, topic: TopicFactory) -> None:
    name, client, app, starts = topic(partitions=PARTITIONS), Client(kafka), app_for(kafka), Starts()

    @app.consumer(name, order="none", rate=RatePolicy(partition_per_s=20, burst=1))
    def work(value: bytes, ctx: Context) -> None:
        starts.note(ctx)

    client.produce(name, spread(120))
    with RunningApp(app):
        wait_until(lambda: len(starts) == 120, "all have started")
    for partition in range(PARTITIONS):
        times = starts.times(partition)
        assert most_within(times, 1.0) <= 20 + 2
        assert times[-1] - times[0] >= 1.4
    everything = starts.times()
    assert everything[-1] - everything[0] < 1.45 * 3, "the partitions do not wait for each other"


@pytest.mark.timing
def test_a_minimum_delay_holds_for_retries_too(kafka: TopicAdmin, topic: TopicFactory) -> None:
    name, client, app, starts = topic(partitions=PARTITIONS), Client(kafka), app_for(kafka), Starts()

    @app.consumer(name, rate=RatePolicy(min_delay_ms=60), retry=RetryPolicy(initial_delay_ms=1, max_delay_ms=1))
    def work(value: bytes, ctx: Context) -> None:
        starts.note(ctx)
        if ctx.attempt == 1:
            raise OSError("not now")

    client.produce(name, spread(16))
    with RunningApp(app):
        wait_until(lambda: len(starts) == 32, "all have started, each twice")
    times = starts.times()
    assert most_within(times, 0.6) <= 10 + 1, "a worker may take a moment to begin"
    assert 31 * 0.06 - 0.03 <= times[-1] - times[0] <= 31 * 0.06 * 2

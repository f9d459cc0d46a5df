"""P1-P4: the broker answers nothing for 20 s (SIGSTOP). The consumer holds, its loop keeps turning, and afterwards it
continues where it was: nothing is lost, nothing is repeated, the order is kept, no rebalance was caused.
"""

from __future__ import annotations

import time

import pytest

from keepfast import Context
from keepfast.testing import KafkaBroker
from tests.support.broker_client import Client, NewRecord, order_violations
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import POLL_S, wait_until

FROZEN_S = 20.0
RECORDS = 4_000
MAX_TURN_S = 1.0
"""The loop is polling the client this often even on a busy machine; by its own rules it is 0.1 s."""

SESSION_AS_SHIPPED = {"group.consumer.session.timeout.ms": "45000", "group.consumer.heartbeat.interval.ms": "5000"}
"""Kafka's defaults. Under KIP-848 the session is the broker's setting; that of test brokers is 6 s, and a broker that
wakes after 20 s may then expire its members before it reads their heartbeats.
"""


def longest_pause(running: RunningApp, until_s: float) -> float:
    """Watch the loop until then: the longest time in which it did not come around to polling."""
    last, last_at, longest_s = running.loop.intake._polled_at, time.monotonic(), 0.0
    while (now := time.monotonic()) < until_s:
        polled_at = running.loop.intake._polled_at
        if polled_at != last:
            last, last_at = polled_at, now
        longest_s = max(longest_s, now - last_at)
        time.sleep(POLL_S)
    return longest_s


@pytest.mark.timing
def test_the_loop_turns_meanwhile_and_the_work_goes_on_afterwards() -> None:
    with KafkaBroker(config=SESSION_AS_SHIPPED) as broker:
        name, client = broker.create_topic("frozen", partitions=4), Client(broker)
        places = client.produce(name, [NewRecord(b"v", b"%d" % (number % 50)) for number in range(RECORDS)])
        app, seen = app_for(broker), list[tuple[bytes | None, int]]()

        @app.consumer(name, order="key", concurrency=16)
        def work(value: bytes, ctx: Context) -> None:
            seen.append((ctx.key, ctx.partition * 1_000_000 + ctx.offset))
            time.sleep(0.001)

        with RunningApp(app) as running:
            wait_until(lambda: len(seen) >= 500, "under load")
            broker.pause()
            frozen_at = time.monotonic()
            wait_until(lambda: running.log.of("consumer_held"), "no commit is answered, so the consumer holds")
            started = len(seen)
            assert started < RECORDS
            assert longest_pause(running, frozen_at + FROZEN_S) < MAX_TURN_S
            assert len(seen) == started, "nothing starts while commits are not confirmed"
            broker.resume()
            wait_until(lambda: len(seen) >= RECORDS, "the rest is handled")
            ends = {p: max(offset for partition, offset in places if partition == p) + 1 for p in range(4)}
            wait_until(
                lambda: [client.committed("scenario.work", name, p)[0] for p in ends] == [*ends.values()], "commit"
            )
            assert running.log.of("consumer_released")
            assert running.log.of("partitions_lost") == running.log.of("partitions_revoked") == []
            assert len(running.log.of("partitions_assigned")) == 1
    assert sorted(offset for _, offset in seen) == sorted(p * 1_000_000 + offset for p, offset in places)
    assert order_violations(seen) == []

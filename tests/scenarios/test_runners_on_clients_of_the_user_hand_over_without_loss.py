"""P1, P2, P3, P5: a second member joins, the first one leaves: each record once, in the order of its partition."""

from __future__ import annotations

import threading
import time

import pytest

from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.scenarios.runners import Kind, Running, factory_of
from tests.support.broker_client import Client, NewRecord, order_violations
from tests.support.waiting import wait_until

RECORDS, PARTITIONS = 400, 4


@pytest.mark.parametrize("kind", ["confluent-kafka", "kafka-python"])
def test_runners_on_clients_of_the_user_hand_over_without_loss(
    kafka: TopicAdmin, topic: TopicFactory, kind: Kind
) -> None:
    name, client = topic(partitions=PARTITIONS), Client(kafka)
    client.produce(
        name,
        [NewRecord(b'{"n": %d, "p": %d}' % (n, n % PARTITIONS), partition=n % PARTITIONS) for n in range(RECORDS)],
    )
    lock, seen = threading.Lock(), list[tuple[str, int, int]]()

    def member(who: str) -> Running:
        def process_message(message: dict[str, int]) -> None:
            with lock:
                seen.append((who, message["p"], message["n"]))
            time.sleep(0.003 if done_by("second") or done_by("first") < 40 else 0.1)  # there must be a share left

        quick = (
            {"heartbeat_interval_ms": 300, "session_timeout_ms": 6_000}
            if kind == "kafka-python"
            else {"heartbeat.interval.ms": 300, "session.timeout.ms": 6_000}
        )
        return Running(
            kind,
            kafka,
            name,
            consumer_factory=factory_of(kind, kafka, name, **quick),
            process_message=process_message,
            dlq_publisher=lambda message, error, retry_count: None,
        )

    def done_by(who: str) -> int:
        return sum(one[0] == who for one in list(seen))

    with member("first") as first:
        first.wait_until(lambda: done_by("first") >= 40, "the first one works")
        with member("second") as second:
            second.wait_until(lambda: done_by("second") >= 40, "the second one has a share")
            first.stop()
            ends = [RECORDS // PARTITIONS] * PARTITIONS
            wait_until(
                lambda: [client.committed(f"group-of-{name}", name, p)[0] for p in range(PARTITIONS)] == ends,
                "all is committed",
            )
    assert sorted(n for _, _, n in seen) == list(range(RECORDS)), "each record, and each once"
    assert order_violations([(b"%d" % p, n) for _, p, n in seen]) == []

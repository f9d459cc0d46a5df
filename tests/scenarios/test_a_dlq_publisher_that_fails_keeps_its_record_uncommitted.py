"""P1, 000 §2.3 and §4.1: no receipt, no commit: the record stays, the publisher is called again, others continue."""

from __future__ import annotations

import json
import threading

import pytest

from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.scenarios.runners import KINDS, Kind, Running
from tests.support.broker_client import Client, NewRecord
from tests.support.waiting import wait_until


@pytest.mark.parametrize("kind", KINDS)
def test_a_dlq_publisher_that_fails_keeps_its_record_uncommitted(
    kafka: TopicAdmin, topic: TopicFactory, kind: Kind
) -> None:
    name, client = topic(partitions=2), Client(kafka)
    client.produce(name, [NewRecord(json.dumps({"n": n}).encode(), partition=n % 2) for n in range(6)])
    group = f"group-of-{name}"
    repaired = threading.Event()
    processed: list[int] = []
    published: list[int] = []
    calls: list[str] = []

    def process_message(message: dict[str, int]) -> None:
        processed.append(message["n"])
        if message["n"] == 2:
            raise ValueError("final")

    def dlq_publisher(message: dict[str, int], error: Exception, retry_count: int) -> bool | None:
        calls.append("raises" if len(calls) % 2 else "says False")
        if repaired.is_set():
            published.append(message["n"])
            return None
        if calls[-1] == "raises":
            raise ConnectionError("the other cluster is away")
        return False

    def committed() -> list[int | None]:
        return [client.committed(group, name, partition)[0] for partition in (0, 1)]

    with Running(kind, kafka, name, process_message=process_message, dlq_publisher=dlq_publisher) as running:
        running.wait_until(lambda: len(calls) >= 3, "called three times")
        wait_until(lambda: committed() == [1, 3], "the other partition is done, this one stands before its record")
        assert processed.count(2) == 1, "the verdict is sticky: the handler does not run again"
        assert published == []
        repaired.set()
        wait_until(lambda: committed() == [3, 3], "all is committed")
    assert published == [2]
    assert sorted(processed) == [0, 1, 2, 3, 4, 5]
    assert {printed.fields["fault"] for printed in running.log.of("dead_letter_publish_failed")} == {"retry"}

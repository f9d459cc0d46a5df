"""000 §2.1.3 for a runner: one function at a time, and yet one that hangs holds up neither its letter nor others."""

from __future__ import annotations

import json
import threading

from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.scenarios.runners import Running
from tests.support.broker_client import Client, NewRecord
from tests.support.waiting import wait_until


def test_the_record_is_dead_lettered_by_the_users_publisher_and_the_others_are_processed(
    kafka: TopicAdmin, topic: TopicFactory
) -> None:
    name, client, ends = topic(), Client(kafka), threading.Event()
    client.produce(name, [NewRecord(json.dumps({"n": n}).encode()) for n in range(4)])
    processed: list[int] = []
    published: list[tuple[int, str]] = []

    def process_message(message: dict[str, int]) -> None:
        if message["n"] == 1:
            ends.wait(60)
        processed.append(message["n"])

    hooks = {
        "process_message": process_message,
        "dlq_publisher": lambda message, error, retry_count: published.append((message["n"], type(error).__name__)),
        "settings": {"shutdown": {"timeout_s": 10}, "consumer": {"timeout_s": 0.5}},
    }
    with Running("dict", kafka, name, **hooks) as running:
        running.wait_until(lambda: processed == [0, 2, 3], "the others are processed")
        wait_until(lambda: client.committed(f"group-of-{name}", name, 0)[0] == 4, "all is committed")
        ends.set()
    assert published == [(1, "HandlerTimeout")]

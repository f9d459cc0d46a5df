"""A runner is built like an app: a fast function is called without a detour over a worker, and suspects of all runners
of a process share one floor.
"""

from __future__ import annotations

import threading

from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from keepfast.wiring.assembly import GATE
from tests.scenarios.runners import Running
from tests.support.broker_client import Client, NewRecord


def test_once_it_is_known_to_be_fast(kafka: TopicAdmin, topic: TopicFactory) -> None:
    name, client, threads = topic(), Client(kafka), list[str]()

    def process_message(message: dict[str, int]) -> None:
        threads.append(threading.current_thread().name)

    numbers = iter(range(1_000_000))
    hooks = {"process_message": process_message, "dlq_publisher": lambda *_, **__: True}
    with Running("dict", kafka, name, **hooks) as running:

        def has_come_on_the_loop() -> bool:
            client.produce(name, [NewRecord(b'{"n": %d}' % next(numbers)) for _ in range(100)])
            return any(thread.endswith("-loop") for thread in threads)

        running.wait_until(has_come_on_the_loop, "a call on the loop's thread")
        assert len(GATE._members) == 1
    assert GATE._members == []

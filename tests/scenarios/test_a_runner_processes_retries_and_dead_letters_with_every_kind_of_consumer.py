"""P1, 002: success, failure in words, an exception that passes, final errors, and bytes that are no message."""

from __future__ import annotations

import itertools
import logging
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.scenarios.runners import KINDS, QUICK, Kind, Running
from tests.support.broker_client import Client, NewRecord
from tests.support.waiting import wait_until


@dataclass(frozen=True)
class Order:
    number: int

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Order:
        return cls(**data)


@pytest.mark.parametrize("kind", KINDS)
def test_a_runner_processes_retries_and_dead_letters(kafka: TopicAdmin, topic: TopicFactory, kind: Kind) -> None:
    name, client = topic(partitions=2), Client(kafka)
    values = [*(b'{"number": %d}' % number for number in range(8)), b"{broken", b'{"size": 1}']
    client.produce(name, [NewRecord(value, partition=index % 2) for index, value in enumerate(values)])
    attempts: list[tuple[int, float]] = []
    dead_lettered: list[tuple[object, str, int]] = []
    beside: list[int] = []
    busy = Counter[str]()

    def process_message(message: Order) -> object:
        busy["now"] += 1
        beside.append(busy["now"])
        attempts.append((message.number, time.monotonic()))
        tries = sum(number == message.number for number, _ in attempts)
        busy["now"] -= 1
        match message.number:
            case 1:
                return {"success": tries == 2, "error": "not yet"}
            case 2:
                return {"success": False, "error": ValueError("never")}
            case 3 if tries < 3:
                raise ConnectionError("away for a moment")
            case 4:
                raise TimeoutError("away for good")
            case 5:
                raise PermissionError("no rights")
            case _:
                pass
        return None if message.number % 2 else True

    def dlq_publisher(message: object, error: Exception, retry_count: int) -> bool:
        busy["now"] += 1
        beside.append(busy["now"])
        dead_lettered.append((message, type(error).__name__, retry_count))
        busy["now"] -= 1
        return True

    group = f"group-of-{name}"
    with Running(
        kind,
        kafka,
        name,
        process_message=process_message,
        message_factory=Order.from_dict,
        dlq_publisher=dlq_publisher,
        rate_limit_min_delay_ms=lambda: 70,
        message_context=lambda message: f"number={message.number}",
        logger=logging.getLogger("keepfast.tests.orders"),
    ) as running:
        running.wait_until(lambda: len(dead_lettered) == 5, "five are dead-lettered")
        wait_until(lambda: [client.committed(group, name, p)[0] for p in (0, 1)] == [5, 5], "all is committed")

    tries = Counter(number for number, _ in attempts)
    assert tries == {0: 1, 1: 2, 2: 1, 3: 3, 4: 3, 5: tries[5], 6: 1, 7: 1}
    assert sorted(dead_lettered, key=str) == sorted(
        [
            (Order(2), "ValueError", 0),
            (Order(4), "TimeoutError", 2),
            (Order(5), "PermissionError", tries[5] - 1),
            (b"{broken", "JSONDecodeError" if kind == "kafka-python" else "DecodeError", 0),  # who decoded it
            ({"size": 1}, "TypeError", 0),
        ],
        key=str,
    )
    waits = [later - at for number in (3, 4) for (_, at), (_, later) in _pairs(attempts, number)]
    assert len(waits) == 4
    for wait_s, asked_ms in zip(waits, [50, 100, 50, 100], strict=True):
        assert wait_s >= max(asked_ms, 70) / 1000 - 0.002, "the back-off, and never less than the rate limit allows"
    assert QUICK.max_retries == 2
    assert set(beside) == {1}, "no two functions of the user ran at the same time"
    starts = [at for _, at in attempts]
    gaps = [later - at for at, later in itertools.pairwise(starts)]
    assert min(gaps) >= 0.07 - 0.002, "first attempts, too, are no closer together than the rate limit allows"
    about = [one for one in running.log.entries if one.logger == "keepfast.tests.orders"]
    assert not [one for one in running.log.entries if one.logger == "keepfast.consumer"]
    fourth = [one for one in about if one.fields.get("context") == "number=4"]
    assert [(one.event, one.level, one.fields["retry_count"]) for one in fourth] == [
        ("retry_scheduled", "warning", 1),
        ("retry_scheduled", "warning", 2),
        ("dead_lettering", "error", 2),
        ("dead_lettered", "info", 2),
    ]
    fields = {"retry_count", "error_type", "error_classification", "consumer_group", "partition", "offset"}
    assert all(fields <= set(one.fields) for one in about)
    assert all("backoff_delay_ms" in one.fields for one in about if one.event == "retry_scheduled")


def _pairs(attempts: list[tuple[int, float]], number: int) -> list[tuple[tuple[int, float], tuple[int, float]]]:
    own = [attempt for attempt in attempts if attempt[0] == number]
    return list(itertools.pairwise(own))

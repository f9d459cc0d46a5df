"""Who counts unresolved cases, when letters are read for it, and what happens if they cannot be."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from keepfast.core.errors import Fault, SourceError
from keepfast.desk import unresolved
from keepfast.desk.unresolved import UnresolvedCounter
from tests.support.waiting import wait_until


class CountedDesk:
    """A desk of which the test says what it counts."""

    def __init__(self, counts: dict[str, int], *, parts: int = 1, part_s: float = 0.0) -> None:
        self.index = SimpleNamespace(unresolved=lambda _: counts)
        self.parts, self.part_s = parts, part_s
        self.read = 0
        self.closed = False
        self.fails = False

    def refresh(self, progress: Callable[[int], None]) -> None:
        if self.fails:
            raise SourceError("no right to read", fault=Fault.REFUSED, code="TOPIC_AUTHORIZATION_FAILED")
        for _ in range(self.parts):
            time.sleep(self.part_s)
            self.read += 1
            progress(self.read)

    def infer_outcomes(self) -> int:
        return 0

    def close(self) -> None:
        self.closed = True


def consumer(assigned: list[tuple[str, int]], depth: int | None, lock_s: float | None = None) -> Any:
    """A consumer of the topics a and b, whose letters go to one topic; with `lock_s`, of a queue."""
    places = [SimpleNamespace(topic=topic, partition=partition) for topic, partition in assigned]
    plan = SimpleNamespace(group="g", dead_letter_topics={"a": "dlq", "b": "dlq"}, lock_s=lock_s)
    return SimpleNamespace(
        loop=SimpleNamespace(plan=plan, subscription=SimpleNamespace(topics=("b", "a"))),
        state=SimpleNamespace(partitions=places, letter_topics={"dlq": depth}),
    )


def counter(thread: Any, desk: CountedDesk) -> UnresolvedCounter:
    opened: Any = lambda _: desk  # noqa: E731
    return UnresolvedCounter([thread], opened, every_s=30)


def test_one_member_counts_and_an_empty_topic_is_not_read() -> None:
    desk = CountedDesk({})
    other = counter(consumer([("a", 1), ("b", 0)], 5), desk)
    assert other.look()
    assert (other.counts, desk.read) == ({}, 0)
    first = counter(consumer([("a", 0)], 0), desk)
    assert first.look()
    assert (first.counts, desk.read) == ({("g", "a"): 0, ("g", "b"): 0}, 0)
    unknown = counter(consumer([("a", 0)], None), desk)
    assert not unknown.look()
    assert (unknown.counts, desk.read) == ({}, 0)
    queue = counter(consumer([], 0, lock_s=30.0), desk)
    assert queue.look()
    assert (queue.counts, desk.read) == ({("g", "a"): 0, ("g", "b"): 0}, 0)


def test_only_topics_that_are_read_become_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unresolved, "REST", 0)
    desk = CountedDesk({"a": 3, "forged": 7})
    thread = consumer([("a", 0)], 10)
    made = counter(thread, desk)
    made.look()
    assert made.counts == {("g", "a"): 3, ("g", "b"): 0}
    [family] = made.families()
    assert {one.labels: one.value for one in family.samples} == {("g", "a"): 3, ("g", "b"): 0}
    thread.state.partitions.clear()  # another member counts from now on
    made.look()
    assert (made.counts, desk.closed) == ({}, True)


def test_what_cannot_be_read_is_missing_and_not_0() -> None:
    desk = CountedDesk({"a": 3})
    made = counter(consumer([("a", 0)], 10), desk)
    desk.fails = True
    assert made.look()
    assert made.counts == {}
    desk.fails = False
    made.look()
    assert made.counts[("g", "a")] == 3


def test_reading_rests_and_ends_with_the_app() -> None:
    desk = CountedDesk({"a": 1}, parts=1_000_000, part_s=0.01)
    made = counter(consumer([("a", 0)], 10), desk)
    began = time.monotonic()
    made.start()
    wait_until(lambda: desk.read >= 4, "some parts are read")
    took_s = time.monotonic() - began
    made.stop(5.0)
    assert desk.closed
    assert took_s >= 3 * 10 * desk.part_s  # after each part it rests nine times as long

"""Answers a simulated process's requests for topic ids and for the ends of partitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from keepfast.core.records import TopicPartition
from keepfast.testing.fakes.broker import FakeBroker
from keepfast.testing.fakes.process import Process


class SimTopicIds:
    """Implements `core.ports.TopicIds`. A frozen broker answers when it is thawed."""

    def __init__(self, process: Process, broker: FakeBroker) -> None:
        self._process = process
        self._broker = broker

    def ask(self, topics: Sequence[str], on_answer: Callable[[Mapping[str, str | None]], None]) -> None:
        def answer() -> None:
            found = {topic: self._broker.reported_id(topic) for topic in topics}
            faults, now = self._broker.faults, self._broker.clock.monotonic()
            if faults.topic_ids.take() is not None or faults.deaf.get(self._process.name, 0.0) > now:
                found = {}
            self._process.background(lambda: on_answer(found))

        self._broker.data.after(self._broker.rng.uniform(*self._broker.settings.latency_s), answer)


REPLY_S = 0.003


class SimEnds:
    """Asks for the ends of partitions, as `core.ports.AskEnds` says. A frozen broker answers when it is thawed."""

    def __init__(self, process: Process, broker: FakeBroker) -> None:
        self._process = process
        self._broker = broker

    def ask(self, places: Sequence[TopicPartition], on_answer: Callable[[Mapping[TopicPartition, int]], None]) -> None:
        def answer() -> None:
            logs = {place: self._broker.log(place) for place in places}
            ends = {place: log.end for place, log in logs.items() if log is not None}
            self._process.background(lambda: on_answer(ends))

        self._broker.data.after(REPLY_S, answer)

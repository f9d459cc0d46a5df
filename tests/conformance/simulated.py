"""The simulator as a backend of the conformance suite."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from keepfast.core.ports import Mailbox, Sink, Source
from keepfast.core.records import Headers, TopicPartition
from keepfast.testing.fakes.world import World


class SimulatedBackend:
    """A world without faults of its own."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self._numbered = 0

    def topic(self, partitions: int = 1) -> str:
        name = self.missing_topic()
        self.world.broker.create_topic(name, partitions)
        return name

    def missing_topic(self) -> str:
        self._numbered += 1
        return f"topic-{self._numbered}"

    def produce(
        self, place: TopicPartition, value: bytes | None, *, key: bytes | None = None, headers: Headers = ()
    ) -> int:
        return self.world.broker.produce(place, value=value, key=key, headers=headers)

    def fill(self, place: TopicPartition, count: int) -> None:
        for number in range(count):
            self.produce(place, b"%d" % number, key=b"k%d" % (number % 5))

    def produce_transaction(self, place: TopicPartition, values: Sequence[bytes], *, commit: bool = True) -> None:
        if commit:
            for value in values:
                self.world.broker.produce(place, value=value)
            self.world.broker.produce_gap(place)
        else:
            self.world.broker.produce_gap(place, len(values) + 1)

    def delete_records(self, place: TopicPartition, before: int) -> None:
        self.world.broker.delete_records(place, before)

    def source(self, group: str) -> Source:
        return self.world.seat("member", group=group).source

    def sink(self) -> Sink:
        return self.world.seat("producer", group="none").sink

    def mailbox(self) -> Mailbox:
        return self.world.seat("owner", group="none").mailbox

    def later(self, delay_s: float, action: Callable[[], None]) -> None:
        self.world.clock.after(delay_s, action)

    def group(self) -> str:
        self._numbered += 1
        return f"group-{self._numbered}"

    def now(self) -> float:
        return self.world.clock.monotonic()

    def until(self, ready: Callable[[], object], timeout_s: float) -> bool:
        return self.world.clock.wait(self.now() + timeout_s, ready)

    def close(self) -> None:
        pass

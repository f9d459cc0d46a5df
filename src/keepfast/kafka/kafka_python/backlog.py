"""Records that were fetched and not yet handed out, and those of them that must wait. Owner: the loop's thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable

from keepfast.core.records import Message, TopicPartition
from keepfast.kafka.kafka_python.records import PythonMessage


class Backlog:
    """In order of arrival. Of partitions that are held (paused, or outside their log), records are parked."""

    def __init__(self) -> None:
        self._ready: deque[PythonMessage] = deque()
        self._parked: dict[TopicPartition, list[PythonMessage]] = {}
        self.paused: set[TopicPartition] = set()
        self.outside: set[TopicPartition] = set()

    def __len__(self) -> int:
        """How many may be handed out."""
        return len(self._ready)

    def holds(self, place: TopicPartition) -> bool:
        return place in self.paused or place in self.outside

    def add(self, place: TopicPartition, messages: Iterable[PythonMessage]) -> None:
        if self.holds(place):
            self._parked.setdefault(place, []).extend(messages)
        else:
            self._ready.extend(messages)

    def take_one(self) -> Message | None:
        return self._ready.popleft() if self._ready else None

    def take(self, limit: int) -> list[Message]:
        return [self._ready.popleft() for _ in range(min(limit, len(self._ready)))]

    def pause(self, places: Collection[TopicPartition]) -> None:
        self.paused.update(places)
        ready, self._ready = self._ready, deque()
        for message in ready:
            self.add(TopicPartition(message.topic(), message.partition()), (message,))

    def resume(self, places: Collection[TopicPartition]) -> list[TopicPartition]:
        """Which of them go on: those that were paused, and may."""
        going = [place for place in places if place in self.paused]
        self.paused.difference_update(going)
        going = [place for place in going if not self.holds(place)]
        for place in going:
            self._ready.extend(self._parked.pop(place, ()))
        return going

    def drop(self, places: Collection[TopicPartition]) -> None:
        """Forget what was fetched of these; a pause stays."""
        gone = set(places)
        self._ready = deque(message for message in self._ready if (message.topic(), message.partition()) not in gone)
        self.outside -= gone
        for place in places:
            self._parked.pop(place, None)

"""Which partitions are ours right now. Owner: the loop thread."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.core.completion import CompletionMap
from holdfast.core.epochs import Epochs
from holdfast.core.partitions import Partition
from holdfast.core.records import TopicPartition


class Ownership:
    """Our own list of partitions: the client's can be empty inside its callbacks."""

    def __init__(self) -> None:
        self._epochs = Epochs()
        self._partitions: dict[TopicPartition, Partition] = {}

    def __iter__(self) -> Iterator[Partition]:
        return iter(list(self._partitions.values()))

    def __len__(self) -> int:
        return len(self._partitions)

    def get(self, place: TopicPartition) -> Partition | None:
        return self._partitions.get(place)

    def begin(self, place: TopicPartition, *, start: int, resumed: CompletionMap | None = None) -> Partition:
        """A new epoch of this partition; an earlier one must have been ended."""
        partition = Partition(place, epoch=self._epochs.begin(place), start=start, resumed=resumed)
        self._partitions[place] = partition
        return partition

    def end(self, partition: Partition) -> None:
        """The epoch is over; results that still carry it are stale."""
        partition.close()
        self._epochs.end(partition.place)
        if self._partitions.get(partition.place) is partition:
            del self._partitions[partition.place]

    def is_current(self, partition: Partition) -> bool:
        return partition.live and self._epochs.is_current(partition.place, partition.epoch)

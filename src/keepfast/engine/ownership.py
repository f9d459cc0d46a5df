"""Which partitions are ours right now. Owner: the loop thread.

Ownership epochs: each assignment of a partition, and each deliberate reset of its position, gets a number of its
own.
"""

from __future__ import annotations

from collections.abc import Iterator

from keepfast.core.commit_metadata import CompletionMap
from keepfast.core.records import TopicPartition
from keepfast.core.runs import Partition


class Epochs:
    """Counts epochs; a result is current only if it carries the number that is in force. Owner: the loop thread."""

    __slots__ = ("_current", "_last")

    def __init__(self) -> None:
        self._last = 0
        self._current: dict[TopicPartition, int] = {}

    def begin(self, place: TopicPartition) -> int:
        """A new epoch for this partition; whatever came before is stale from now on."""
        self._last += 1
        self._current[place] = self._last
        return self._last

    def end(self, place: TopicPartition) -> None:
        """The partition is not ours any more; no result of it is current."""
        self._current.pop(place, None)

    def is_current(self, place: TopicPartition, epoch: int) -> bool:
        return self._current.get(place) == epoch


class Ownership:
    """Our own list of partitions: the client's can be empty inside its callbacks."""

    def __init__(self) -> None:
        self._epochs = Epochs()
        self._partitions: dict[TopicPartition, Partition] = {}
        self._lasting: dict[TopicPartition, dict[str, float]] = {}  # holds that outlive an epoch, and since when

    def __iter__(self) -> Iterator[Partition]:
        return iter(list(self._partitions.values()))

    def __len__(self) -> int:
        return len(self._partitions)

    def get(self, place: TopicPartition) -> Partition | None:
        return self._partitions.get(place)

    def begin(
        self,
        place: TopicPartition,
        *,
        start: int,
        resumed: CompletionMap | None = None,
        topic_id: str = "",
        topic_partitions: int | None = None,
        committed: tuple[int, str] | None = None,
        leader_epoch: int | None = None,
    ) -> Partition:
        """A new epoch of this partition; an earlier one must have been ended."""
        partition = Partition(
            place,
            epoch=self._epochs.begin(place),
            start=start,
            resumed=resumed,
            topic_id=topic_id,
            topic_partitions=topic_partitions,
            committed=committed,
            leader_epoch=leader_epoch,
        )
        partition.holds.update(self._lasting.get(place, ()))
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

    def hold(self, place: TopicPartition, name: str, now: float) -> None:
        """Add this hold to the partition, in this epoch and in every later one, until it is released."""
        self._lasting.setdefault(place, {}).setdefault(name, now)
        partition = self._partitions.get(place)
        if partition is not None:
            partition.holds.add(name)

    def release(self, place: TopicPartition, name: str) -> None:
        """Remove a hold that `hold` added; without effect if there is none."""
        names = self._lasting.get(place, {})
        names.pop(name, None)
        if not names:
            self._lasting.pop(place, None)
        partition = self._partitions.get(place)
        if partition is not None:
            partition.holds.discard(name)

    def held(self, name: str) -> list[TopicPartition]:
        """The partitions that `hold` holds by this name, whether they are ours now or not."""
        return [place for place, names in self._lasting.items() if name in names]

    def held_since(self, name: str) -> float | None:
        """When the oldest hold of this name on a partition that is ours now was added; None without one."""
        found = [names[name] for place, names in self._lasting.items() if name in names and place in self._partitions]
        return min(found, default=None)

"""Partitions whose commits the broker refuses for a reason of their own. Owner: the loop thread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from keepfast.core.errors import Fault
from keepfast.core.partitions import Partition
from keepfast.core.records import TopicPartition
from keepfast.telemetry.logs import get_logger

log = get_logger("keepfast.commit")

COMMIT_REFUSED: Final = "commit_refused"
"""The hold on a partition from the refusal of a commit until one is confirmed."""

OF_ONE_PARTITION: Final = frozenset({Fault.MISSING, Fault.REFUSED, Fault.TOO_LARGE})
"""Errors about one partition of a request. A client may report them for all partitions of it."""

FIRST_RETRY_S, LONGEST_RETRY_S = 0.2, 10.0


@dataclass(slots=True)
class Refusal:
    """`last_try`: the consumer drains and the last attempt was sent; nothing waits for the partition any more."""

    partition: Partition
    attempts: int = 0
    retry_at: float = 0.0
    last_try: bool = False


class Refusals:
    """Which partitions are refused, and when each is tried again, in a request of its own."""

    def __init__(self) -> None:
        self.by_place: dict[TopicPartition, Refusal] = {}

    def __contains__(self, place: TopicPartition) -> bool:
        return place in self.by_place

    def add(self, partition: Partition, code: str, now: float) -> None:
        """A commit of it was refused: it is held until one is confirmed."""
        refusal = self.by_place.get(partition.place)
        if refusal is None:
            refusal = self.by_place[partition.place] = Refusal(partition)
            partition.holds.add(COMMIT_REFUSED)
            log.error(
                "held",
                hold=COMMIT_REFUSED,
                place=str(partition.place),
                code=code,
                consequence="nothing new of this partition starts, and what is finished is not committed",
                what_to_do="restore the topic, or the right to read it; the commit is retried until it is confirmed",
            )
        refusal.retry_at = now + min(LONGEST_RETRY_S, FIRST_RETRY_S * 2 ** min(refusal.attempts, 10))
        refusal.attempts += 1

    def resolve(self, partition: Partition, now: float) -> bool:
        """A commit of it was confirmed. Returns whether it was refused before: then the others are tried soon, too."""
        if self.by_place.pop(partition.place, None) is None:
            return False
        partition.holds.discard(COMMIT_REFUSED)
        for refusal in self.by_place.values():
            refusal.attempts, refusal.retry_at = 0, min(refusal.retry_at, now + FIRST_RETRY_S)
        log.warning("released", hold=COMMIT_REFUSED, place=str(partition.place))
        return True

    def forget(self, partition: Partition) -> None:
        """It is not ours any more."""
        self.by_place.pop(partition.place, None)

    def next_at(self) -> float:
        """When the next one is tried again."""
        return min((refusal.retry_at for refusal in self.by_place.values()), default=float("inf"))

    def due(self, now: float) -> Partition | None:
        """The one that has waited longest, if any is due."""
        refusal = min(self.by_place.values(), key=lambda one: one.retry_at, default=None)
        return refusal.partition if refusal is not None and refusal.retry_at <= now else None

    def untried(self) -> Partition | None:
        """While the consumer drains: one that gets its last attempt now."""
        refusal = next((one for one in self.by_place.values() if not one.last_try), None)
        if refusal is None:
            return None
        refusal.last_try = True
        return refusal.partition

    def awaits(self, partition: Partition) -> bool:
        """Whether a drain has not tried it for the last time yet."""
        refusal = self.by_place.get(partition.place)
        return refusal is not None and not refusal.last_try

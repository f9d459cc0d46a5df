"""Positions that are committed again although they have not changed. Owner: the loop thread.

Kafka forgets a committed offset some time after it was committed (`offsets.retention.minutes`), also that of a
partition in which nothing has happened since. And a commit that the network holds back may be stored long after it was
replaced, so that the stored offset moves backwards. Either way only another commit helps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from keepfast.core.records import TopicPartition
from keepfast.core.runs import Partition
from keepfast.engine.ownership import Ownership

LONG_AGO: Final = float("-inf")

FIRST_S: Final = 2.0
"""The position of an assigned partition is committed so long after its epoch began."""

AFTER_DOUBT_S: Final = (5.0, 15.0, 35.0, 75.0)
"""When it is committed again after its connection broke with a commit unanswered."""

MAX_EVERY_S: Final = 24 * 3600.0
UNKNOWN_S: Final = 6 * 3600.0
"""How often, if the retention cannot be read: brokers before Kafka 2 kept offsets for a day by default."""

PARTS: Final = 4
"""A position is committed so many times in a retention."""

CHECK_INTERVAL_S: Final = 1.0


def renewed_every_s(retention_s: float | None) -> float:
    """How often positions are committed again where the brokers keep them for `retention_s`; None: not known."""
    return UNKNOWN_S if retention_s is None else min(MAX_EVERY_S, retention_s / PARTS)


class Renewals:
    """Says which positions are due to be committed again.

    Times belong to the place, not to its epoch: a commit that was sent before a reset of the partition may be stored
    after it. They end when the partition is revoked; then the broker refuses such a commit.
    """

    def __init__(self, ownership: Ownership, every_s: float) -> None:
        self._ownership = ownership
        self._every_s = every_s
        self._look_at = LONG_AGO
        self._times: dict[TopicPartition, list[float]] = {}
        self._epochs: dict[TopicPartition, int] = {}

    def due(self, now: float) -> list[Partition]:
        """Return partitions whose position must be committed now, whether it has changed or not. Cheap if called
        often.
        """
        if now < self._look_at:
            return []
        self._look_at = now + CHECK_INTERVAL_S
        for place in self._times.keys() - {partition.place for partition in self._ownership}:
            del self._times[place], self._epochs[place]
        return [partition for partition in self._ownership if self._is_due(partition, now)]

    def next_at(self, partition: Partition) -> float:
        """Return when the position is committed again; -inf if that is not known yet."""
        times = self._times.get(partition.place)
        return times[0] if times else LONG_AGO

    def _is_due(self, partition: Partition, now: float) -> bool:
        times = self._times_of(partition, now)
        if now < times[0] or partition.closing:
            return False
        if partition.ledger.watermark() < 0:  # nothing was received yet: the position has no number
            times[0] = now + FIRST_S
            return False
        del times[0]
        if not times:
            times.append(now + self._every_s)
        return True

    def _times_of(self, partition: Partition, now: float) -> list[float]:
        """Return the times of this place: at least one. The first one of an epoch is soon."""
        times = self._times.setdefault(partition.place, [])
        if self._epochs.get(partition.place) != partition.epoch:
            self._epochs[partition.place] = partition.epoch
            times[:] = sorted((now + FIRST_S, *times))
        return times

    def doubt(self, now: float, partitions: Sequence[Partition]) -> None:
        """Commit these positions again several times, because a commit may be stored late, after others that followed.
        All positions if none is named.
        """
        for partition in partitions or self._ownership:
            times = self._times_of(partition, now)
            times[:] = sorted((times[0], *(now + after_s for after_s in AFTER_DOUBT_S)))

"""Partitions come and go: where each one starts, and how it is let go. Owner: the loop thread."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core import completion
from holdfast.core.errors import SourceError
from holdfast.core.partitions import Partition
from holdfast.core.ports import BEGINNING, Committed, Position, Source
from holdfast.core.records import TopicPartition
from holdfast.observe.logs import get_logger
from holdfast.runtime.committer import Committer
from holdfast.runtime.handover import Handover
from holdfast.runtime.ownership import Ownership
from holdfast.runtime.plan import Plan
from holdfast.runtime.probation import Probation

log = get_logger("holdfast.assignment")

READ_TIMEOUT_S = 5.0
"""For the committed offsets, inside the callback."""

REREAD_TIMEOUT_S, REREAD_EVERY_S = 1.0, 2.0
"""For those that could not be read there: from the loop, again and again, so a little at a time."""


class NoPosition(Exception):
    """There is no offset to start from and the policy says not to choose one."""


class Assignment:
    """Gives each new partition its start, by the committed offset, else by policy; an error is never 'no offset'.

    `unpositioned` are partitions that are ours but could not be positioned yet: assigned, paused, asked for again.
    `out_of_range` are those of which the client says that their position lies outside the log.
    """

    def __init__(
        self, source: Source, ownership: Ownership, committer: Committer, plan: Plan, probation: Probation
    ) -> None:
        self._source = source
        self._ownership = ownership
        self._committer = committer
        self._plan = plan
        self._probation = probation
        self._reread_at = 0.0
        self.unpositioned: dict[TopicPartition, None] = {}
        self.out_of_range: list[TopicPartition] = []

    def assigned(self, places: Sequence[TopicPartition], now: float) -> None:
        """Inside on_assigned. Raises NoPosition."""
        try:
            starts = [self._begin(found) for found in self._source.committed(places, READ_TIMEOUT_S)] if places else []
        except SourceError as error:
            log.warning("committed_offsets_unknown", partitions=len(places), fault=error.fault, code=error.code)
            for place in places:
                self._abandon(place)
            self._source.start([Position(place, BEGINNING) for place in places])
            self._source.pause(places)
            self.unpositioned.update(dict.fromkeys(places))
            self._reread_at = now + REREAD_TIMEOUT_S
            return
        if starts:
            self._source.start(starts)
        for place in places:
            self.unpositioned.pop(place, None)

    def step(self, now: float, handover: Handover) -> None:
        """Outside callbacks: position partitions that have no position, or one outside the log. Raises NoPosition."""
        while self.out_of_range:
            partition = self._ownership.get(self.out_of_range.pop(0))
            if partition is not None and not partition.closing:
                handover.forget(handover.close_down([partition.place]))
                self._choose_again(partition)
        if self.unpositioned and now >= self._reread_at:
            self._ask_again(now)

    def _ask_again(self, now: float) -> None:
        self._reread_at = now + REREAD_EVERY_S
        places = list(self.unpositioned)
        try:
            starts = [self._begin(found) for found in self._source.committed(places, REREAD_TIMEOUT_S)]
        except SourceError as error:
            log.warning("committed_offsets_unknown", partitions=len(places), fault=error.fault, code=error.code)
            for place in places:
                self._abandon(place)
            return
        for start in starts:
            self._source.reset(start)
        self._source.resume(places)
        self.unpositioned.clear()

    def lost(self, places: Sequence[TopicPartition]) -> None:
        for place in places:
            self.unpositioned.pop(place, None)
        # What was said about their position must not be held against the next epoch, which begins somewhere else.
        self.out_of_range = [place for place in self.out_of_range if place not in places]

    def _choose_again(self, partition: Partition) -> None:
        """The position lies outside the log: choose again, by policy, loudly, as a new epoch without a completion map.

        The old epoch must have been ended. Raises NoPosition; SourceError leaves it unpositioned.
        """
        place = partition.place
        log.error(
            "offset_out_of_range",
            place=str(place),
            offset=partition.ledger.last + 1,
            policy=self._plan.reset_of(place.topic),
            consequence="records between that offset and the log were deleted before they were processed",
        )
        try:
            position = self._by_policy(place)
        except SourceError:
            self.unpositioned[place] = None
            return
        self._source.reset(position)
        self._source.resume([place])  # the old epoch may have been paused, which the new one knows nothing of

    def _begin(self, found: Committed) -> Position:
        place = found.place
        if found.offset is None:
            return self._by_policy(place)
        resumed, said = completion.read(
            found.metadata, offset=found.offset, topic_id=self._plan.topic_ids.get(place.topic, "")
        )
        partition = self._ownership.begin(place, start=found.offset, resumed=resumed)
        partition.committed = (found.offset, found.metadata)
        self._probation.begin(partition, said, found.offset)
        return Position(place, found.offset)

    def _by_policy(self, place: TopicPartition) -> Position:
        reset = self._plan.reset_of(place.topic)
        if reset == "error":
            raise NoPosition(
                f"{place} has no valid committed offset for group {self._plan.group} and auto_offset_reset is 'error';"
                " commit a starting offset for the group, or choose earliest or latest."
            )
        if reset == "earliest":
            self._probation.begin(self._ownership.begin(place, start=BEGINNING), "", BEGINNING)
            return Position(place, BEGINNING)
        _, high = self._source.edges(place, REREAD_TIMEOUT_S)
        partition = self._ownership.begin(place, start=high)
        self._probation.begin(partition, "", high)
        partition.committed = (BEGINNING, "")  # so that the start is committed: later records must not be skipped again
        self._committer.touch(partition)
        return Position(place, high)

    def _abandon(self, place: TopicPartition) -> None:
        partition = self._ownership.get(place)
        if partition is not None:
            self._committer.forget(partition)
            self._ownership.end(partition)

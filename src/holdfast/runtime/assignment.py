"""Partitions come and go: where each one starts, and how it is let go. Owner: the loop thread."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core import completion
from holdfast.core.errors import Fault, SourceError
from holdfast.core.partitions import Partition
from holdfast.core.ports import BEGINNING, Committed, Position, Source
from holdfast.core.records import TopicPartition
from holdfast.observe.logs import get_logger
from holdfast.runtime.committer import Committer
from holdfast.runtime.handover import Handover
from holdfast.runtime.identities import Identities, TopicsTold
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
        self,
        source: Source,
        ownership: Ownership,
        committer: Committer,
        plan: Plan,
        *,
        probation: Probation,
        identities: Identities,
    ) -> None:
        self._source = source
        self._identities = identities
        self._ownership = ownership
        self._committer = committer
        self._plan = plan
        self._probation = probation
        self._reread_at = 0.0
        self.unpositioned: dict[TopicPartition, None] = {}
        self.out_of_range: list[TopicPartition] = []
        self._made_anew: list[Partition] = []

    def assigned(self, places: Sequence[TopicPartition], now: float) -> None:
        """Inside on_assigned. Raises NoPosition."""
        if not places:
            return
        self._identities.suspect(now)
        starts = self._starts(places, READ_TIMEOUT_S, now)
        late = [place for place in places if place not in starts]
        self._source.start([starts.get(place) or Position(place, BEGINNING) for place in places])
        for place in starts:
            self.unpositioned.pop(place, None)
        if late:
            self._source.pause(late)
            self.unpositioned.update(dict.fromkeys(late))
            self._reread_at = now + REREAD_TIMEOUT_S

    def step(self, now: float, handover: Handover) -> None:
        """Outside callbacks: position partitions that have no position, or one that is none. Raises NoPosition."""
        while self.out_of_range:
            partition = self._ownership.get(self.out_of_range.pop(0))
            if partition is not None and not partition.closing:
                log.error(
                    "offset_out_of_range",
                    **self._position(partition),
                    consequence="records between that offset and the log were deleted before they were processed",
                )
                self._choose_again([partition], handover)
        if self._made_anew:
            own = [partition for partition in self._made_anew if partition.live and not partition.closing]
            self._made_anew = []
            for partition in own:
                log.error(
                    "position_in_a_topic_that_is_gone",
                    **self._position(partition),
                    consequence="the new topic is read by policy, and some of its records perhaps a second time",
                )
            self._choose_again(own, handover)
        if self.unpositioned and now >= self._reread_at:
            self._ask_again(now)
        self._identities.step(now)

    def minds(self, error: SourceError, place: TopicPartition | None, now: float) -> bool:
        """The client complains. Whether that is about a position, so that it is seen to at the next step."""
        if error.fault in (Fault.OUT_OF_RANGE, Fault.MISSING):
            self._identities.suspect(now)
        if error.fault is not Fault.OUT_OF_RANGE or place is None:
            return False
        self.out_of_range.append(place)
        return True

    def told(self, word: TopicsTold, now: float) -> None:
        """The topics' ids have been looked up. Partitions of one that was made anew begin again, at the next step."""
        changed = self._identities.told(word, now)
        self._reread_at = now  # somebody may have waited for this
        self._made_anew += [partition for partition in self._ownership if partition.place.topic in changed]

    def _ask_again(self, now: float) -> None:
        self._reread_at = now + REREAD_EVERY_S
        starts = self._starts(list(self.unpositioned), REREAD_TIMEOUT_S, now)
        for place, start in starts.items():
            self._source.reset(start)
            del self.unpositioned[place]
        if starts:
            self._source.resume(list(starts))

    def lost(self, places: Sequence[TopicPartition]) -> None:
        for place in places:
            self.unpositioned.pop(place, None)
        # What was said about their position must not be held against the next epoch, which begins somewhere else.
        self.out_of_range = [place for place in self.out_of_range if place not in places]

    def _position(self, partition: Partition) -> dict[str, str | int]:
        """For the log: where it stood, and what decides where it goes on."""
        place = partition.place
        return {"place": str(place), "offset": partition.ledger.last + 1, "policy": self._plan.reset_of(place.topic)}

    def _choose_again(self, partitions: Sequence[Partition], handover: Handover) -> None:
        """Their position is none any more: choose another, by policy, as a new epoch without a completion map.

        Raises NoPosition; SourceError leaves them unpositioned.
        """
        places = [partition.place for partition in partitions]
        handover.forget(handover.close_down(places))
        try:
            positions = self._by_policy(places)
        except SourceError:
            self.unpositioned.update(dict.fromkeys(places))
            return
        for position in positions:
            self._source.reset(position)
        if handover.takes_in:
            self._source.resume(places)  # the old epoch may have been paused, which the new one knows nothing of

    def _starts(self, places: Sequence[TopicPartition], timeout_s: float, now: float) -> dict[TopicPartition, Position]:
        """Where each begins, as a new epoch; those of which that cannot be said yet are left out. Raises NoPosition."""
        try:
            committed = self._source.committed(places, timeout_s)
            valid = {found.place: self._is_valid(found, now) for found in committed}
            chosen = self._by_policy([place for place, is_valid in valid.items() if is_valid is False])
        except SourceError as error:
            log.warning("committed_offsets_unknown", partitions=len(places), fault=error.fault, code=error.code)
            for place in places:
                self._abandon(place)
            return {}
        found = [self._resume(found, found.offset or 0) for found in committed if valid[found.place]]
        return {position.place: position for position in (*chosen, *found)}

    def _is_valid(self, found: Committed, now: float) -> bool | None:
        """Whether this commit says where to go on; None: that must be asked for first."""
        if found.offset is None:
            return False
        written = completion.topic_of(found.metadata, offset=found.offset)
        belongs = self._identities.belongs(found.place.topic, written, now)
        if belongs is None:
            log.warning("topic_id_unknown", place=str(found.place), consequence="it waits until the brokers have told")
        elif not belongs:
            log.error(
                "commit_of_a_topic_that_is_gone",
                place=str(found.place),
                offset=found.offset,
                policy=self._plan.reset_of(found.place.topic),
                consequence="the topic was deleted and made anew: it is read by policy, not from that offset",
            )
        return belongs

    def _resume(self, found: Committed, offset: int) -> Position:
        place = found.place
        topic_id = self._identities.ids.get(place.topic, "")
        resumed, said = completion.read(found.metadata, offset=offset, topic_id=topic_id)
        partition = self._ownership.begin(place, start=offset, resumed=resumed)
        partition.committed = (offset, found.metadata)
        partition.topic_id = topic_id
        self._probation.begin(partition, said, offset)
        return Position(place, offset)

    def _by_policy(self, places: Sequence[TopicPartition]) -> list[Position]:
        """Raises NoPosition, and SourceError before anything has begun."""
        resets = {place: self._plan.reset_of(place.topic) for place in places}
        refused = [place for place, reset in resets.items() if reset == "error"]
        if refused:
            raise NoPosition(
                f"{refused[0]} has no valid committed offset for group {self._plan.group} and auto_offset_reset is"
                " 'error'; commit a starting offset for the group, or choose earliest or latest."
            )
        last = [place for place, reset in resets.items() if reset == "latest"]
        ends = self._source.ends(last, REREAD_TIMEOUT_S) if last else {}
        starts = {place: ends.get(place, BEGINNING) for place in places}
        for place, start in starts.items():
            partition = self._ownership.begin(place, start=start)
            partition.topic_id = self._identities.ids.get(place.topic, "")
            self._probation.begin(partition, "", start)
            if place in ends:
                # So that the start is committed: later records must not be skipped again.
                partition.committed = (BEGINNING, "")
                self._committer.touch(partition)
        return [Position(place, start) for place, start in starts.items()]

    def _abandon(self, place: TopicPartition) -> None:
        partition = self._ownership.get(place)
        if partition is not None:
            self._committer.forget(partition)
            self._ownership.end(partition)

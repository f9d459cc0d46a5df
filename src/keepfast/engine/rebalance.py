"""Partitions come and go: where each one starts, and how it is released (stop, finish what is in flight, commit,
forget). Owner: the loop thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from keepfast.core import commit_metadata
from keepfast.core.errors import Fault, SourceError
from keepfast.core.events import PartitionReset
from keepfast.core.lanes import Lanes
from keepfast.core.ports import BEGINNING, Clock, CommittedOffset, Position, Source
from keepfast.core.records import TopicPartition
from keepfast.core.runs import FailedRecord, Partition
from keepfast.engine.commits import Committer
from keepfast.engine.crash_guard import Probation
from keepfast.engine.events import Events, run_finished
from keepfast.engine.failures import Failures
from keepfast.engine.intake import Intake
from keepfast.engine.ownership import Ownership
from keepfast.engine.plan import Plan
from keepfast.engine.topic_ids import Identities, TopicIdsAnswer
from keepfast.telemetry.logs import get_logger

log = get_logger("keepfast.rebalance")

SERVE_S = 0.1
"""Longest wait for the answer to a commit at a time, inside a callback."""

ABSENT_S = 1.0
"""How long a commit is waited for while the broker answers and holds nothing of it. It deals with what a client sends
in order, so it has refused all of it, or the client has not sent it.
"""

SENDS = 3
"""How often a commit is sent before the partition is given up without it; its records come again."""


class Handover:
    """The steps of giving partitions up; the loop decides when each is due.

    `leases_left`: how many were given up whose lease the broker may still have.
    """

    def __init__(
        self,
        source: Source,
        ownership: Ownership,
        lanes: Lanes,
        *,
        failures: Failures,
        committer: Committer,
        intake: Intake,
        events: Events,
    ) -> None:
        self._source = source
        self._events = events
        self._ownership = ownership
        self._lanes = lanes
        self._failures = failures
        self._committer = committer
        self._intake = intake
        self._orderly = True
        self.leases_left = 0

    @property
    def takes_in(self) -> bool:
        """Whether records are still taken in: not any more once the consumer drains."""
        return not self._intake.closed

    def abandon(self) -> None:
        """The loop has failed: from now on nothing is signed off, for its end is no better than a death."""
        self._orderly = False

    def close_down(self, places: Sequence[TopicPartition]) -> list[Partition]:
        """Start nothing more of these, cut their waits short; running and dead-lettered ones continue."""
        leaving = [partition for place in places if (partition := self._ownership.get(place)) is not None]
        for partition in leaving:
            partition.closing = True
            self._lanes.drop(partition)
            for run in partition.running:
                run.stop = True
            self.drop_waiting(partition)
        return leaving

    def drop_waiting(self, partition: Partition) -> None:
        """Failed records that only wait for their next attempt are left to the next owner of the partition."""
        running = {run.failed_record for run in partition.running}
        waiting = [
            failed_record
            for failed_record in partition.failed_records
            if failed_record not in running and failed_record not in self._failures.settling
        ]
        for failed_record in waiting:
            self.drop(failed_record)
        self._failures.release_dropped(len(waiting))

    def drop(self, failed_record: FailedRecord) -> None:
        """Unfinished, and no longer owned: the next owner of the partition starts it again."""
        failed_record.dropped = True
        failed_record.partition.drop_failed(failed_record)
        self._lanes.release(failed_record)

    def commit_now(self, partitions: Sequence[Partition], clock: Clock, deadline: float) -> tuple[TopicPartition, ...]:
        """Inside a callback: commit what these partitions have, and wait for the answer until the deadline. Returns
        those of which the last commit was not confirmed.

        It is sent even when time is up: that takes none, and what is finished is not thrown away. Refused partitions
        are tried last and together, so that no other partition waits for them.
        """
        self._committer.keep(partitions)
        self._take_stock(partitions)
        self.sign_off(partitions)
        refused = [partition for partition in partitions if self._committer.is_refused(partition)]
        self._commit([partition for partition in partitions if partition not in refused], clock, deadline)
        if any(map(self._committer.is_awaited, refused)):  # else a drain has tried them for the last time
            now = clock.monotonic()
            self._committer.push(now, refused)
            self._source.serve(max(0.0, min(SERVE_S, deadline - now)))
            self._commit([one for one in refused if not self._committer.is_refused(one)], clock, deadline)
        return tuple(one.place for one in partitions if self._committer.has_pending(one))

    def _commit(self, partitions: Sequence[Partition], clock: Clock, deadline: float) -> None:
        """One that turns out to be refused meanwhile has been tried, and is not waited for; nor is a request of which
        the broker holds nothing: its answer comes later and is ignored.
        """
        sent, absent_s = 0, 0.0
        while owing := [
            one for one in partitions if self._committer.has_pending(one) and not self._committer.is_refused(one)
        ]:
            now = clock.monotonic()
            if not self._committer.under_way and sent < SENDS:
                sent, absent_s = sent + 1, 0.0
                self._committer.push(now, owing)
            elif now >= deadline or not self._committer.under_way or absent_s >= ABSENT_S:
                return
            else:
                absent_s = self._source.serve(min(SERVE_S, deadline - now))

    def sign_off(self, partitions: Iterable[Partition]) -> None:
        """The process is alive and releases these: the next owner must not treat it as crashed."""
        for partition in partitions:
            if self._orderly and partition.watch is not None and partition.watch.leave():
                self._committer.mark_dirty(partition)

    def _take_stock(self, partitions: Sequence[Partition]) -> None:
        """What runs that are still out have done so far is finished, too: only the record in flight is not."""
        for partition in partitions:
            for run in partition.running:
                if run.failed_record is None and run.done:
                    first = run.taken
                    partition.finish(run)
                    self._committer.mark_dirty(partition)
                    if self._events.wants_runs and run.taken > first:
                        self._events.emit(run_finished(self._events, run, first, run.taken))

    def forget(self, partitions: Sequence[Partition]) -> None:
        """Their epoch is over: results that still come are stale."""
        for partition in partitions:
            watch = partition.watch
            self.leases_left += watch is not None and (watch.lease > 0 or self._committer.has_pending(partition))
            running = {run.failed_record for run in partition.running}
            for failed_record in self._failures.drop(partition):
                if failed_record not in running:
                    self._lanes.release(failed_record)
            self._committer.forget(partition)
            self._intake.forget(partition)
            self._ownership.end(partition)


READ_TIMEOUT_S = 5.0
"""For the committed offsets, inside the callback."""

REREAD_TIMEOUT_S, REREAD_EVERY_S = 1.0, 2.0
"""For those that could not be read there: from the loop, again and again, so a little at a time."""


@dataclass(frozen=True, slots=True)
class _Start:
    """Where a partition without a valid commit begins. `topic_partitions` is recorded in its commits: partitions of
    the topic from this number on were added after the group started at the end of the others, so they are read from
    their beginning. `appeared`: the whole topic was, so that no policy applies.
    """

    at_end: bool
    topic_partitions: int
    appeared: bool = False


class NoPosition(Exception):
    """There is no offset to start from and the policy says not to choose one."""


class Assignment:
    """Gives each new partition its start, by the committed offset, else by policy; an error is never 'no offset'.

    `latest` is for the first start of a group only: a partition that was added to the topic later, a topic that was
    recreated and an offset outside the log continue at the beginning.

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
        events: Events,
    ) -> None:
        self._source = source
        self._events = events
        self._identities = identities
        self._ownership = ownership
        self._committer = committer
        self._plan = plan
        self._probation = probation
        self._reread_at = 0.0
        self.unpositioned: dict[TopicPartition, bool] = {}  # whether its reset is reported already
        self.out_of_range: list[TopicPartition] = []
        self._recreated: list[Partition] = []
        self._doubts: dict[TopicPartition, tuple[str, float]] = {}
        """Commits that wait for an answer about their topic's id: the id, and when it was first seen there."""

    def assigned(self, places: Sequence[TopicPartition], now: float) -> None:
        """Inside on_assigned. Raises NoPosition."""
        self._identities.suspect(now)  # without a partition, too: a topic may have been deleted
        if not places:
            return
        self._doubts.clear()  # what was answered before does not count for commits that are read now
        starts = self._starts(places, READ_TIMEOUT_S, now)
        late = [place for place in places if place not in starts]
        self._source.start([starts.get(place) or Position(place, BEGINNING) for place in places])
        for place in starts:
            self.unpositioned.pop(place, None)
        if late:
            self._source.pause(late)
            self.unpositioned.update(dict.fromkeys(late, False))
            self._reread_at = now + REREAD_TIMEOUT_S

    def step(self, now: float, handover: Handover) -> None:
        """Outside callbacks: position partitions that have no position, or one that is none. Raises NoPosition."""
        while self.out_of_range:
            partition = self._ownership.get(self.out_of_range.pop(0))
            if partition is not None and not partition.closing:
                self._report_reset(partition.place, partition.ledger.last + 1, "offset_out_of_range")
                self._begin_again([partition], handover)
        if self._recreated:
            own = [partition for partition in self._recreated if partition.live and not partition.closing]
            self._recreated = []
            for partition in own:
                self._report_reset(partition.place, partition.ledger.last + 1, "topic_recreated")
            self._begin_again(own, handover, recreated=True)
        if self.unpositioned and now >= self._reread_at:
            self._ask_again(now, handover)
        self._identities.step(now)

    def handles_error(self, error: SourceError, place: TopicPartition | None, now: float) -> bool:
        """The client reported an error. Returns whether it is about a position: then the next step handles it."""
        if error.fault in (Fault.OUT_OF_RANGE, Fault.MISSING):
            self._identities.suspect(now)
        if error.fault is not Fault.OUT_OF_RANGE or place is None:
            return False
        self.out_of_range.append(place)
        return True

    def ids_answered(self, answer: TopicIdsAnswer, now: float) -> None:
        """The topics' ids have been looked up. Partitions of one that was recreated begin again, at the next
        step.
        """
        changed = self._identities.answered(answer, now)
        self._reread_at = now  # a partition may wait for this
        self._recreated += [partition for partition in self._ownership if partition.place.topic in changed]

    def _ask_again(self, now: float, handover: Handover) -> None:
        self._reread_at = now + REREAD_EVERY_S
        starts = self._starts(list(self.unpositioned), REREAD_TIMEOUT_S, now)
        for place, start in starts.items():
            self._source.reset(start)
            del self.unpositioned[place]
        if starts and handover.takes_in:
            self._source.resume(list(starts))

    def lost(self, places: Sequence[TopicPartition]) -> None:
        for place in places:
            self.unpositioned.pop(place, None)
        # Errors about their position must not apply to the next epoch, which begins at another offset.
        self.out_of_range = [place for place in self.out_of_range if place not in places]

    def _report_reset(
        self, place: TopicPartition, offset: int, reason: Literal["offset_out_of_range", "topic_recreated"]
    ) -> None:
        policy = self._plan.reset_of(place.topic)
        self._events.emit(
            PartitionReset(*self._events.source, **place._asdict(), offset=offset, reason=reason, policy=policy)
        )

    def _begin_again(self, partitions: Sequence[Partition], handover: Handover, *, recreated: bool = False) -> None:
        """Their position is none any more: continue at the beginning, as a new epoch without a completion map.

        Raises NoPosition; SourceError leaves them unpositioned.
        """
        starts = {
            partition.place: _Start(at_end=False, topic_partitions=0 if recreated else self._count(partition))
            for partition in partitions
        }
        places = list(starts)
        handover.forget(handover.close_down(places))
        try:
            positions = self._begin(starts)
        except SourceError:
            self._source.pause(places)
            self.unpositioned.update(dict.fromkeys(places, True))
            return
        for position in positions:
            self._source.reset(position)
        if handover.takes_in:
            self._source.resume(places)  # the old epoch may have been paused, which the new one knows nothing of

    def begin_at(self, partition: Partition, offset: int, handover: Handover) -> Partition | None:
        """End this epoch and begin the next at an offset that an operator chose, without a completion map; its position
        is committed although it may lie below the last commit. None: the topic was recreated meanwhile, and is read
        from its beginning. Raises SourceError, and leaves the partition unpositioned.
        """
        place, topic_id = partition.place, self._identities.ids.get(partition.place.topic, "")
        if partition.topic_id and topic_id != partition.topic_id:
            self._begin_again([partition], handover, recreated=True)
            return None
        handover.forget([partition])
        try:
            self._source.reset(Position(place, offset))
            if handover.takes_in:
                self._source.resume([place])
        except SourceError:
            self.unpositioned[place] = False
            raise
        begun = self._ownership.begin(
            place,
            start=offset,
            topic_id=topic_id,
            topic_partitions=partition.topic_partitions,
            committed=(BEGINNING, ""),
        )
        self._probation.carry_over(partition, begun)
        return begun

    def _starts(self, places: Sequence[TopicPartition], timeout_s: float, now: float) -> dict[TopicPartition, Position]:
        """Where each begins, as a new epoch; those for which it is not known yet are left out. Raises NoPosition."""
        try:
            commits = self._source.committed([*places, *self._siblings(places)], timeout_s)
            found = {commit.place: commit for commit in commits if commit.offset is not None}
            belongs = {place: self._belongs(commit, now) for place, commit in found.items()}
            if self._plan.has_inbox:
                belongs |= {place: None for place in places if self._identities.lacks(place.topic, now)}
            starts = {place: self._start(place, found, belongs) for place in places if not belongs.get(place)}
            known = {place: start for place, start in starts.items() if start is not None}
            chosen = self._begin(known)
            self._say(places, found, belongs, known)
        except SourceError as error:
            log.warning("committed_offsets_unknown", partitions=len(places), fault=error.fault, code=error.code)
            for place in places:
                self._abandon(place)
            return {}
        resumed = [self._resume(found[place]) for place in places if belongs.get(place)]
        self._probation.report_unharmed()
        return {position.place: position for position in (*chosen, *resumed)}

    def _siblings(self, places: Sequence[TopicPartition]) -> list[TopicPartition]:
        """The other partitions of topics that may be read from their end: their commits say which were added later."""
        highest: dict[str, int] = {}
        for place in places:
            if self._plan.reset_of(place.topic) == "latest":
                highest[place.topic] = max(highest.get(place.topic, 0), place.partition)
        given = set(places)
        return [
            sibling
            for topic, number in highest.items()
            for other in range(max(number + 1, self._plan.partition_counts.get(topic, 0)))
            if (sibling := TopicPartition(topic, other)) not in given
        ]

    def _belongs(self, commit: CommittedOffset, now: float) -> bool | None:
        """Whether this commit is about the topic of today; None: that must be asked for first."""
        place, topic_id = commit.place, _origin(commit).topic_id
        doubt = self._doubts.pop(place, None)
        since = doubt[1] if doubt is not None and doubt[0] == topic_id else now
        belongs = self._identities.belongs(place.topic, topic_id, since)
        if belongs is None:
            self._doubts[place] = topic_id, since
        return belongs

    def _start(
        self,
        place: TopicPartition,
        found: Mapping[TopicPartition, CommittedOffset],
        belongs: Mapping[TopicPartition, bool | None],
    ) -> _Start | None:
        """Where a partition without a valid commit begins; None: not known yet."""
        if place in belongs and belongs[place] is None:
            return None
        if place.topic in self._plan.appeared and place not in found:
            return _Start(at_end=False, topic_partitions=0, appeared=True)
        if self._plan.reset_of(place.topic) != "latest":
            return _Start(at_end=False, topic_partitions=0)
        others = {other: good for other, good in belongs.items() if other.topic == place.topic}
        if None in others.values():
            return None
        if False in others.values() or place.topic in self._identities.recreated:
            return _Start(at_end=False, topic_partitions=0)  # the group has read the topic that had this name before
        counts = [self._recorded(found[other]) for other in others]
        count = min((one for one in counts if one is not None), default=self._first_count(place))
        return _Start(at_end=place.partition < count, topic_partitions=count)

    def _recorded(self, commit: CommittedOffset) -> int | None:
        """The number of partitions in a commit that is about the topic of today."""
        origin, known = _origin(commit), self._identities.ids.get(commit.place.topic, "")
        return origin.partitions if not origin.topic_id or not known or origin.topic_id == known else None

    def _first_count(self, place: TopicPartition) -> int:
        """What is recorded where no commit of the group says otherwise."""
        if (
            self._plan.reset_of(place.topic) != "latest"
            or place.topic in self._identities.recreated
            or place.topic in self._plan.appeared
        ):
            return 0
        return max(place.partition + 1, self._plan.partition_counts.get(place.topic, 0))

    def _count(self, partition: Partition) -> int:
        count = partition.topic_partitions
        return self._first_count(partition.place) if count is None else count

    def _say(
        self,
        places: Sequence[TopicPartition],
        found: Mapping[TopicPartition, CommittedOffset],
        belongs: Mapping[TopicPartition, bool | None],
        begun: Mapping[TopicPartition, _Start],
    ) -> None:
        """Of those whose commit was about a former topic, only once they begin again."""
        for place in places:
            if place in belongs and belongs[place] is None:
                log.warning("topic_id_unknown", place=str(place), consequence="it waits for the brokers' answer")
            elif place in belongs and place in begun and not self.unpositioned.get(place):
                self._report_reset(place, found[place].offset or 0, "topic_recreated")

    def _resume(self, found: CommittedOffset) -> Position:
        place, offset = found.place, found.offset or 0
        topic_id = self._identities.ids.get(place.topic, "")
        resumed, guard = commit_metadata.read(found.metadata, offset=offset, topic_id=topic_id)
        recorded = self._recorded(found)
        partition = self._ownership.begin(
            place,
            start=offset,
            resumed=resumed,
            topic_id=topic_id,
            topic_partitions=self._first_count(place) if recorded is None else recorded,
            committed=(offset, found.metadata),
            leader_epoch=found.leader_epoch,
        )
        self._probation.begin(partition, guard, offset)
        log.debug("partition_position", consumer=self._plan.name, place=str(place), offset=offset, start="committed")
        return Position(place, offset, leader_epoch=found.leader_epoch)

    def _begin(self, starts: Mapping[TopicPartition, _Start]) -> list[Position]:
        """Raises NoPosition, and SourceError before anything has begun."""
        resets = {place: self._plan.reset_of(place.topic) for place in starts}
        refused = [place for place, reset in resets.items() if reset == "error" and not starts[place].appeared]
        if refused:
            raise NoPosition(
                f"{refused[0]} has no valid committed offset for group {self._plan.group} and auto_offset_reset is"
                " 'error'; commit a starting offset for the group, or choose earliest or latest."
            )
        # Without earliest each start is committed at once: a restart must not take the partition for a new one.
        numbered = [place for place, reset in resets.items() if reset != "earliest"]
        last = [place for place in numbered if starts[place].at_end]
        first = [place for place in numbered if not starts[place].at_end]
        offsets = dict(self._source.ends(last, REREAD_TIMEOUT_S)) if last else {}
        if first:
            offsets |= self._source.beginnings(first, REREAD_TIMEOUT_S)
        positions = [Position(place, offsets.get(place, BEGINNING)) for place in starts]
        for place, offset in ((position.place, position.offset) for position in positions):
            partition = self._ownership.begin(
                place,
                start=offset,
                topic_id=self._identities.ids.get(place.topic, ""),
                topic_partitions=starts[place].topic_partitions,
                committed=(BEGINNING, "") if place in offsets else None,
            )
            self._probation.begin(partition, "", offset)
            shown = offset if place in offsets else None
            log.debug(
                "partition_position", consumer=self._plan.name, place=str(place), offset=shown, start=resets[place]
            )
            if place in offsets:
                self._committer.mark_dirty(partition)
        return positions

    def _abandon(self, place: TopicPartition) -> None:
        partition = self._ownership.get(place)
        if partition is not None:
            self._committer.forget(partition)
            self._ownership.end(partition)


def _origin(commit: CommittedOffset) -> commit_metadata.Origin:
    return commit_metadata.origin_of(commit.metadata, offset=commit.offset or 0)

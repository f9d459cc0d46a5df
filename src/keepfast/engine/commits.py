"""Commits: what is finished becomes known to the broker, one confirmed request at a time, never blocking the loop.

Partitions whose commits the broker refuses for a reason of their own. Owner: the loop thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from keepfast.core.commit_metadata import METADATA_LIMIT, decode, encode
from keepfast.core.crash_guard import CrashWatch
from keepfast.core.errors import Fault, SinkError, SourceError
from keepfast.core.events import CommitFailed, Committed, Held, Released
from keepfast.core.lanes import Holder, Lanes
from keepfast.core.policies import CommitPolicy
from keepfast.core.ports import BEGINNING, CommitOutcome, Position, Source
from keepfast.core.records import Output, TopicPartition
from keepfast.core.runs import FailedRecord, Partition
from keepfast.engine.events import Events
from keepfast.engine.forwarding import SendInstead, after_failure
from keepfast.engine.plan import Plan
from keepfast.engine.renewals import Renewals
from keepfast.telemetry.logs import get_logger

log = get_logger("keepfast.commit")

COMMIT_REFUSED: Final = "commit_refused"
"""The hold on a partition from the refusal of a commit until one is confirmed."""

OF_ONE_PARTITION: Final = frozenset({Fault.MISSING, Fault.REFUSED, Fault.TOO_LARGE})
"""Errors about one partition of a request. A client may report them for all partitions of it."""

FIRST_RETRY_S, MAX_RETRY_S = 0.2, 10.0


@dataclass(slots=True)
class Refusal:
    """`last_try`: the consumer drains and the last attempt was sent; nothing waits for the partition any more."""

    partition: Partition
    attempts: int = 0
    retry_at: float = 0.0
    last_try: bool = False


class Refusals:
    """Which partitions are refused, and when each is tried again, in a request of its own."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self.by_place: dict[TopicPartition, Refusal] = {}

    def __contains__(self, place: TopicPartition) -> bool:
        return place in self.by_place

    def add(self, partition: Partition, code: str, now: float) -> None:
        """A commit of it was refused: it is held until one is confirmed."""
        refusal = self.by_place.get(partition.place)
        if refusal is None:
            refusal = self.by_place[partition.place] = Refusal(partition)
            partition.holds.add(COMMIT_REFUSED)
            place = partition.place
            self._events.emit(Held(*self._events.source, hold=COMMIT_REFUSED, code=code, **place._asdict()))
        refusal.retry_at = now + min(MAX_RETRY_S, FIRST_RETRY_S * 2 ** min(refusal.attempts, 10))
        refusal.attempts += 1

    def resolve(self, partition: Partition, now: float) -> bool:
        """A commit of it was confirmed. Returns whether it was refused before: then the others are tried soon, too."""
        if self.by_place.pop(partition.place, None) is None:
            return False
        partition.holds.discard(COMMIT_REFUSED)
        for refusal in self.by_place.values():
            refusal.attempts, refusal.retry_at = 0, min(refusal.retry_at, now + FIRST_RETRY_S)
        self._events.emit(Released(*self._events.source, hold=COMMIT_REFUSED, **partition.place._asdict()))
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


GATHER_S = 0.3e-3
"""Lanes that finish this close together share a request: it costs the broker more than the wait costs them."""

END_S = 1.0
"""A position behind the last record is committed so much later, unless a commit of records has carried it along: a
topic that is written in small transactions would need twice the requests otherwise.
"""

BURSTS = 10
"""A burst is worth a commit of its own if it has this part of the records of an interval."""

FIRST_BACKOFF_S, MAX_BACKOFF_S = 0.1, 5.0
REBALANCE_BACKOFF_S = 1.0
TRIP_FAILURES, TRIP_S = 3, 5.0
"""The breaker: so many failures in a row, or an answer that takes so long, and nothing new starts until one is
confirmed.
"""

LONG_AGO: Final = float("-inf")

REBALANCE = "rebalance"
"""The hold on a partition whose commit was refused because membership is in motion."""


@dataclass(slots=True)
class SentPart:
    """One partition's part of the request under way."""

    partition: Partition
    position: Position
    holders: list[Holder]


class Committer:
    """Owner: the loop thread. `tripped` is the breaker for commits; `fatal` is set when no commit can ever succeed."""

    def __init__(
        self,
        source: Source,
        lanes: Lanes,
        plan: Plan,
        topic_ids: Mapping[str, str],
        events: Events,
        *,
        renewals: Renewals | None = None,
    ) -> None:
        self._source = source
        self.renewals = renewals
        self._renewed: dict[TopicPartition, Partition] = {}  # to be committed although nothing has changed
        self._events = events
        self._lanes = lanes
        self._policy: CommitPolicy = plan.commit
        self.each = self._policy.mode == "each"
        self._burst = max(1, self._policy.every_records // BURSTS)
        self._exactly_once = plan.exactly_once
        self.under_way = False  # a request: `_sent` says what is in it
        self._topic_ids = topic_ids
        self._dirty: dict[TopicPartition, Partition] = {}
        self._ends: dict[TopicPartition, Partition] = {}  # they have a position behind their last record,
        self._ends_at = 0.0  # which is committed then
        self._sent: dict[TopicPartition, SentPart] = {}
        self._sent_at = 0.0
        self._last_at = LONG_AGO
        self._finished = 0
        self._failures = 0
        self._not_before = LONG_AGO
        self._gather_until: float | None = None
        self._pressed = False  # a lane waits for the next commit
        self._singly: dict[TopicPartition, Partition] = {}  # one of them was refused: each gets a request of its own
        self._refusals = Refusals(events)
        self._refused = self._refusals.by_place
        self._retried = False  # the last request was a retry of a refused partition: the others go first now
        self._room = METADATA_LIMIT  # for metadata, as far as the broker is known to take it
        self.fatal: SourceError | None = None
        self.commits = 0
        self.confirmed = 0
        self.failed = 0

    def waited(self, now: float) -> float:
        """How long the request under way has been on its way."""
        return now - self._sent_at

    def tripped(self, now: float) -> bool:
        """Only while something waits to be committed: once that is not ours any more, no commit would ever end it."""
        if not (self._sent or self._dirty):
            return False
        return self._failures >= TRIP_FAILURES or (bool(self._sent) and now - self._sent_at >= TRIP_S)

    def finished(self, partition: Partition, holder: Holder, records: int) -> None:
        """Records of the holder reached their terminal fact; it releases its lanes at once, or when that is
        committed.
        """
        self._finished += records
        self._mark_dirty(partition)
        if self.each:
            partition.awaiting.append(holder)
            self._lanes.ready(partition)  # its window may have moved: others need not wait for the answer
        else:
            self._lanes.release(holder)

    def finished_failed(self, failed_record: FailedRecord) -> None:
        """A record that failed before reached its terminal fact."""
        failed_record.partition.finish_failed(failed_record)
        self.finished(failed_record.partition, failed_record, 1)

    def mark_dirty(self, partition: Partition) -> None:
        """Commit this partition's position although nothing of it was finished."""
        self._mark_dirty(partition)

    def reached_end(self, partition: Partition, now: float) -> None:
        """Nothing lies between its last record and its end: it is committed with the next records, or in a while."""
        if not self._ends:
            self._ends_at = now + END_S
        self._ends[partition.place] = partition

    def _take_ends(self) -> None:
        ends, self._ends = self._ends, {}
        for partition in ends.values():
            self._mark_dirty(partition)

    def commit_soon(self, partition: Partition) -> None:
        """As `mark_dirty`, and soon: records of this partition wait for it."""
        if self._mark_dirty(partition):
            self._pressed = True

    def _mark_dirty(self, partition: Partition) -> bool:
        """A refused partition is retried at its own time. Returns whether the next request includes this one."""
        if self._refused and partition.place in self._refused:
            return False
        self._dirty[partition.place] = partition
        return True

    def step(self, now: float, *, others_soon: bool) -> None:
        """Send what is due, if nothing is under way. `others_soon`: more results are a moment away and may share it."""
        if self._sent or now < self._not_before:
            return
        if self.renewals is not None:
            for partition in self.renewals.due(now):
                self._renewed[partition.place] = partition
                self._mark_dirty(partition)
        if self._ends and now >= self._ends_at:
            self._take_ends()
        if self._singly:
            self._send_singly(now)
            return
        refused = self._refusals.due(now) if self._refused else None
        if self._dirty and (refused is None or self._retried) and self._is_due(now, others_soon=others_soon):
            self._retried = False
            self._send(now, list(self._dirty.values()))
        elif refused is not None:
            self._retried = True
            self._send(now, [refused])

    def _is_due(self, now: float, *, others_soon: bool) -> bool:
        if self.each:
            return not others_soon or now >= self._gathered_by(now)
        return self._pressed or self._is_time(now)

    def commit_burst(self, now: float) -> None:
        """Nothing is going on: what a burst of records has finished is committed now, not at the next interval."""
        if self._dirty and self._finished >= self._burst and not self._sent and now >= self._not_before:
            self._send(now, list(self._dirty.values()))

    def _send_singly(self, now: float) -> None:
        """One of those whose common request was refused."""
        place = next(iter(self._singly))
        self._send(now, [self._singly.pop(place)])

    def _is_time(self, now: float) -> bool:
        return self._finished >= self._policy.every_records or now - self._last_at >= self._policy.every_s

    def _gathered_by(self, now: float) -> float:
        if self._gather_until is None:
            self._gather_until = now + GATHER_S
        return self._gather_until

    def due_in(self, now: float) -> float:
        """Seconds until `step` may have something to send."""
        if self._sent:
            return float("inf")
        due = self._refusals.next_at() if self._refused else float("inf")
        if self._ends:
            due = min(due, self._ends_at)
        if self._dirty:
            soon = self.each or self._pressed or self._singly
            due = min(due, self._gather_until or now if soon else self._last_at + self._policy.every_s)
        return max(0.0, due - now, self._not_before - now)

    def push(self, now: float, partitions: Iterable[Partition]) -> None:
        """Send what these partitions have, due or not, in one request: they are about to go."""
        if not self._sent:
            self._send(now, [partition for partition in partitions if self.has_pending(partition)])

    def drain(self, now: float) -> None:
        """Send everything, if nothing is under way and no failure is being waited out: the consumer is about to go.

        Refused partitions are tried once more, one by one.
        """
        if self._sent or now < self._not_before:
            return
        self._renewed.clear()
        self._take_ends()
        if self._singly:
            self._send_singly(now)
        elif self._dirty:
            self.push(now, list(self._dirty.values()))
        elif (refused := self._refusals.untried()) is not None:
            self._send(now, [refused])

    def keep(self, partitions: Iterable[Partition]) -> None:
        """Commit nothing of these again that the broker is known to have: they are about to go."""
        for partition in partitions:
            self._renewed.pop(partition.place, None)

    def has_pending(self, partition: Partition) -> bool:
        """Whether something of this partition is finished and not confirmed."""
        return partition.place in self._refusals or self._is_pending(partition)

    def is_owed(self, partition: Partition) -> bool:
        """Whether something finished in this partition is not known to be stored. A commit that would only say more
        about the process, for the crash guard, owes nothing; an unanswered transaction does, whatever it says: the next
        owner of the partition waits for its end.
        """
        if not self.has_pending(partition):
            return False
        if self._exactly_once and partition.place in self._sent:
            return True
        offset, stored = partition.committed
        same = bool(stored) and decode(stored, offset=offset) == partition.ledger.completion()
        return not same or bool(partition.outputs)

    def is_refused(self, partition: Partition) -> bool:
        """Whether the broker refuses commits of this partition, and only of it."""
        return partition.place in self._refusals

    def is_awaited(self, partition: Partition) -> bool:
        """While the consumer drains: whether a commit of this partition may still be confirmed."""
        return self._is_pending(partition) or self._refusals.awaits(partition)

    def _is_pending(self, partition: Partition) -> bool:
        return partition.place in self._dirty or partition.place in self._sent

    def _send(self, now: float, partitions: list[Partition]) -> None:
        self._last_at = self._sent_at = now
        self._finished = 0
        self._gather_until = None
        self._pressed = False
        positions: list[Position] = []
        for partition in partitions:
            place = partition.place
            self._dirty.pop(place, None)
            if self._ends:
                self._ends.pop(place, None)
            if self._singly:
                self._singly.pop(place, None)
            waiting, partition.awaiting = partition.awaiting, []
            position = self._position(partition)
            if position is None:
                self._release(waiting)
                continue
            if position.outputs:
                partition.outputs = []
            self._sent[place] = SentPart(partition, position, waiting)
            positions.append(position)
        if positions:
            self.under_way = True
            self.commits += 1
            self._source.commit(positions)

    def _position(self, partition: Partition) -> Position | None:
        finished = partition.ledger.completion()
        if finished.base < 0:
            return None  # started at the beginning and nothing received: there is no number to commit yet
        watch = partition.watch
        guard = "" if watch is None else self._guard(partition, watch, finished.base)
        # Of the topic that its offsets are about, not of the one that has its name now, if it was recreated.
        topic_id = partition.topic_id or self._topic_ids.get(partition.place.topic, "")
        count = partition.topic_partitions
        wanted = finished.bits or guard or topic_id or count is not None
        metadata = (
            encode(finished, topic_id=topic_id, partitions=count, guard=guard, limit=self._room) if wanted else ""
        )
        outputs = tuple(partition.outputs)
        if (finished.base, metadata) == partition.committed and not (outputs or partition.place in self._renewed):
            self._stored(partition)
            return None
        epoch = partition.ledger.epochs.at(finished.base)
        return Position(partition.place, finished.base, metadata, outputs, leader_epoch=epoch)

    @staticmethod
    def _guard(partition: Partition, watch: CrashWatch, base: int) -> str:
        """What the crash guard has to say with this commit; it may take some of the lease back, at once."""
        words = watch.words(base, partition.handed)
        if watch.lease < partition.lease:
            partition.lease_until(watch.lease, partition.lease_low)
        return words

    def on_committed(self, outcome: CommitOutcome, now: float) -> None:
        """The answer to the request under way."""
        sent, self._sent = self._sent, {}
        self.under_way = False
        self.confirmed += bool(outcome.confirmed)
        for position in outcome.confirmed:
            part = sent.pop(position.place, None)
            if part is None:
                continue
            partition = part.partition
            if self._renewed:
                self._renewed.pop(position.place, None)
            if partition.live:
                partition.committed = part.position.offset, part.position.metadata
                partition.outputs_done(part.position.outputs)
                partition.ledger.trim()
                partition.holds.discard(REBALANCE)
                if self._refused and self._refusals.resolve(partition, now):
                    self._dirty[position.place] = partition  # more may have finished meanwhile
                self._stored(partition)
            self._release(part.holders)
        if outcome.confirmed:
            self._failures = 0
            self._report(outcome)
        if sent:
            self._failed(sent, outcome, now)
        else:
            self._not_before = LONG_AGO

    def _report(self, outcome: CommitOutcome) -> None:
        if log.debugging:
            shown = {str(position.place): position.offset for position in outcome.confirmed}
            log.debug("committed", consumer=self._events.source[0], offsets=shown)
        if self._events.wants_commits:
            offsets = {position.place: position.offset for position in outcome.confirmed}
            self._events.emit(Committed(*self._events.source, offsets=offsets))

    def _stored(self, partition: Partition) -> None:
        """The broker holds what this partition has to say: more of it may start."""
        if partition.watch is not None:
            partition.lease_until(*partition.watch.confirmed())
        self._lanes.ready(partition)

    def _failed(self, sent: dict[TopicPartition, SentPart], outcome: CommitOutcome, now: float) -> None:
        self.failed += 1
        self._pressed = True  # a lane may wait for it
        # If the broker refused one partition, a client may report its error for all of the request.
        exact = bool(outcome.confirmed) or len(sent) == 1
        errors = {position.place: error for position, error in outcome.failed}
        passing, rebalancing, too_large = False, False, 0
        for place, part in sent.items():  # whatever was not confirmed is not committed
            if not part.partition.live:
                continue
            self._take_back(part)
            self.doubt(now, part.partition)
            error = errors.get(place)
            fault = _fault(part.partition, error)
            if fault in OF_ONE_PARTITION and not exact:
                self._singly[place] = part.partition
                continue
            self._events.emit(
                CommitFailed(
                    *self._events.source,
                    **place._asdict(),
                    offset=part.position.offset,
                    fault=fault,
                    code=error.code if error else "",
                )
            )
            if fault in (Fault.FENCED, Fault.FATAL):
                self.fatal = error
            elif fault is Fault.REBALANCING:
                rebalancing = True
                part.partition.holds.add(REBALANCE)
            elif fault is Fault.TOO_LARGE and part.position.metadata:
                too_large = max(too_large, len(part.position.metadata))
            elif fault in OF_ONE_PARTITION or place in self._refusals:
                del self._dirty[place]
                self._refusals.add(part.partition, error.code if error else "", now)
            else:
                passing = True
        if self._singly and not exact:
            log.warning("commit_partially_refused", partitions=len(self._singly), consequence="each is committed alone")
        if too_large:
            self._say_less(too_large)
        elif rebalancing:  # the next callback will say when; this is for the case that none comes
            self._not_before = now + REBALANCE_BACKOFF_S
        elif passing:
            self._failures += 1
            self._not_before = now + min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2 ** min(self._failures, 10))

    def _take_back(self, part: SentPart) -> None:
        """What this partition had in a request that failed: the next one has it again."""
        partition = part.partition
        partition.awaiting[:0] = part.holders
        if (part.position.offset, part.position.metadata) != partition.committed:
            partition.committed = (BEGINNING, "")  # it may be stored nevertheless: the state is unknown
        partition.outputs_back(part.position.outputs)
        self._dirty[partition.place] = partition

    def doubt(self, now: float, *partitions: Partition) -> None:
        """A commit of these, or of any, may be stored late, after others that followed. A transaction is never."""
        if self.renewals is not None and not self._exactly_once:
            self.renewals.doubt(now, partitions)

    def _say_less(self, refused: int) -> None:
        """The broker takes less metadata than others do: better a commit that says less than none at all."""
        if self._exactly_once:
            self.fatal = _map_does_not_fit()
            return
        self._room = refused // 2
        log.error(
            "commit_metadata_refused",
            characters=refused,
            now_at_most=self._room,
            consequence="less is remembered for a restart: of finished records above the commit, of crashes",
            what_to_do=f"let the brokers' offset.metadata.max.bytes be {METADATA_LIMIT}, their default, and restart",
        )

    def membership_settled(self, partitions: Iterable[Partition]) -> None:
        """A rebalance callback came: commits that were refused meanwhile may go again."""
        for partition in partitions:
            if REBALANCE in partition.holds:
                partition.holds.discard(REBALANCE)
                self._lanes.ready(partition)
        self._not_before = LONG_AGO

    def forget(self, partition: Partition) -> None:
        """No longer owned: nothing of it is committed or waited for."""
        self._dirty.pop(partition.place, None)
        self._renewed.pop(partition.place, None)
        self._ends.pop(partition.place, None)
        self._singly.pop(partition.place, None)
        self._refusals.forget(partition)
        self._release(partition.awaiting)
        partition.awaiting = []
        sent = self._sent.get(partition.place)
        if sent is not None and sent.partition is partition:
            self._release(sent.holders)
            sent.holders = []

    def _release(self, holders: list[Holder]) -> None:
        for holder in holders:
            self._lanes.release(holder)


def _fault(partition: Partition, error: SourceError | None) -> Fault:
    """Of a letter, or a copy for a retry topic, that the next transaction has in another form, it is a passing one."""
    if error is None or (error.refused is not None and _sends_instead(partition, *error.refused)):
        return Fault.RETRY
    return error.fault


def _sends_instead(partition: Partition, output: Output, error: SinkError) -> bool:
    """A letter, or a copy for a retry topic, was refused: whether the next transaction has it in another form."""
    if not output.kind:
        return False
    step = after_failure(output.kind, output.outgoing, error, failures=1)
    if not isinstance(step, SendInstead):
        return False
    other = Output(step.outgoing, output.kind)
    partition.outputs[partition.outputs.index(output)] = other
    partition.output_bytes += other.size - output.size
    return True


def _map_does_not_fit() -> SourceError:
    """Without it, records above the committed offset would be repeated, with all that they gave."""
    text = (
        "The broker refuses the metadata of a commit, and exactly_once depends on it: let the brokers'"
        f" offset.metadata.max.bytes be {METADATA_LIMIT}, their default, and restart."
    )
    return SourceError(text, fault=Fault.FATAL, code="OFFSET_METADATA_TOO_LARGE")

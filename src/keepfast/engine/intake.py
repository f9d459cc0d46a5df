"""From the client into the partitions' buffers, with a bound on what waits in memory. Owner: the loop thread."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

from keepfast.core.lanes import Lanes
from keepfast.core.ports import Clock, Source
from keepfast.core.records import Message, TopicPartition
from keepfast.core.retry_topics import Tiers
from keepfast.core.runs import Partition
from keepfast.engine.outcomes import OutcomeReporter
from keepfast.engine.ownership import Ownership
from keepfast.engine.plan import Plan
from keepfast.engine.retry_topics import DelayedRecords

PAUSE_AFTER_S = 0.05
"""How long a partition is full before it may be paused."""

LASTS_S, RESUME_S = 1.0, 0.6
"""A pause throws away what the client has fetched, and a partition that is resumed is fetched again when the request
for the other ones is answered, up to `fetch_max_wait_ms` (500) later. So a partition is paused only if what it holds
lasts longer than the first, at the rate at which it gets shorter, and is resumed when it lasts for the second.
"""

RECORDS_AT_MOST = 4
BYTES_AT_MOST = 2
"""So many times its quota a partition may hold for a moment, while it gets shorter or waits for the answer to a commit.
The client hands out a fetch of one partition in one stretch, which is some 4,000 small records.
"""

SWEEPS = 4
"""Sweeps in a row while the client has plenty: handing over much at once is what makes fast handlers fast."""

POLL_AT_LEAST_S = 0.1
"""However full the buffers are, the client is polled this often: callbacks and membership need it."""

IN_LANES = 4
"""So many times `buffer.records` may wait in lanes, behind others of their key: while some keys wait for a retry, the
others continue for longer than the buffer alone would let them.
"""

FULL = "full"


class Intake:
    """Sweeps the client while there is room; pauses partitions that stay full and resumes them at the low marks.

    A partition holds at most `BYTES_AT_MOST` times its quota of bytes and `RECORDS_AT_MOST` times that of records, plus
    one sweep: beyond that it is paused at once. The quota of bytes is for all that is not finished; that of records is
    for the buffer, and `IN_LANES` times that for what waits in lanes. Records in flight, and those that wait for a
    retry of their own, count by their bytes alone: there are at most as many as workers take, and as the window has
    offsets. Nothing that is unfinished waits for more to be read, so a partition that is full gets empty, whatever
    holds its lanes.
    """

    def __init__(
        self,
        source: Source,
        ownership: Ownership,
        lanes: Lanes,
        plan: Plan,
        clock: Clock,
        *,
        outcomes: OutcomeReporter,
        at_end: Callable[[Partition, float], None],
    ) -> None:
        self._source = source
        self._clock = clock
        self._at_end = at_end  # the position of a partition has moved behind its last record
        self._ownership = ownership
        self._lanes = lanes
        self._outcomes = outcomes
        self._policy = plan.buffer
        self._sweep = plan.sweep
        self._one_topic = len(plan.subscription) == 1 and plan.pattern is None
        self._waiting: DelayedRecords | None = None
        if plan.pattern is not None or len(plan.subscription) > len(plan.topics):
            self.join(plan.tiers)
        self._full: dict[TopicPartition, Partition] = {}
        self._polled_at = float("-inf")
        self._more = False  # the last sweep did not take all that the client had
        self._emptied = False  # since `was_emptied` was asked
        self.received: dict[str, int] = dict.fromkeys(plan.subscription, 0)
        """Records taken in, by topic. Any thread may read."""
        self.closed = False  # draining: whatever still arrives is left to the next owner

    def join(self, tiers: Tiers | None) -> None:
        """Records may come back from these topics, too."""
        if self._waiting is None and tiers is not None:
            self._one_topic = False
            self._waiting = DelayedRecords(
                tiers,
                self._policy,
                self._clock,
                enter=self._enter,
                reach=self._reach,
                pause=self._pause,
                resume=self._resume,
            )

    def step(self, now: float) -> None:
        """Let in what has become due."""
        if self._waiting is not None and not self.closed:
            self._waiting.step(now)

    def due_in(self, now: float) -> float:
        """Seconds until `step` may have something to let in."""
        return float("inf") if self._waiting is None or self.closed else self._waiting.due_in(now)

    def poll(self, now: float, timeout_s: float, *, inline: bool = False) -> bool:
        """Take what is there; wait up to timeout_s for something if nothing is. Whether records arrived.

        `inline`: the thread of the loop runs the handlers. No worker waits for records of other partitions then, so
        none are read while a partition is full.
        """
        self._check_marks(now)
        if timeout_s > 0:
            self._polled_at = now + timeout_s
            message = self._source.poll(timeout_s)
            if self._source.emptied:
                self._emptied = True
            if message is None:
                return False
            self._route([message])
        elif now - self._polled_at < POLL_AT_LEAST_S and (not self.has_room or (inline and self._is_draining)):
            return False
        self._polled_at = max(now, self._polled_at)
        self._more = True
        messages: list[Message] = []
        for _ in range(SWEEPS):
            messages = self._source.sweep(self._sweep)
            if messages:
                self._route(messages)
            self._more = len(messages) == self._sweep
            if not self.has_backlog:
                break
        if self._source.emptied:
            self._emptied = True
        return bool(messages) or timeout_s > 0

    @property
    def has_backlog(self) -> bool:
        """Whether the client has more, and there is room for it."""
        return self._more and not self._full

    @property
    def has_room(self) -> bool:
        """Whether a partition may take more."""
        return len(self._full) < len(self._ownership)

    @property
    def _is_draining(self) -> bool:
        """Whether a partition is full and not paused: it gets shorter, or is paused in a moment."""
        return any(FULL not in partition.pauses for partition in self._full.values())

    def serve(self, now: float, timeout_s: float) -> bool:
        """Wait for the answer to a commit, however full the buffers are. Whether a record arrived: one at most."""
        self._check_marks(now)
        self._polled_at = now
        return self.serve_on(timeout_s)

    def serve_on(self, timeout_s: float) -> bool:
        """As `serve`, right after it: the marks are not checked again."""
        message = self._source.poll(timeout_s)
        if self._source.emptied:
            self._emptied = True
        if message is not None:
            self._route([message])
        return message is not None

    def fill(self, now: float) -> None:
        """Take in what the client has of partitions that are full, up to what they may hold for a moment: it would hand
        out a record at each poll instead of waiting.
        """
        while True:
            for partition in self._full.values():
                if self._is_over(partition):
                    self._pause_full(partition, now)
            messages = self._source.sweep(self._sweep) if self._is_draining else []
            if messages:
                self._route(messages)
            if len(messages) < self._sweep:
                return

    def was_emptied(self) -> bool:
        """Whether the client had nothing to hand out at a moment since the last call of this."""
        emptied, self._emptied = self._emptied, False
        return emptied

    def reached(self, place: TopicPartition, end: int, leader_epoch: int | None = None) -> None:
        """Every record of it below this offset was returned by the source. Not all were taken in where it is closed, or
        where the partition is about to go.
        """
        partition = self._ownership.get(place)
        if partition is None or partition.closing or self.closed:
            return
        if self._waiting is None or not self._waiting.keeps_end(partition, end):
            self._reach(partition, end, leader_epoch)

    def keeps_records(self, partition: Partition) -> bool:
        """Whether records of the partition were received that it does not know yet, because they are not due."""
        return self._waiting is not None and self._waiting.keeps_records(partition)

    def _reach(self, partition: Partition, end: int, leader_epoch: int | None = None) -> None:
        if partition.ledger.reach(end, leader_epoch):
            self._at_end(partition, self._clock.monotonic())

    def close(self) -> None:
        """Take nothing more in."""
        self.closed = True
        self._full.clear()
        self._source.pause([partition.place for partition in self._ownership])

    def forget(self, partition: Partition) -> None:
        self._full.pop(partition.place, None)
        if self._waiting is not None:
            self._waiting.forget(partition)

    def _route(self, messages: list[Message]) -> None:
        if self.closed:
            return
        places: list[object]
        if self._one_topic:
            places = list(map(type(messages[0]).partition, messages))
        else:
            places = [(message.topic(), message.partition()) for message in messages]
        if places.count(places[0]) == len(places):  # the usual sweep: one stretch of one partition
            self._feed(messages)
            return
        start = 0
        for _, group in groupby(places):
            end = start + len(list(group))
            self._feed(messages[start:end])
            start = end

    def _feed(self, messages: list[Message]) -> None:
        """Records of one partition, in offset order."""
        place = TopicPartition(messages[0].topic(), messages[0].partition())
        partition = self._ownership.get(place)
        if partition is None or partition.closing:
            return  # not owned (any more): the next owner reads it again
        if self._waiting is not None and place.topic in self._waiting:
            self._waiting.admit(partition, messages)
        else:
            self._enter(partition, messages)

    def _enter(self, partition: Partition, messages: list[Message]) -> None:
        if self._outcomes.active:
            self._outcomes.note(partition, messages)
        partition.feed(messages)
        topic = partition.place.topic
        self.received[topic] = self.received.get(topic, 0) + len(messages)
        self._lanes.ready(partition)
        if self._is_full(partition):
            self._full.setdefault(partition.place, partition)

    def _is_full(self, partition: Partition) -> bool:
        """Whether it holds its quota, or more."""
        return (
            len(partition.buffer) >= self._policy.records
            or partition.in_lanes >= IN_LANES * self._policy.records
            or partition.held_bytes >= self._policy.bytes
        )

    def _is_over(self, partition: Partition) -> bool:
        """Whether it holds more than it may for a moment."""
        return (
            len(partition.buffer) >= RECORDS_AT_MOST * self._policy.records
            or partition.in_lanes >= BYTES_AT_MOST * IN_LANES * self._policy.records
            or partition.held_bytes >= BYTES_AT_MOST * self._policy.bytes
        )

    def _is_low(self, partition: Partition, now: float) -> bool:
        """Whether reading may continue. What waits in lanes may wait for long, and other keys for it: so its mark is
        only one quota below the upper one.
        """
        low = self._policy.low_records
        if FULL in partition.pauses and partition.full_since is not None and now > partition.full_since:
            rate = (partition.buffered_seq - partition.full_seq) / (now - partition.full_since)
            low = max(low, min(int(RESUME_S * rate), (RECORDS_AT_MOST - 1) * self._policy.records))
        return (
            len(partition.buffer) <= low
            and partition.in_lanes <= (IN_LANES - 1) * self._policy.records
            and partition.held_bytes <= self._policy.low_bytes
        )

    def _check_marks(self, now: float) -> None:
        for place, partition in list(self._full.items()):
            if self._is_low(partition, now):
                del self._full[place]
                partition.full_since = None
                self._resume(partition, FULL)
            elif FULL not in partition.pauses and self._must_pause(partition, now):
                self._pause_full(partition, now)

    def _pause_full(self, partition: Partition, now: float) -> None:
        self._measure(partition, now)
        self._pause(partition, FULL)

    def _measure(self, partition: Partition, now: float) -> float:
        """For how long it has been measured how fast it gets shorter: since it was first seen to be full."""
        if partition.full_since is None:
            partition.full_since, partition.full_seq = now, partition.buffered_seq
        return now - partition.full_since

    def _pause(self, partition: Partition, why: str) -> None:
        if not partition.pauses:
            self._source.pause([partition.place])
        partition.pauses.add(why)

    def _resume(self, partition: Partition, why: str) -> None:
        if why in partition.pauses:
            partition.pauses.remove(why)
            if not partition.pauses:
                self._source.resume([partition.place])

    def _must_pause(self, partition: Partition, now: float) -> bool:
        full_s = self._measure(partition, now)
        if self._is_over(partition):
            return True
        if full_s < PAUSE_AFTER_S:
            return False
        left = partition.buffered_seq - partition.full_seq  # the buffer since then
        if len(partition.buffer) * full_s > LASTS_S * left:
            return True
        if full_s >= LASTS_S:  # the rate may have changed: measured again from here
            partition.full_since, partition.full_seq = now, partition.buffered_seq
        return False

"""Where records of retry topics wait until they are due. Owner: the loop thread.

A retry topic has one delay, so its records are due in the order in which they lie there: only the first of a partition
needs a timer. Until it is due nothing of the partition is let in; it counts as received only then, so nothing else has
to know of waiting. The client is paused meanwhile: memory holds what one sweep brought.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from keepfast.core.ledger import size_of
from keepfast.core.policies import BufferPolicy
from keepfast.core.ports import Clock
from keepfast.core.records import Message
from keepfast.core.retry_topics import Returned, Tiers, remaining_s
from keepfast.core.runs import Partition
from keepfast.engine.timers import Timers

NOT_DUE = "not due"

PAUSE_FROM_S = 0.5
"""A shorter wait is not worth a pause, which throws away what the client has fetched."""

Enter = Callable[[Partition, list[Message]], None]
Reach = Callable[[Partition, int], None]
Tap = Callable[[Partition, str], None]


class _Queue:
    """What waits of one partition, in order of its offsets, each with the moment (monotonic) it is due; `end`: nothing
    lies between the last of it and this offset.
    """

    __slots__ = ("bytes", "end", "entries")

    def __init__(self) -> None:
        self.entries: deque[tuple[float, Returned]] = deque()
        self.bytes = 0
        self.end = 0


class DelayedRecords:
    """`enter` lets records in, `reach` reports the end behind them, `pause` and `resume` call the client; all are the
    intake's.
    """

    def __init__(
        self, tiers: Tiers, policy: BufferPolicy, clock: Clock, *, enter: Enter, reach: Reach, pause: Tap, resume: Tap
    ) -> None:
        self._tiers = tiers
        self._policy = policy
        self._clock = clock
        self._enter = enter
        self._reach = reach
        self._pause = pause
        self._resume = resume
        self._queues: dict[Partition, _Queue] = {}
        self._timers: Timers[Partition] = Timers(self._queues.__contains__)

    def __contains__(self, topic: str) -> bool:
        return topic in self._tiers.topics

    def admit(self, partition: Partition, messages: list[Message]) -> None:
        """Records of one partition of a retry topic, in offset order. From now on the monotonic clock counts."""
        now, wall_s = self._clock.monotonic(), self._clock.wall()
        tier = self._tiers.topics[partition.place.topic]
        queue = self._queues.get(partition)
        idle = queue is None
        queue = self._queues[partition] = queue or _Queue()
        for message in messages:
            record = Returned(message, tier, self._tiers)
            kind, timestamp_ms = message.timestamp()
            left_s = remaining_s(
                record.past, timestamp_ms if kind else None, wall_s=wall_s, delay_s=float(tier.delay_s)
            )
            queue.entries.append((now + left_s, record))
            queue.bytes += size_of(record)
        if idle:
            self._let_in(partition, queue, now)
        elif self._is_full(partition, queue):
            self._pause(partition, NOT_DUE)

    def keeps_records(self, partition: Partition) -> bool:
        """Whether records of the partition wait until they are due: the partition does not know them yet."""
        return partition in self._queues

    def keeps_end(self, partition: Partition, end: int) -> bool:
        """The partition was read up to this offset. Whether records of it wait: then it is reported behind them."""
        queue = self._queues.get(partition)
        if queue is None:
            return False
        queue.end = end
        return True

    def step(self, now: float) -> None:
        for partition in self._timers.due(now):
            queue = self._queues.get(partition)
            if queue is not None:
                self._let_in(partition, queue, now)

    def due_in(self, now: float) -> float:
        return self._timers.next_in(now)

    def forget(self, partition: Partition) -> None:
        """No longer owned: the next owner reads it again."""
        if self._queues.pop(partition, None) is not None:
            self._timers.dropped(1)

    def _let_in(self, partition: Partition, queue: _Queue, now: float) -> None:
        if partition.closing or not partition.live:
            return
        due: list[Message] = []
        while queue.entries and queue.entries[0][0] <= now:
            _, record = queue.entries.popleft()
            queue.bytes -= size_of(record)
            due.append(record)
        if due:
            self._enter(partition, due)
        if not queue.entries:
            del self._queues[partition]
            self._reach(partition, queue.end)
            self._resume(partition, NOT_DUE)
            return
        head = queue.entries[0][0]
        self._timers.add(head, partition)
        if head - now >= PAUSE_FROM_S or self._is_full(partition, queue):
            self._pause(partition, NOT_DUE)

    def _is_full(self, partition: Partition, queue: _Queue) -> bool:
        records, size = len(queue.entries) + len(partition.buffer), queue.bytes + partition.held_bytes
        return records >= self._policy.records or size >= self._policy.bytes

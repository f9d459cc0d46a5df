"""Lanes: which records may start now without breaking the order that was asked for.

A lane is the unit of order: a partition, a (topic, key), or a single record. It is held by one *holder* at a time, a
run or a case, from the start of a record until that record is finished (and, under commit="each", committed). A lane
that nobody holds and nobody waits for costs nothing. Owner: the loop thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Protocol, cast

from holdfast.core.partitions import Partition
from holdfast.core.policies import Order
from holdfast.core.records import Message, TopicPartition
from holdfast.core.runs import Case, Run

Holder = Run | Case


class Lanes(Protocol):
    """The order of one consumer."""

    def ready(self, partition: Partition) -> None:
        """Something changed: records of this partition may be able to start."""

    def take(self, limit: int, size: int) -> list[Run]:
        """Up to `limit` new runs of up to `size` records, each holding its lanes from now on."""

    def release(self, holder: Holder) -> None:
        """The holder lets go of its lanes; who waits behind it may start."""

    def split(self, run: Run, now: float) -> Case:
        """The run failed at record `run.done`: make a case of that record (it holds the lane) and put the rest back."""

    def give_back(self, run: Run) -> None:
        """The run stopped early, without a failure: put back what it did not do."""

    def drop(self, partition: Partition) -> None:
        """Forget everything of this partition that is not in flight."""


def lanes_for(order: Order) -> Lanes:
    return PartitionLanes() if order == "partition" else KeyLanes(keyed=order == "key")


class _Queue:
    """Partitions that have something to start, each once, in turn."""

    __slots__ = ("_partitions",)

    def __init__(self) -> None:
        self._partitions: deque[Partition] = deque()

    def add(self, partition: Partition) -> None:
        if not partition.queued and partition.buffer:
            partition.queued = True
            self._partitions.append(partition)

    def next(self) -> Partition | None:
        """The next one that may start; those that may not are left out until somebody adds them again."""
        while self._partitions:
            partition = self._partitions.popleft()
            partition.queued = False
            if partition.buffer and partition.startable:
                return partition
        return None


class PartitionLanes:
    """order="partition": one lane per partition, runs are consecutive records."""

    def __init__(self) -> None:
        self._queue = _Queue()
        self._busy: dict[TopicPartition, Holder] = {}
        self._parked: dict[TopicPartition, Partition] = {}  # waits for a holder of an earlier epoch

    def ready(self, partition: Partition) -> None:
        self._queue.add(partition)

    def take(self, limit: int, size: int) -> list[Run]:
        runs: list[Run] = []
        while len(runs) < limit:
            partition = self._queue.next()
            if partition is None:
                break
            if partition.place in self._busy:
                self._parked[partition.place] = partition
                continue
            run = _consecutive(partition, size)
            if run is not None:
                self._busy[partition.place] = run
                runs.append(run)
        return runs

    def release(self, holder: Holder) -> None:
        place = holder.partition.place
        if self._busy.get(place) is not holder:
            return
        del self._busy[place]
        self._queue.add(self._parked.pop(place, holder.partition))

    def split(self, run: Run, now: float) -> Case:
        at = run.done
        case = Case(run.partition, run.seqs[at], run.messages[at], (), now)
        self._busy[run.partition.place] = case
        _put_back(run, at + 1)
        return case

    def give_back(self, run: Run) -> None:
        _put_back(run, run.done)
        self.release(run)

    def drop(self, partition: Partition) -> None:
        partition.buffer.clear()
        self._parked.pop(partition.place, None)


def _consecutive(partition: Partition, size: int) -> Run | None:
    buffer = partition.buffer
    if partition.skips:
        size = _skip_finished(partition, size)
    count = min(size, len(buffer))
    if not count:
        return None
    messages = [buffer.popleft() for _ in range(count)]
    first = partition.buffered_seq
    partition.buffered_seq = first + count
    return Run(partition, messages, range(first, first + count), [])


def _skip_finished(partition: Partition, size: int) -> int:
    """Drop finished records from the front of the buffer; returns how many of the next `size` follow without one."""
    ledger = partition.ledger
    while partition.buffer and ledger.is_finished(partition.buffered_seq):
        partition.held_bytes -= len(partition.buffer.popleft())
        partition.buffered_seq += 1
    first = partition.buffered_seq
    for count in range(min(size, len(partition.buffer))):
        if ledger.is_finished(first + count):
            return count
    return size


def _put_back(run: Run, start: int) -> None:
    partition, rest = run.partition, run.messages[start:]
    if rest and partition.live and not partition.closing:
        partition.buffer.extendleft(reversed(rest))
        partition.buffered_seq = run.seqs[start]


def _front(partition: Partition, size: int) -> tuple[list[Message], Sequence[int], bool]:
    """Up to `size` records from the front of the buffer, their sequence numbers, and whether the window ended it."""
    buffer, first = partition.buffer, partition.buffered_seq
    end = partition.window_end()
    if not partition.skips and buffer[-1].offset() < end:
        count = min(size, len(buffer))
        partition.buffered_seq = first + count
        return [buffer.popleft() for _ in range(count)], range(first, first + count), False
    messages: list[Message] = []
    seqs: list[int] = []
    while buffer and len(messages) < size and buffer[0].offset() < end:
        message, seq = buffer.popleft(), partition.buffered_seq
        partition.buffered_seq += 1
        if partition.ledger.is_finished(seq):
            partition.held_bytes -= len(message)
        else:
            messages.append(message)
            seqs.append(seq)
    return messages, seqs, bool(buffer) and buffer[0].offset() >= end


class _Lane:
    """A key that somebody waits for. `queue` is what came while it was held, in order of arrival."""

    __slots__ = ("holder", "home", "key", "queue")

    def __init__(self, key: bytes, home: dict[bytes, Holder | _Lane], holder: Holder | None) -> None:
        self.key = key
        self.home = home  # the busy lanes of its topic, where it stands under its key
        self.holder = holder
        self.queue: deque[tuple[Partition, int, Message]] = deque()


def _move(lane: _Lane, run: Run, size: int) -> None:
    """What waits in the lane goes into the run, as far as it fits; the run holds the lane from now on."""
    lane.holder = run
    run.keys.append(lane.key)
    seqs = cast("list[int]", run.seqs)
    while lane.queue and lane.queue[0][0] is run.partition and (len(seqs) < size or not seqs):
        _, seq, message = lane.queue.popleft()
        run.messages.append(message)
        seqs.append(seq)


class KeyLanes:
    """order="key": one lane per (topic, key), null keys free; order="none" (`keyed` False): every record free.

    A run may carry many lanes: its worker walks the records in offset order, which keeps the order of each of them. On
    the way that goes well a lane is one dictionary entry that points to the run; a `_Lane` is made only when a record
    has to wait.
    """

    def __init__(self, *, keyed: bool) -> None:
        self._keyed = keyed
        self._queue = _Queue()
        self._busy: dict[str, dict[bytes, Holder | _Lane]] = {}
        self._waiting: deque[_Lane] = deque()  # nobody holds them and something is queued in them
        self._resumed: deque[Run] = deque()  # what a failed or stopped run left, still holding its lanes

    def ready(self, partition: Partition) -> None:
        self._queue.add(partition)

    def take(self, limit: int, size: int) -> list[Run]:
        runs = self._take_resumed(limit)
        if self._waiting:
            self._take_waiting(runs, limit, size)
        while len(runs) < limit:
            partition = self._queue.next()
            if partition is None:
                break
            if size > 1 and any(run.case is None for run in partition.running):
                continue  # a second bundle would only find its lanes held; `release` brings the partition back
            run = self._fill(partition, size)
            if run is not None:
                runs.append(run)
        return runs

    def _take_resumed(self, limit: int) -> list[Run]:
        runs: list[Run] = []
        for _ in range(len(self._resumed)):
            if len(runs) >= limit:
                break
            run = self._resumed.popleft()
            (runs if run.partition.startable else self._resumed).append(run)
        return runs

    def _take_waiting(self, runs: list[Run], limit: int, size: int) -> None:
        bundle: Run | None = None
        for _ in range(len(self._waiting)):
            lane = self._waiting[0]
            partition = lane.queue[0][0] if lane.queue else None
            fits = bundle is not None and bundle.partition is partition and len(bundle.messages) < size
            if partition is not None and not fits and len(runs) >= limit:
                return
            self._waiting.popleft()
            if partition is None:
                del lane.home[lane.key]
            elif not partition.startable:
                self._waiting.append(lane)
            else:
                if not fits:
                    bundle = Run(partition, [], [], [])
                    runs.append(bundle)
                _move(lane, cast(Run, bundle), size)

    def _fill(self, partition: Partition, size: int) -> Run | None:
        """A run from the front of the partition's buffer; records whose lane is held go to wait in it."""
        chunk, seqs, blocked = _front(partition, size)
        run = Run(partition, chunk, seqs, [])
        if self._keyed and chunk:
            self._claim(run)
        if not blocked:
            self._queue.add(partition)
        return run if run.messages else None

    def _claim(self, run: Run) -> None:
        """Take the lanes of all its records, in as few steps as possible: every record comes through here."""
        busy = self._busy.setdefault(run.partition.place.topic, {})
        keys = list(map(type(run.messages[0]).key, run.messages))
        if None not in keys:
            known = cast("list[bytes]", keys)
            owners = list(map(busy.setdefault, known, repeat(run)))
            if owners.count(run) == len(owners):  # nobody was in the way: the usual case
                run.keys = list(dict.fromkeys(known))
                return
        self._claim_one_by_one(run, busy, keys)

    def _claim_one_by_one(self, run: Run, busy: dict[bytes, Holder | _Lane], keys: list[bytes | None]) -> None:
        messages: list[Message] = []
        seqs: list[int] = []
        held: dict[bytes, None] = {}
        for message, seq, key in zip(run.messages, run.seqs, keys, strict=True):
            if key is not None:
                if busy.setdefault(key, run) is not run:
                    self._lane(busy, key).queue.append((run.partition, seq, message))
                    continue
                held[key] = None
            messages.append(message)
            seqs.append(seq)
        run.messages, run.seqs, run.keys = messages, seqs, list(held)

    @staticmethod
    def _lane(busy: dict[bytes, Holder | _Lane], key: bytes) -> _Lane:
        owner = busy[key]
        if not isinstance(owner, _Lane):
            owner = busy[key] = _Lane(key, busy, owner)
        return owner

    def release(self, holder: Holder) -> None:
        self._free(holder, holder.keys)
        self._queue.add(holder.partition)

    def _free(self, holder: Holder, keys: Iterable[bytes]) -> None:
        busy = self._busy.get(holder.partition.place.topic)
        if busy is not None:
            for key in keys:
                owner = busy.get(key)
                if owner is holder:
                    del busy[key]
                elif isinstance(owner, _Lane) and owner.holder is holder:
                    owner.holder = None
                    if owner.queue:
                        self._waiting.append(owner)
                    else:
                        del busy[key]

    def split(self, run: Run, now: float) -> Case:
        at = run.done
        message, seq = run.messages[at], run.seqs[at]
        key = message.key() if self._keyed else None
        case = Case(run.partition, seq, message, () if key is None else (key,), now)
        rest = list(zip(run.messages[at + 1 :], run.seqs[at + 1 :], strict=True))
        if key is not None:
            run.keys.remove(key)
            busy = self._busy[run.partition.place.topic]
            owner = busy[key]
            if isinstance(owner, _Lane):
                owner.holder = case
            else:
                busy[key] = case
            behind = [(run.partition, seq, message) for message, seq in rest if message.key() == key]
            if behind:
                self._lane(busy, key).queue.extendleft(reversed(behind))
                rest = [(message, seq) for message, seq in rest if message.key() != key]
        self._resume(run, rest)
        return case

    def give_back(self, run: Run) -> None:
        self._resume(run, list(zip(run.messages[run.done :], run.seqs[run.done :], strict=True)))

    def _resume(self, run: Run, rest: list[tuple[Message, int]]) -> None:
        if rest and run.partition.live and not run.partition.closing:
            needed = {message.key() for message, _ in rest}
            self._free(run, [key for key in run.keys if key not in needed])  # lanes of what it did before
            run.keys = [key for key in run.keys if key in needed]
            run.rest([message for message, _ in rest], [seq for _, seq in rest])
            self._resumed.append(run)
        else:
            self.release(run)

    def drop(self, partition: Partition) -> None:
        partition.buffer.clear()
        for lane in list(self._busy.get(partition.place.topic, {}).values()):
            if isinstance(lane, _Lane) and lane.queue:
                lane.queue = deque(entry for entry in lane.queue if entry[0] is not partition)
        for run in [run for run in self._resumed if run.partition is partition]:
            self._resumed.remove(run)
            self.release(run)

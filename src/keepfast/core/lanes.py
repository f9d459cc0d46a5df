"""Lanes: which records may start now without breaking the order that was asked for.

A lane is the unit of order: a partition, a (topic, key), or a single record. It is held by one *holder* at a time, a
run or a failed record, from the start of a record until that record is finished (and, under commit="each", committed).
A lane that is not held and has no queue costs nothing. Owner: the loop thread.

order="key", order="none" and order="queue": other keys, or all records, continue beside each other.

order="partition": records of a partition run one after another.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from itertools import repeat
from typing import Protocol, cast

from keepfast.core.batches import Batch
from keepfast.core.policies import Order
from keepfast.core.records import Message, TopicPartition
from keepfast.core.runs import FailedRecord, Partition, Run

Holder = Run | FailedRecord


class Lanes(Protocol):
    """The order of one consumer."""

    @property
    def kept(self) -> Sequence[Batch]:
        """Batches that failed and wait, or are about to run again."""
        ...

    def ready(self, partition: Partition) -> None:
        """Something changed: records of this partition may be able to start."""

    def take(self, limit: int, size: int) -> list[Run]:
        """Up to `limit` new runs of up to `size` records, each holding its lanes from now on."""
        ...

    def due_in(self, now: float) -> float:
        """Seconds until `take` gives something that it would not give now, although nothing happens until then."""
        ...

    def grow(self, size: int) -> None:
        """Lengthen runs that are out, up to `size` records, by what has come since; their workers will find it.

        A worker that was just done does not: then the run comes back with records it did not do, as if stopped early.
        """

    def lengthen(self, run: Run, size: int) -> None:
        """The same for one run that is not out yet."""

    def relieve(self, run: Run) -> None:
        """The run was asked to stop and hangs in a record: what it cannot start any more goes back at once, and so do
        the lanes of what was taken off it as finished (`Partition.take_stock`).
        """

    def replace(self, run: Run, other: Run) -> None:
        """`other` holds from now on what the run held. The two have the same keys."""

    def release(self, holder: Holder) -> None:
        """The holder releases its lanes; who waits behind it may start."""

    def waiting_behind(self, holder: Holder, *, full: bool) -> list[Partition]:
        """The holder is of an epoch that is over: partitions with records that wait for it to release a lane. `full`:
        nothing more may start, so whatever could start waits for it, too.
        """
        ...

    def queued_behind(self, holder: Holder, key: bytes | None) -> int:
        """How many records wait in the lane of this key, or of the partition, that the holder has."""
        ...

    def split(self, run: Run, now: float) -> FailedRecord:
        """The run failed at record `run.done`: make it a failed record, which holds the lane, and put the rest back."""
        ...

    def extract(self, run: Run, at: Sequence[int], now: float) -> list[FailedRecord]:
        """Make failed records of those at these positions, each holding its lane, and put the rest back.

        Below `run.done`, and before each of them in its lane, everything must be finished. Those behind another one in
        its lane are no failed records: they wait.
        """
        ...

    def cut(self, run: Run, at: Sequence[int]) -> Run:
        """Take the records at these positions out of the run, as a run that is done: it holds the lanes that the rest
        does not need. In each lane they must be the first ones.
        """
        ...

    def hand_out_at_once(self, *, on: bool, singly: bool = False) -> None:
        """Whether batches do not wait for more records, and `singly`: are of one, because one may be a killer."""

    def give_back(self, run: Run) -> None:
        """The run stopped early, without a failure: put back what it did not do."""

    def take_back(self, run: Run) -> None:
        """The run, or the batch, was handed out and did not start."""

    def drop(self, partition: Partition) -> None:
        """Forget everything of this partition that is not in flight."""


class _RecordLanes:
    """Base of lanes that hand out records one by one."""

    kept: Sequence[Batch] = ()

    def hand_out_at_once(self, *, on: bool, singly: bool = False) -> None:
        """What the loop takes of a suspect is one record already: there is no batch."""

    def give_back(self, run: Run) -> None:
        raise NotImplementedError

    def take_back(self, run: Run) -> None:
        self.give_back(run)


class Queue:
    """Partitions that have something to start, each once, in turn."""

    __slots__ = ("partitions",)

    def __init__(self) -> None:
        self.partitions: deque[Partition] = deque()

    def add(self, partition: Partition) -> None:
        if not partition.queued and partition.buffer:
            partition.queued = True
            self.partitions.append(partition)

    def all(self) -> list[Partition]:
        """Those that may start, as they stand."""
        return [partition for partition in self.partitions if partition.buffer and partition.startable]

    def next(self) -> Partition | None:
        """The next one that may start; those that may not are left out until they are added again."""
        while self.partitions:
            partition = self.partitions.popleft()
            partition.queued = False
            if partition.buffer and partition.live and not partition.closing and not partition.holds:
                return partition
        return None


def _front(partition: Partition, size: int) -> tuple[list[Message], Sequence[int], bool]:
    """Up to `size` records from the front of the buffer, their sequence numbers, and whether the window or the lease
    ended it.
    """
    buffer, first = partition.buffer, partition.buffered_seq
    end = min(partition.window_end(), partition.lease)
    messages: list[Message]
    seqs: Sequence[int]
    if partition.skips:
        messages, seqs = _skipping(partition, size, end)
    else:
        count = min(size, len(buffer))
        if buffer[count - 1].offset() >= end:
            count = bisect_left(buffer, end, hi=count, key=type(buffer[0]).offset)
        partition.buffered_seq = first + count
        messages, seqs = buffer[:count], range(first, first + count)
        del buffer[:count]
    ended = bool(buffer) and buffer[0].offset() >= end
    if (ended and end == partition.lease) or (messages and messages[-1].offset() >= partition.lease_low):
        partition.run_out()
    return messages, seqs, ended


def _skipping(partition: Partition, size: int, end: int) -> tuple[list[Message], list[int]]:
    """The same where some of the buffer may be finished already."""
    buffer = partition.buffer
    messages: list[Message] = []
    seqs: list[int] = []
    while buffer and len(messages) < size and buffer[0].offset() < end:
        message, seq = buffer.pop(0), partition.buffered_seq
        partition.buffered_seq += 1
        if partition.ledger.is_finished(seq):
            partition.held.finish((seq,), (message,))
        else:
            messages.append(message)
            seqs.append(seq)
    return messages, seqs


def _joined(first: Sequence[int], second: Sequence[int]) -> Sequence[int]:
    if isinstance(first, range) and isinstance(second, range) and first.stop == second.start:
        return range(first.start, second.stop)
    return [*first, *second]


class _Lane:
    """A key with waiting records. `queue` is what came while it was held, in order of arrival."""

    __slots__ = ("holder", "home", "key", "queue")

    def __init__(self, key: bytes, home: dict[bytes, Holder | _Lane], holder: Holder | None) -> None:
        self.key = key
        self.home = home  # the busy lanes of its topic, where it stands under its key
        self.holder = holder
        self.queue: deque[tuple[Partition, int, Message]] = deque()


def _move(lane: _Lane, run: Run, size: int) -> None:
    """What waits in the lane goes into the run, as far as it fits; the run holds the lane from now on."""
    lane.holder = run
    run.keys[lane.key] = None
    seqs = cast("list[int]", run.seqs)
    before = len(seqs)
    while lane.queue and lane.queue[0][0] is run.partition and (len(seqs) < size or not seqs):
        _, seq, message = lane.queue.popleft()
        run.messages.append(message)
        seqs.append(seq)
    run.partition.in_lanes -= len(seqs) - before


class KeyLanes(_RecordLanes):
    """order="key": one lane per (topic, key), null keys free; order="none" (`keyed` False): every record free.

    A run may carry many lanes: its worker walks the records in offset order, which keeps the order of each of them. On
    the way that goes well a lane is one dictionary entry that points to the run; a `_Lane` is made only when a record
    has to wait.
    """

    def __init__(self, *, keyed: bool) -> None:
        self._keyed = keyed
        self._queue = Queue()
        self._busy: dict[str, dict[bytes, Holder | _Lane]] = {}
        self._waiting: deque[_Lane] = deque()  # not held, and something is queued in them
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
            if size > 1 and any(run.may_grow for run in partition.running):
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
                    bundle = Run(partition, [], [], {})
                    runs.append(bundle)
                _move(lane, cast(Run, bundle), size)

    def due_in(self, now: float) -> float:  # noqa: ARG002 - nothing waits for time here
        return float("inf")

    def grow(self, size: int) -> None:
        for partition in self._queue.all():
            run = next((run for run in partition.running if run.may_grow), None)
            if run is not None:
                self.lengthen(run, size)

    def lengthen(self, run: Run, size: int) -> None:
        partition = run.partition
        if len(run.messages) >= size or not partition.buffer or not partition.startable:
            return
        chunk, seqs, _ = _front(partition, size - len(run.messages))
        if chunk:
            messages, seqs = self._claim(run, chunk, seqs)
            run.seqs = _joined(run.seqs, seqs)
            run.messages.extend(messages)

    def _fill(self, partition: Partition, size: int) -> Run | None:
        """A run from the front of the partition's buffer; records whose lane is held go to wait in it."""
        chunk, seqs, blocked = _front(partition, size)
        run = Run(partition, chunk, seqs, {})
        if chunk:
            run.messages, run.seqs = self._claim(run, chunk, seqs)
        if not blocked:
            self._queue.add(partition)
        return run if run.messages else None

    def _claim(self, run: Run, chunk: list[Message], seqs: Sequence[int]) -> tuple[list[Message], Sequence[int]]:
        """Take the lanes of these records for the run, in as few steps as possible: every record comes through here.

        Returns those that the run may do; the others wait in their lanes.
        """
        if not self._keyed:
            return chunk, seqs
        busy = self._busy.setdefault(run.partition.place.topic, {})
        keys = list(map(type(chunk[0]).key, chunk))
        distinct = dict.fromkeys(keys)
        if None not in distinct:
            owners = list(map(busy.setdefault, cast("dict[bytes, None]", distinct), repeat(run)))
            if owners.count(run) == len(owners):  # nothing was in the way: the usual case
                run.keys.update(cast("dict[bytes, None]", distinct))
                return chunk, seqs
        messages: list[Message] = []
        free: list[int] = []
        for message, seq, key in zip(chunk, seqs, keys, strict=True):
            if key is not None:
                if busy.setdefault(key, run) is not run:
                    self._lane(busy, key).queue.append((run.partition, seq, message))
                    continue
                run.keys[key] = None
            messages.append(message)
            free.append(seq)
        run.partition.in_lanes += len(chunk) - len(messages)
        return messages, free

    @staticmethod
    def _lane(busy: dict[bytes, Holder | _Lane], key: bytes) -> _Lane:
        owner = busy[key]
        if not isinstance(owner, _Lane):
            owner = busy[key] = _Lane(key, busy, owner)
        return owner

    def relieve(self, run: Run) -> None:
        at = run.current + 1
        rest = list(zip(run.messages[at:], run.seqs[at:], strict=True))
        self._queue.add(run.partition)  # it may have been passed over because this run was out
        if not run.partition.live or run.partition.closing:
            return
        run.messages, run.seqs = run.messages[:at], run.seqs[:at]
        kept = {message.key() for message in run.messages[run.taken :]} if self._keyed else set()
        relief = Run(run.partition, [], [], {})
        seqs: list[int] = []
        behind: list[tuple[Message, int]] = []
        for message, seq in rest:
            key = message.key() if self._keyed else None
            if key is not None and key in kept:
                behind.append((message, seq))
                continue
            relief.messages.append(message)
            seqs.append(seq)
            if key is not None and key in run.keys:
                self._pass_on(run, relief, key)
        relief.seqs = seqs
        busy = self._busy.setdefault(run.partition.place.topic, {})
        for message, seq in reversed(behind):
            self._lane(busy, cast(bytes, message.key())).queue.appendleft((run.partition, seq, message))
        run.partition.in_lanes += len(behind)
        if relief.messages:
            self._resumed.append(relief)
        self._let_go(run, kept)

    def _pass_on(self, run: Run, heir: Holder, key: bytes) -> None:
        run.keys.pop(key, None)
        if isinstance(heir, Run):
            heir.keys[key] = None
        self._hand(key, run, heir)

    def replace(self, run: Run, other: Run) -> None:
        busy = self._busy.get(run.partition.place.topic, {})
        for key in run.keys:
            owner = busy.get(key)
            if owner is run or (isinstance(owner, _Lane) and owner.holder is run):
                self._hand(key, run, other)

    def _hand(self, key: bytes, run: Run, holder: Holder) -> None:
        """The run holds this lane, and the holder does from now on."""
        busy = self._busy[run.partition.place.topic]
        owner = busy[key]
        if isinstance(owner, _Lane):
            owner.holder = holder
        else:
            busy[key] = holder

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

    def _let_go(self, run: Run, needed: Collection[bytes | None]) -> None:
        """The run keeps the lanes that it still needs."""
        self._free(run, [key for key in run.keys if key not in needed])
        run.keys = {key: None for key in run.keys if key in needed}

    def waiting_behind(self, holder: Holder, *, full: bool) -> list[Partition]:
        busy = self._busy.get(holder.partition.place.topic, {})
        lanes = [lane for key in holder.keys if isinstance(lane := busy.get(key), _Lane) and lane.holder is holder]
        waiting = dict.fromkeys(partition for lane in lanes for partition, _, _ in lane.queue)
        if full:
            waiting |= dict.fromkeys(self._queue.all())
            waiting |= dict.fromkeys(lane.queue[0][0] for lane in self._waiting if lane.queue)
            waiting |= dict.fromkeys(run.partition for run in self._resumed)
        return list(waiting)

    def queued_behind(self, holder: Holder, key: bytes | None) -> int:
        lane = self._busy.get(holder.partition.place.topic, {}).get(key) if self._keyed and key is not None else None
        return len(lane.queue) if isinstance(lane, _Lane) else 0

    def split(self, run: Run, now: float) -> FailedRecord:
        return self.extract(run, (run.done,), now)[0]

    def extract(self, run: Run, at: Sequence[int], now: float) -> list[FailedRecord]:
        partition, wanted = run.partition, frozenset(at)
        failed_records: list[FailedRecord] = []
        rest: list[tuple[Message, int]] = []
        behind: dict[bytes, list[tuple[Partition, int, Message]]] = {}
        for index in range(run.done, len(run.messages)):
            message, seq = run.messages[index], run.seqs[index]
            key = message.key() if self._keyed else None
            if key is not None and key in behind:
                behind[key].append((partition, seq, message))
            elif index not in wanted:
                rest.append((message, seq))
            else:
                failed_record = FailedRecord(partition, seq, message, () if key is None else (key,), now)
                failed_records.append(failed_record)
                if key is not None:
                    behind[key] = []
                    self._pass_on(run, failed_record, key)
        for key, waiting in behind.items():
            if waiting:
                self._lane(self._busy[partition.place.topic], key).queue.extendleft(reversed(waiting))
                partition.in_lanes += len(waiting)
        self._resume(run, rest)
        return failed_records

    def cut(self, run: Run, at: Sequence[int]) -> Run:
        head = Run(run.partition, [run.messages[index] for index in at], [run.seqs[index] for index in at], {})
        head.done = len(at)
        rest = sorted(set(range(len(run.messages))).difference(at))
        run.messages, run.seqs = [run.messages[index] for index in rest], [run.seqs[index] for index in rest]
        needed = {message.key() for message in run.messages}
        for key in [key for key in run.keys if key not in needed]:
            self._pass_on(run, head, key)
        return head

    def give_back(self, run: Run) -> None:
        self._resume(run, list(zip(run.messages[run.done :], run.seqs[run.done :], strict=True)))

    def _resume(self, run: Run, rest: list[tuple[Message, int]]) -> None:
        if rest and run.partition.live and not run.partition.closing:
            self._let_go(run, {message.key() for message, _ in rest})  # lanes of what it did before
            run.rest([message for message, _ in rest], [seq for _, seq in rest])
            self._resumed.append(run)
        else:
            self.release(run)

    def drop(self, partition: Partition) -> None:
        partition.buffer.clear()
        for lane in list(self._busy.get(partition.place.topic, {}).values()):
            if isinstance(lane, _Lane) and lane.queue:
                lane.queue = deque(entry for entry in lane.queue if entry[0] is not partition)
        partition.in_lanes = 0
        for run in [run for run in self._resumed if run.partition is partition]:
            self._resumed.remove(run)
            self.release(run)


class PartitionLanes(_RecordLanes):
    """order="partition": one lane per partition, runs are consecutive records."""

    def __init__(self) -> None:
        self._queue = Queue()
        self._busy: dict[TopicPartition, Holder] = {}
        self._parked: dict[TopicPartition, Partition] = {}  # waits for a holder of an earlier epoch

    def ready(self, partition: Partition) -> None:
        self._queue.add(partition)

    def take(self, limit: int, size: int) -> list[Run]:
        runs: list[Run] = []
        while self._queue.partitions and len(runs) < limit:
            partition = self._queue.next()
            if partition is None:
                break
            place = partition.place
            if place in self._busy:
                self._parked[place] = partition
            elif (run := _consecutive(partition, size)) is not None:
                self._busy[place] = run
                runs.append(run)
        return runs

    def due_in(self, now: float) -> float:  # noqa: ARG002 - nothing waits for time here
        return float("inf")

    def grow(self, size: int) -> None:
        for partition in self._queue.all():
            run = self._busy.get(partition.place)
            if not isinstance(run, Run) or run not in partition.running or not run.may_grow or partition.skips:
                continue
            self.lengthen(run, size)

    def lengthen(self, run: Run, size: int) -> None:
        partition = run.partition
        first, following = run.seqs[0], run.seqs[-1] + 1
        if following != partition.buffered_seq or not partition.startable:
            return
        count = partition.within_lease(max(0, min(size - len(run.messages), len(partition.buffer))))
        if partition.skips:
            finished = partition.ledger.is_finished
            count = next((at for at in range(count) if finished(following + at)), count)
        if count > 0:
            partition.buffered_seq += count
            run.seqs = range(first, partition.buffered_seq)
            run.messages.extend(partition.buffer[:count])
            del partition.buffer[:count]

    def relieve(self, run: Run) -> None:
        """It is all one lane, so no other worker could run any of it."""

    def replace(self, run: Run, other: Run) -> None:
        place = run.partition.place
        if self._busy.get(place) is run:
            self._busy[place] = other

    def release(self, holder: Holder) -> None:
        place = holder.partition.place
        if self._busy.get(place) is not holder:
            return
        del self._busy[place]
        self._queue.add(self._parked.pop(place) if place in self._parked else holder.partition)

    def waiting_behind(self, holder: Holder, *, full: bool) -> list[Partition]:
        place = holder.partition.place
        waiting = self._queue.all() if full else []
        if place in self._parked and self._busy.get(place) is holder:
            waiting.append(self._parked[place])
        return waiting

    def queued_behind(self, holder: Holder, key: bytes | None) -> int:  # noqa: ARG002 - the partition is the lane
        return len(holder.partition.buffer)

    def split(self, run: Run, now: float) -> FailedRecord:
        at = run.done
        failed_record = FailedRecord(run.partition, run.seqs[at], run.messages[at], (), now)
        self._busy[run.partition.place] = failed_record
        _put_back(run, at + 1)
        return failed_record

    def extract(self, run: Run, at: Sequence[int], now: float) -> list[FailedRecord]:
        """Only the first of them: the others are behind it."""
        if at[0] != run.done:
            raise ValueError("a record cannot be taken out of its lane before those in front of it are finished")
        return [self.split(run, now)]

    def cut(self, run: Run, at: Sequence[int]) -> Run:
        """The rest keeps the lane."""
        head = Run(run.partition, run.messages[: len(at)], run.seqs[: len(at)], {})
        head.done = len(at)
        run.messages, run.seqs = run.messages[len(at) :], run.seqs[len(at) :]
        return head

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
    count = partition.within_lease(min(size, len(buffer)))
    if not count:
        return None
    messages = buffer[:count]
    del buffer[:count]
    first = partition.buffered_seq
    partition.buffered_seq = end = first + count
    return Run(partition, messages, range(first, end), {})


def _skip_finished(partition: Partition, size: int) -> int:
    """Drop finished records from the front of the buffer; returns how many of the next `size` follow without one."""
    ledger = partition.ledger
    while partition.buffer and ledger.is_finished(partition.buffered_seq):
        partition.held.finish((partition.buffered_seq,), (partition.buffer.pop(0),))
        partition.buffered_seq += 1
    first = partition.buffered_seq
    for count in range(min(size, len(partition.buffer))):
        if ledger.is_finished(first + count):
            return count
    return size


def _put_back(run: Run, start: int) -> None:
    partition, rest = run.partition, run.messages[start:]
    if rest and partition.live and not partition.closing:
        partition.buffer[:0] = rest
        partition.buffered_seq = run.seqs[start]


def lanes_for(order: Order) -> Lanes:
    return PartitionLanes() if order == "partition" else KeyLanes(keyed=order == "key")

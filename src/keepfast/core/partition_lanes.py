"""order="partition": records of a partition run one after another."""

from __future__ import annotations

from collections.abc import Sequence

from keepfast.core.lanes import Holder, Queue
from keepfast.core.partitions import Partition
from keepfast.core.records import TopicPartition
from keepfast.core.runs import Case, Run


class PartitionLanes:
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
            if partition.place in self._busy:
                self._parked[partition.place] = partition
                continue
            run = _consecutive(partition, size)
            if run is not None:
                self._busy[partition.place] = run
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
        """Nobody else could work on it: it is all one lane."""

    def replace(self, run: Run, other: Run) -> None:
        place = run.partition.place
        if self._busy.get(place) is run:
            self._busy[place] = other

    def release(self, holder: Holder) -> None:
        place = holder.partition.place
        if self._busy.get(place) is not holder:
            return
        del self._busy[place]
        self._queue.add(self._parked.pop(place, holder.partition))

    def waiting_behind(self, holder: Holder, *, full: bool) -> list[Partition]:
        place = holder.partition.place
        waiting = self._queue.all() if full else []
        if place in self._parked and self._busy.get(place) is holder:
            waiting.append(self._parked[place])
        return waiting

    def split(self, run: Run, now: float) -> Case:
        at = run.done
        case = Case(run.partition, run.seqs[at], run.messages[at], (), now)
        self._busy[run.partition.place] = case
        _put_back(run, at + 1)
        return case

    def extract(self, run: Run, at: Sequence[int], now: float) -> list[Case]:
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
    partition.buffered_seq = first + count
    return Run(partition, messages, range(first, first + count), {})


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

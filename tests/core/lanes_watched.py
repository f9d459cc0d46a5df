"""What the lanes must keep to, whatever is played with them.

For each lane it is known which records have to start next, in which order, and who holds it; and which were ever
finished. The lanes may choose among what that allows, nothing else.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Sequence

from keepfast.core.lanes import Holder, KeyLanes, PartitionLanes, _Lane, lanes_for
from keepfast.core.ledger import size_of
from keepfast.core.policies import Order
from keepfast.core.records import Message, TopicPartition
from keepfast.core.runs import FailedRecord, Partition, Run

PLACES = [TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("refunds", 0)]
ALL = 1_000


class Tenure:
    """One epoch of one partition, as the model sees it."""

    def __init__(self, partition: Partition, position: int) -> None:
        self.partition = partition
        self.start = self.position = position  # indexes in the log: the first record, the next one to be fetched
        self.window_end = 0  # when the lanes were last told that the partition may have something to start
        self.passed_over = False  # since then, because a bundle of it is out
        self.unstarted: dict[Hashable, deque[int]] = defaultdict(deque)  # offsets, by lane
        self.failed_records: list[FailedRecord] = []  # waiting for their next attempt
        self.awaiting: list[Holder] = []  # finished, lanes held until the commit

    @property
    def has_run_out(self) -> bool:
        """One that takes more in. Retries of a case do not, nor does a run that was asked to stop."""
        return any(run.may_grow for run in self.partition.running)


class WatchedLanes:
    """Lanes of one order, and the books that are kept beside them."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.lanes = lanes_for(order)
        self.logs: dict[TopicPartition, list[Message]] = {place: [] for place in PLACES}
        self.committed = dict.fromkeys(PLACES, (0, ""))
        self.tenures: dict[TopicPartition, Tenure] = {}
        self.out: list[Run] = []  # with workers
        self.begun: set[Run] = set()  # runs whose record number `done` has begun
        self.cut: set[Run] = set()  # of which some records were done together
        self.tenure_of: dict[Partition, Tenure] = {}
        self.held: dict[Hashable, list[Holder]] = defaultdict(list)  # who has begun a record of a lane and not let go
        self.finished: set[tuple[TopicPartition, int]] = set()
        self.epochs = 0

    def lane(self, record: Message, partition: Partition) -> Hashable:
        place = partition.place
        if self.order == "partition":
            return place
        if self.order == "key" and record.key() is not None:
            return (place.topic, record.key())
        return (place, partition.epoch, record.offset())

    def begin(self, run: Run) -> None:
        """A worker begins the run's next record."""
        if run in self.begun:
            return
        tenure, record = self.tenure_of[run.partition], run.messages[run.done]
        lane, holder = self.lane(record, run.partition), run.failed_record or run
        assert all(other is holder for other in self.held[lane]), "two holders of one lane"
        assert run.partition.ledger.offset_of(run.seqs[run.done]) == record.offset()
        if run.failed_record is None:
            following = tenure.unstarted[lane]
            assert following, "started twice, or never received"
            assert following.popleft() == record.offset(), "not the next record of its lane"
            self.held[lane].append(run)
        self.begun.add(run)

    def end(self, run: Run) -> None:
        """A worker has come to the end of the record it began."""
        self.begin(run)
        self.begun.remove(run)
        run.done += 1

    def ready(self, partition: Partition) -> None:
        self.tell(partition)
        self.lanes.ready(partition)

    def release(self, holder: Holder) -> None:
        self.let_go(holder)
        self.tell(holder.partition)
        self.lanes.release(holder)

    def tell(self, partition: Partition) -> None:
        tenure = self.tenure_of[partition]
        tenure.window_end = partition.window_end()
        tenure.passed_over = False

    def let_go(self, holder: Holder) -> None:
        for lane in [lane for lane, holders in self.held.items() if holder in holders]:
            self.held[lane] = [other for other in self.held[lane] if other is not holder]
            if not self.held[lane]:
                del self.held[lane]

    def count(self, partition: Partition, records: Sequence[Message]) -> None:
        for record in records:
            assert (partition.place, record.offset()) not in self.finished, "finished twice"
            self.finished.add((partition.place, record.offset()))

    def take(self, limit: int, size: int) -> None:
        ends = {place: tenure.partition.window_end() for place, tenure in self.tenures.items()}
        for tenure in self.tenures.values():
            tenure.passed_over |= size > 1 and tenure.has_run_out
        runs = self.lanes.take(limit, size)
        assert len(runs) <= limit
        for run in runs:
            assert run.partition.startable
            assert 0 < len(run.messages) == len(run.seqs)
            assert self.order == "partition" or all(
                record.offset() < ends[run.partition.place] for record in run.messages
            )
            assert not run.stop
            assert (run.done, run.failure) == (0, None)
            run.partition.running.add(run)
        self.out += runs

    def grow(self, size: int) -> None:
        """Runs that are out get more."""
        self.watch_growth(lambda: self.lanes.grow(size), size)

    def watch_growth(self, grow: Callable[[], None], size: int) -> None:
        """What runs had stays as it was; nobody gets more than fits, or what must not start."""
        before = [(run, list(run.messages), list(run.seqs)) for run in self.out]
        ends = {place: tenure.partition.window_end() for place, tenure in self.tenures.items()}
        grow()
        for run, messages, seqs in before:
            added = run.messages[len(messages) :]
            assert run.messages[: len(messages)] == messages
            assert list(run.seqs)[: len(seqs)] == seqs
            assert len(run.seqs) == len(run.messages)
            assert not added or (run.may_grow and run.partition.startable and len(run.messages) <= size)
            assert self.order == "partition" or all(one.offset() < ends[run.partition.place] for one in added)

    def take_all(self, size: int) -> None:
        """Then nothing is left that could start, except where a bundle is out, behind which the next one waits."""
        self.take(ALL, size)
        busy = self.busy()
        for tenure in self.tenures.values():
            if (size > 1 and tenure.has_run_out) or (tenure.passed_over and (tenure.has_run_out or tenure.awaiting)):
                continue
            for lane, offsets in tenure.unstarted.items():
                if offsets and tenure.partition.startable and lane not in busy:
                    outside = offsets[0] >= tenure.window_end and self.order != "partition"
                    assert outside, f"{lane} could start {offsets[0]}"

    def busy(self) -> set[Hashable]:
        """Lanes that are held by whoever is out or waits, or whose turn is a partition's that is held."""
        lanes = set(self.held)
        for run in self.out:
            lanes |= {self.lane(record, run.partition) for record in run.messages}
        for tenure in self.tenures.values():
            if tenure.partition.holds:
                lanes |= {lane for lane, offsets in tenure.unstarted.items() if offsets}
        return lanes

    def check_bytes(self) -> None:
        """What is received and not finished is counted, and so is what waits in lanes."""
        for place, tenure in self.tenures.items():
            received = self.logs[place][tenure.start : tenure.position]
            unfinished = [record for record in received if (place, record.offset()) not in self.finished]
            skippable = [record for record in tenure.partition.buffer if (place, record.offset()) in self.finished]
            if not tenure.partition.closing:
                assert tenure.partition.held_bytes == sum(map(size_of, unfinished + skippable))
            assert tenure.partition.in_lanes == self._in_lanes(tenure.partition)

    def _in_lanes(self, partition: Partition) -> int:
        if not isinstance(self.lanes, KeyLanes):
            return 0
        lanes = [lane for own in self.lanes._busy.values() for lane in own.values() if isinstance(lane, _Lane)]
        return sum(entry[0] is partition for lane in lanes for entry in lane.queue)

    def assert_nothing_is_left(self) -> None:
        assert self.held == {}
        assert all(not offsets for tenure in self.tenures.values() for offsets in tenure.unstarted.values())
        lanes = self.lanes
        if isinstance(lanes, PartitionLanes):
            assert (lanes._busy, lanes._parked) == ({}, {})
        else:
            assert isinstance(lanes, KeyLanes)
            assert [lane for busy in lanes._busy.values() for lane in busy] == []
            assert (len(lanes._waiting), len(lanes._resumed)) == (0, 0)
            assert lanes._queue.next() is None

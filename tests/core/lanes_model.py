"""A small engine around the lanes: logs, workers, cases, commits and rebalances, and a model that watches them.

The model knows for each lane which records have to start next, in which order, and who holds it; it knows which records
were ever finished, and what was committed. The lanes may choose among what it allows, nothing else.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Sequence
from random import Random
from typing import ClassVar, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from holdfast.core.completion import WINDOW, CompletionMap, decode, encode
from holdfast.core.lanes import Holder, KeyLanes, PartitionLanes, lanes_for
from holdfast.core.partitions import Partition
from holdfast.core.policies import Order
from holdfast.core.records import Message, TopicPartition
from holdfast.core.runs import Case, Run
from tests.core.messages import message

T = TypeVar("T")

PLACES = [TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("refunds", 0)]
KEYS = [None, b"a", b"a", b"b", b"c"]
GAPS = [1] * 18 + [2, 5, WINDOW - 2, WINDOW, 10**12]
ALL = 1_000

picks = st.integers(0, 1_000)
places = st.sampled_from(PLACES)
keys = st.sampled_from(KEYS)
gaps = st.sampled_from(GAPS)


def pick(items: Sequence[T], number: int) -> T:
    return items[number % len(items)]


class Tenure:
    """One epoch of one partition, as the model sees it."""

    def __init__(self, partition: Partition, position: int) -> None:
        self.partition = partition
        self.start = self.position = position  # indexes in the log: the first record, the next one to be fetched
        self.window_end = 0  # when the lanes were last told that the partition may have something to start
        self.unstarted: dict[Hashable, deque[int]] = defaultdict(deque)  # offsets, by lane
        self.cases: list[Case] = []  # waiting for their next attempt
        self.awaiting: list[Holder] = []  # finished, lanes held until the commit


class LanesMachine(RuleBasedStateMachine):
    """Drives the lanes as the loop does, in any sequence."""

    order: ClassVar[Order]

    def __init__(self) -> None:
        super().__init__()
        self.lanes = lanes_for(self.order)
        self.logs: dict[TopicPartition, list[Message]] = {place: [] for place in PLACES}
        self.committed = dict.fromkeys(PLACES, (0, ""))
        self.tenures: dict[TopicPartition, Tenure] = {}
        self.out: list[Run] = []  # with workers
        self.begun: dict[Run, Tenure] = {}  # runs whose record number `done` has begun
        self.tenure_of: dict[Partition, Tenure] = {}
        self.held: dict[Hashable, list[Holder]] = defaultdict(list)  # who has begun a record of a lane and not let go
        self.finished: set[tuple[TopicPartition, int]] = set()
        self.epochs = 0

    # -- what the lanes must keep to

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
        lane, holder = self.lane(record, run.partition), run.case or run
        assert all(other is holder for other in self.held[lane]), "two holders of one lane"
        assert run.partition.ledger.offset_of(run.seqs[run.done]) == record.offset()
        if run.case is None:
            assert tenure.unstarted[lane].popleft() == record.offset(), "not the next record of its lane"
            self.held[lane].append(run)
        self.begun[run] = tenure

    def end(self, run: Run) -> None:
        """A worker has come to the end of the record it began."""
        self.begin(run)
        del self.begun[run]
        run.done += 1

    def ready(self, partition: Partition) -> None:
        self.tenure_of[partition].window_end = partition.window_end()
        self.lanes.ready(partition)

    def release(self, holder: Holder) -> None:
        self.let_go(holder)
        self.tenure_of[holder.partition].window_end = holder.partition.window_end()
        self.lanes.release(holder)

    def let_go(self, holder: Holder) -> None:
        for lane in [lane for lane, holders in self.held.items() if holder in holders]:
            self.held[lane] = [other for other in self.held[lane] if other is not holder]
            if not self.held[lane]:
                del self.held[lane]

    def count(self, partition: Partition, records: Sequence[Message]) -> None:
        for record in records:
            assert (partition.place, record.offset()) not in self.finished, "finished twice"
            self.finished.add((partition.place, record.offset()))

    # -- the world

    @initialize(inherited=st.lists(st.booleans(), max_size=10))
    def assign_all(self, inherited: list[bool]) -> None:
        """What of the first partition was finished before comes with a commit, as after a change of the order."""
        log = self.logs[PLACES[0]]
        log += [message(offset, KEYS[offset % len(KEYS)]) for offset in range(len(inherited))]
        done = [offset for offset, finished in enumerate(inherited) if finished]
        self.finished = {(PLACES[0], offset) for offset in done}
        finished = CompletionMap.from_int(0, sum(1 << offset for offset in done))
        self.committed[PLACES[0]] = (0, encode(finished))
        for place in PLACES:
            self.assign(place)

    def assign(self, place: TopicPartition) -> None:
        offset, metadata = self.committed[place]
        self.epochs += 1
        resumed = decode(metadata, offset=offset)
        partition = Partition(place, epoch=self.epochs, start=offset, resumed=resumed)
        log = self.logs[place]
        tenure = Tenure(partition, sum(record.offset() < offset for record in log))
        self.tenures[place] = self.tenure_of[partition] = tenure
        # What the broker does not know to be finished may be finished again.
        self.finished -= {
            (place, record.offset()) for record in log[tenure.position :] if record.offset() not in resumed
        }

    @rule(place=places, records=st.lists(st.tuples(gaps, keys), min_size=1, max_size=8), count=st.integers(0, 8))
    def produce(self, place: TopicPartition, records: list[tuple[int, bytes | None]], count: int) -> None:
        log = self.logs[place]
        for gap, key in records:
            offset = (log[-1].offset() if log else -1) + gap
            log.append(message(offset, key, place=place, value=b"v" * (offset % 7)))
        self.fetch(place, count)

    @rule(place=places, count=st.integers(1, 8))
    def fetch(self, place: TopicPartition, count: int) -> None:
        tenure = self.tenures[place]
        records = self.logs[place][tenure.position : tenure.position + count]
        if not records or tenure.partition.closing:
            return
        tenure.position += len(records)
        tenure.partition.feed(records)
        self.ready(tenure.partition)
        for record in records:
            if (place, record.offset()) not in self.finished:
                tenure.unstarted[self.lane(record, tenure.partition)].append(record.offset())

    @rule(place=places)
    def hold_or_let_run(self, place: TopicPartition) -> None:
        if self.tenures[place].partition.holds:
            self.let_run(place)
        else:
            self.tenures[place].partition.holds.add("operator")

    def let_run(self, place: TopicPartition) -> None:
        partition = self.tenures[place].partition
        partition.holds.clear()
        self.ready(partition)

    # -- work

    @rule(limit=st.integers(0, 4), size=st.integers(1, 5))
    def take(self, limit: int, size: int) -> None:
        ends = {place: tenure.partition.window_end() for place, tenure in self.tenures.items()}
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
        self.out += runs

    @rule()
    def take_all(self) -> None:
        """Then nothing is left that could start."""
        self.take(ALL, ALL)
        busy = self.busy()
        for tenure in self.tenures.values():
            for lane, offsets in tenure.unstarted.items():
                if offsets and tenure.partition.startable and lane not in busy:
                    outside = offsets[0] >= tenure.window_end and self.order != "partition"
                    assert outside, f"{lane} could start {offsets[0]}"

    def busy(self) -> set[Hashable]:
        """Lanes that are held by whoever is out or waits, or whose turn is a partition's that is held."""
        lanes = set(self.held)
        for run in self.out:
            lanes |= {self.lane(record, run.partition) for record in run.messages}
        awaiting = [holder for tenure in self.tenures.values() for holder in tenure.awaiting]
        for holder in self.out + awaiting:  # a run that came back for a while keeps the lanes of what it did before
            lanes |= {(holder.partition.place.topic, key) for key in holder.keys}
        for tenure in self.tenures.values():
            if tenure.partition.holds:
                lanes |= {lane for lane, offsets in tenure.unstarted.items() if offsets}
        return lanes

    @rule(number=picks)
    def work(self, number: int) -> None:
        """A worker begins a record, or comes to the end of the one it began."""
        run = self.some_run(number)
        if run in self.begun:
            self.end(run)
        elif run is not None and run.done < len(run.messages):
            self.begin(run)

    @rule(number=picks, at_once=st.booleans())
    def succeed(self, number: int, at_once: bool) -> None:
        run = self.some_run(number)
        while run is not None and run.done < len(run.messages):
            self.end(run)
        self.give(run, at_once=at_once)

    @rule(number=picks, after=st.integers(0, 3), at_once=st.booleans())
    def fail(self, number: int, after: int, at_once: bool) -> None:
        run = self.some_run(number)
        if run is None:
            return
        for _ in range(min(after, len(run.messages) - run.done - 1)):
            self.end(run)
        if run.done < len(run.messages):
            self.begin(run)
            del self.begun[run]
            run.failure = ValueError()
        self.give(run, at_once=at_once)

    @rule(number=picks, at_once=st.booleans())
    def stop(self, number: int, at_once: bool) -> None:
        run = self.some_run(number)
        if run is None:
            return
        run.stop = True
        if run in self.begun:
            self.end(run)
        self.give(run, at_once=at_once)

    def some_run(self, number: int) -> Run | None:
        """One that is out; if none is, some are taken."""
        if not self.out:
            self.take(3, 4)
        return pick(self.out, number) if self.out else None

    def give(self, run: Run | None, *, at_once: bool) -> None:
        """The run is back. `at_once`: whoever finished lets go without waiting for a commit."""
        if run is None:
            return
        self.out.remove(run)
        tenure, partition = self.tenure_of[run.partition], run.partition
        if not partition.live:
            self.release(run.case or run)
        elif run.case is not None:
            self.give_case(tenure, run, run.case, at_once=at_once)
        else:
            self.count(partition, run.messages[: run.done])
            partition.finish(run)
            if run.done == len(run.messages):
                self.finish(tenure, run, at_once=at_once)
            else:
                self.give_rest(tenure, run)

    def give_case(self, tenure: Tenure, run: Run, case: Case, *, at_once: bool) -> None:
        if run.done:
            self.count(case.partition, [case.message])
            case.partition.finish_case(case)
            self.finish(tenure, case, at_once=at_once)
        elif case.partition.closing:
            self.leave_case(case)
        else:
            tenure.cases.append(case)

    def give_rest(self, tenure: Tenure, run: Run) -> None:
        self.let_go(run)
        if run.failure is None or run.partition.closing:
            self.lanes.give_back(run)
            return
        failed = run.messages[run.done]
        case = self.lanes.split(run, 0.0)
        assert case.message is failed
        run.partition.cases.add(case)
        tenure.cases.append(case)
        self.held[self.lane(failed, run.partition)].append(case)

    def finish(self, tenure: Tenure, holder: Holder, *, at_once: bool) -> None:
        if at_once:
            self.release(holder)
        else:
            tenure.awaiting.append(holder)

    def leave_case(self, case: Case) -> None:
        case.partition.cases.discard(case)
        self.release(case)

    @rule(place=places, number=picks)
    def retry(self, place: TopicPartition, number: int) -> None:
        cases = self.tenures[place].cases
        if cases and self.tenures[place].partition.startable:
            case = pick(cases, number)
            cases.remove(case)
            self.out.append(Run(case.partition, [case.message], (case.seq,), [], case))

    # -- commits and rebalances

    @rule(place=places)
    def commit(self, place: TopicPartition) -> None:
        tenure = self.tenures[place]
        ledger = tenure.partition.ledger
        finished = ledger.completion()
        assert finished.base >= self.committed[place][0], "a commit goes backwards"
        for record in self.logs[place]:
            offset = record.offset()
            if offset < finished.base or offset in finished:
                assert (place, offset) in self.finished, f"{place} {offset} is committed and was never finished"
            elif (place, offset) in self.finished:
                assert offset > ledger.last, f"{place} {offset} is finished and missing in the map"
        self.committed[place] = (finished.base, encode(finished))
        ledger.trim()
        self.ready(tenure.partition)
        self.release_awaiting(tenure)

    def release_awaiting(self, tenure: Tenure) -> None:
        for holder in tenure.awaiting:
            self.release(holder)
        tenure.awaiting.clear()

    @rule(place=places)
    def revoke(self, place: TopicPartition) -> None:
        """First nothing new starts and what is out may come back; then the last commit, and the next epoch."""
        if self.tenures[place].partition.closing:
            self.commit(place)
            self.rebalance(place)
        else:
            self.leave(place)

    @rule(place=places, clean=st.booleans())
    def rebalance_at_once(self, place: TopicPartition, clean: bool) -> None:
        self.leave(place)
        if clean:
            self.commit(place)
        self.rebalance(place)

    def leave(self, place: TopicPartition) -> None:
        tenure = self.tenures[place]
        tenure.partition.closing = True
        self.lanes.drop(tenure.partition)
        for case in tenure.cases:
            self.leave_case(case)
        tenure.cases.clear()

    def rebalance(self, place: TopicPartition) -> None:
        """The partition goes and comes back; what is still out is stale."""
        tenure = self.tenures[place]
        self.release_awaiting(tenure)
        tenure.partition.close()
        self.assign(place)
        self.fetch(place, ALL)

    # -- always, and at the end

    @invariant()
    def bytes_are_counted_of_what_is_received_and_not_finished(self) -> None:
        for place, tenure in self.tenures.items():
            received = self.logs[place][tenure.start : tenure.position]
            unfinished = [record for record in received if (place, record.offset()) not in self.finished]
            skippable = [record for record in tenure.partition.buffer if (place, record.offset()) in self.finished]
            if not tenure.partition.closing:
                assert tenure.partition.held_bytes == sum(map(len, unfinished + skippable))

    def teardown(self) -> None:
        """Let everything come to its end: then nothing is lost, and nothing is left over."""
        for place, tenure in self.tenures.items():
            if tenure.partition.closing:
                self.revoke(place)
        for _ in range(ALL):
            self.settle()
            if all(tenure.position == len(self.logs[place]) for place, tenure in self.tenures.items()) and not self.out:
                break
        for place, log in self.logs.items():
            assert [record.offset() for record in log if (place, record.offset()) not in self.finished] == []
            partition = self.tenures[place].partition
            assert partition.ledger.watermark() == partition.ledger.last + 1
            assert (partition.held_bytes, partition.ledger.unfinished(), len(partition.buffer)) == (0, 0, 0)
        self.assert_nothing_is_left()

    def settle(self) -> None:
        for place in PLACES:
            self.let_run(place)
            self.fetch(place, ALL)
            for _ in range(len(self.tenures[place].cases)):
                self.retry(place, 0)
        self.take_all()
        while self.out:
            self.succeed(0, False)
        for place in PLACES:
            self.commit(place)
        self.take_all()

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


class ByPartition(LanesMachine):
    order = "partition"


class ByKey(LanesMachine):
    order = "key"


class Unordered(LanesMachine):
    order = "none"


def wander(machine: LanesMachine, random: Random, steps: int) -> None:
    """A long walk through the same rules: hypothesis finds small stories, this finds long ones."""
    machine.assign_all([random.random() < 0.4 for _ in range(random.randint(0, 10))])
    moves: dict[Callable[[], None], int] = {
        lambda: machine.produce(
            random.choice(PLACES),
            [(random.choice(GAPS), random.choice(KEYS)) for _ in range(random.randint(1, 8))],
            random.randint(0, 8),
        ): 10,
        lambda: machine.fetch(random.choice(PLACES), random.randint(1, 8)): 5,
        lambda: machine.hold_or_let_run(random.choice(PLACES)): 2,
        lambda: machine.take(random.randint(0, 4), random.randint(1, 5)): 15,
        machine.take_all: 2,
        lambda: machine.work(random.randrange(100)): 10,
        lambda: machine.succeed(random.randrange(100), random.random() < 0.5): 15,
        lambda: machine.fail(random.randrange(100), random.randint(0, 3), random.random() < 0.5): 8,
        lambda: machine.stop(random.randrange(100), random.random() < 0.5): 5,
        lambda: machine.retry(random.choice(PLACES), random.randrange(100)): 10,
        lambda: machine.commit(random.choice(PLACES)): 8,
        lambda: machine.revoke(random.choice(PLACES)): 3,
        lambda: machine.rebalance_at_once(random.choice(PLACES), random.random() < 0.7): 2,
    }
    for move in random.choices(list(moves), weights=list(moves.values()), k=steps):
        move()
        machine.bytes_are_counted_of_what_is_received_and_not_finished()
    machine.teardown()

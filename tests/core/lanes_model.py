"""A small engine around the lanes: logs, workers, cases, commits and rebalances, as the loop drives them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import TypeVar

from keepfast.core.commit_metadata import WINDOW, CompletionMap, decode, encode
from keepfast.core.lanes import Holder
from keepfast.core.records import Message, TopicPartition
from keepfast.core.runs import FailedRecord, Partition, Run
from tests.core.lanes_watched import ALL, PLACES, Tenure, WatchedLanes
from tests.support.messages import message

T = TypeVar("T")

KEYS = [None, b"a", b"a", b"b", b"c"]
GAPS = [1] * 18 + [2, 5, WINDOW - 2, WINDOW, 10**12]


def pick(items: Sequence[T], number: int) -> T:
    return items[number % len(items)]


class LanesModel(WatchedLanes):
    """Its moves may be called in any sequence; each checks what it can, and `come_to_an_end` the rest."""

    # -- the world

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

    def produce(self, place: TopicPartition, records: list[tuple[int, bytes | None]], count: int) -> None:
        log = self.logs[place]
        for gap, key in records:
            offset = (log[-1].offset() if log else -1) + gap
            log.append(message(offset, key, place=place, value=b"v" * (offset % 7)))
        self.fetch(place, count)

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

    def work(self, number: int) -> None:
        """A worker begins a record, or comes to the end of the one it began."""
        run = self.some_run(number)
        if run in self.begun:
            self.end(run)
        elif run is not None and not run.stop and run.done < len(run.messages):
            self.begin(run)

    def hang(self, number: int, *, between: bool) -> None:
        """A run is asked to stop and relieved, while it hangs in a record or (`between`) just before one."""
        run = self.some_run(number)
        if run is None or run.failed_record is not None or run.stop or run in self.cut:
            return  # a batch, of which a part was done, is never relieved
        run.stop = True
        run.current = run.done if run in self.begun or between else run.done - 1
        self.tell(run.partition)
        if number % 3:
            self.take_stock(run)
        self.lanes.relieve(run)

    def take_stock(self, run: Run) -> None:
        """What it did before the record in flight is finished, and its lanes are free."""
        done, kept = run.messages[: run.current], run.messages[run.current : run.current + 1]
        if run.partition.take_stock(run):
            self.count(run.partition, done)
            in_hand = {self.lane(record, run.partition) for record in kept}
            for lane in {self.lane(record, run.partition) for record in done} - in_hand:
                self.held[lane] = [holder for holder in self.held[lane] if holder is not run]
                if not self.held[lane]:
                    del self.held[lane]

    def time_out(self, number: int, *, at_once: bool) -> None:
        """A run is given up at a record that does not end: a stand-in comes back, whatever its worker does."""
        run = self.some_run(number)
        if run is None or run.done == len(run.messages) or (run.stop and run not in self.begun):
            return
        self.begin(run)
        self.begun.remove(run)
        run.current = run.done
        if not run.stop:
            run.stop = True
            if run.failed_record is None:
                self.tell(run.partition)
                self.take_stock(run)
                self.lanes.relieve(run)
        other = run.stand_in(run.done, TimeoutError(), 0.0)
        if run.failed_record is None:
            self.lanes.replace(run, other)
            self.held = defaultdict(
                list, {lane: [other if one is run else one for one in self.held[lane]] for lane in self.held}
            )
        self.out[self.out.index(run)] = other
        run.partition.running.discard(run)
        run.partition.running.add(other)
        run.done += 1  # so its worker came to an end after all
        self.give(other, at_once=at_once)

    def succeed(self, number: int, *, at_once: bool) -> None:
        run = self.some_run(number)
        while run is not None and run.done < len(run.messages) and (not run.stop or run in self.begun):
            self.end(run)
        self.give(run, at_once=at_once)

    def fail(self, number: int, after: int, *, at_once: bool) -> None:
        run = self.some_run(number)
        if run is None:
            return
        if run.stop and run not in self.begun:
            self.give(run, at_once=at_once)
            return
        for _ in range(min(after, len(run.messages) - run.done - 1)):
            self.end(run)
        if run.done < len(run.messages):
            self.begin(run)
            self.begun.remove(run)
            run.failure = ValueError()
        self.give(run, at_once=at_once)

    def stop(self, number: int, *, at_once: bool) -> None:
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
        run.partition.running.discard(run)
        tenure, partition = self.tenure_of[run.partition], run.partition
        if not partition.live:
            self.release(run.failed_record or run)
        elif run.failed_record is not None:
            self.give_case(tenure, run, run.failed_record, at_once=at_once)
        else:
            self.count(partition, run.messages[run.taken : run.done])
            partition.finish(run)
            if run.done == len(run.messages):
                self.finish(tenure, run, at_once=at_once)
            else:
                self.give_rest(tenure, run)

    def give_case(self, tenure: Tenure, run: Run, failed_record: FailedRecord, *, at_once: bool) -> None:
        if run.done:
            self.count(failed_record.partition, [failed_record.message])
            failed_record.partition.finish_failed(failed_record)
            self.finish(tenure, failed_record, at_once=at_once)
        elif failed_record.partition.closing:
            self.leave_case(failed_record)
        else:
            tenure.failed_records.append(failed_record)

    def give_rest(self, tenure: Tenure, run: Run) -> None:
        self.let_go(run)
        if run.failure is None or run.partition.closing:
            self.lanes.give_back(run)
            return
        failed = run.messages[run.done]
        failed_record = self.lanes.split(run, 0.0)
        assert failed_record.message is failed
        run.partition.failed_records.add(failed_record)
        tenure.failed_records.append(failed_record)
        self.held[self.lane(failed, run.partition)].append(failed_record)

    # -- batches: several records of a run begin and end together

    def untouched_run(self, number: int) -> Run | None:
        run = self.some_run(number)
        if run is None or run.failed_record is not None or run.stop or run.done or run in self.begun:
            return None
        return run if run.partition.live and not run.partition.closing else None

    def lengthen(self, number: int, size: int) -> None:
        run = self.untouched_run(number)
        if run is not None:
            self.watch_growth(lambda: self.lanes.lengthen(run, size), size)

    def do_some(self, number: int, chosen: list[bool], *, at_once: bool) -> None:
        """Some of a run are done, in each lane the first ones, and go their own way."""
        run = self.untouched_run(number)
        done = self.first_of_their_lanes(run, chosen, whole=True) if run is not None else []
        if run is None or not done or len(done) == len(run.messages):
            return
        records = [run.messages[at] for at in done]
        for record in records:
            self.start(run, record)
        head = self.lanes.cut(run, done)
        self.cut.add(run)
        assert (head.messages, head.done) == (records, len(done))
        kept = {self.lane(record, run.partition) for record in run.messages}
        for lane in {self.lane(record, run.partition) for record in records} - kept:
            self.held[lane] = [head if holder is run else holder for holder in self.held[lane]]
        self.count(run.partition, records)
        run.partition.finish(head)
        self.finish(self.tenure_of[run.partition], head, at_once=at_once)

    def fail_some(self, number: int, chosen: list[bool]) -> None:
        """Some of a run have failed, each the first one of its lane; what lies behind them in their lanes must wait."""
        run = self.untouched_run(number)
        failed = self.first_of_their_lanes(run, chosen, whole=False) if run is not None else []
        if run is None or not failed:
            return
        records = [run.messages[at] for at in failed]
        for record in records:
            self.start(run, record)
        self.out.remove(run)
        run.partition.running.discard(run)
        self.let_go(run)
        failed_records = self.lanes.extract(run, failed, 0.0)
        assert [failed_record.message for failed_record in failed_records] == records
        for failed_record in failed_records:
            failed_record.partition.failed_records.add(failed_record)
            self.tenure_of[failed_record.partition].failed_records.append(failed_record)
            self.held[self.lane(failed_record.message, failed_record.partition)].append(failed_record)

    def first_of_their_lanes(self, run: Run, chosen: list[bool], *, whole: bool) -> list[int]:
        """Positions of chosen records that are not behind one that is not chosen; or (not `whole`) behind any."""
        blocked: set[Hashable] = set()
        found = []
        for at, record in enumerate(run.messages):
            lane = self.lane(record, run.partition)
            if lane not in blocked and pick(chosen, at):
                found.append(at)
                blocked |= set() if whole else {lane}
            else:
                blocked.add(lane)
        return found

    def start(self, run: Run, record: Message) -> None:
        lane = self.lane(record, run.partition)
        assert all(other is run for other in self.held[lane]), "two holders of one lane"
        assert self.tenure_of[run.partition].unstarted[lane].popleft() == record.offset(), "not the next of its lane"
        self.held[lane].append(run)

    def finish(self, tenure: Tenure, holder: Holder, *, at_once: bool) -> None:
        if at_once:
            self.release(holder)
        else:
            tenure.awaiting.append(holder)

    def leave_case(self, failed_record: FailedRecord) -> None:
        failed_record.partition.failed_records.discard(failed_record)
        self.release(failed_record)

    def retry(self, place: TopicPartition, number: int) -> None:
        failed_records = self.tenures[place].failed_records
        if failed_records and self.tenures[place].partition.startable:
            failed_record = pick(failed_records, number)
            failed_records.remove(failed_record)
            run = Run(failed_record.partition, [failed_record.message], (failed_record.seq,), {}, failed_record)
            run.partition.running.add(run)
            self.out.append(run)

    # -- commits and rebalances

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

    def revoke(self, place: TopicPartition) -> None:
        """First nothing new starts and what is out may come back; then the last commit, and the next epoch."""
        if self.tenures[place].partition.closing:
            self.commit(place)
            self.rebalance(place)
        else:
            self.leave(place)

    def rebalance_at_once(self, place: TopicPartition, *, clean: bool) -> None:
        self.leave(place)
        if clean:
            self.commit(place)
        self.rebalance(place)

    def leave(self, place: TopicPartition) -> None:
        tenure = self.tenures[place]
        tenure.partition.closing = True
        self.lanes.drop(tenure.partition)
        for failed_record in tenure.failed_records:
            self.leave_case(failed_record)
        tenure.failed_records.clear()

    def rebalance(self, place: TopicPartition) -> None:
        """The partition goes and comes back; what is still out is stale."""
        tenure = self.tenures[place]
        self.release_awaiting(tenure)
        tenure.partition.close()
        self.assign(place)
        self.fetch(place, ALL)

    # -- the end

    def come_to_an_end(self) -> None:
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
            for _ in range(len(self.tenures[place].failed_records)):
                self.retry(place, 0)
        self.take_all(ALL)
        while self.out:
            self.succeed(0, at_once=False)
        for place in PLACES:
            self.commit(place)
        self.take_all(ALL)

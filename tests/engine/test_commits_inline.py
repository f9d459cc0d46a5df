"""Records of one partition that run on the loop's own thread, with a confirmed commit after each."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from keepfast.core import crash_guard
from keepfast.core.commit_metadata import read
from keepfast.core.errors import Fault, SourceError
from keepfast.core.events import Committed, Event, RunFinished
from keepfast.core.policies import RetryPolicy
from keepfast.core.ports import Position
from keepfast.core.records import Message
from keepfast.core.runs import Run
from keepfast.engine.workers import Superseded
from tests.engine.world import World, refusing


class Alone(World):
    """`log`: what is handled, committed, and confirmed, in this order. `meanwhile` is called once, while an answer is
    awaited, when so many records are done.
    """

    def __init__(self, handle: Callable[[list[str]], object] = lambda values: None, **options: Any) -> None:
        self.log: list[str] = []
        self.meanwhile: tuple[int, Callable[[], object]] | None = None
        self.walked = 0
        super().__init__(self._note(handle), batch=None, inline=True, **{"partitions": 1, **options})
        commit, answer, walk = self.source.commit, self.source.answer, self.here.walk

        def committing(positions: list[Position]) -> None:
            self.log += [f"commits {position.offset}" for position in positions]
            commit(positions)

        def answering() -> None:
            if self.meanwhile is not None and len(self.done) == self.meanwhile[0]:
                do, self.meanwhile = self.meanwhile[1], None
                do()
            before = dict(self.source.committed_at)
            answer()
            if self.source.committed_at != before:
                self.log += [f"confirmed {position.offset}" for position in self.source.committed_at.values()]

        def walking(run: Run) -> None:
            self.walked += 1
            walk(run)

        self.source.commit, self.source.answer = committing, answering  # type: ignore[method-assign, assignment]
        self.here.walk = walking  # type: ignore[method-assign]

    def _note(self, handle: Callable[[list[str]], object]) -> Callable[[list[str]], object]:
        def noted(values: list[str]) -> object:
            self.log += [f"handles {value.partition(':')[2]}" for value in values]
            return handle(values)

        return noted

    def warm_up(self) -> None:
        """The first record tells that the handler is fast."""
        self.feed("a")
        for _ in range(5):
            self.step()
            if self.workers.out:
                self.work()
        assert (self.committed(), self.loop.sizer.inline) == (1, True)
        self.log.clear()
        self.done.clear()
        self.calls.clear()
        self.walked = 0

    def until(self, count: int, *, pass_s: float = 0.0) -> None:
        """So many records are done."""
        for _ in range(100):
            if len(self.done) >= count:
                return
            self.step(pass_s=pass_s)
            while self.workers.out:
                self.work()
        raise AssertionError(f"{self.done} after 100 turns")

    def settle(self) -> None:
        for _ in range(10):
            self.step()


def offsets(world: World) -> list[int]:
    return [int(value.partition(":")[2]) for value in world.done]


def expected(*numbers: int) -> list[str]:
    return [
        word for number in numbers for word in (f"handles {number}", f"commits {number + 1}", f"confirmed {number + 1}")
    ]


def test_each_record_begins_when_the_commit_of_the_one_before_it_is_confirmed() -> None:
    world = Alone()
    world.warm_up()
    world.feed("a" * 20)
    world.until(20)
    world.settle()
    assert world.walked == 20, "that is what is tested here"
    assert world.log == expected(*range(1, 21))
    assert world.committed() == 21


def test_everything_is_counted_as_if_it_had_come_back_one_by_one() -> None:
    world = Alone()
    world.warm_up()
    sent, confirmed = world.loop.committer.commits, world.loop.committer.confirmed
    world.feed("a" * 20)
    world.until(20)
    world.settle()
    [partition] = world.loop.ownership
    assert world.loop.processed == 21
    assert (world.loop.committer.commits - sent, world.loop.committer.confirmed - confirmed) == (20, 20)
    assert (world.loop.in_flight, partition.running, partition.awaiting) == ({}, {}, [])
    assert (partition.held_bytes, partition.ledger.unfinished(), partition.buffer) == (0, 0, [])
    assert not world.loop.committer.has_pending(partition)


def test_offsets_that_do_not_exist_are_committed_over() -> None:
    world = Alone()
    world.warm_up()
    world._ends[world.places[0]] = 7
    world.feed("aa")
    world._ends[world.places[0]] = 20
    world.feed("a")
    world.until(3)
    world.settle()
    assert [word for word in world.log if word.startswith("commits")] == ["commits 8", "commits 20", "commits 21"]


def test_a_record_that_arrives_meanwhile_comes_after_those_that_were_there() -> None:
    world = Alone()
    world.warm_up()
    world.feed("aaaa")
    world.meanwhile = 2, lambda: world.feed("aaa")
    world.until(7)
    world.settle()
    assert world.log == expected(*range(1, 8))


@pytest.mark.parametrize("done", [1, 3])
def test_a_partition_that_is_revoked_meanwhile_starts_nothing_more_and_is_committed(done: int) -> None:
    world = Alone()
    world.warm_up()
    world.feed("a" * 6)
    world.meanwhile = done, lambda: world.revoke(0)
    world.until(done)
    world.settle()
    assert offsets(world) == list(range(1, done + 1))
    assert world.committed() == done + 1
    assert len(world.loop.ownership) == 0
    assert not world.loop.in_flight


def test_one_that_is_lost_meanwhile_starts_nothing_more() -> None:
    world = Alone()
    world.warm_up()
    world.feed("a" * 6)
    world.meanwhile = 3, lambda: world.loop.on_lost(world.places)
    world.until(3)
    world.settle()
    assert offsets(world) == [1, 2, 3]
    assert not world.loop.in_flight


def test_the_end_of_the_partition_that_is_reached_meanwhile_is_committed_in_its_turn() -> None:
    world = Alone()
    world.warm_up()
    world.feed("a" * 6)
    world.meanwhile = 2, lambda: world.loop.on_end(world.places[0], 12)
    world.until(6)
    world.settle()
    world.step(pass_s=2)
    world.settle()
    assert offsets(world) == [1, 2, 3, 4, 5, 6]
    assert world.committed() == 12


def test_a_commit_that_fails_is_repeated_and_nothing_starts_before_it_is_confirmed() -> None:
    world = Alone()
    world.warm_up()
    world.feed("a" * 5)
    refused = world.source.refused
    world.meanwhile = 2, lambda: refused.update({world.places[0]: Fault.RETRY})
    world.until(2)
    world.settle()
    assert offsets(world) == [1, 2]
    refused.clear()
    world.until(5, pass_s=1)
    world.settle()
    assert offsets(world) == [1, 2, 3, 4, 5]
    handled = [at for at, word in enumerate(world.log) if word == "handles 3"]
    assert "confirmed 3" in world.log[: handled[0]]
    assert world.committed() == 6


def test_a_commit_that_is_not_answered_lets_nothing_start() -> None:
    world = Alone()
    world.warm_up()
    world.feed("a" * 5)

    def silence() -> None:
        world.source.answers = False

    world.meanwhile = 3, silence
    world.until(3)
    world.settle()
    assert offsets(world) == [1, 2, 3]
    world.source.answers = True
    world.until(5)
    world.settle()
    assert world.log == expected(1, 2, 3, 4, 5)


@pytest.mark.parametrize("bad", [1, 2, 4])
def test_a_record_that_fails_is_retried_in_its_place(bad: int) -> None:
    failures = iter([ConnectionError("no"), None])
    world = Alone(lambda values: _raise(next(failures)) if values == [f"0:{bad}"] else None)
    world.warm_up()
    world.feed("a" * 5)
    world.until(5, pass_s=0.5)
    world.settle()
    assert offsets(world) == [1, 2, 3, 4, 5]
    assert world.committed() == 6
    assert world.loop.processed == 6


def test_one_that_is_rejected_is_dead_lettered_and_the_others_continue() -> None:
    world = Alone(refusing("0:3"), retry=RetryPolicy(max_retries=0, initial_delay_ms=1, jitter=False))
    world.warm_up()
    world.feed("a" * 5)
    world.until(4, pass_s=0.5)
    world.settle()
    assert (offsets(world), world.dead_lettered, world.committed()) == ([1, 2, 4, 5], ["0:3"], 6)


def test_records_that_the_filter_drops_are_counted_as_such() -> None:
    world = Alone()
    world.warm_up()
    names = world.feed("a" * 6)
    world.dropped_by_filter.update(names[1:3])
    world.until(4)
    world.settle()
    counts = world.loop.counts[world.places[0].topic]
    assert (offsets(world), world.committed()) == ([1, 4, 5, 6], 7)
    assert (counts.processed, counts.filtered) == (5, 2)


@pytest.mark.parametrize("at", [2, 4], ids=["in an early record", "in a later one"])
def test_a_handler_that_hangs_loses_the_loop_and_its_record_is_in_flight(at: int) -> None:
    world = Alone()
    world.warm_up()
    world.feed("a" * 5)
    hung: list[int] = []

    def hangs(values: list[str]) -> None:
        if values == [f"0:{at}"]:  # and meanwhile another thread drives the loop
            world.here.lose_the_loop()
            world.loop.taken_over()
            world.settle()
            hung.append(len(world.loop.in_flight))
            assert offsets(world) == list(range(1, at)), "nothing starts beside it"
            assert world.committed() == at

    handle, world._handle = world._handle, hangs
    with pytest.raises(Superseded):
        world.until(5)
    assert hung == [1]
    world._handle = handle
    world.until(5)  # it has come back, after all
    world.settle()
    assert offsets(world) == [1, 2, 3, 4, 5]
    assert (world.committed(), world.loop.processed) == (6, 6)


def test_a_handler_that_hangs_and_fails_after_all_is_retried_in_its_place() -> None:
    world = Alone()
    world.warm_up()
    world.feed("a" * 5)

    def hangs(values: list[str]) -> None:
        if values == ["0:3"] and world.here.driver.begun:
            world.here.lose_the_loop()
            world.loop.taken_over()
            world.settle()
            raise ConnectionError("no")

    handle, world._handle = world._handle, hangs
    with pytest.raises(Superseded):
        world.until(5)
    world._handle = handle
    world.until(5, pass_s=0.5)
    world.settle()
    assert offsets(world) == [1, 2, 3, 4, 5]
    assert (world.committed(), world.loop.processed) == (6, 6)


def test_a_partition_that_is_revoked_while_a_handler_hangs_keeps_what_was_committed() -> None:
    world = Alone()
    world.warm_up()
    world.feed("a" * 5)

    def hangs(values: list[str]) -> None:
        if values == ["0:3"]:
            world.here.lose_the_loop()
            world.loop.taken_over()
            world.revoke(0)

    world._handle = hangs
    with pytest.raises(Superseded):
        world.until(5)
    world.settle()
    assert offsets(world) == [1, 2, 3], "nothing starts after it"
    assert world.committed() == 3, "its record comes again"
    assert not world.loop.in_flight


def test_a_stop_is_noticed_within_the_time_that_the_loop_may_be_idle() -> None:
    def tick(values: list[str]) -> None:
        world.clock.now += 0.0005

    world = Alone()
    world.warm_up()
    world._handle = tick
    world.feed("a" * 900)
    world.step()
    world.stop()
    world.settle()
    assert len(world.done) < 900
    assert world.loop.ending is not None
    assert world.committed() == len(world.done) + 1


def test_two_partitions_share_their_commits_instead() -> None:
    world = Alone(partitions=2)
    world.warm_up()
    world.feed("a" * 5)
    world.feed("a" * 5, partition=1)
    world.until(10)
    world.settle()
    assert [len(request) for request in world.source.requests].count(2) >= 4
    assert (world.committed(0), world.committed(1)) == (6, 5)


def test_every_commit_renews_the_lease_so_that_it_covers_the_record_after_it() -> None:
    world = Alone(max_deliveries=3)
    positions: list[Position] = []
    commit = world.source.commit

    def kept(given: list[Position]) -> None:
        positions.extend(given)
        commit(given)

    world.source.commit = kept  # type: ignore[method-assign, assignment]
    world.warm_up()
    world.feed("a" * 60)
    world.until(60)
    world.settle()
    leases = []
    for position in positions[1:]:
        _, words = read(position.metadata, offset=position.offset)
        guard = crash_guard.read(words, position.offset)
        assert guard.lease is not None
        assert guard.lease > position.offset, "the next record is covered before it starts"
        leases.append(guard.lease)
    assert world.walked
    assert all(one <= other for one, other in pairwise(leases))
    assert world.log.count("handles 60") == 1
    world.stop()
    world.settle()
    assert world.loop.ending is not None
    _, words = read(positions[-1].metadata, offset=positions[-1].offset)
    assert crash_guard.read(words, positions[-1].offset).lease is None, "an orderly end takes it back"


class Recorder:
    wants = frozenset({RunFinished, Committed})
    keeps_errors = False

    def __init__(self) -> None:
        self.events: list[str] = []

    def on_event(self, event: Event) -> None:
        if isinstance(event, RunFinished):
            self.events += [f"finished {record.offset}" for record in event.records]
        elif isinstance(event, Committed):
            self.events += [f"committed {offset}" for offset in event.offsets.values()]


def test_each_record_and_each_commit_is_reported_once_and_in_order() -> None:
    recorder = Recorder()
    world = Alone(observers=(recorder,))
    world.warm_up()
    recorder.events.clear()
    world.feed("a" * 6)
    world.until(6)
    world.settle()
    reported = [word for number in range(1, 7) for word in (f"finished {number}", f"committed {number + 1}")]
    assert recorder.events == reported


def test_what_the_inbox_has_seen_before_is_counted_as_skipped() -> None:
    world = Alone()
    world.warm_up()
    call = world._call_one

    def knowing(record: Message, run: Run) -> None:
        if record.offset() in (3, 4):
            run.skip([0])
        call(record, run)

    world._worker.handle = knowing  # type: ignore[misc]
    world.feed("a" * 5)
    world.until(5)
    world.settle()
    counts = world.loop.counts[world.places[0].topic]
    assert (counts.processed, counts.skipped, world.committed()) == (4, 2, 6)


def test_an_error_of_the_client_leaves_what_was_done_entered() -> None:
    world = Alone()
    world.warm_up()
    world.feed("a" * 5)

    def breaks() -> None:
        raise SourceError("Gone.", fault=Fault.FATAL, code="GONE")

    world.meanwhile = 3, breaks
    with pytest.raises(SourceError):
        world.until(5)
    [partition] = world.loop.ownership
    assert world.loop.processed == 4
    assert [record.offset() for record in partition.buffer] == [4, 5]
    assert world.loop.committer.has_pending(partition)
    assert not world.loop.in_flight


def _raise(error: Exception | None) -> None:
    if error is not None:
        raise error

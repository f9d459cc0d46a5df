"""Suspects in the loop: one at a time, alone, counted; with batches, with other consumers, and when partitions go."""

from __future__ import annotations

from keepfast.core import commit_metadata, crash_guard
from keepfast.core.commit_metadata import CompletionMap
from keepfast.core.crash_guard import Fate, Guard
from keepfast.core.errors import Fault
from keepfast.core.guards import BreakerPolicy
from keepfast.core.policies import CommitPolicy
from keepfast.engine.control import ControlOrder
from keepfast.engine.crash_guard import ExclusiveGate
from tests.engine.world import World, refusing
from tests.support.log_capture import LogCapture


def fine(values: list[str]) -> None: ...


def died(*, lease: int = 16, mark: int | None = None, **starts: int) -> str:
    """The metadata that an owner left who died while it had worked from 0 on."""
    counted = {int(name[1:]): count for name, count in starts.items()}
    guard = Guard(lease, mark, mark, counted)
    return commit_metadata.encode(CompletionMap(0), guard=crash_guard.write(guard, 0))


def committed_guard(world: World, partition: int = 0) -> Guard:
    """What the commit of a partition says by now."""
    position = world.source.committed_at[world.places[partition]]
    _, words = commit_metadata.read(position.metadata, offset=position.offset)
    return crash_guard.read(words, position.offset)


def settle(world: World) -> None:
    for _ in range(6):
        world.step(pass_s=0.01)


def test_nothing_starts_before_the_commit_is_confirmed_that_says_so() -> None:
    world = World(fine, size=2, max_deliveries=3)
    world.source.answers = False
    world.feed("aaaa")
    settle(world)
    assert world.out == []
    world.source.answers = True
    settle(world)
    assert world.out == [["0:0", "0:1"]]
    assert committed_guard(world).lease == crash_guard.MIN_LEASE


def test_after_one_death_batches_are_as_large_as_ever() -> None:
    world = World(fine, size=3, max_deliveries=3, found={0: died()})
    world.feed("aaa")
    settle(world)
    assert world.out == [["0:0", "0:1", "0:2"]]
    assert committed_guard(world).mark == 16


def test_a_crash_with_nothing_in_flight_is_one_line_for_all_partitions_of_the_assignment() -> None:
    world = World(fine, partitions=8, max_deliveries=3)
    world.loop.on_lost(world.places)
    world.source.found = {place: died() for place in world.places}
    world.loop.probation._fate = lambda partition, found: Fate(dead=True, in_hand=())  # type: ignore[method-assign]
    with LogCapture() as log:
        world.loop.on_assigned(world.places)
        [line] = log.of("previous_owner_crashed")
    assert (line.level, line.fields["count"], line.fields["in_flight"]) == ("info", 8, 0)
    assert line.fields["partitions"] == [str(place) for place in world.places[:5]]


def test_suspects_are_batches_of_one_and_run_alone() -> None:
    world = World(fine, order="none", size=3, max_deliveries=3, found={0: died(mark=3), 1: died(mark=3)})
    world.feed("abc")
    world.feed("de", partition=1)
    seen = []
    for _ in range(5):
        settle(world)
        assert len(world.out) == 1
        seen += world.out[0]
        world.work()
    assert sorted(seen) == ["0:0", "0:1", "0:2", "1:0", "1:1"]


def test_many_suspects_are_tried_by_halves_in_batches_and_count_no_start() -> None:
    found = {0: died(lease=200, mark=200)}
    world = World(fine, order="none", size=500, partitions=1, max_deliveries=3, found=found, commit=SELDOM)
    world.feed("a" * 200)
    sizes = []
    while len(world.done) < 200:
        settle(world)
        assert len(world.out) == 1
        [batch] = world.out
        assert not committed_guard(world).starts
        end = int(batch[-1].partition(":")[2]) + 1
        assert committed_guard(world).lease == end or end == 200, "it says which are tried"
        sizes.append(len(batch))
        settle(world)
        assert world.out == [batch], "nothing more is tried before these came back"
        world.work()
    settle(world)
    assert sizes == [100, 50, 25, 25]
    assert not world.loop.probation.suspected


def test_what_is_no_suspect_and_other_consumers_run_beside_a_half() -> None:
    found = {0: died(lease=200, mark=200)}
    world = World(fine, order="none", size=100, partitions=2, max_deliveries=3, found=found, commit=SELDOM, wait_s=0.0)
    gate = world.loop.probation._gate
    neighbour = object()
    gate.join(neighbour)
    world.feed("a" * 200)
    world.feed("bbb", partition=1)
    settle(world)
    assert sum(one.startswith("1:") for batch in world.out for one in batch) == 3
    assert sum(map(len, world.out)) == 103
    assert not gate.is_held_by_another(neighbour)


def test_a_half_that_a_process_died_of_is_halved_first_and_few_of_them_run_alone() -> None:
    guard = Guard(40, 200, 200, {}, narrowed=(40,))
    metadata = commit_metadata.encode(CompletionMap(0), guard=crash_guard.write(guard, 0))
    world = World(fine, size=100, partitions=1, max_deliveries=3, found={0: metadata})
    world.feed("a" * 200)
    settle(world)
    assert [len(batch) for batch in world.out] == [20]
    assert committed_guard(world).narrowed == (40,)
    again = World(fine, size=100, partitions=1, max_deliveries=3, found={0: died_in_the_half(20)})
    again.feed("a" * 200)
    settle(again)
    assert again.out == [["0:0"]]
    assert dict(committed_guard(again).starts) == {0: 1}


SELDOM = CommitPolicy(mode="interval", every_s=1_000.0)
"""Its leases are long."""


def died_in_the_half(end: int) -> str:
    """What an owner left that died while it tried the suspects below `end`, of 200."""
    guard = Guard(end, 200, 200, {}, narrowed=(2 * end,))
    return commit_metadata.encode(CompletionMap(0), guard=crash_guard.write(guard, 0))


def test_a_start_is_counted_before_and_taken_back_after() -> None:
    world = World(fine, size=3, partitions=1, max_deliveries=3, found={0: died(mark=16, s1=2)})
    world.feed("ab")
    settle(world)
    assert (world.out, dict(committed_guard(world).starts)) == ([["0:0"]], {0: 1, 1: 2})
    world.work()
    settle(world)
    assert (world.out, dict(committed_guard(world).starts)) == ([["0:1"]], {1: 3})
    world.work()
    settle(world)
    assert dict(committed_guard(world).starts) == {}
    assert world.committed() == 2


def test_counted_often_enough_it_is_dead_lettered_and_not_started() -> None:
    world = World(fine, size=3, partitions=1, max_deliveries=2, found={0: died(mark=16, s0=2)})
    world.feed("ab")
    world.play(steps=6)
    assert world.dead_lettered == ["0:0"]
    assert world.calls == [["0:1"]]
    assert world.committed() == 2


def test_behind_the_last_suspect_batches_are_as_large_as_ever() -> None:
    world = World(fine, size=3, wait_s=0.2, partitions=1, max_deliveries=3, found={0: died(lease=2, mark=2)})
    world.feed("aaaaaaaa")
    world.play(steps=10)
    assert world.calls == [["0:0"], ["0:1"], ["0:2", "0:3", "0:4"], ["0:5", "0:6", "0:7"]]


def test_a_suspect_that_fails_is_judged_like_any_other_and_blocks_no_other_while_it_waits() -> None:
    bad = refusing("0:0", error=lambda: OSError("not now"))
    world = World(bad, order="none", size=3, partitions=1, max_deliveries=3, found={0: died(mark=16)})
    world.feed("abc")
    world.play(steps=40)
    assert world.done == ["0:1", "0:2"]
    assert world.dead_lettered == ["0:0"]
    assert dict(committed_guard(world).starts) == {}


def test_a_suspect_that_waits_when_its_partition_goes_is_forgotten_and_may_come_back() -> None:
    world = World(fine, size=3, max_deliveries=3, found={0: died(mark=16)})
    world.feed("aa")
    world.source.answers = False
    settle(world)
    assert world.out == []
    world.source.answers = True
    world.revoke(0)
    world.loop.on_assigned([world.places[0]])
    world.source.found = {}
    world.feed("a", partition=1)
    settle(world)
    assert world.out == [["1:0"]], "the other partition continues"


def test_a_probation_ends_before_another_one_of_the_same_partition_starts() -> None:
    world = World(fine, size=3, max_deliveries=3, found={0: died(mark=16)})
    seen: list[str] = []
    emit = world.loop.events.emit
    world.loop.events.emit = lambda event: (seen.append(type(event).__name__), emit(event))  # type: ignore[method-assign, func-returns-value, assignment]
    world.loop.on_lost([world.places[0]])
    world.loop.on_assigned([world.places[0]])
    assert [name for name in seen if name.startswith("Probation")] == ["ProbationEnded", "ProbationStarted"]


def test_who_lets_go_in_order_takes_lease_and_count_back_and_leaves_the_rest() -> None:
    world = World(fine, size=3, max_deliveries=3, found={0: died(mark=16, s0=1)})
    world.feed("aa")
    settle(world)
    assert (world.out, dict(committed_guard(world).starts)) == ([["0:0"]], {0: 2})
    world.revoke(0)  # with a handler that does not end in time: nobody can say that it killed
    world.source.answer()
    assert committed_guard(world) == Guard(None, 16, 16, {0: 1})


def test_a_count_that_the_last_owner_left_is_taken_back_before_anything_else_starts() -> None:
    world = World(fine, size=1, max_deliveries=3)
    world.feed("a", partition=1)
    settle(world)
    world.work()
    settle(world)
    world.revoke(0)
    left = Guard(16, starts={0: 1}, suspects=((0, 1),), charged=0, draining=True)  # its owner was about to end
    world.source.found[world.places[0]] = commit_metadata.encode(CompletionMap(0), guard=crash_guard.write(left, 0))
    world.loop.on_assigned([world.places[0]])
    world.source.answers = False
    world.feed("a", partition=1)
    settle(world)
    assert world.out == [], "the broker holds a count of a start for 0:0: if 1:1 killed, 0:0 would be blamed"
    world.source.answers = True
    settle(world)
    assert world.out == [["1:1"]]
    assert committed_guard(world) == Guard(suspects=((0, 1),))


def test_a_count_that_cannot_be_taken_back_because_commits_are_refused_stops_no_other_partition() -> None:
    world = World(fine, size=1, max_deliveries=3, found={0: died(mark=16)})
    world.feed("aa")
    settle(world)
    assert (world.out, dict(committed_guard(world).starts)) == ([["0:0"]], {0: 1})
    world.source.refused = {world.places[0]: Fault.REFUSED}
    world.work()
    world.play(steps=10)
    world.feed("aa", partition=1)
    world.play(steps=10)
    assert world.done == ["0:0", "1:0", "1:1"]
    assert world.committed(1) == 2
    world.source.refused = {}
    world.play(steps=100)
    assert world.done == ["0:0", "1:0", "1:1", "0:1"]
    assert dict(committed_guard(world).starts) == {}


def test_a_loop_that_failed_leaves_its_lease_as_a_death_does() -> None:
    world = World(fine, size=3, max_deliveries=3)
    world.feed("aa")
    settle(world)
    world.loop.abandon(RuntimeError("it broke"))
    world.revoke(0)
    world.source.answer()
    assert committed_guard(world).lease is not None


def test_a_suspect_waits_for_the_other_consumers_of_the_process_and_they_for_it() -> None:
    gate = ExclusiveGate()
    one = World(fine, size=1, partitions=1, max_deliveries=3, gate=gate, found={0: died(mark=16)})
    other = World(fine, size=1, partitions=1, max_deliveries=3, gate=gate)
    other.feed("aa")
    settle(other)
    assert other.out == [["0:0"]]
    one.feed("a")
    settle(one)
    settle(other)
    assert one.out == [], "the other one is at work"
    other.work()
    settle(other)
    assert other.out == [], "it finishes what it has in flight, and starts nothing"
    settle(one)
    assert one.out == [["0:0"]]
    settle(other)
    assert other.out == []
    one.work()
    settle(one)
    settle(other)
    assert other.out == [["0:1"]]


def test_a_consumer_that_is_paused_before_its_suspect_starts_holds_up_no_other_one() -> None:
    gate = ExclusiveGate()
    one = World(fine, size=1, partitions=1, max_deliveries=3, gate=gate, found={0: died(mark=16)})
    other = World(fine, size=1, partitions=1, max_deliveries=3, gate=gate)
    other.feed("aa")
    settle(other)
    one.feed("a")
    settle(one)
    one.mailbox.post(ControlOrder(verb="pause", answer=lambda _: None))
    settle(one)
    other.work()
    settle(other)
    assert other.out == [["0:1"]]
    one.mailbox.post(ControlOrder(verb="resume", answer=lambda _: None))
    settle(one)
    assert one.out == [], "the other one is at work"
    other.work()
    settle(other)
    settle(one)
    assert one.out == [["0:0"]]
    assert dict(committed_guard(one).starts) == {0: 1}


def test_a_consumer_that_is_paused_while_its_suspect_runs_lets_the_others_go_on_after_it() -> None:
    gate = ExclusiveGate()
    one = World(fine, size=1, partitions=1, max_deliveries=3, gate=gate, found={0: died(mark=16)})
    other = World(fine, size=1, partitions=1, max_deliveries=3, gate=gate)
    one.feed("aa")
    settle(one)
    settle(other)
    settle(one)
    assert one.out == [["0:0"]]
    one.mailbox.post(ControlOrder(verb="pause", answer=lambda _: None))
    settle(one)
    other.feed("a")
    settle(other)
    assert other.out == [], "the suspect is still alone"
    one.work()
    settle(one)
    assert dict(committed_guard(one).starts) == {}, "it came back"
    settle(other)
    assert other.out == [["0:0"]]


def test_a_guilty_record_that_is_drawn_as_the_probe_leaves_the_next_probe_to_another_one() -> None:
    down = True

    def handle(values: list[str]) -> None:
        if down:
            raise ConnectionRefusedError

    guilty = died(mark=16, s3=2)
    breaker = BreakerPolicy(failures=2)
    world = World(handle, order="none", size=1, partitions=1, max_deliveries=2, found={0: guilty}, breaker=breaker)
    world.feed("abcdef")
    world.play(steps=600)
    assert (world.dead_lettered, world.done) == (["0:3"], [])
    down = False
    world.play(steps=600)
    assert sorted(world.done) == ["0:0", "0:1", "0:2", "0:4", "0:5"]
    assert not world.loop.holds


def test_a_consumer_that_has_ended_is_waited_for_no_more() -> None:
    gate = ExclusiveGate()
    one = World(fine, size=1, partitions=1, max_deliveries=3, gate=gate, found={0: died(mark=16)})
    other = World(fine, size=1, partitions=1, max_deliveries=3, gate=gate)
    one.feed("a")
    settle(one)
    assert one.out == []
    other.stop()
    settle(other)
    settle(one)
    assert one.out == [["0:0"]]

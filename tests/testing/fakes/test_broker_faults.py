"""Single faults of the simulated broker, each as it was seen on a real one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from keepfast.core.errors import Fault, SinkError, SourceError
from keepfast.core.ports import PRODUCER_HANGS, Position
from keepfast.core.records import Outgoing, Receipt, TopicPartition
from keepfast.testing.fakes.faults import ClientFault, CommitFault, ReadFault, SendFault, TransactionFault
from keepfast.testing.fakes.process import SimulationError
from keepfast.testing.fakes.trace import Evicted
from keepfast.testing.fakes.world import Seat, World
from tests.support.members import GroupMember, Places, drive

TOPIC = "orders"
FIRST = TopicPartition(TOPIC, 0)


class Listener(GroupMember):
    """Starts everything at the first record."""

    def __init__(self, seat: Seat) -> None:
        self.seat = seat
        super().__init__(seat.source, TOPIC, now=seat.process.clock.monotonic)

    def until(self, ready: Callable[[], object], *others: Listener) -> None:
        drive([self, *others], ready, timeout_s=120)

    def refusals(self, *positions: Position) -> tuple[bool, list[str]]:
        """Commits: whether everything was confirmed, and the codes of what was not."""
        outcome = self.commit(*positions)
        return outcome.confirmed == positions, [error.code for _, error in outcome.failed]


@pytest.fixture(params=range(5))
def world(request: pytest.FixtureRequest) -> World:
    world = World(request.param)
    world.broker.create_topic(TOPIC, 2)
    return world


def join(world: World, name: str, *, instance_id: str | None = None) -> Listener:
    return Listener(world.seat(name, group="g", instance_id=instance_id))


def settled(world: World, name: str, *, instance_id: str | None = None) -> Listener:
    ear = join(world, name, instance_id=instance_id)
    ear.until(lambda: ear.source.owned)
    return ear


def stored(world: World) -> int | None:
    position = world.broker.stored("g", FIRST)
    return position.offset if position else None


def test_a_commit_may_be_stored_although_the_client_is_reported_that_it_failed(world: World) -> None:
    ear = settled(world, "a")
    world.broker.faults.commits.order(CommitFault.APPLIED, count=1)
    confirmed, codes = ear.refusals(Position(FIRST, 3))
    assert (confirmed, len(codes), stored(world)) == (False, 1, 3)


@pytest.mark.parametrize("kind", [CommitFault.RETRY, CommitFault.REBALANCING, CommitFault.UNSENT])
def test_a_refused_commit_is_not_stored_and_the_next_one_is(world: World, kind: CommitFault) -> None:
    ear = settled(world, "a")
    world.broker.faults.commits.order(kind, count=1)
    confirmed, codes = ear.refusals(Position(FIRST, 3))
    assert (confirmed, len(codes), stored(world)) == (False, 1, None)
    assert ear.refusals(Position(FIRST, 3)) == (True, [])


def test_a_client_that_ends_itself_fails_commits_in_passing_and_a_new_one_takes_its_place(world: World) -> None:
    ear = settled(world, "a")
    world.broker.faults.clients.order(ClientFault.ENDED, count=1)
    for _ in range(2):
        assert ear.refusals(Position(FIRST, 3)) == (False, ["CLOSED"])
    assert stored(world) is None
    assert ear.heard("lost") == [], "it takes a while"
    ear.until(lambda: ear.heard("lost"))
    ear.until(lambda: ear.source.owned)
    assert [error.code for error, _ in ear.errors] == ["GROUP_AUTHORIZATION_FAILED"]
    assert ear.refusals(Position(FIRST, 3)) == (True, [])


def test_a_failed_read_of_committed_offsets_is_an_error_and_never_no_commit(world: World) -> None:
    ear = settled(world, "a")
    world.broker.faults.committed_reads.order(ReadFault.RETRY, count=1)
    with pytest.raises(SourceError) as caught:
        ear.source.committed([FIRST], 1.0)
    assert caught.value.fault is Fault.RETRY


def test_a_commit_to_a_frozen_coordinator_is_answered_after_the_thaw(world: World) -> None:
    ear = settled(world, "a")
    world.broker.freeze(3.0, data=False)
    thaw_s = world.clock.monotonic() + 3.0
    assert ear.refusals(Position(FIRST, 5)) == (True, [])
    assert world.clock.monotonic() >= thaw_s
    assert ("lost", (FIRST, TopicPartition(TOPIC, 1))) not in ear.calls


def test_a_commit_that_timed_out_before_a_frozen_coordinator_may_be_stored_later(world: World) -> None:
    ear = settled(world, "a")
    world.broker.freeze(20.0, data=False)
    confirmed, codes = ear.refusals(Position(FIRST, 5))
    assert (confirmed, codes, stored(world)) == (False, ["_TIMED_OUT"], None)
    world.run(10.0)
    assert stored(world) == 5


def test_a_client_that_hears_nothing_for_a_session_gives_its_partitions_up(world: World) -> None:
    ear = settled(world, "a")
    world.broker.freeze(12.0)
    ear.until(lambda: ear.calls[-1][0] == "lost")
    ear.until(lambda: ear.source.owned)


def test_a_stopped_member_is_evicted_hears_it_afterwards_and_its_late_commit_is_refused(world: World) -> None:
    first, second = settled(world, "a"), join(world, "b")
    first.until(lambda: len(second.source.owned) == 1, second)
    first.seat.process.stop(30.0)
    second.until(lambda: len(second.source.owned) == 2 and not first.seat.process.stopped)
    first.source.commit([Position(FIRST, 99)])
    first.until(lambda: first.outcomes)
    assert [error.code for _, error in first.outcomes[0].failed] == ["UNKNOWN_MEMBER_ID"]
    assert stored(world) is None
    assert "lost" in [what for what, _ in first.calls]


def test_a_crashed_member_keeps_its_partitions_until_its_session_ends(world: World) -> None:
    first, second = settled(world, "a"), join(world, "b")
    first.until(lambda: len(second.source.owned) == 1, second)
    crashed_s = world.clock.monotonic()
    first.seat.process.crash()
    second.until(lambda: len(second.source.owned) == 2)
    assert world.clock.monotonic() - crashed_s >= world.broker.settings.session_s - world.broker.settings.heartbeat_s
    assert [event.why for event in world.trace.events if isinstance(event, Evicted)] == ["session"]


def test_a_member_that_keeps_its_partitions_meets_illegal_generation_in_a_rebalance() -> None:
    codes: set[str] = set()
    for seed in range(30):
        world = World(seed)
        world.broker.create_topic(TOPIC, 2)
        first, second = settled(world, "a"), join(world, "b")
        first.until(lambda first=first, second=second: len(second.source.owned) == 1, second)  # type: ignore[misc]
        join(world, "c")  # a third member of two partitions: nothing moves
        for offset in range(60):
            codes.update(first.refusals(Position(first.source.owned[0], offset))[1])
            second.source.poll(0.02)
        assert "lost" not in [what for what, _ in first.calls]
    assert "ILLEGAL_GENERATION" in codes


def test_a_static_member_that_comes_back_gets_its_partitions_without_a_rebalance(world: World) -> None:
    first, second = settled(world, "a", instance_id="one"), join(world, "b", instance_id="two")
    first.until(lambda: len(second.source.owned) == 1, second)
    had, generation = first.source.owned, world.broker.group("g").generation
    first.seat.process.crash()
    again = settled(world, "a", instance_id="one")
    assert again.source.owned == had
    assert world.broker.group("g").generation == generation


def test_a_second_process_with_the_same_static_name_fences_the_first(world: World) -> None:
    first = settled(world, "a", instance_id="one")
    second = join(world, "b", instance_id="one")
    first.until(lambda: first.errors and second.source.owned, second)
    assert [error.fault for error, _ in first.errors] == [Fault.FENCED]
    assert first.refusals(Position(FIRST, 1)) == (False, ["FENCED_INSTANCE_ID"])


def test_polling_from_inside_a_callback_is_refused_because_the_real_client_aborts(world: World) -> None:
    first = settled(world, "a")
    join(world, "b")

    def sweep(_: Places) -> None:
        first.source.sweep(10)

    first.during_revoke = sweep
    with pytest.raises(SimulationError, match="from inside on_revoked"):
        first.until(lambda: False)


def test_a_second_commit_while_one_is_under_way_is_refused(world: World) -> None:
    ear = settled(world, "a")
    ear.source.commit([Position(FIRST, 1)])
    with pytest.raises(SimulationError, match="under way"):
        ear.source.commit([Position(FIRST, 2)])


def test_a_transaction_that_hangs_is_given_up_after_15_s_and_the_partitions_are_lost(world: World) -> None:
    ear = settled(world, "a")
    places, begun = ear.source.owned, ear.now()
    world.broker.faults.transactions.order(TransactionFault.HANGS, count=1)
    assert ear.refusals(Position(FIRST, 1)) == (False, ["CLOSED"])
    assert ear.now() - begun == pytest.approx(15.0, abs=1.0)
    assert [error.code for error, _ in ear.errors] == [PRODUCER_HANGS]
    assert ear.heard("lost") == [places]
    ear.until(lambda: ear.source.owned)
    assert ear.refusals(Position(FIRST, 2)) == (True, [])


def test_a_send_may_be_written_although_it_is_reported_as_failed(world: World) -> None:
    sink, answers = world.seat("a", group="g").sink, list[Receipt | SinkError]()
    world.broker.faults.sends.order(SendFault.WRITTEN, count=1)
    sink.send(Outgoing(TOPIC, b"v", partition=0), answers.append)
    sink.send(Outgoing(TOPIC, b"v", partition=0), answers.append)
    world.run(1.0)
    assert [type(answer) for answer in answers] == [SinkError, Receipt]
    assert len(world.broker.existing(FIRST).messages()) == 2
    assert list(sink.acked) == [1]


def test_what_a_process_sent_before_it_died_is_written_and_not_reported(world: World) -> None:
    seat, answers = world.seat("a", group="g"), list[Receipt | SinkError]()
    seat.sink.send(Outgoing(TOPIC, b"v", partition=0), answers.append)
    seat.process.crash()
    world.run(1.0)
    assert answers == []
    assert len(world.broker.existing(FIRST).messages()) == 1

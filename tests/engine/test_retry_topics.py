"""The waiting room: records of retry topics are let in when they are due, in order, and the client is paused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast.core.policies import BufferPolicy
from keepfast.core.records import Message, TopicPartition
from keepfast.core.retry_topics import Returned, Tier, Tiers, moved
from keepfast.core.runs import Partition
from keepfast.engine.retry_topics import DelayedRecords
from keepfast.testing.fakes.clock import SimClock
from keepfast.testing.fakes.log import FakeMessage

TOPIC = "orders.g.retry.1m"
TIERS = Tiers(group="g", delays_s=(60,), topics={TOPIC: Tier(TOPIC, "orders", 60, 1)})


class Room:
    """A waiting room and what it did."""

    def __init__(self, **policy: int) -> None:
        self.clock = SimClock()
        self.entered: list[tuple[float, int]] = []
        self.ends: list[tuple[int, int]] = []
        self.paused = False
        self.pauses = 0
        self.partition = self.fresh()
        self.room = DelayedRecords(
            TIERS,
            BufferPolicy(**policy),
            self.clock,
            enter=self._enter,
            reach=lambda partition, end: self.ends.append((partition.ledger.last, end)),
            pause=self._pause,
            resume=self._resume,
        )

    @staticmethod
    def fresh() -> Partition:
        return Partition(TopicPartition(TOPIC, 0), epoch=1, start=0)

    def _enter(self, partition: Partition, messages: list[Message]) -> None:
        assert all(isinstance(message, Returned) for message in messages)
        partition.feed(messages)
        self.entered += [(self.clock.monotonic() - 1000.0, message.offset()) for message in messages]

    def _pause(self, partition: Partition, why: str) -> None:
        self.pauses += not self.paused
        self.paused = True

    def _resume(self, partition: Partition, why: str) -> None:
        self.paused = False

    def message(self, offset: int, *, moved_at: float, value: bytes = b"v") -> Message:
        """A record that was moved so many seconds after the start."""
        wall_s = self.clock.wall() - self.clock.monotonic() + 1000.0 + moved_at
        source = FakeMessage(TopicPartition("orders", 0), offset, key=None, value=value)
        out = moved(source, tiers=TIERS, step=1, wall_s=wall_s, failures=1, attempts=())
        place = TopicPartition(TOPIC, 0)
        ms = int(wall_s * 1000)
        return FakeMessage(place, offset, key=None, value=value, headers=out.headers, timestamp_ms=ms)

    def until(self, seconds: float) -> None:
        """Step whenever something is due."""
        end = 1000.0 + seconds
        while self.clock.monotonic() < end:
            self.room.step(self.clock.monotonic())
            due_in = self.room.due_in(self.clock.monotonic())
            self.clock.advance(min(max(due_in, 0.0), end - self.clock.monotonic()))
        self.room.step(self.clock.monotonic())


def times(room: Room) -> list[tuple[float, int]]:
    return [(round(at, 2), offset) for at, offset in room.entered]


def test_what_is_due_is_let_in_at_once() -> None:
    room = Room()
    room.room.admit(room.partition, [room.message(0, moved_at=-60), room.message(1, moved_at=-90)])
    assert times(room) == [(0.0, 0), (0.0, 1)]
    assert not room.paused
    assert room.room.due_in(room.clock.monotonic()) == float("inf")


def test_what_is_not_due_waits_and_the_client_with_it() -> None:
    room = Room()
    messages = [room.message(number, moved_at=at) for number, at in enumerate((-60.0, -59.0, -10.0, -10.0, 0.0))]
    room.room.admit(room.partition, messages)
    assert times(room) == [(0.0, 0)]
    assert room.paused
    assert room.room.due_in(room.clock.monotonic()) == pytest.approx(1, abs=0.01)
    room.until(59)
    assert times(room) == [(0.0, 0), (1.0, 1), (50.0, 2), (50.0, 3)]
    assert room.paused
    room.until(61)
    assert times(room)[-1] == (60.0, 4)
    assert (room.paused, room.pauses) == (False, 1)


def test_the_end_behind_what_waits_is_reported_behind_it() -> None:
    room = Room()
    assert not room.room.keeps_end(room.partition, 5), "nothing waits: the caller reports it"
    room.room.admit(room.partition, [room.message(5, moved_at=-10.0), room.message(6, moved_at=0.0)])
    assert room.room.keeps_end(room.partition, 9)
    room.until(59)
    assert not room.ends, "a commit behind them would lose the one that waits"
    room.until(61)
    assert room.ends == [(6, 9)]


def test_nothing_overtakes_the_first_one_and_nothing_waits_longer_than_the_delay() -> None:
    room = Room()
    room.room.admit(room.partition, [room.message(0, moved_at=5_000), room.message(1, moved_at=-90)])
    room.until(100)
    assert times(room) == [(60.0, 0), (60.0, 1)]


def test_a_jump_of_the_wall_clock_does_not_move_what_waits() -> None:
    room = Room()
    room.room.admit(room.partition, [room.message(0, moved_at=0)])
    room.clock.shift_wall(3600)
    room.until(59)
    assert times(room) == []
    room.until(61)
    assert times(room) == [(60.0, 0)]


def test_a_short_wait_is_not_worth_a_pause_unless_the_buffer_is_full() -> None:
    room = Room(records=3)
    room.room.admit(room.partition, [room.message(0, moved_at=-59.7)])
    assert not room.paused
    room.room.admit(room.partition, [room.message(1, moved_at=-59.7)])
    assert not room.paused
    room.room.admit(room.partition, [room.message(2, moved_at=-59.7)])
    assert room.paused
    room.until(1)
    assert times(room) == [(0.3, 0), (0.3, 1), (0.3, 2)]
    assert not room.paused


def test_the_same_by_bytes() -> None:
    room = Room(bytes=100)
    room.room.admit(room.partition, [room.message(0, moved_at=-59.7, value=b"v" * 100)])
    assert room.paused


def test_what_waits_of_a_partition_that_is_gone_is_forgotten() -> None:
    room = Room()
    room.room.admit(room.partition, [room.message(0, moved_at=0)])
    room.room.forget(room.partition)
    again = room.fresh()
    room.until(10)
    room.room.admit(again, [room.message(0, moved_at=0)])
    room.until(100)
    assert times(room) == [(60.0, 0)]


@pytest.mark.parametrize("how", ["closing", "lost"])
def test_nothing_is_let_into_a_partition_that_goes(how: str) -> None:
    room = Room()
    room.room.admit(room.partition, [room.message(0, moved_at=0)])
    if how == "closing":
        room.partition.closing = True
    else:
        room.partition.close()
    room.until(100)
    assert times(room) == []


@given(st.lists(st.tuples(st.floats(0, 90), st.floats(-100, 30)), max_size=20))
def test_every_record_is_let_in_once_in_order_and_not_before_it_is_due(arrivals: list[tuple[float, float]]) -> None:
    room = Room(records=4)
    due: dict[int, float] = {}
    for offset, (after_s, moved_before_s) in enumerate(arrivals):
        now = room.clock.monotonic() - 1000.0
        room.until(now + after_s)
        now = room.clock.monotonic() - 1000.0
        due[offset] = min(now + moved_before_s, now) + 60
        room.room.admit(room.partition, [room.message(offset, moved_at=now + min(moved_before_s, 0.0))])
    room.until(2_500)
    assert [offset for _, offset in room.entered] == list(range(len(arrivals)))
    assert all(at >= due[offset] - 2e-3 for at, offset in room.entered)
    assert not room.paused

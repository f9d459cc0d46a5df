"""What a loop shows of itself once a second, and what a person may tell it, on ports that do as configured."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from keepfast.core import policies
from keepfast.core.commit_metadata import WINDOW
from keepfast.core.errors import Fault, Reject, RetryLater, SourceError
from keepfast.core.guards import StormPolicy
from keepfast.core.policies import BufferPolicy
from keepfast.core.ports import NO_ANSWER, NO_ANSWER_EVERY_S, CommittedOffset
from keepfast.core.records import TopicPartition
from keepfast.engine.control import Answer, ControlOrder
from keepfast.engine.intake import IN_LANES
from keepfast.engine.status import AWAY_S, MAX_POLL_INTERVAL_S, POLL_INTERVAL_S, SILENT_S, STUCK_S
from keepfast.engine.timeouts import RECALL_S
from keepfast.http.health import WINDOW_FULL_S
from keepfast.telemetry.state import CommandDone, ConsumerState, Problem
from tests.engine.world import TOPIC, World
from tests.support.log_capture import LogCapture
from tests.support.messages import message

PLACE = TopicPartition(TOPIC, 0)


def world_of(handle: Any = lambda _: None, **options: Any) -> World:
    return World(handle, **{"size": 1, "wait_s": 0.0, "partitions": 2} | options)


def reported(world: World, verb: Any, **more: Any) -> Any:
    """Order it, let the loop turn, and return the answer."""
    answers: list[Answer] = []
    world.mailbox.post(ControlOrder(verb=verb, answer=answers.append, **more))
    world.step()
    [answer] = answers
    return answer


def looked(world: World, pass_s: float = POLL_INTERVAL_S) -> ConsumerState:
    world.step(pass_s=pass_s)
    return world.loop.status.state


def test_lag_is_what_is_not_finished_of_what_the_client_has_seen() -> None:
    world = world_of()
    world.feed("abc")
    world.source.seen = {PLACE: 10}
    assert looked(world).partitions[0].lag == 10, "what is only received counts"
    world.step()
    assert looked(world).in_flight == 1
    world.play(steps=20)
    state = looked(world)
    assert [(one.lag, one.position, one.end) for one in state.partitions] == [(7, 3, 10), (None, 0, None)]
    assert (state.phase, state.member, state.in_flight) == ("running", True, 0)
    assert world.loop.status.rebalances == {"assigned": 1, "revoked": 0, "lost": 0}


def test_lag_in_seconds_is_the_age_of_the_oldest_record_that_is_not_finished() -> None:
    world = world_of()
    world.source.waiting += [message(offset, timestamp_ms=(700 + 100 * offset) * 1000) for offset in range(3)]
    world.source.seen = {PLACE: 10}
    world.step()
    state = looked(world)
    assert [one.lag_s for one in state.partitions] == [world.clock.now - 700, None], "None: nothing is known of it"
    world.work()
    world.step()
    assert looked(world).partitions[0].lag_s == world.clock.now - 800, "one is finished"
    world.play(steps=20)
    assert looked(world).partitions[0].lag_s == 0.0, "what the brokers hold they would have delivered"
    world.loop.on_error(SourceError("All brokers are down.", fault=Fault.RETRY, code="_ALL_BROKERS_DOWN"), None)
    looked(world)
    assert round(looked(world, AWAY_S - 5).partitions[0].lag_s or 0) == AWAY_S - 5, "and now they cannot"


def test_a_look_that_took_long_delays_the_next_one_by_seconds_only(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_of()

    def slow(places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        world.clock.now += 0.5  # as when another process has the processor
        return {}

    with monkeypatch.context() as patch:
        patch.setattr(world.source, "seen_ends", slow)
        looked(world)
    world.source.seen = {PLACE: 10}
    assert looked(world).partitions[0].end is None, "it takes a hundredth of the time"
    assert looked(world, MAX_POLL_INTERVAL_S).partitions[0].end == 10


def test_a_wait_for_the_first_partitions_is_reported_every_ten_seconds(log: LogCapture) -> None:
    world = world_of()
    looked(world, 25)
    assert log.fields("waiting_for_partitions") == [], "it has some"
    world.loop.status.rebalances["assigned"] = 0
    assert looked(world).phase == "starting"
    looked(world, 5)
    looked(world, 6)
    assert [printed["for_s"] for printed in log.fields("waiting_for_partitions")] == [26, 37]
    assert (
        "on the embedded broker also those of one that was stopped" in log.fields("waiting_for_partitions")[0]["hint"]
    )


def test_at_the_level_debug_the_log_tells_what_the_loop_does_and_at_info_nothing_of_it() -> None:
    def story() -> None:
        failing = [RetryLater(after_s=1.0)]

        def flaky(_: Any) -> None:
            if failing:
                raise failing.pop()

        world = world_of(flaky)
        world.feed("ab")
        world.play()
        assert world.committed() == 2

    told_at: dict[int, set[str]] = {}
    for level in (logging.DEBUG, logging.INFO):
        with LogCapture(level=level) as captured:
            story()
        told_at[level] = {entry.event for entry in captured.entries}
    assert told_at[logging.DEBUG] - told_at[logging.INFO] == {
        "partition_position",
        "progress",
        "retries_due",
        "committed",
    }


def test_a_partition_is_stuck_when_its_lag_grows_and_nothing_of_it_finishes() -> None:
    world = world_of()
    world.feed("ab")
    world.source.seen = {PLACE: 2}
    world.step()
    world.step()
    assert looked(world).in_flight == 1
    assert not looked(world, STUCK_S + 5).partitions[0].stuck, "nothing new has come: it is only slow"
    world.source.seen = {PLACE: 3}
    [own, _] = looked(world).partitions
    assert (own.stuck, own.stalled_s >= STUCK_S) == (True, True)
    world.work()
    world.step()
    assert not looked(world).partitions[0].stuck, "one was finished"


def test_lag_is_split_into_what_is_not_finished_and_what_is_finished_above_a_gap() -> None:
    world = world_of(order="key", capacity=4, wait_s=0.0)
    world.feed("abcd")
    world.source.seen = {PLACE: 9}
    world.step()
    partition = world.loop.ownership.get(PLACE)
    assert partition is not None
    partition.ledger.finish((1, 3))
    own = looked(world).partitions[0]
    assert (own.lag, own.behind, own.finished_above) == (9, 7, 2), "0 and 2 are not finished, 4 to 8 not received"
    assert own.position == 0


def test_a_record_that_fills_the_window_is_reported_until_it_is_finished() -> None:
    calls = list[str]()

    def refuse_the_first(values: list[str]) -> None:
        calls.extend(values)
        if calls == ["0:0"]:
            raise RetryLater(after_s=60)

    world = world_of(refuse_the_first, order="key", capacity=4)
    world.feed("a")
    world.play(steps=10)
    world.source.waiting.append(message(WINDOW + 7, b"b", value=b"%d:%d" % (0, WINDOW + 7)))
    assert looked(world).partitions[0].window_full_s == 0
    assert looked(world).partitions[0].window_full_s == 0, "it has just arrived"
    [own, _] = looked(world, WINDOW_FULL_S).partitions
    assert (own.position, own.window_full_s >= WINDOW_FULL_S) == (0, True)
    assert world.done == []
    world.play(steps=200)
    assert world.loop.ownership.get(PLACE).ledger.watermark() == WINDOW + 8  # type: ignore[union-attr]
    assert looked(world).partitions[0].window_full_s == 0


def test_a_pause_by_an_operator_is_as_old_as_the_oldest_one() -> None:
    world = world_of()
    assert looked(world).paused_s == 0
    reported(world, "pause", topic=TOPIC, partition=1)
    looked(world, 100.0)
    reported(world, "pause")
    assert looked(world, 50.0).paused_s >= 150
    reported(world, "resume", topic=TOPIC, partition=1)
    assert 50 <= looked(world).paused_s < 60
    reported(world, "resume")
    assert looked(world).paused_s == 0


def test_a_fetch_that_fails_is_reported_and_the_next_one_brings_records(log: LogCapture) -> None:
    world = world_of()
    world.loop.on_error(SourceError("refused", fault=Fault.RETRY, code="_TRANSPORT"), None)
    [printed] = log.fields("client_error")
    assert (printed["consumer"], printed["code"]) == ("c", "_TRANSPORT")
    world.feed("ab")
    world.play(steps=20)
    assert (world.done, world.committed(), world.loop.ending) == (["0:0", "0:1"], 2, None)


def test_a_partition_is_paused_when_it_is_full_and_not_before() -> None:
    world = world_of(buffer=BufferPolicy(records=10))
    world.feed("a" * 8)
    for _ in range(5):
        world.step(pass_s=1.0)
    assert world.source.paused == set(), "a record is in flight, others wait behind it: no need"
    world.feed("a" * 8)
    for _ in range(5):
        world.step(pass_s=1.0)
    assert world.source.paused == {PLACE}, "the other partition continues"
    world.play(steps=20)
    assert (world.source.paused, world.committed()) == (set(), 16)


def test_what_waits_in_lanes_counts_and_a_partition_that_is_full_of_it_goes_on() -> None:
    world = world_of(buffer=BufferPolicy(records=10), order="key", capacity=4)
    fed = 0
    for _ in range(40):
        if PLACE not in world.source.paused:
            world.feed("a" * 10)
            fed += 10
        for _ in range(5):
            world.step(pass_s=0.1)
    partition = world.loop.ownership.get(PLACE)
    assert partition is not None
    assert world.source.paused == {PLACE}
    assert fed <= 2 * (IN_LANES + 1) * 10 + 10, "one record is in flight, and all others wait behind it"
    assert partition.in_lanes > (IN_LANES - 1) * 10
    world.play(steps=3 * fed)
    assert (world.source.paused, world.committed(), partition.in_lanes) == (set(), fed, 0)


def test_other_keys_go_on_beside_more_records_of_a_key_than_the_buffer_takes() -> None:
    def refuse_a(values: list[str]) -> None:
        if values == ["0:0"]:
            raise RetryLater(after_s=3600)

    world = world_of(refuse_a, buffer=BufferPolicy(records=10), order="key", capacity=4)
    world.feed("a" * 30)
    world.play(steps=20)
    names = world.feed("bcdefghi")
    world.play(steps=20)
    assert (world.done, world.source.paused) == (names, set())


@pytest.mark.parametrize("order", ["partition", "key", "none"])
@pytest.mark.parametrize("where", ["key", "headers"])
def test_a_partition_is_full_of_keys_and_headers_as_it_is_of_values(order: policies.Order, where: str) -> None:
    world = world_of(buffer=BufferPolicy(records=1000, bytes=10_000), order=order, capacity=1)
    large = b"x" * 1_000
    for offset in range(20):
        key, headers = (large, ()) if where == "key" else (b"k", (("h", large),))
        world.source.waiting.append(message(offset, key, value=b"", headers=headers))
    for _ in range(5):
        world.step(pass_s=1.0)
    assert world.source.paused == {PLACE}
    world.play(steps=60)
    assert (world.source.paused, world.committed()) == (set(), 20)


def test_what_is_held_on_purpose_is_not_stuck() -> None:
    world = world_of()
    world.feed("a")
    assert isinstance(reported(world, "pause"), CommandDone)
    for end in range(2, 200):
        world.source.seen = {PLACE: end}
        state = looked(world)
        assert not state.partitions[0].stuck
    assert [hold.name for hold in state.holds] == ["operator"]


def test_brokers_are_away_until_something_comes_from_them_or_the_complaint_is_old() -> None:
    world = world_of()
    complaint = SourceError("All brokers are down.", fault=Fault.RETRY, code="_ALL_BROKERS_DOWN")
    world.loop.on_error(complaint, None)
    assert looked(world).brokers == "All brokers are down."
    world.feed("a")
    world.step()
    assert looked(world).brokers == "", "a record came"
    world.loop.on_error(complaint, None)
    assert looked(world).brokers
    assert looked(world, AWAY_S).brokers == ""


def test_a_broker_that_does_not_answer_counts_while_that_is_repeated_whatever_comes_from_others() -> None:
    world = world_of()
    complaint = SourceError("The broker b:1/1 has not answered.", fault=Fault.RETRY, code=NO_ANSWER)
    for _ in range(3):
        world.loop.on_error(complaint, None)
        world.feed("a")
        world.step()
        assert looked(world, NO_ANSWER_EVERY_S).brokers == str(complaint)
    assert looked(world, SILENT_S).brokers == ""


def test_a_consumer_whose_partitions_are_lost_is_no_member_until_it_gets_some_again() -> None:
    world = world_of()
    world.loop.on_lost(world.places)
    state = looked(world)
    assert (state.member, state.lost, state.partitions) == (False, True, ())
    world.loop.on_assigned([])
    state = looked(world)
    assert (state.member, state.lost) == (True, False)
    assert world.loop.status.rebalances == {"assigned": 2, "revoked": 0, "lost": 1}


def test_a_consumer_that_is_paused_starts_nothing_and_goes_on_when_it_is_resumed() -> None:
    world = world_of(capacity=1)
    world.feed("abc")
    world.step()
    world.step()
    assert len(world.workers.out) == 1
    assert reported(world, "pause") == CommandDone(text="Paused: what runs finishes its record.", changed=1)
    assert reported(world, "pause").changed == 0
    world.play(steps=10)
    assert world.done == ["0:0"], "what ran has finished, and nothing else has started"
    assert reported(world, "resume").changed == 1
    world.play(steps=20)
    assert world.done == ["0:0", "0:1", "0:2"]
    assert reported(world, "resume") == CommandDone(text="It was not paused.", changed=0)


def test_a_partition_that_is_paused_stays_so_when_it_goes_and_comes_back() -> None:
    world = world_of()
    assert reported(world, "pause", topic=TOPIC, partition=0).changed == 1
    world.feed("a")
    world.feed("b", partition=1)
    world.play(steps=10)
    assert world.done == ["1:0"]
    world.loop.on_revoked([PLACE])
    world.loop.on_assigned([PLACE])
    assert looked(world).partitions[-1].holds == ("operator",)
    assert reported(world, "resume", topic=TOPIC).changed == 1
    world._ends[PLACE] = 0
    world.feed("a")
    world.play(steps=10)
    assert world.done == ["1:0", "0:0"]


def test_a_partition_that_is_paused_stays_so_when_its_position_is_reset() -> None:
    world = world_of()
    assert reported(world, "pause", topic=TOPIC, partition=0).changed == 1
    before = world.loop.ownership.get(PLACE)
    world.loop.on_error(SourceError("outside the log", fault=Fault.OUT_OF_RANGE, code="_AUTO_OFFSET_RESET"), PLACE)
    world.step()
    after = world.loop.ownership.get(PLACE)
    assert after is not None
    assert after is not before, "a new epoch"
    world.feed("a")
    world.play(steps=10)
    assert (world.done, after.holds) == ([], {"operator"})
    assert reported(world, "resume").changed == 1
    world.play(steps=10)
    assert world.done == ["0:0"]


def test_a_partition_that_is_paused_stays_so_when_its_committed_offset_is_read_late() -> None:
    world = world_of()
    assert reported(world, "pause", topic=TOPIC, partition=0).changed == 1
    world.loop.on_lost([PLACE])
    read = world.source.committed

    def unanswered(places: Sequence[TopicPartition], timeout_s: float) -> list[CommittedOffset]:
        raise SourceError("no answer", fault=Fault.RETRY, code="_TIMED_OUT")

    world.source.committed = unanswered  # type: ignore[method-assign]
    world.loop.on_assigned([PLACE])
    assert world.loop.ownership.get(PLACE) is None, "not positioned yet"
    world.source.committed = read  # type: ignore[method-assign]
    world.feed("a")
    for _ in range(5):
        world.step(pass_s=1.0)
    found = world.loop.ownership.get(PLACE)
    assert found is not None
    assert found.holds == {"operator"}


def test_orders_that_cannot_be_obeyed_say_why() -> None:
    world = world_of()
    assert reported(world, "pause", topic="other") == Problem(error="Nothing of other is assigned to this process.")
    assert reported(world, "resume", topic=TOPIC, partition=1) == Problem(
        error=f"Nothing of {TOPIC}[1] is paused here."
    )
    assert "only" in reported(world, "release", hold="drain").error.lower()
    assert reported(world, "release", hold="storm") == CommandDone(text="There is no hold named storm now.", changed=0)


def test_the_storm_guard_is_released_by_hand() -> None:
    def refuse(values: list[str]) -> None:
        raise Reject("no")

    world = world_of(refuse, storm_guard=StormPolicy(dead_lettered=2, last=4, share=0.5, probe_every_s=1000.0))
    world.feed("abcd")
    world.play(steps=20)
    assert [hold.name for hold in looked(world).holds] == ["storm"]
    assert reported(world, "release", hold="storm") == CommandDone(text="Released: storm.", changed=1)
    assert looked(world).guards.storm == "watching"


def test_work_under_way_is_shown_by_where_it_is_oldest_first() -> None:
    def fail(values: list[str]) -> None:
        raise TimeoutError("password=a-secret")

    world = world_of(fail, order="key", capacity=2)
    world.feed("ab")
    world.step()
    world.step(pass_s=0.5)
    world.work()
    world.step(pass_s=0.1)
    state, lanes, left_out = reported(world, "show")
    assert {(one.state, one.offset, one.attempt, one.error_type) for one in lanes} == {
        ("running", 1, 1, ""),
        ("waiting", 0, 2, "TimeoutError"),
    }
    assert (state.name, left_out) == (world.loop.plan.name, 0)
    assert "secret" not in repr(lanes)


def test_a_batch_that_waits_for_its_retry_is_shown_as_one() -> None:
    def fail(values: list[str]) -> None:
        raise TimeoutError

    world = world_of(fail, size=3)
    world.feed("abc")
    world.step()
    world.step()
    world.work()
    world.step()
    state, [lane], _ = reported(world, "show")
    assert (lane.state, lane.records, lane.offset, lane.attempt, lane.code) == ("waiting", 3, 0, 2, "TIMEOUT")
    assert state.waiting == 3


def test_a_run_that_was_emptied_because_no_worker_had_begun_it_does_not_end_the_loop_when_it_is_shown() -> None:
    world = world_of(order="key", batch=None)
    world.feed("ab")
    world.step()
    world.step()
    world.step(pass_s=RECALL_S)
    assert world.out == [[], [], ["0:0"], ["0:1"]]
    _, lanes, _ = reported(world, "show")
    assert [(lane.offset, lane.state) for lane in lanes] == [(0, "running"), (1, "running")]
    world.play(steps=10)
    assert sorted(world.done) == ["0:0", "0:1"]

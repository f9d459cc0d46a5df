"""Batches in the loop: how they are gathered, what becomes of failures, and what a rebalance or a stop does to them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepfast.core.errors import BatchError, Discard, Halt, Reject, RetryLater
from keepfast.core.guards import BreakerPolicy, RatePolicy, StormPolicy
from keepfast.core.policies import ORDERS, CommitPolicy, Order, RetryPolicy
from keepfast.core.retry_topics import Tier, Tiers
from tests.engine.world import FAST, TOPIC, World, refusing
from tests.support.fakes import acknowledge, hold
from tests.support.log_capture import LogCapture
from tests.support.thorough import examples

NO_RETRIES = RetryPolicy(max_retries=0)
RETRY_TOPIC = f"{TOPIC}.g.retry.2m"
TIERS = Tiers(group="g", delays_s=(120,), topics={RETRY_TOPIC: Tier(RETRY_TOPIC, TOPIC, 120, 1)})


def fine(values: list[str]) -> None: ...


# -- gathering


def test_a_full_batch_goes_out_at_once() -> None:
    world = World(fine, size=3)
    world.feed("aaaa")
    world.step()
    world.step()
    assert world.out == [["0:0", "0:1", "0:2"]]


def test_a_batch_that_is_not_full_goes_out_when_it_has_waited_long_enough() -> None:
    world = World(fine, size=10, wait_s=1.0)
    world.feed("aa")
    world.step()
    world.step()
    world.step(pass_s=0.5)
    assert world.out == []
    world.feed("a")
    world.step()
    world.step(pass_s=0.4)
    assert world.out == []
    world.step(pass_s=0.1)
    assert world.out == [["0:0", "0:1", "0:2"]]


def test_the_loop_does_not_sleep_past_the_end_of_the_wait() -> None:
    world = World(fine, wait_s=1.0)
    world.feed("a")
    world.step()
    world.step()
    assert world.loop.lanes.due_in(world.clock.now) == pytest.approx(1.0)
    world.step(pass_s=0.25)
    assert world.loop.lanes.due_in(world.clock.now) == pytest.approx(0.75)


def test_a_batch_spans_partitions_and_holds_all_their_lanes() -> None:
    world = World(fine, size=4)
    world.feed("aa", partition=0)
    world.feed("aaaa", partition=1)
    world.step()
    world.step()
    assert world.out == [["0:0", "0:1", "1:0", "1:1"]]
    world.feed("aaaa", partition=0)
    world.step(pass_s=2.0)
    assert len(world.out) == 1, "both lanes are held"
    world.work()
    world.step()
    world.step()
    assert world.done == ["0:0", "0:1", "1:0", "1:1"]
    assert [world.committed(0), world.committed(1)] == [2, 2]


def test_with_key_order_other_keys_go_out_in_other_batches_meanwhile() -> None:
    world = World(fine, order="key", size=2)
    world.feed("ab")
    world.step()
    world.step()
    world.feed("acad")
    world.step()
    world.step()
    assert world.out == [["0:0", "0:1"], ["0:3", "0:5"]]
    world.work(0)
    world.step()
    world.step()
    world.step()
    assert world.out[1] == ["0:2", "0:4"], "consecutive records of one lane in one batch"


def test_under_commit_each_a_lane_goes_on_when_its_batch_is_committed() -> None:
    world = World(fine, size=2)
    world.feed("aaaa")
    world.step()
    world.step()
    world.source.answers = False
    world.work()
    world.step()
    world.step(pass_s=2.0)
    assert world.out == []
    world.source.answers = True
    world.step()
    world.step()
    assert world.out == [["0:2", "0:3"]]


def test_what_was_gathered_before_does_not_wait_again() -> None:
    world = World(refusing("0:1"), size=4, wait_s=60.0)
    world.feed("aaaa")
    world.play(steps=8, pass_s=0.01)
    assert world.calls[-1] == ["0:2", "0:3"]
    assert world.committed() == 4


# -- what cannot be decoded


@pytest.mark.parametrize("order", ["key", "none"])
def test_what_cannot_be_decoded_is_dead_lettered_and_the_others_are_done_in_the_same_call(order: Order) -> None:
    world = World(fine, order=order, size=4, partitions=1)
    world.feed("axby", bad="xy")
    world.play(steps=4)
    assert world.calls == [["0:0", "0:2"]]
    assert world.dead_lettered == ["0:1", "0:3"]
    assert world.committed() == 4


def test_behind_what_cannot_be_decoded_its_lane_waits_until_it_is_dead_lettered() -> None:
    world = World(fine, order="partition", size=4, partitions=1)
    world.feed("axbc", bad="x")
    world.sink.decide = hold
    world.play(steps=4)
    assert world.calls == [["0:0"]]
    world.sink.decide = acknowledge
    world.sink.answer()
    world.play(steps=6)
    assert world.calls == [["0:0"], ["0:2", "0:3"]]
    assert world.dead_lettered == ["0:1"]


# -- failures


def test_a_retryable_failure_runs_the_whole_batch_again_after_the_delay() -> None:
    errors = [OSError("away"), OSError("away")]

    def handle(values: list[str]) -> None:
        if errors:
            raise errors.pop()

    world = World(handle, size=3)
    world.feed("abcd")
    world.step()
    world.step()
    world.work()
    world.step()
    world.step(pass_s=0.9)
    assert world.out == []
    assert world.calls == [["0:0", "0:1", "0:2"]]
    world.step(pass_s=0.2)
    assert world.batches[0].attempt == 2
    world.play(steps=20)
    assert world.calls[:3] == [["0:0", "0:1", "0:2"]] * 3
    assert world.done == ["0:0", "0:1", "0:2", "0:3"]
    assert world.dead_lettered == []


def test_an_atomic_batch_is_halved_down_to_the_bad_record_left_half_first() -> None:
    world = World(refusing("0:5"), size=8, order="none")
    world.feed("........")
    world.play(steps=10)
    assert [len(call) for call in world.calls] == [8, 4, 2, 1, 1, 2]
    assert world.done == ["0:0", "0:1", "0:2", "0:3", "0:4", "0:6", "0:7"]
    assert world.dead_lettered == ["0:5"]
    assert world.committed() == 8


def test_a_batch_that_is_not_atomic_is_tried_record_by_record() -> None:
    world = World(refusing("0:2"), size=6, atomic=False, order="none")
    world.feed("......")
    world.play(steps=10)
    assert [len(call) for call in world.calls] == [6, 1, 1, 1, 3]
    assert sorted(world.done) == ["0:0", "0:1", "0:3", "0:4", "0:5"]
    assert world.dead_lettered == ["0:2"]


@pytest.mark.parametrize(
    "error",
    [lambda i: Reject("no", index=i), lambda i: BatchError({at: ValueError() for at in i})],
    ids=["Reject", "BatchError"],
)
def test_records_that_the_handler_names_are_dead_lettered_and_the_others_run_again_together(error: Any) -> None:
    def handle(values: list[str]) -> None:
        bad = [index for index, value in enumerate(values) if value in ("0:1", "0:4")]
        if bad:
            raise error(bad)

    world = World(handle, size=6, order="none", atomic=False)
    world.feed("......")
    world.play(steps=5)
    assert world.calls == [["0:0", "0:1", "0:2", "0:3", "0:4", "0:5"], ["0:0", "0:2", "0:3", "0:5"]]
    assert world.dead_lettered == ["0:1", "0:4"]
    assert world.committed() == 6


def test_in_one_lane_what_is_behind_a_named_record_runs_after_it_is_dead_lettered() -> None:
    def handle(values: list[str]) -> None:
        if "0:2" in values:
            raise Reject("no", index=values.index("0:2"))

    world = World(handle, size=5, order="partition", partitions=1)
    world.feed("aaaaa")
    world.play(steps=8)
    assert world.calls == [["0:0", "0:1", "0:2", "0:3", "0:4"], ["0:0", "0:1"], ["0:3", "0:4"]]
    assert world.dead_lettered == ["0:2"]


def test_a_named_record_with_a_retryable_error_is_tried_again_alone() -> None:
    left = [1]

    def handle(values: list[str]) -> None:
        if "0:1" in values and left:
            left.pop()
            raise BatchError({values.index("0:1"): OSError("busy")})

    world = World(handle, size=3, order="none")
    world.feed("...")
    world.play(steps=10)
    assert world.calls == [["0:0", "0:1", "0:2"], ["0:0", "0:2"], ["0:1"]]
    assert world.dead_lettered == []
    assert world.committed() == 3


def test_an_error_that_names_the_only_record_is_its_own() -> None:
    errors: list[BaseException] = [Discard("at last"), OSError("busy"), OSError("busy")]

    def handle(values: list[str]) -> None:
        raise BatchError({0: errors.pop()})

    world = World(handle, size=1, partitions=1)
    world.feed("a")
    world.play(steps=12)
    assert (len(world.calls), world.dead_lettered, world.committed()) == (3, [], 1)
    assert world.loop.counts.total().discarded == 1


def test_naming_a_record_that_was_not_given_is_a_failure_of_all() -> None:
    world = World(refusing("0:0", error=lambda: Reject("no", index=7)), size=2, order="none")
    world.feed("..")
    world.play(steps=6)
    assert world.calls == [["0:0", "0:1"], ["0:0"], ["0:1"]]
    assert world.dead_lettered == ["0:0"]


def test_when_retries_are_used_up_the_bad_one_is_searched_without_further_delay_and_retried_alone() -> None:
    world = World(refusing("0:1", error=lambda: OSError("away")), size=4, order="none")
    world.feed("....")
    world.play(steps=40, pass_s=0.2)
    alone = [call for call in world.calls if call == ["0:1"]]
    assert [len(call) for call in world.calls[:6]] == [4, 4, 4, 2, 1, 1]
    assert len(alone) == 3, "as often as the policy says, once it is alone"
    assert sorted(world.done) == ["0:0", "0:2", "0:3"]
    assert world.dead_lettered == ["0:1"]


def test_discard_drops_the_batch_or_what_it_names_without_a_letter() -> None:
    def handle(values: list[str]) -> None:
        if values[0] == "0:0":
            raise Discard("all of them")
        if "0:3" in values:
            raise Discard("this one", index=values.index("0:3"))

    world = World(handle, size=2, order="none", partitions=1)
    world.feed("....")
    world.play(steps=6)
    assert world.calls == [["0:0", "0:1"], ["0:2", "0:3"], ["0:2"]]
    assert (world.dead_lettered, world.committed()) == ([], 4)
    assert world.loop.counts.total().discarded == 3
    assert world.loop.processed == 1


def test_retry_later_holds_the_whole_batch_for_that_long() -> None:
    reported = [RetryLater(after_s=7)]

    def handle(values: list[str]) -> None:
        if reported:
            raise reported.pop()

    world = World(handle, size=2)
    world.feed("aa")
    world.step()
    world.step()
    world.work()
    world.step()
    world.step(pass_s=6.9)
    assert world.out == []
    world.step(pass_s=0.2)
    assert world.out == [["0:0", "0:1"]]


@pytest.mark.parametrize("max_retries", [0, 2])
def test_who_asks_for_a_longer_wait_than_a_lane_should_take_moves_the_whole_batch_to_a_retry_topic(
    max_retries: int,
) -> None:
    world = World(
        refusing("0:0", "0:1", "0:2", error=lambda: RetryLater(after_s=60)),
        size=3,
        order="none",
        retry=RetryPolicy(max_retries=max_retries, max_delay_ms=30_000),
        tiers=TIERS,
    )
    world.feed("...")
    world.play(steps=20, pass_s=0.3)
    assert world.calls == [["0:0", "0:1", "0:2"]], "no call before the time is over"
    assert [(one.topic, one.value) for one in world.sink.sent] == [
        (RETRY_TOPIC, b"0:0"),
        (RETRY_TOPIC, b"0:1"),
        (RETRY_TOPIC, b"0:2"),
    ]
    assert world.committed() == 3


def test_a_search_begins_no_sooner_than_the_handler_asked_for() -> None:
    world = World(refusing("0:1", error=lambda: RetryLater(after_s=7)), size=2, order="none", retry=NO_RETRIES)
    world.feed("..")
    world.step()
    world.step()
    world.work()
    world.step()
    world.step(pass_s=6.9)
    assert world.out == []
    world.step(pass_s=0.2)
    assert world.out == [["0:0"]]


def test_halt_stops_the_consumer_and_finishes_nothing() -> None:
    world = World(refusing("0:0", error=lambda: Halt("stop")), size=2)
    world.feed("aaa")
    world.play(steps=5)
    assert world.loop.halted == "stop"
    assert (world.calls, world.committed()) == ([["0:0", "0:1"]], 0)


def test_a_record_that_halts_once_the_others_of_its_batch_are_committed_lets_nothing_start_beside_it() -> None:
    def handle(values: list[str]) -> None:
        if "0:1" in values:
            raise BatchError({values.index("0:1"): Halt("stop")})

    world = World(handle, order="none", size=3, partitions=1)
    world.feed("...")
    world.source.answers = False
    for _ in range(2):
        world.step()
        world.step()
        world.work()
    world.step()
    assert (world.done, world.out) == (["0:0", "0:2"], []), "what was named waits for their commit"
    world.feed("...")
    world.step()  # takes them in
    world.source.answers = True
    world.source.answer()
    world.step()
    assert (world.loop.halted, world.out) == ("stop", [])


def test_records_that_fail_only_together_are_all_done() -> None:
    def handle(values: list[str]) -> None:
        if len(values) > 1:
            raise ValueError("too many")

    world = World(handle, size=4, order="none", partitions=1)
    world.feed("....")
    world.play(steps=20)
    assert sorted(world.done) == ["0:0", "0:1", "0:2", "0:3"]
    assert (world.dead_lettered, world.committed()) == ([], 4)


def test_for_ever_means_the_whole_batch() -> None:
    world = World(
        refusing("0:0", error=lambda: OSError("away")), size=2, retry=RetryPolicy(max_retries=None, max_elapsed_s=None)
    )
    world.feed("aa")
    world.play(steps=100, pass_s=1.0)
    assert len(world.calls) > 20
    assert all(call == ["0:0", "0:1"] for call in world.calls)


def test_the_log_says_of_a_batch_what_it_says_of_a_record(log: LogCapture) -> None:
    world = World(refusing("0:1", error=TimeoutError), size=4)
    world.feed("aaa")
    world.play(steps=60)
    lines = [(entry.event, entry.fields["retry_count"]) for entry in log.entries if entry.event.startswith("batch_")]
    assert lines[:3] == [("batch_retry_scheduled", 1), ("batch_retry_scheduled", 2), ("batch_split", 2)]
    [retry, _] = log.fields("batch_retry_scheduled")
    assert retry["processing_ms"] >= 0
    assert {name: value for name, value in retry.items() if name != "processing_ms"} == {
        "retry_count": 1,
        "error_type": "TimeoutError",
        "error_classification": "retryable",
        "code": "TIMEOUT",
        "rule": "timeout",
        "consumer": "c",
        "consumer_group": "g",
        "topic": TOPIC,
        "partition": 0,
        "offset": 0,
        "partitions": ["orders[0]"],
        "records": 3,
        "backoff_delay_ms": 1000,
    }


# -- guards


def away() -> BaseException:
    return ConnectionRefusedError("down")


def test_with_a_breaker_a_batch_waits_for_the_downstream_and_no_record_is_searched_for_or_dead_lettered(
    log: LogCapture,
) -> None:
    down = [True]

    def handle(values: list[str]) -> None:
        if down[0]:
            raise away()

    world = World(handle, size=4, breaker=BreakerPolicy(failures=2, window_s=60, open_s=1, max_open_s=1))
    world.feed("aaaaaaaa")
    world.play(steps=60, pass_s=0.5)
    assert len(world.calls) > 10
    assert all(call == world.calls[0] and len(call) == 4 for call in world.calls)
    retries = len(log.fields("batch_retry_scheduled"))
    assert retries + len(log.fields("batch_retry_held")) == len(world.calls)
    assert world.loop.counts.total().retries == retries < 3, "what a guard makes wait is no retry"
    assert set(world.loop.counts[TOPIC].delays_by_attempt) <= {1, 2}
    down[0] = False
    world.play(steps=10, pass_s=0.5)
    assert world.done == [f"0:{offset}" for offset in range(8)]
    assert (world.dead_lettered, world.committed()) == ([], 8)


def test_the_storm_guard_counts_what_is_dead_lettered_and_not_the_batches_that_are_searched() -> None:
    world = World(
        refusing("0:3", "0:9"), size=16, order="none", storm_guard=StormPolicy(dead_lettered=3, last=10, share=0.2)
    )
    world.feed("." * 16)
    world.play(steps=20)
    assert (sorted(world.dead_lettered), world.committed()) == (["0:3", "0:9"], 16)
    assert world.loop.guards.status().storm_tripped == 0


def test_a_rate_counts_every_record_of_a_batch() -> None:
    world = World(fine, size=10, wait_s=0.0, rate=RatePolicy(per_s=10, burst=1), partitions=1)
    world.feed("a" * 40)
    world.play(steps=20, pass_s=0.1)
    assert 20 <= len(world.done) <= 30, "10 a second, a batch at a time"


# -- rebalances and the end


def test_a_batch_in_flight_over_a_revoked_and_a_kept_partition_counts_for_the_kept_one() -> None:
    world = World(fine, size=4)
    world.feed("aa", partition=0)
    world.feed("aa", partition=1)
    world.step()
    world.step()
    run = world.workers.out[0]
    world.clock.now += 10  # the drain inside the callback has no time left
    world.loop.shutdown.deadline = world.clock.now
    world.revoke(0)
    world.loop.shutdown.deadline = float("inf")
    run.stop = False
    for part in world.batches[0].parts:
        part.stop = False
    world.work()
    world.step()
    world.step()
    assert [world.committed(0), world.committed(1)] == [0, 2]
    assert len(world.loop.in_flight) == 0


def test_a_failure_of_which_only_records_of_a_lost_partition_can_be_the_cause_is_too_late() -> None:
    world = World(refusing("0:0", error=lambda: Halt("stop everything")), size=3)
    world.feed("aa", partition=0)
    world.feed("x", partition=1, bad="x")
    world.step()
    world.step()
    world.work()  # it has failed, and the loop does not know yet
    world.loop.on_lost([world.places[0]])
    world.play(steps=4)
    assert world.calls == [["0:0", "0:1"]]
    assert not world.loop.halted
    assert world.dead_lettered == ["1:0"]
    assert [world.committed(0), world.committed(1)] == [0, 1]


def test_a_batch_that_has_not_begun_when_a_partition_goes_comes_back_for_the_others() -> None:
    world = World(fine, size=4, wait_s=0.1)
    world.feed("aa", partition=0)
    world.feed("aa", partition=1)
    world.step()
    world.step()
    world.loop.shutdown.deadline = world.clock.now
    world.revoke(0)
    world.loop.shutdown.deadline = float("inf")
    world.work()
    assert world.calls == []
    world.play(steps=3)
    assert world.calls == [["1:0", "1:1"]]
    assert [world.committed(0), world.committed(1)] == [0, 2]


def test_a_named_record_stays_behind_what_is_in_front_of_it_if_the_batch_does_not_begin_again() -> None:
    def handle(values: list[str]) -> None:
        if "1:1" in values:
            raise Reject("no", index=values.index("1:1"))

    world = World(handle, size=4, wait_s=0.1)
    world.feed("aa", partition=0)
    world.feed("aa", partition=1)
    world.step()
    world.step()
    world.work()
    world.step()  # it is known now who is to blame; the others are to run again
    world.loop.shutdown.deadline = world.clock.now
    world.revoke(0)
    world.loop.shutdown.deadline = float("inf")
    world.play(steps=6)
    assert world.calls == [["0:0", "0:1", "1:0", "1:1"], ["1:0"]]
    assert world.dead_lettered == ["1:1"]
    assert [world.committed(0), world.committed(1)] == [0, 2]


def test_what_is_gathered_of_a_revoked_partition_is_let_go_and_the_rest_goes_out() -> None:
    world = World(fine, size=10, wait_s=1.0)
    world.feed("aa", partition=0)
    world.feed("aa", partition=1)
    world.step()
    world.step()
    world.revoke(0)
    world.play(steps=5)
    assert world.calls == [["1:0", "1:1"]]
    world.loop.on_assigned([world.places[0]])
    world._ends[world.places[0]] = 0
    world.feed("aa", partition=0)
    world.play(steps=8)
    assert world.calls == [["1:0", "1:1"], ["0:0", "0:1"]]


def test_a_batch_that_waits_for_its_retry_goes_on_without_a_revoked_partition() -> None:
    world = World(refusing("1:0", error=lambda: OSError("away")), size=4)
    world.feed("aa", partition=0)
    world.feed("aa", partition=1)
    world.step()
    world.step()
    world.work()
    world.step()
    world.revoke(1)
    world.play(steps=10)
    assert world.calls == [["0:0", "0:1", "1:0", "1:1"], ["0:0", "0:1"]]
    assert [world.committed(0), world.committed(1)] == [2, 0]


def test_a_search_goes_on_without_a_revoked_partition() -> None:
    world = World(refusing("1:1"), size=8)
    world.feed("aaaa", partition=0)
    world.feed("aaaa", partition=1)
    world.step()
    world.step()
    world.work()
    world.step()
    world.revoke(0)
    world.play(steps=20)
    assert world.dead_lettered == ["1:1"]
    assert world.committed(1) == 4


def test_when_it_stops_what_runs_is_finished_and_committed_and_nothing_else_starts() -> None:
    world = World(fine, size=2)
    world.feed("aaaaa")
    world.step()
    world.step()
    world.stop()
    world.step()
    for part in world.batches[0].parts:
        part.stop = False
    world.workers.out[0].stop = False  # it had begun before
    world.work()
    world.play(steps=5)
    assert world.calls == [["0:0", "0:1"]]
    assert world.committed() == 2
    assert world.loop.ending is not None
    assert (world.loop.ending.kind, world.loop.ending.unfinished) == ("stopped", 0)


def test_a_batch_that_fails_while_it_stops_is_left_to_the_next_owner() -> None:
    world = World(refusing("0:0"), size=2)
    world.feed("aa")
    world.step()
    world.step()
    run = world.workers.out[0]
    world.stop()
    world.step()
    run.stop = False
    world.work()
    world.play(steps=5)
    assert (world.dead_lettered, world.committed()) == ([], 0)
    assert world.loop.ending is not None


# -- a filter


def filtering(*names: str, handle: Any = fine, **options: Any) -> World:
    world = World(handle, **options)
    world.dropped_by_filter = set(names)
    return world


def test_what_does_not_pass_the_filter_is_left_out_of_the_list_and_committed() -> None:
    world = filtering("0:0", "0:2", "0:3", size=5)
    world.feed("aaaaa")
    world.play(steps=5)
    assert world.calls == [["0:1", "0:4"]]
    assert world.committed() == 5
    assert (world.loop.processed, world.loop.counts.filtered) == (2, 3)
    assert sum(world.tally.counts) == 2, "what was filtered is no call"


def test_a_batch_of_which_nothing_passes_is_committed_without_a_call() -> None:
    world = filtering("0:0", "0:1", "1:0", size=3)
    world.feed("aa")
    world.feed("a", partition=1)
    world.play(steps=5)
    assert world.calls == []
    assert [world.committed(0), world.committed(1)] == [2, 1]
    assert (world.loop.processed, world.loop.counts.filtered, sum(world.tally.counts)) == (0, 3, 0)


@pytest.mark.parametrize("order", ORDERS)
def test_records_in_front_of_a_bad_one_that_do_not_pass_are_finished_though_the_call_fails(order: Order) -> None:
    world = filtering("0:0", "0:1", "0:3", handle=refusing("0:2"), size=4, order=order, retry=NO_RETRIES)
    world.feed("aaaa")
    world.play(steps=20)
    assert {tuple(call) for call in world.calls} == {("0:2",)}
    assert (world.dead_lettered, world.committed()) == (["0:2"], 4)
    assert world.loop.counts.filtered == 3


def test_a_batch_that_is_discarded_counts_what_did_not_pass_as_filtered() -> None:
    world = filtering("0:0", "0:2", handle=refusing("0:1", "0:3", error=lambda: Discard("old")), size=4)
    world.feed("aaaa")
    world.play(steps=5)
    counts = world.loop.counts
    assert (counts.total().discarded, counts.filtered, counts.processed, world.committed()) == (2, 2, 0, 4)


def test_a_batch_of_which_nothing_passes_is_no_probe_that_succeeded() -> None:
    policy = BreakerPolicy(failures=1, window_s=60, open_s=5, max_open_s=5)
    world = filtering("0:1", handle=refusing("0:0", error=ConnectionRefusedError), size=1, breaker=policy)
    world.feed("aa", partition=0)
    world.play(steps=3, pass_s=0.1)
    assert "breaker" in world.loop.holds
    world.dropped_by_filter = {"0:0", "0:1"}
    world.play(steps=3, pass_s=6.0)
    assert world.committed() == 2
    assert "breaker" in world.loop.holds, "no call has succeeded"


# -- anything


@st.composite
def stories(draw: st.DrawFn) -> dict[str, Any]:
    keys = st.lists(st.sampled_from("aab."), min_size=1, max_size=25)
    fed = [draw(keys), draw(keys)]
    names = [f"{number}:{at}" for number, one in enumerate(fed) for at in range(len(one))]
    return {
        "order": draw(st.sampled_from(ORDERS)),
        "size": draw(st.integers(1, 12)),
        "atomic": draw(st.booleans()),
        "commit": draw(st.sampled_from(["each", "interval"])),
        "fed": fed,
        "poison": draw(st.sets(st.sampled_from(names), max_size=4)),
        "named": draw(st.sets(st.sampled_from(names), max_size=3)),
        "undecodable": draw(st.sets(st.sampled_from(names), max_size=3)),
        "flaky": draw(st.sets(st.sampled_from(names), max_size=2)),
        "filtered": draw(st.one_of(st.just(set()), st.sets(st.sampled_from(names)))),
    }


@settings(max_examples=examples(120), deadline=None)
@given(stories())
def test_good_records_are_done_once_bad_ones_are_dead_lettered_once_and_lanes_keep_their_order(
    story: dict[str, Any],
) -> None:
    flaky = dict.fromkeys(story["flaky"], 1)
    applied: list[str] = []

    def handle(values: list[str]) -> None:
        began = len(applied)
        for index, value in enumerate(values):
            try:
                if flaky.get(value):
                    flaky[value] -= 1
                    raise OSError("busy")
                if value in story["named"]:
                    raise Reject("no", index=index)
                if value in story["poison"]:
                    raise ValueError("no")
            except Exception:
                if story["atomic"]:
                    del applied[began:]
                raise
            applied.append(value)

    world = World(
        handle,
        order=story["order"],
        size=story["size"],
        atomic=story["atomic"],
        commit=CommitPolicy(mode=story["commit"], every_s=0.5),
        wait_s=0.1,
        retry=FAST,
    )
    world._undecodable = story["undecodable"]
    world.dropped_by_filter = story["filtered"]
    lanes: dict[Any, list[str]] = {}
    for number, keys in enumerate(story["fed"]):
        for key, name in zip(keys, world.feed("".join(keys), partition=number), strict=True):
            lane = {"partition": number, "key": None if key == "." else key, "none": None}[story["order"]]
            if lane is not None:
                lanes.setdefault((lane, number), []).append(name)
    world.play(steps=120, pass_s=0.2)
    passing = {f"{number}:{at}" for number, keys in enumerate(story["fed"]) for at in range(len(keys))}
    passing -= story["filtered"]
    bad = passing & (story["poison"] | story["named"] | story["undecodable"])
    good = passing - bad
    counts = world.loop.counts
    assert (counts.filtered, counts.processed) == (len(story["filtered"]), len(good))
    assert sorted(world.dead_lettered) == sorted(bad)
    assert sorted(world.done) == sorted(good)
    assert not story["atomic"] or sorted(applied) == sorted(good)
    for names in lanes.values():
        assert [name for name in world.done if name in names] == [name for name in names if name in good]
    assert [world.committed(number) for number in (0, 1)] == [len(keys) for keys in story["fed"]]
    for partition in world.loop.ownership:
        assert (partition.held_bytes, len(partition.failed_records), len(partition.running)) == (0, 0, 0)

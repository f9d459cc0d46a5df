"""Live: would a restart help? Ready: can it work? Each state a consumer can be in, and what health says of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from keepfast.engine import commits, control, guards, loop, mailbox, queue, timeouts
from keepfast.http.health import HealthFacts, health_of
from keepfast.telemetry.state import (
    HOLDS,
    ConsumerState,
    GuardState,
    Hold,
    PartitionState,
    QueueState,
    Refused,
    SpoolState,
    StuckHandler,
)

WELL = ConsumerState(
    name="charge",
    group="g",
    topics=("orders",),
    order="partition",
    commit="each",
    phase="running",
    member=True,
    partitions=(PartitionState(topic="orders", partition=0, lag=10_000_000, position=1, end=10_000_001),),
)
LIVE_READY, LIVE_ONLY, DEAD = (True, True), (True, False), (False, False)
STUCK = StuckHandler(topic="orders", partition=0, offset=7, for_s=31.0, stack=("shop.py:3 charge", "x.py:1 w"))
REFUSED = Refused(records=2, for_s=5.0, why="no such topic\x1b[31m")


def seen(state: ConsumerState = WELL, **more: Any) -> HealthFacts:
    return HealthFacts(app="shop", uptime_s=5.0, consumers={"charge": state}, **more)


@pytest.mark.parametrize(
    ("changes", "code", "level", "expected"),
    [
        ({"partitions": ()}, None, "ok", LIVE_READY),
        ({"brokers": "nobody answers"}, "brokers_away", "degraded", LIVE_READY),
        ({"missing_topics": ("orders",)}, "topic_missing", "degraded", LIVE_READY),
        ({"unpositioned": 1}, "offsets_unknown", "degraded", LIVE_READY),
        ({"holds": (Hold(name="operator", for_s=9.0),)}, "paused", "ok", LIVE_READY),
        ({"guards": GuardState(breaker="open")}, "breaker_open", "degraded", LIVE_READY),
        ({"guards": GuardState(breaker="half-open")}, "breaker_open", "degraded", LIVE_READY),
        ({"abandoned": 1}, "abandoned_threads", "degraded", LIVE_READY),
        ({"stuck_handlers": 1, "stuck": (STUCK,)}, "handlers_hang", "degraded", LIVE_READY),
        ({"phase": "starting", "member": False}, "joining", "degraded", LIVE_ONLY),
        ({"member": False, "lost": True}, "group_lost", "failing", LIVE_ONLY),
        ({"holds": (Hold(name="commit", for_s=9.0),)}, "commits_fail", "failing", LIVE_ONLY),
        ({"letters_refused": REFUSED}, "dead_letters_refused", "failing", LIVE_ONLY),
        ({"letter_topics": {"orders.dlq": 7}}, None, "ok", LIVE_READY),
        ({"letter_topics": {"orders.dlq": None}}, "dead_letter_topic_missing", "degraded", LIVE_READY),
        (
            {"letter_topics": {"orders.dlq": None}, "letters_refused": REFUSED},
            "dead_letters_refused",
            "failing",
            LIVE_ONLY,
        ),
        ({"moves_refused": REFUSED}, "retry_topic_refuses", "failing", LIVE_ONLY),
        ({"guards": GuardState(storm="tripped")}, "storm_guard", "failing", LIVE_ONLY),
        (
            {"partitions": (PartitionState(topic="orders", partition=0, suspects=3),)},
            "probation",
            "degraded",
            LIVE_READY,
        ),
        (
            {"partitions": (PartitionState(topic="orders", partition=0, window_full_s=10.0),)},
            "window_full",
            "degraded",
            LIVE_READY,
        ),
        ({"partitions": (PartitionState(topic="orders", partition=0, window_full_s=9.0),)}, None, "ok", LIVE_READY),
        (
            {"partitions": (PartitionState(topic="orders", partition=0, not_fetched_s=10.0),)},
            "not_fetched",
            "failing",
            LIVE_ONLY,
        ),
        ({"partitions": (PartitionState(topic="orders", partition=0, not_fetched_s=9.0),)}, None, "ok", LIVE_READY),
        (
            {"partitions": (PartitionState(topic="orders", partition=0, position=9, end=3, beyond_end=True),)},
            "beyond_end",
            "degraded",
            LIVE_READY,
        ),
        ({"lost": True, "missing_topics": ("orders",)}, "topic_missing", "degraded", LIVE_READY),
        ({"overdue": 1}, "handlers_overdue", "failing", LIVE_ONLY),
        ({"phase": "halted", "why": "no"}, "halted", "failing", LIVE_ONLY),
        ({"phase": "ended"}, "ended", "failing", LIVE_ONLY),
        ({"turn_age_s": 31.0}, "loop_stuck", "failing", DEAD),
        ({"turn_age_s": 29.0}, None, "ok", LIVE_READY),
        ({"turn_age_s": 300.0, "phase": "draining"}, None, "ok", LIVE_READY),
        ({"max_abandoned_reached": True, "overdue": 1, "abandoned": 8}, "handlers_stuck", "failing", DEAD),
        ({"producer_hangs": "no answer"}, "producer_hangs", "failing", DEAD),
        ({"blocked": True}, "event_loop_blocked", "failing", DEAD),
    ],
)
def test_a_consumer(changes: dict[str, Any], code: str | None, level: str, expected: tuple[bool, bool]) -> None:
    report = health_of(seen(msgspec.structs.replace(WELL, **changes)))
    assert [reason.code for reason in report.reasons] == ([] if code is None else [code])
    assert (report.status, (report.live, report.ready)) == (level, expected)
    assert all(reason.consumer == "charge" and "\x1b" not in reason.text for reason in report.reasons)


@pytest.mark.parametrize("kind", ["letters_refused", "moves_refused"])
def test_the_record_that_waits_because_its_copy_is_refused_is_named(kind: str) -> None:
    refused = msgspec.structs.replace(REFUSED, record="orders[0] offset 7")
    [reason] = health_of(seen(msgspec.structs.replace(WELL, **{kind: refused}))).reasons
    assert "for 5 s, first orders[0] offset 7: no such topic" in reason.text


def test_a_partition_that_is_stuck_and_one_that_is_paused_by_hand() -> None:
    stuck, paused = (msgspec.structs.replace(WELL.partitions[0], partition=number) for number in (1, 2))
    stuck = msgspec.structs.replace(stuck, stuck=True, stalled_s=61.0)
    paused = msgspec.structs.replace(paused, holds=("operator",))
    report = health_of(seen(msgspec.structs.replace(WELL, partitions=(*WELL.partitions, stuck, paused))))
    assert [(reason.code, reason.level) for reason in report.reasons] == [
        ("stuck_partitions", "failing"),
        ("partitions_paused", "ok"),
    ]
    assert "orders[1]" in report.reasons[0].text
    assert (report.live, report.ready) == LIVE_ONLY


def test_a_partition_that_waits_for_a_handler_of_before() -> None:
    waits = msgspec.structs.replace(WELL.partitions[0], holds=("stale_run",), stale_run_s=12.0)
    report = health_of(seen(msgspec.structs.replace(WELL, partitions=(waits,))))
    [reason] = report.reasons
    assert (reason.code, reason.level, report.live, report.ready) == ("stale_run", "degraded", *LIVE_READY)
    assert "orders[0] has waited 12 s" in reason.text


@pytest.mark.parametrize(
    ("spool", "code", "ready"),
    [
        (SpoolState(), None, True),
        (SpoolState(letters=3), "spool_holds_letters", True),
        (SpoolState(letters=3, refusing="disk full"), "spool_refuses", False),
        (SpoolState(stuck=1), "spool_stuck", True),
    ],
)
def test_a_spool(spool: SpoolState, code: str | None, ready: bool) -> None:
    report = health_of(seen(spool=spool))
    assert [reason.code for reason in report.reasons] == ([] if code is None else [code])
    assert (report.live, report.ready) == (True, ready)


def test_a_spool_says_why_kafka_does_not_take_its_letters_also_when_it_is_full() -> None:
    missing = msgspec.structs.replace(WELL, letter_topics={"orders.dlq": None})
    holds, full = SpoolState(letters=3, waits="no topic"), SpoolState(letters=3, waits="no topic", refusing="disk full")

    def texts(spool: SpoolState, state: ConsumerState = missing) -> list[str]:
        return [reason.text for reason in health_of(seen(state, spool=spool)).reasons]

    assert texts(holds) == [
        "3 dead letters are in the spool because Kafka did not accept them: no topic",
        "The topic orders.dlq does not exist: dead letters are kept in the spool until it does.",
    ]
    refused = msgspec.structs.replace(missing, letters_refused=REFUSED)
    full_text, _, missing_text = texts(full, refused)
    assert full_text == "The spool refuses letters: disk full. Kafka does not take those that it holds: no topic"
    assert missing_text == "The topic orders.dlq does not exist: a dead letter blocks its lane until it does."


def test_the_lag_of_a_consumer_is_the_sum_of_its_partitions_and_its_holds_are_in_words() -> None:
    partitions = tuple(PartitionState(topic="t", partition=n, lag=lag) for n, lag in ((0, 7), (1, 5), (2, None)))
    holds = (Hold(name="breaker", for_s=9.0),)
    [short] = health_of(seen(msgspec.structs.replace(WELL, partitions=partitions, holds=holds))).consumers.values()
    assert short.lag_total == 12
    assert short.holds == {"breaker": "a downstream fails; a record is tried now and then, and the others wait"}


def test_every_hold_is_explained() -> None:
    names = {guards.HALT, guards.BREAKER, guards.STORM, guards.RATE, loop.COMMIT, loop.ABANDONED, mailbox.DRAIN}
    names |= {guards.REGISTRY, control.OPERATOR, commits.REBALANCE, commits.COMMIT_REFUSED, timeouts.STALE_RUN}
    names.add(queue.LETTERS)
    assert set(HOLDS) == names


def test_before_the_brokers_are_found_it_is_live_and_not_started() -> None:
    report = health_of(HealthFacts(app="shop", uptime_s=100.0, consumers={}, starting="It waits for its brokers."))
    assert (report.live, report.ready, report.started, report.status) == (True, False, False, "degraded")
    joined = health_of(seen())
    assert (joined.started, joined.consumers["charge"].lag_total, joined.status) == (True, 10_000_000, "ok")
    joining = health_of(seen(msgspec.structs.replace(WELL, phase="starting")))
    assert not joining.started


def test_a_queue_says_that_its_lag_is_not_known() -> None:
    state = msgspec.structs.replace(WELL, order="queue", partitions=(), queue=QueueState(lock_s=30.0))
    short = health_of(seen(state)).consumers["charge"]
    assert (short.lag_total, "no request for its lag" in short.note) == (None, True)


def test_while_it_drains_it_is_live_and_not_ready() -> None:
    report = health_of(seen(msgspec.structs.replace(WELL, phase="draining"), draining=True))
    assert (report.live, report.ready, [reason.code for reason in report.reasons]) == (True, False, ["draining"])

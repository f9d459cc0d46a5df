"""Sending letters back: what is sent, what is not, and what is said when it did not go well."""

from __future__ import annotations

import threading
import time
from collections import Counter
from queue import Queue
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast.core.errors import ConfigError, Fault
from keepfast.core.policies import LETTER_FORMATS, LetterFormat
from keepfast.core.ports import Delivery
from keepfast.core.records import Headers, Outgoing, Receipt, Record
from keepfast.core.retry_topics import RetryOrigin, Tier, Tiers, decode
from keepfast.desk import replay as module
from keepfast.desk.letter_topic import ReadStopped
from keepfast.desk.planning import ReplayPolicy, ReplayRouter, plan
from keepfast.desk.replay import Replay, Replayed
from keepfast.desk.selection import Offsets, Selection
from tests.desk.letter_topics import DLQ, SOURCE_PARTITIONS, Stock, letter_topic, router, stocked
from tests.support.fakes import Decision, FakeSink, Outcome, acknowledge, hold, refuse
from tests.support.letters import headers, keys, letter, values
from tests.support.waiting import wait_until


def answering(decide: Decision = acknowledge) -> FakeSink:
    """Its answers come from another thread, as a client's do."""
    return FakeSink(decide, answers_elsewhere=True)


def replayed(stock: Stock, sink: FakeSink, policy: ReplayPolicy | None = None, **selected: Any) -> Replayed:
    policy = policy or ReplayPolicy()
    return Replay(letter_topic(stock, Selection(**selected)), router(policy), sink, policy).run()


def values_of(sink: FakeSink) -> list[bytes | None]:
    return [outgoing.value for outgoing in sink.sent]


@given(
    letters=st.lists(st.tuples(keys, values, headers, st.sampled_from(LETTER_FORMATS)), min_size=1, max_size=5),
    elsewhere=st.booleans(),
)
def test_a_replay_sends_exactly_the_original_bytes(
    letters: list[tuple[bytes | None, bytes | None, Headers, LetterFormat]], elsewhere: bool
) -> None:
    stock, sink = Stock(), answering()
    for number, (key, value, own, form) in enumerate(letters):
        stock.file(letter(key=key, value=value, headers=tuple(own), offset=number), form=form)
    outcome = replayed(stock, sink, ReplayPolicy(topic="other" if elsewhere else None))
    assert outcome.complete(len(letters))
    for (key, value, own, _), sent in zip(letters, sink.sent, strict=True):
        assert (sent.key, sent.value, tuple(sent.headers)[: len(own)]) == (key, value, tuple(own))
        assert [name for name, _ in tuple(sent.headers)[len(own) :]] == ["keepfast-replay-count", "keepfast-letter-id"]
        place = ("other", None) if elsewhere else ("orders.payment.v1", 3)
        assert (sent.topic, sent.partition, sent.timestamp_ms) == (*place, None)


def test_timestamps_are_kept_only_if_asked_for() -> None:
    sink = answering()
    replayed(stocked(1), sink, ReplayPolicy(keep_timestamp=True))
    assert sink.sent[0].timestamp_ms == 1_700_000_000_000


def test_each_letter_is_sent_once_however_many_copies_there_are() -> None:
    stock = stocked(2)
    for form in LETTER_FORMATS:
        stock.file(letter(offset=0, value=b"0"), partition=1, form=form)
    stock.file(letter(offset=0, value=b"another record, of a topic recreated"))
    sink = answering()
    outcome = replayed(stock, sink)
    assert sorted(value or b"" for value in values_of(sink)) == [b"0", b"1", b"another record, of a topic recreated"]
    assert (outcome.confirmed, outcome.left_out, outcome.complete(3)) == (3, 3, True)


def test_the_plan_counts_destinations_and_says_why_others_are_left_out() -> None:
    stock = stocked(4)
    stock.file(letter(offset=10, replay_count=3))
    stock.file(letter(offset=11, replay_count=2))
    stock.file(letter(offset=12, topic="gone.topic"))
    stock.file(letter(offset=13, partition=12))
    stock.file(letter(offset=14, topic=DLQ))
    stock.file(letter(offset=15, topic="__consumer_offsets"))
    stock.add(Record(DLQ, 0, 0, None, b"no letter", (), None))
    stock.add(Record(DLQ, 0, 0, None, b'{"original_message":{},"error_type":"E","original_topic":"other"}', (), None))
    made = plan(letter_topic(stock), router())
    assert (made.records, made.destinations, made.groups) == (5, {"orders.payment.v1": 5}, {"payments.charge"})
    assert sorted(made.excluded) == [
        "it would go into orders.payment.dlq itself, among the letters",
        "replayed 3 times already (--max-replays 4 allows it once more)",
        "the original bytes are not known exactly (--inexact sends them as far as they are known)",
        "the original topic is not known (--topic names one)",
        "topic __consumer_offsets is Kafka's own",
        "topic gone.topic does not exist (--topic names another)",
        "topic orders.payment.v1 has no partition 12 any more (with --topic orders.payment.v1 the key decides)",
    ]
    assert set(made.excluded.values()) == {1}
    assert made.duration_s(2.5) == 2.0
    assert made.duration_s(None) is None


def test_planning_ends_on_request() -> None:
    with pytest.raises(ReadStopped):
        plan(letter_topic(stocked(2)), router(), lambda: True)


def test_forged_topics_do_not_make_the_plan_grow_without_bound() -> None:
    stock = Stock()
    for number in range(300):
        stock.file(letter(topic=f"t{number}"))
    made = plan(letter_topic(stock), router())
    assert (made.left_out, len(made.excluded)) == (300, 101)


def test_what_was_replayed_too_often_stays() -> None:
    sink = answering()
    assert replayed(stocked(2, replay_count=1), sink, ReplayPolicy(max_replays=1)).left_out == 2
    assert sink.sent == []
    replayed(stocked(1, replay_count=1), sink, ReplayPolicy(max_replays=2))
    assert ("keepfast-replay-count", b"2") in sink.sent[0].headers


@pytest.mark.parametrize("bad", [{"max_replays": 0}, {"rate_per_s": 0.0}, {"rate_per_s": float("nan")}])
def test_a_policy_that_makes_no_sense_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ReplayPolicy(**bad)


def test_a_record_that_is_too_large_does_not_hold_up_the_others_and_is_no_success() -> None:
    too_large = refuse(Fault.TOO_LARGE)
    sink = answering(lambda outgoing: (too_large if outgoing.value == b"4" else acknowledge)(outgoing))
    outcome = replayed(stocked(10), sink)
    assert sorted(values_of(sink), key=str) == sorted([b"4", *values_of_stock(10)], key=str), "once more, alone"
    assert (outcome.confirmed, outcome.failed, outcome.left) == (9, 1, ())
    assert outcome.failures == [("0:2", "refused")]
    assert not outcome.complete(10)


def test_records_beside_one_that_is_too_large_are_sent_again_alone() -> None:
    def answer(outgoing: Outgoing) -> Outcome | None:
        tries[outgoing.value] += 1
        decide = refuse(Fault.TOO_LARGE) if outgoing.value == b"4" or tries[outgoing.value] == 1 else acknowledge
        return decide(outgoing)

    tries: Counter[bytes | None] = Counter()
    outcome = replayed(stocked(10), answering(answer))
    assert set(tries.values()) == {2}
    assert (outcome.confirmed, outcome.failed, outcome.failures[0][0]) == (9, 1, "0:2")


def test_any_other_failure_ends_it_and_says_from_where_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_IN_FLIGHT", 20)

    refused = refuse(Fault.REFUSED)
    sink = answering(lambda outgoing: (refused if outgoing.value == b"6" else acknowledge)(outgoing))
    stock = stocked(500)
    outcome = replayed(stock, sink)
    assert outcome.broken == "refused"
    assert not outcome.complete(500)
    assert len(sink.sent) < 500, "it went on after a failure that would meet every record"
    assert outcome.left[0] == Offsets(0, 3, 250)
    assert outcome.left[-1].partition == 1
    again = answering()
    replayed(stock, again, offsets=outcome.left)
    confirmed = {value for value in values_of(sink) if value != b"6"}
    assert confirmed | set(values_of(again)) == {b"%d" % number for number in range(500)}


@pytest.mark.timing
def test_stopping_waits_for_what_is_under_way_and_says_what_is_left() -> None:
    stock, policy = stocked(100), ReplayPolicy(rate_per_s=50)
    sink = answering()
    run = Replay(letter_topic(stock), router(policy), sink, policy)

    def progress(confirmed: int) -> None:
        if confirmed >= 5:
            run.stop()

    begun = time.monotonic()
    outcome = run.run(progress)
    assert time.monotonic() - begun < 1.9
    assert outcome.stopped
    assert outcome.confirmed == len(sink.sent) < 100
    again = answering()
    assert not replayed(stock, again, offsets=outcome.left).stopped
    assert sorted(values_of(sink) + values_of(again), key=str) == sorted(values_of_stock(100), key=str), (
        "each just once"
    )


def values_of_stock(count: int) -> list[bytes | None]:
    return [b"%d" % number for number in range(count)]


def test_what_is_never_answered_counts_as_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SETTLE_S", 0.2)
    sink = FakeSink(lambda outgoing: (hold if outgoing.value in (b"4", b"7") else acknowledge)(outgoing))
    outcome = replayed(stocked(10), sink)
    assert outcome.confirmed == 8
    assert outcome.left == (Offsets(0, 2, 5), Offsets(1, 3, 5))
    assert not outcome.complete(10)


def test_no_more_is_under_way_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_IN_FLIGHT", 7)
    waiting: Queue[Delivery | None] = Queue()
    most = 0

    class Slow(FakeSink):
        def send(self, outgoing: Outgoing, delivered: Delivery) -> None:
            nonlocal most
            waiting.put(delivered)
            most = max(most, waiting.qsize())

    def answer() -> None:
        wait_until(lambda: waiting.qsize() == 7, "as many as may be under way")
        while (delivered := waiting.get()) is not None:
            delivered(Receipt("t", 0, 0))

    answering = threading.Thread(target=answer)
    answering.start()
    assert replayed(stocked(70), Slow()).confirmed == 70
    waiting.put(None)
    answering.join()
    assert most == 7


def test_the_rate_is_kept() -> None:
    begun = time.monotonic()
    assert replayed(stocked(20), answering(), ReplayPolicy(rate_per_s=40)).confirmed == 20
    assert time.monotonic() - begun > 0.4


def test_a_signal_that_comes_while_the_rate_is_waited_for_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = ReplayPolicy(rate_per_s=2.0)
    run = Replay(letter_topic(Stock(), Selection()), router(policy), answering(), policy)
    # As a handler on the same thread: whoever waits must hold nothing that it needs.
    monkeypatch.setattr(time, "sleep", lambda _: run.stop())
    with pytest.raises(ReadStopped):
        run._wait_until(time.monotonic() + 0.5)


def test_a_record_of_which_two_groups_have_a_letter_is_sent_once() -> None:
    stock = Stock()
    for number in range(3):
        for group in ("billing", "shipping"):
            stock.file(letter(offset=number, value=b"%d" % number, group=group), partition=number % 2)
    stock.file(letter(offset=0, value=b"0", timestamp_ms=1, group="billing"))  # of a topic that was recreated
    made = plan(letter_topic(stock), router())
    assert (made.records, made.copies, made.left_out) == (4, 3, 0)
    assert (made.destinations, made.groups) == ({"orders.payment.v1": 4}, {"billing", "shipping"})
    sink = answering()
    outcome = replayed(stock, sink)
    assert sorted(value or b"" for value in values_of(sink)) == [b"0", b"0", b"1", b"2"]
    assert outcome.complete(made.records)


RETRIES = {"orders.payment.v1.billing.retry.5s": 5, "orders.payment.v1.billing.retry.1m": 60}


def to_group(**fields: Any) -> tuple[ReplayPolicy, ReplayRouter]:
    policy = ReplayPolicy(to="group", **fields)

    def retry_topics_of(source: str, group: str) -> dict[str, int]:
        return RETRIES if (source, group) == ("orders.payment.v1", "billing") else {}

    known = {"orders.payment.v1": SOURCE_PARTITIONS} | dict.fromkeys(RETRIES, 2)
    return policy, ReplayRouter(
        policy, partitions_of=known.get, letters_in=DLQ, retry_topics_of=retry_topics_of, wall=lambda: 50.0
    )


def test_a_replay_to_the_group_goes_through_its_shortest_retry_topic() -> None:
    stock, sink = Stock(), answering()
    stock.file(letter(offset=7, partition=1, group="billing", headers=(("own", b"1"),)))
    stock.file(letter(offset=8, partition=5, group="billing"))
    policy, routes = to_group()
    assert Replay(letter_topic(stock), routes, sink, policy).run().complete(2)
    shortest = "orders.payment.v1.billing.retry.5s"
    assert [(one.topic, one.partition) for one in sink.sent] == [(shortest, 1), (shortest, None)]
    tiers = Tiers(
        group="billing",
        delays_s=(5, 60),
        topics={name: Tier(name, "orders.payment.v1", delay_s, 2) for name, delay_s in RETRIES.items()},
    )
    past = decode(sink.sent[0].headers, tier=tiers.topics[shortest], tiers=tiers)
    assert past.origin == RetryOrigin("orders.payment.v1", 1, 7, 1, 1_700_000_000_000)
    assert (past.step, past.due_ms, past.foreign) == (1, 50_000, False)
    assert [name for name, _ in past.headers] == ["own", "keepfast-replay-count", "keepfast-letter-id"]


@pytest.mark.parametrize(
    ("group", "why"), [("shipping", "shipping has no retry topics"), ("", "does not name the group")]
)
def test_a_replay_to_a_group_without_retry_topics_is_refused(group: str, why: str) -> None:
    stock = Stock()
    stock.file(letter(offset=7, group="billing"))
    stock.file(letter(offset=8, group=group))
    with pytest.raises(ConfigError, match=why):
        plan(letter_topic(stock), to_group()[1])


def test_a_record_that_failed_again_in_its_retry_topic_keeps_its_count_of_replays() -> None:
    stock = stocked(1)
    stock.file(
        letter(offset=0, value=b"0", replay_count=3), partition=1
    )  # the same place: it was replayed to its group
    stock.file(letter(offset=9, value=b"9"), partition=1)
    routes = router()
    made = plan(letter_topic(stock), routes)
    assert (made.records, made.copies, made.left_out) == (1, 0, 2)
    sink = answering()
    assert Replay(letter_topic(stock), routes.again(), sink, ReplayPolicy()).run().complete(1)
    assert values_of(sink) == [b"9"]


def test_to_group_and_another_topic_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match="leave out --topic"):
        ReplayPolicy(to="group", topic="other")

"""What a record carries through retry topics: exact there and back, and harmless whoever wrote it."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from keepfast.core import retry_topics as codec
from keepfast.core.records import Headers, Message, Outgoing, TopicPartition
from keepfast.core.retry_topics import (
    LAST_MS,
    MAX_ATTEMPTS,
    MAX_FAILURES,
    Past,
    Returned,
    Tier,
    Tiers,
    moved,
    original,
    remaining_s,
    shortened,
    source_of,
    topic_name,
)
from keepfast.testing.fakes.log import FakeMessage

SOURCE, GROUP = "orders.payment.v1", "shop.charge"
DELAYS = (5, 60, 5, 600)
TOPICS = {
    name: Tier(name, SOURCE, seconds, 4)
    for seconds in {*DELAYS, 7200}  # 7200: left over
    for name in [topic_name(SOURCE, GROUP, seconds)]
}
TIERS = Tiers(group=GROUP, delays_s=DELAYS, topics=TOPICS)
WALL_S = 1_700_000_000.25

names = st.text(max_size=12) | st.sampled_from(
    [codec.STEP, codec.DUE, codec.OWN_HEADERS, codec.TOPIC, "keepfast-replay-count", "keepfast-letter-id", "", "trace"]
)
headers = st.lists(st.tuples(names, st.none() | st.binary(max_size=30)), max_size=6).map(tuple)
blobs = st.none() | st.binary(max_size=60)


def tier(seconds: int) -> Tier:
    return TOPICS[topic_name(SOURCE, GROUP, seconds)]


def record(own: Headers = (), *, key: bytes | None = b"k", value: bytes | None = b"v", partition: int = 3) -> Message:
    place = TopicPartition(SOURCE, partition)
    return FakeMessage(place, 17, key=key, value=value, headers=own, timestamp_ms=1_600_000_000_123)


def move(message: Message, step: int, *, failures: int = 4, tiers: Tiers = TIERS) -> Outgoing:
    attempts = [(WALL_S, "RuntimeError"), (WALL_S + 1, "OSError")]
    return moved(message, tiers=tiers, step=step, wall_s=WALL_S, failures=failures, attempts=attempts)


def back(outgoing: Outgoing, *, offset: int = 5, tiers: Tiers = TIERS) -> Returned:
    """The record as it is read from its retry topic."""
    place = TopicPartition(outgoing.topic, 0 if outgoing.partition is None else outgoing.partition)
    message = FakeMessage(
        place, offset, key=outgoing.key, value=outgoing.value, headers=outgoing.headers, timestamp_ms=int(WALL_S * 1000)
    )
    return Returned(message, tiers.topics[outgoing.topic], tiers)


def coordinates(message: Message) -> tuple[str, int, int, tuple[int, int]]:
    return message.topic(), message.partition(), message.offset(), message.timestamp()


@given(own=headers, key=blobs, value=blobs)
def test_key_value_and_headers_come_through_every_step_exactly(
    own: Headers, key: bytes | None, value: bytes | None
) -> None:
    first = record(own, key=key, value=value)
    message: Message = first
    for step in range(1, len(DELAYS) + 1):
        outgoing = move(message, step, failures=step + 3)
        assert (outgoing.key, outgoing.value) == (key, value)
        assert tuple(outgoing.headers)[: len(own)] == tuple(own)
        message = back(outgoing)
        assert isinstance(message, Returned)
        assert (message.key(), message.value(), tuple(message.headers() or ())) == (key, value, tuple(own))
        assert (message.past.step, message.past.failures) == (step, step + 3)
        assert coordinates(original(message)) == coordinates(first)
        assert tuple(original(message).headers() or ()) == tuple(own)
        assert (source_of(message), len(message)) == (SOURCE, len(value or b""))


def test_a_moved_record_says_where_it_came_from_and_when_it_is_due() -> None:
    outgoing = move(record((("trace", b"1"),)), 2)
    assert (outgoing.topic, outgoing.partition, outgoing.timestamp_ms) == (f"{SOURCE}.{GROUP}.retry.1m", 3, None)
    assert outgoing.headers == (
        ("trace", b"1"),
        ("keepfast-retry-step", b"2"),
        ("keepfast-retry-failures", b"4"),
        ("keepfast-retry-due-ms", b"1700000060250"),
        ("keepfast-retry-group", b"shop.charge"),
        ("keepfast-retry-origin-topic", b"orders.payment.v1"),
        ("keepfast-retry-origin-partition", b"3"),
        ("keepfast-retry-origin-offset", b"17"),
        ("keepfast-retry-origin-timestamp-ms", b"1600000000123"),
        ("keepfast-retry-origin-timestamp-type", b"1"),
        ("keepfast-retry-attempts", b'[[1700000000250,"RuntimeError"],[1700000001250,"OSError"]]'),
        ("keepfast-retry-headers", b"1"),
    )


def test_a_partition_that_the_retry_topic_does_not_have_leaves_the_choice_to_the_key() -> None:
    assert move(record(partition=4), 1).partition is None


def test_the_attempts_go_when_room_is_short_and_nothing_else_does() -> None:
    full = move(record((("keepfast-retry-attempts", b"mine"),)), 1).headers
    short = shortened(full)
    assert [name for name, _ in full if name not in dict(short)] == []
    assert len(short) == len(full) - 1
    assert short[0] == ("keepfast-retry-attempts", b"mine")
    assert shortened(short) is short
    assert shortened((("a", b"b"),)) == (("a", b"b"),)


def test_long_lists_of_attempts_keep_their_beginning_and_end() -> None:
    attempts = [(float(at), "E" * 500) for at in range(100)]
    outgoing = moved(record(), tiers=TIERS, step=1, wall_s=WALL_S, failures=10**9, attempts=attempts)
    past = back(outgoing).past
    assert past.failures == MAX_FAILURES
    assert [at for at, _ in past.attempts] == [0.0, *range(81, 100)]
    assert sum(len(name) + len(value or b"") for name, value in outgoing.headers) < 8_000


# -- whoever wrote them


def forged(**changes: bytes | None) -> Returned:
    """A moved record in the topic of 60 s with some of its headers replaced, or left out (None)."""
    outgoing = move(record((("trace", b"1"),)), 2)
    printed = dict(outgoing.headers) | {getattr(codec, name): value for name, value in changes.items()}
    kept = tuple((name, value) for name, value in printed.items() if value is not None)
    return back(Outgoing(outgoing.topic, b"v", b"k", kept, 3))


@pytest.mark.parametrize(
    "reported",
    [None, b"", b"0", b"1", b"3", b"9", b"-2", b" 2", b"2 ", b"\xff", b"2" * 400, "２".encode(), b"0x2", b"2.0"],
)
def test_the_topic_itself_determines_the_step_whatever_the_headers_claim(reported: bytes | None) -> None:
    assert forged(STEP=reported).past.step == 2


def test_a_topic_of_several_steps_believes_one_of_them_and_else_the_last() -> None:
    for reported, step in ((b"1", 1), (b"3", 3), (b"2", 3), (b"nonsense", 3), (None, 3)):
        outgoing = move(record(), 1)
        printed = dict(outgoing.headers) | {codec.STEP: reported}
        kept = tuple((name, value) for name, value in printed.items() if value is not None)
        assert back(Outgoing(outgoing.topic, b"v", b"k", kept, 3)).past.step == step


@pytest.mark.parametrize(("reported", "step"), [(b"1", 1), (b"4", 4), (b"9", 4), (b"99999", 4), (b"x", 4), (None, 4)])
def test_what_an_earlier_configuration_left_goes_on_where_it_was_at_most_to_the_end(
    reported: bytes | None, step: int
) -> None:
    printed = dict(move(record(), 1).headers) | {codec.STEP: reported}
    kept = tuple((name, value) for name, value in printed.items() if value is not None)
    assert back(Outgoing(tier(7200).topic, b"v", b"k", kept, 3)).past.step == step


@pytest.mark.parametrize(
    ("reported", "failures"),
    [(b"7", 7), (b"1000000", 10**6), (b"1000001", 2), (b"0", 2), (b"-1", 2), (b"", 2), (b"9" * 50, 2), (None, 2)],
)
def test_a_count_of_failures_that_cannot_be_is_that_of_the_steps(reported: bytes | None, failures: int) -> None:
    assert forged(FAILURES=reported).past.failures == failures


@pytest.mark.parametrize(
    "changes",
    [
        {"TOPIC": b"another"},
        {"TOPIC": None},
        {"TOPIC": b"\xff"},
        {"PARTITION": b"2147483648"},
        {"PARTITION": b"-1"},
        {"PARTITION": None},
        {"OFFSET": b"9223372036854775808"},
        {"OFFSET": b""},
    ],
)
def test_an_origin_that_cannot_be_is_none_and_the_record_is_where_it_is(changes: dict[str, bytes | None]) -> None:
    found = forged(**changes)
    assert found.past.origin is None
    assert coordinates(found.original) == (tier(60).topic, 3, 5, (1, int(WALL_S * 1000)))
    assert source_of(found) == SOURCE
    assert back(move(found, 4)).past.origin is None, "and the next topic does not believe it either"


@pytest.mark.parametrize("changes", [{"TIMESTAMP": b"x"}, {"TIMESTAMP_KIND": b"3"}, {"TIMESTAMP": b"9" * 18}])
def test_a_timestamp_that_cannot_be_is_absent(changes: dict[str, bytes | None]) -> None:
    assert coordinates(forged(**changes).original) == (SOURCE, 3, 17, (0, -1))


@pytest.mark.parametrize("count", [b"0", b"2", b"12", b"-1", b"x", b"", b"1" * 30])
def test_a_forged_count_of_headers_makes_none_vanish(count: bytes) -> None:
    outgoing = move(record((("trace", b"1"),)), 2)
    printed = (*outgoing.headers[:-1], (codec.OWN_HEADERS, count))
    past = back(Outgoing(outgoing.topic, b"v", b"k", printed, 3)).past
    assert ("trace", b"1") in past.headers


def test_headers_behind_the_block_or_none_at_all_are_no_block() -> None:
    outgoing = move(record(), 2)
    for printed in ((), (*outgoing.headers, ("mine", b"1"))):
        found = back(Outgoing(outgoing.topic, b"v", b"k", printed, 3))
        assert tuple(found.headers() or ()) == printed
        assert (found.past.step, found.past.origin, found.past.due_ms) == (2, None, None)


@pytest.mark.parametrize(
    "reported",
    [
        b"",
        b"[",
        b"{}",
        b"null",
        b"[1,2]",
        b'[["1","E"]]',
        b'[[-1,"E"]]',
        b'[[1.5,"E"]]',
        b"[[1,2]]",
        b'[[1,""]]',
        b"[" * 5_000,
        b'[[1,"E"]]' + b" " * 20_000,
        b"\xff\xfe",
    ],
)
def test_attempts_that_make_no_sense_are_left_out(reported: bytes) -> None:
    assert forged(ATTEMPTS=reported).past.attempts == ()


def test_attempts_are_few_short_and_whole_characters() -> None:
    listed = [[1, "\ud800"], [2, "E" * 1000], *([[3, "E"]] * 100)]
    attempts = forged(ATTEMPTS=json.dumps(listed).encode()).past.attempts
    assert len(attempts) == MAX_ATTEMPTS
    assert attempts[0] == (0.001, "?")
    assert len(attempts[1][1]) == codec.MAX_TYPE


@pytest.mark.parametrize(
    ("group", "foreign"),
    [(GROUP.encode(), False), (None, False), (b"", False), (b"charge", True), (b"\xff", False), (b"x" * 300, False)],
)
def test_a_record_of_a_group_whose_topics_have_the_same_name_is_distinguished(
    group: bytes | None, foreign: bool
) -> None:
    assert forged(GROUP=group).past.foreign is foreign


any_header = st.tuples(
    st.sampled_from([value for name, value in vars(codec).items() if str(value).startswith("keepfast-retry-")])
    | st.text(max_size=8),
    st.none()
    | st.binary(max_size=40)
    | st.integers(-(2**70), 2**70).map(lambda number: str(number).encode())
    | st.sampled_from([b"0", b"1", b"2", b"3", SOURCE.encode(), GROUP.encode()]),
)


@given(printed=st.lists(any_header, max_size=14), seconds=st.sampled_from(sorted({*DELAYS, 7200})))
@example(printed=[(codec.OWN_HEADERS, b"0")], seconds=5)
def test_whatever_the_headers_say_the_record_goes_on_within_bounds(
    printed: list[tuple[str, bytes | None]], seconds: int
) -> None:
    found = back(Outgoing(tier(seconds).topic, b"v", b"k", tuple(printed), 3))
    past = found.past
    assert 1 <= past.step <= len(DELAYS)
    assert 1 <= past.failures <= MAX_FAILURES
    assert past.due_ms is None or 0 <= past.due_ms <= LAST_MS
    assert tuple(printed)[: len(past.headers)] == past.headers, "nothing is lost from the front"
    assert all(name.startswith("keepfast-retry-") for name, _ in printed[len(past.headers) :])
    left_s = remaining_s(past, None, wall_s=WALL_S, delay_s=float(seconds))
    assert 0 <= left_s <= seconds
    if past.step < len(DELAYS):
        onward = back(move(found, past.step + 1, failures=past.failures + 1))
        assert onward.past.step == past.step + 1
        assert onward.past.headers == past.headers


# -- due


def past_due(due_ms: int | None) -> Past:
    return Past(step=1, failures=1, due_ms=due_ms, origin=None, attempts=(), headers=())


@given(
    due_ms=st.none() | st.integers(0, LAST_MS),
    timestamp_ms=st.none() | st.integers(-1, LAST_MS),
    wall_s=st.floats(0, 1e11),
    delay_s=st.floats(1, 86_400),
)
def test_no_record_waits_longer_than_its_topics_delay(
    due_ms: int | None, timestamp_ms: int | None, wall_s: float, delay_s: float
) -> None:
    left_s = remaining_s(past_due(due_ms), timestamp_ms, wall_s=wall_s, delay_s=delay_s)
    assert 0 <= left_s <= delay_s
    assert math.isfinite(left_s)


@given(wall_s=st.floats(0, 4e9), delay_s=st.integers(1, 86_400), later_s=st.floats(0, 1e6))
def test_a_record_is_never_due_before_its_delay_has_passed(wall_s: float, delay_s: int, later_s: float) -> None:
    due = codec.due_ms(wall_s, delay_s)
    left_s = remaining_s(past_due(due), int(wall_s * 1000) + 1, wall_s=wall_s + later_s, delay_s=float(delay_s))
    assert later_s + left_s >= delay_s - 1e-3


def test_what_was_written_is_due_a_delay_later_at_most_also_after_a_restart() -> None:
    forever = past_due(LAST_MS)
    written_ms = int(WALL_S * 1000)
    assert remaining_s(forever, written_ms, wall_s=WALL_S, delay_s=60.0) == pytest.approx(60)
    assert remaining_s(forever, written_ms, wall_s=WALL_S + 45, delay_s=60.0) == pytest.approx(15)
    assert remaining_s(forever, None, wall_s=WALL_S + 45, delay_s=60.0) == 60
    assert remaining_s(past_due(None), written_ms, wall_s=WALL_S + 45, delay_s=60.0) == pytest.approx(15)
    assert remaining_s(past_due(None), None, wall_s=WALL_S, delay_s=60.0) == 60

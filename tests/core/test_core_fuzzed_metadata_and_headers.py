"""100,000 random texts as commit metadata, and 100,000 random headers of retry topics: near to what we write and far
from it. Each is read, none raises, none is slow. (Letters: `tests/deadletters/test_reading_fuzzed_letters.py`.)
"""

from __future__ import annotations

import zlib
from random import Random

import pytest

from keepfast.core import retry_topics as codec
from keepfast.core.commit_metadata import METADATA_LIMIT, WINDOW, CompletionMap, decode, encode
from keepfast.core.records import read_headers
from keepfast.core.retry_topics import MAX_STEPS
from tests.core.test_retry_topics_headers import DELAYS, GROUP, TIERS, WALL_S, move, record, tier
from tests.support.messages import message
from tests.support.processor_time import Stopwatch
from tests.support.thorough import examples

ROUNDS = examples(100_000)
SLOWEST_S = 0.25
"""Processor time of a single one: far above what any takes, far below what would hold up a loop."""

SCRAPS = ("", ";", ";;;;;", "kf1", "kf2", "-1", "0", "9" * 30, "=", "A" * 4000, "\x00", "\ud800", "é", "%s", "null")
ODD_BYTES: tuple[bytes | None, ...] = (
    None, b"", b"0", b"1", b"2", b"-1", b"+1", b" 1", b"1_0", b"1e9", b"9" * 19, b"9" * 20, b"9" * 5_000, b"\xff" * 9,
    b"\xd9\xa1", b"[" * 8_000, b"[[1,2]]", b'[[1700000000000,"E"]]', b'[[1e999,"E"]]', b"x" * 20_000, b"orders",
    b"253402300799999", b"253402300800000", GROUP.encode(), b"another",
)  # fmt: skip
NAMES = (
    codec.STEP, codec.FAILURES, codec.DUE, codec.GROUP, codec.TOPIC, codec.PARTITION, codec.OFFSET, codec.TIMESTAMP,
    codec.TIMESTAMP_KIND, codec.ATTEMPTS, codec.OWN_HEADERS, "keepfast-retry-", "keepfast-letter-id", "trace", "",
)  # fmt: skip


def signed(head: str) -> str:
    return f"{head};{zlib.crc32(head.encode('utf-8', 'surrogatepass')):08x}"


def fuzzed_text(random: Random, whole: str) -> str:
    match random.randrange(5):
        case 0:
            return "".join(random.choice(SCRAPS) for _ in range(random.randrange(6)))
        case 1:
            at = random.randrange(len(whole))
            return whole[:at] + random.choice(SCRAPS) + whole[at + random.randrange(4) :]
        case 2:
            fields = whole.split(";")[:-1]
            fields[random.randrange(len(fields))] = random.choice(SCRAPS)
            return signed(";".join(fields))
        case 3:
            return signed(";".join(random.choice(SCRAPS) for _ in range(random.randrange(8))))
        case _:
            return "".join(chr(random.randrange(0x20, 0x7F)) for _ in range(random.randrange(60)))


def test_commit_metadata_of_any_kind_says_nothing_or_what_was_meant() -> None:
    random, watch, understood = Random(20_240_202), Stopwatch(), 0
    for _ in range(ROUNDS):
        offset = random.randrange(2**40)
        bits = random.randbytes(random.randrange(20))
        text = fuzzed_text(random, encode(CompletionMap(offset, bits), topic_id="topic-id", guard="g"))
        with watch.measured():
            found = decode(text, offset=offset, topic_id="topic-id")
        assert found.base == offset
        assert len(found.bits) * 8 <= WINDOW
        understood += bool(found)
        assert not found or len(text) <= METADATA_LIMIT
    assert watch.slowest_cpu_s < SLOWEST_S
    assert understood > 100, "some of them were near enough to be read"


def test_headers_of_retry_topics_of_any_kind_leave_a_record_that_goes_on() -> None:
    random, watch, believed = Random(20_240_303), Stopwatch(), 0
    written = [tuple(move(record(((("trace", b"1")),)), step).headers) for step in range(1, len(DELAYS) + 1)]
    for number in range(ROUNDS):
        printed = list(random.choice(written)) if number % 2 else []
        for _ in range(random.randrange(5)):
            pair = random.choice(NAMES), random.choice(ODD_BYTES)
            if printed and random.random() < 0.6:
                printed[random.randrange(len(printed))] = pair
            else:
                printed.insert(random.randrange(len(printed) + 1), pair)
        here = tier(random.choice(DELAYS))
        with watch.measured():
            past = codec.decode(read_headers(message(5, headers=printed)), tier=here, tiers=TIERS)
            left_s = codec.remaining_s(past, random.choice([None, 0, 2**62]), wall_s=WALL_S, delay_s=here.delay_s)
        assert 1 <= past.step <= MAX_STEPS
        assert 1 <= past.failures <= codec.MAX_FAILURES
        assert len(past.attempts) <= codec.MAX_ATTEMPTS
        assert tuple(printed)[: len(past.headers)] == past.headers, "no header of the record is lost"
        assert 0 <= left_s <= here.delay_s
        believed += past.origin is not None
    assert watch.slowest_cpu_s < SLOWEST_S
    assert believed > 1_000, "some of them were near enough to be believed"


@pytest.mark.parametrize("size", [1_000, 1_000_000])
def test_headers_that_are_very_long_or_very_many_are_read_in_no_time(size: int) -> None:
    many = [("trace", b"1")] * (size // 10) + [(codec.OWN_HEADERS, b"%d" % size)]
    long = [(codec.ATTEMPTS, b"[" * size), (codec.GROUP, b"g" * size), (codec.OWN_HEADERS, b"0")]
    watch = Stopwatch()
    with watch.measured():
        for printed in (many, long):
            codec.decode(printed, tier=tier(DELAYS[0]), tiers=TIERS)
    assert watch.slowest_cpu_s < 4 * SLOWEST_S

"""The completion map as text: what was written comes back, and nothing that was not written."""

from __future__ import annotations

import random
import zlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from keepfast.core.commit_metadata import (
    GUARD_LIMIT,
    METADATA_LIMIT,
    WINDOW,
    CompletionMap,
    Origin,
    decode,
    encode,
    origin_of,
    read,
)

TOPIC_ID = "Hm5lOsWNRI-4dDsxZbFaZw"
MAX_OFFSET = 2**63 - 1

offsets = st.integers(0, MAX_OFFSET)
bitmaps = st.binary(max_size=WINDOW // 8)
topic_ids = st.sampled_from(["", TOPIC_ID])
words = st.text("abcdefghijklmnopqrstuvwxyz:,0123456789", max_size=GUARD_LIMIT)


def set_of(finished: CompletionMap) -> set[int]:
    return {offset for offset in range(finished.base, finished.end) if offset in finished}


def signed(head: str) -> str:
    """What somebody writes who knows how the text is checked."""
    return f"{head};{zlib.crc32(head.encode('ascii')):08x}"


@given(offset=offsets, bits=bitmaps, topic_id=topic_ids, guard=words)
def test_what_was_encoded_comes_back(offset: int, bits: bytes, topic_id: str, guard: str) -> None:
    finished = CompletionMap(offset, bits)
    text = encode(finished, topic_id=topic_id, guard=guard)
    assert decode(text, offset=offset, topic_id=topic_id) == finished
    assert len(text) <= METADATA_LIMIT


@given(offset=offsets, bits=bitmaps, guard=words, limit=st.integers(0, METADATA_LIMIT))
def test_within_a_limit_nothing_wrong_is_recorded(offset: int, bits: bytes, guard: str, limit: int) -> None:
    text = encode(CompletionMap(offset, bits), topic_id=TOPIC_ID, guard=guard, limit=limit)
    assert len(text) <= limit
    known, words_of_the_guard = read(text, offset=offset, topic_id=TOPIC_ID)
    assert bits.startswith(known.bits)
    assert words_of_the_guard == (guard if text else "")


@given(base=st.integers(-2, 10**15), members=st.sets(st.integers(0, WINDOW - 1), max_size=50))
def test_a_map_contains_exactly_its_offsets(base: int, members: set[int]) -> None:
    finished = CompletionMap.from_int(base, sum(1 << index for index in members))
    assert set_of(finished) == {base + index for index in members}
    assert bool(finished) == bool(members)
    assert CompletionMap.from_int(base, finished.to_int()) == finished
    assert base - 1 not in finished
    assert finished.end not in finished


def test_a_full_window_fits_with_room_for_the_guard() -> None:
    full = CompletionMap(MAX_OFFSET, random.Random(1).randbytes(WINDOW // 8))
    text = encode(full, topic_id=TOPIC_ID, guard="g" * GUARD_LIMIT)
    assert len(text) <= METADATA_LIMIT
    assert decode(text, offset=MAX_OFFSET, topic_id=TOPIC_ID) == full


@given(
    text=st.one_of(
        st.text(), st.text("kf1;0=-_Aa\x00\n"), st.characters().map(lambda char: f"kf1;5;;;;{char};00000000")
    )
)
@example("")
@example("kf1;5;;;;A;c0ffee00")
@example(";;;;;;")
@example("\ud800;\udfff")
@example("kf1;5;;;;" + "A" * 5_000 + ";00000000")
def test_any_text_is_read_without_an_exception_and_says_nothing(text: str) -> None:
    assert decode(text, offset=5) == CompletionMap(5)


@given(body=st.text(st.characters(max_codepoint=127)))
def test_even_signed_nonsense_is_read_without_an_exception(body: str) -> None:
    finished = decode(signed(f"kf1;5;;;;{body}"), offset=5)
    assert finished.base == 5
    assert finished.end - 5 <= WINDOW


@given(offset=offsets, bits=bitmaps.filter(bool), data=st.data())
def test_a_flipped_character_empties_the_map(offset: int, bits: bytes, data: st.DataObject) -> None:
    text = encode(CompletionMap(offset, bits), topic_id=TOPIC_ID)
    at = data.draw(st.integers(0, len(text) - 1))
    flipped = text[:at] + data.draw(st.characters().filter(lambda char: char != text[at])) + text[at + 1 :]
    assert decode(flipped, offset=offset, topic_id=TOPIC_ID) == CompletionMap(offset)


@given(bits=bitmaps.filter(bool), cut=st.integers(1, 5_000))
def test_a_text_that_was_cut_empties_the_map(bits: bytes, cut: int) -> None:
    text = encode(CompletionMap(7, bits))
    assert decode(text[:-cut], offset=7) == CompletionMap(7)
    assert decode(text[cut:], offset=7) == CompletionMap(7)


@given(offset=offsets, other=offsets, bits=bitmaps.filter(bool))
def test_a_map_of_another_offset_is_ignored(offset: int, other: int, bits: bytes) -> None:
    found = decode(encode(CompletionMap(offset, bits)), offset=other)
    assert found == (CompletionMap(offset, bits) if other == offset else CompletionMap(other))


def test_a_topic_that_was_recreated_does_not_inherit_the_map() -> None:
    finished = CompletionMap(7, b"\x06")
    text = encode(finished, topic_id=TOPIC_ID)
    assert decode(text, offset=7, topic_id="AAAAAAAAAAAAAAAAAAAAAA") == CompletionMap(7)
    assert decode(text, offset=7, topic_id=TOPIC_ID) == finished


def test_where_a_topic_has_no_known_id_the_map_is_used_without_that_check() -> None:
    finished = CompletionMap(7, b"\x06")
    assert decode(encode(finished, topic_id=TOPIC_ID), offset=7) == finished
    assert decode(encode(finished), offset=7, topic_id=TOPIC_ID) == finished


@pytest.mark.parametrize(
    "text",
    [
        signed("kf2;7;;;;Bg"),
        signed("kf1;07;;;;Bg"),
        signed("kf1;7;;;;B"),
        signed("kf1;7;;;Bg"),
        signed("kf1;7;;;;Bg;"),
        signed("kf1;7;;;;" + "_" * 2_732),
        signed("kf1;7;;;" + "g" * METADATA_LIMIT + ";Bg"),
        signed("kf1;7;;;;Bg").upper(),
        signed("kf1;7;;;;Bg") + "\n",
    ],
    ids=[
        "another version",
        "an offset written otherwise",
        "half a byte",
        "a field short",
        "a field more",
        "more than a window",
        "longer than a broker takes",
        "in capitals",
        "a line end",
    ],
)
def test_what_is_not_exactly_ours_is_ignored(text: str) -> None:
    assert decode(text, offset=7) == CompletionMap(7)
    assert decode(signed("kf1;7;;;;Bg"), offset=7) == CompletionMap(7, b"\x06")


@given(offset=offsets, topic_id=topic_ids, partitions=st.none() | st.integers(0, 10**8))
def test_what_a_commit_was_made_for_comes_back(offset: int, topic_id: str, partitions: int | None) -> None:
    text = encode(CompletionMap(offset), topic_id=topic_id, partitions=partitions)
    assert origin_of(text, offset=offset) == Origin(topic_id, partitions)
    assert origin_of(text, offset=offset + 1) == Origin(), "a commit that was moved by hand"


@pytest.mark.parametrize("count", ["-1", "x", "1" * 10, " 1", "+1"])
def test_a_count_of_partitions_that_is_no_number_is_ignored(count: str) -> None:
    assert origin_of(signed(f"kf1;7;{TOPIC_ID};{count};;"), offset=7) == Origin(TOPIC_ID, None)
    assert origin_of(signed(f"kf1;7;{TOPIC_ID};3;;"), offset=7) == Origin(TOPIC_ID, 3)
    assert origin_of(f"kf1;7;{TOPIC_ID};3;;;00000000", offset=7) == Origin()

"""Segments: what is written comes back, and damage costs no more than what it hit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from keepfast.deadletters.spool.frames import HEAD_BYTES, MAGIC, Damage, frame, gone, payload_at, read_gone, scan

salts = st.binary(min_size=8, max_size=8)
payloads = st.lists(st.binary(max_size=60), min_size=1, max_size=6)


def segment(contents: list[bytes], salt: bytes) -> bytes:
    return MAGIC + b"".join(frame(payload, salt) for payload in contents)


@given(payloads, salts)
def test_what_is_written_is_read(contents: list[bytes], salt: bytes) -> None:
    found, damages = scan(segment(contents, salt), salt)
    assert [one.payload for one in found] == contents
    assert damages == []


@given(payloads, salts, st.data())
def test_a_segment_cut_anywhere_gives_all_whole_frames_and_calls_the_rest_torn(
    contents: list[bytes], salt: bytes, data: st.DataObject
) -> None:
    whole = segment(contents, salt)
    cut = data.draw(st.integers(len(MAGIC), len(whole)))
    found, damages = scan(whole[:cut], salt)
    ends, at = [], len(MAGIC)
    for payload in contents:
        at += HEAD_BYTES + len(payload)
        ends.append(at)
    kept = sum(end <= cut for end in ends)
    assert [one.payload for one in found] == contents[:kept]
    rest = cut - (ends[kept - 1] if kept else len(MAGIC))
    assert damages == ([Damage(cut - rest, rest, torn=True)] if rest else [])


@given(payloads, salts, st.data())
def test_a_byte_that_flips_costs_one_letter_and_is_reported(
    contents: list[bytes], salt: bytes, data: st.DataObject
) -> None:
    whole = bytearray(segment(contents, salt))
    at = data.draw(st.integers(len(MAGIC), len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    found, damages = scan(bytes(whole), salt)
    left = [one.payload for one in found]
    assert len(left) == len(contents) - 1
    assert any(left == contents[:n] + contents[n + 1 :] for n in range(len(contents)))
    assert len(damages) == 1
    assert damages[0].offset <= at < damages[0].offset + damages[0].size


@given(payloads, salts, st.integers(1, 5_000))
def test_zeros_where_a_write_never_arrived_are_torn(contents: list[bytes], salt: bytes, zeros: int) -> None:
    found, damages = scan(segment(contents, salt) + bytes(zeros), salt)
    assert [one.payload for one in found] == contents
    assert [damage.torn for damage in damages] == [True]


@given(salts, salts)
def test_a_letter_that_holds_a_frame_does_not_pass_for_one_behind_damage(salt: bytes, other: bytes) -> None:
    if salt == other:
        return
    inner = segment([b"forged"], other)
    whole = bytearray(segment([inner, b"after"], salt))
    whole[len(MAGIC)] ^= 1
    found, damages = scan(bytes(whole), salt)
    assert [one.payload for one in found] == [b"after"]
    assert [damage.torn for damage in damages] == [False]


def test_a_segment_whose_beginning_is_lost_still_gives_its_frames() -> None:
    salt = b"saltsalt"
    found, damages = scan(b"\0" * 8 + segment([b"a", b"b"], salt)[8:], salt)
    assert [one.payload for one in found] == [b"a", b"b"]
    assert len(damages) == 1


@given(st.binary(max_size=300), salts)
def test_any_bytes_can_be_looked_at(data: bytes, salt: bytes) -> None:
    found, damages = scan(data, salt)
    covered = sum(one.size for one in found) + sum(damage.size for damage in damages)
    assert covered in (len(data), len(data) - len(MAGIC))
    payload_at(data, salt)
    read_gone(data, salt)


@given(st.sets(st.integers(0, 2**40), max_size=5), salts, st.integers(0, 30))
def test_what_is_gone_is_read_as_far_as_it_was_written(offsets: set[int], salt: bytes, cut: int) -> None:
    ordered = sorted(offsets)
    data = b"".join(gone(offset, salt) for offset in ordered)
    assert read_gone(data, salt) == offsets
    whole = (len(data) - min(cut, len(data))) // 16
    assert read_gone(data[: len(data) - min(cut, len(data))], salt) == set(ordered[:whole])
    assert read_gone(b"\1" * len(data), salt) == set()

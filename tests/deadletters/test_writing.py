"""P9: whatever the key, the value and the headers are, a letter holds them exactly, and a replay sends exactly them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from keepfast.core.policies import LETTER_FORMATS, LetterFormat
from keepfast.core.records import Headers, Outgoing
from keepfast.core.replays import ReplayMark
from keepfast.deadletters import ours
from keepfast.deadletters.letter import Letter
from keepfast.deadletters.reading import read
from keepfast.deadletters.writing import shrunk, write
from tests.support.letters import filed, headers, keys, letter, letters, values
from tests.support.thorough import examples

formats = st.sampled_from(LETTER_FORMATS)


def written(one: Letter, form: LetterFormat) -> Letter:
    value, own = write(one, form)
    return read(filed(value, own, key=one.key))


@settings(max_examples=examples(400))
@given(one=letters, form=formats)
@example(one=letter(value=b'{"amount": 1.50}'), form="envelope")  # JSON that is not written with the same bytes again
@example(one=letter(value=b'{"amount": 1.50}'), form="nested")
def test_everything_written_is_read_back(one: Letter, form: LetterFormat) -> None:
    assert written(one, form) == replace(one, format=form)


@settings(max_examples=examples(400))
@given(one=letters, form=formats)
def test_a_letter_of_a_known_cause_is_read_without_what_it_says_of_the_error(one: Letter, form: LetterFormat) -> None:
    value, own = write(one, form)
    record = filed(value, own, key=one.key)
    whole, brief = read(record), read(record, diagnosed={one.fingerprint})
    assert read(record, diagnosed={"another"}) == whole
    assert (brief.identity, brief.record_identity, brief.headers) == (
        whole.identity,
        whole.record_identity,
        whole.headers,
    )
    for name in ("id", "exact", "error_code", "fingerprint", "failed_at_ms", "group", "origin", "replay", "format"):
        assert getattr(brief, name) == getattr(whole, name)
    assert form == "headers" or (brief.error_message, brief.attempts, brief.stack_trace) == ("", (), "")


@given(key=keys, value=values, own=headers, form=formats)
@example(key=None, value=None, own=(("kafka_dlt-original-topic", b"mine"), ("traceparent", None)), form="headers")
@example(key=b"", value=b"", own=(("", None), ("", b""), ("", b"\xff")), form="envelope")
def test_a_replayed_record_is_the_original_and_a_header_of_ours(
    key: bytes | None, value: bytes | None, own: Headers, form: LetterFormat
) -> None:
    found = written(letter(key=key, value=value, headers=tuple(own)), form)
    assert (found.key, found.value, found.headers, found.exact) == (key, value, tuple(own), True)
    sent = ours.for_replay(found, ReplayMark("case", "run", 1), topic="orders")
    assert sent[: len(own)] == tuple(own)
    assert sent[len(own) :] == (("keepfast-replay", b"case;run;1"),)


@given(own=headers, form=formats, rounds=st.integers(1, 4))
def test_dying_and_being_replayed_again_piles_nothing_up(own: Headers, form: LetterFormat, rounds: int) -> None:
    alive = tuple(own)
    for number in range(rounds):
        dead_lettered = letter(headers=ours.originals(alive), replay=ReplayMark.of(alive))
        assert (dead_lettered.headers, dead_lettered.replay_count) == (tuple(own), number)
        alive = ours.for_replay(written(dead_lettered, form), ReplayMark("case", "run", number + 1), topic="orders")
    assert len(alive) == len(own) + 1


@given(own=headers)
def test_a_whole_letter_that_was_copied_back_loses_what_the_letter_added(own: Headers) -> None:
    _, copied = write(letter(headers=tuple(own)), "headers")
    assert ours.originals(copied) == tuple(own)


def test_a_forged_count_of_original_headers_makes_no_header_vanish() -> None:
    sent = (("trace", b"1"), ("kafka_dlt-mine", b"2"), ("keepfast-original-headers", b"0"))
    assert ours.originals(sent) == sent[:2]


@given(one=letters, form=formats)
def test_no_step_of_shrinking_touches_the_original(one: Letter, form: LetterFormat) -> None:
    value, own = write(one, form)
    outgoing = Outgoing("orders.payment.dlq", value, key=one.key, headers=own, partition=3)
    steps = 0
    while (smaller := shrunk(outgoing)) != outgoing:
        outgoing, steps = smaller, steps + 1
        found = read(filed(outgoing.value, outgoing.headers, key=outgoing.key))
        assert (found.key, found.value, found.headers) == (one.key, one.value, one.headers)
        assert (found.id, found.replay_count) == (one.id, one.replay_count)
        if shrunk(outgoing) != outgoing:  # the last step leaves nothing but the id
            assert (found.error_code, found.fingerprint) == (one.error_code, one.fingerprint)
            assert found.retry_count == one.retry_count
        assert (outgoing.topic, outgoing.partition) == ("orders.payment.dlq", 3)
    assert 1 <= steps <= 5
    assert found.format == "headers"
    assert [name for name, _ in outgoing.headers[len(one.headers) :]] == [
        "keepfast-letter-id",
        *["keepfast-replay"] * bool(one.replay),
    ]


@pytest.mark.parametrize("form", LETTER_FORMATS)
def test_a_letter_shrinks_from_what_is_needed_least(form: LetterFormat) -> None:
    value, own = write(letter(value=b"\xff" * 1_000, stack_trace="s" * 10_000, error_message="m" * 3_000), form)
    outgoing = Outgoing("dlq", value, headers=own)
    reported, sizes = [], []
    for _ in range(5):
        outgoing = shrunk(outgoing)
        found = read(filed(outgoing.value, outgoing.headers))
        reported.append((len(found.stack_trace), len(found.error_message), len(found.attempts), found.format))
        sizes.append(len(outgoing.value or b"") + sum(len(v or b"") for _, v in outgoing.headers))
    assert reported == [
        (0, 3_000, 2, form),
        (0, 200, 2, form),
        (0, 0, 0, form),
        (0, 0, 0, "headers"),
        (0, 0, 0, "headers"),
    ]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < 1_400, "the value itself, and not a third more"


def test_copies_of_a_letter_are_distinguished_from_a_letter_about_another_record_of_the_same_place() -> None:
    one = letter()
    assert one.identity == written(one, "headers").identity == written(one, "nested").identity
    others = [
        letter(value=b'{"a":2}'),
        letter(value=None),
        letter(value=b""),
        letter(key=None),
        letter(headers=(("a", b""),)),
        letter(headers=(("a", None),)),
        letter(timestamp_ms=1),
        letter(offset=18),
        letter(group="other"),
    ]
    assert len({one.identity, *(other.identity for other in others)}) == len(others) + 1

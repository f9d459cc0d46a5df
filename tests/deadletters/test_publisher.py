"""The publisher: from a case to a letter, whatever went wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pydantic
import pytest
from hypothesis import given

from keepfast.core.errors import DecodeError, Reject
from keepfast.core.policies import LETTER_FORMATS, LetterFormat
from keepfast.core.records import Headers, Outgoing, TopicPartition
from keepfast.core.runs import KEPT_ATTEMPTS, Attempt, FailedRecord, Partition
from keepfast.core.verdicts import DeadLetter
from keepfast.deadletters.letter import MAX_MESSAGE, MAX_STACK, Letter
from keepfast.deadletters.publisher import Publisher
from keepfast.deadletters.reading import read
from keepfast.deadletters.writing import shrunk
from keepfast.decode import decoder_for
from keepfast.desk.causes import Diagnosis
from keepfast.testing.fakes.log import FakeMessage
from tests.support.fakes import FakeSink, hold
from tests.support.letters import TOPIC, filed, headers, keys, values

PLACE = TopicPartition(TOPIC, 3)
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def publisher(sink: FakeSink | None = None, *, partitions: int = 12, form: LetterFormat = "envelope") -> Publisher:
    return Publisher(
        sink or FakeSink(hold),
        topics={PLACE.topic: "orders.payment.dlq"},
        partitions={"orders.payment.dlq": partitions},
        group="g",
        handler="app:charge",
        app_version="1",
        form=form,
    )


def case_of(value: bytes | None, *, key: bytes | None = b"k", headers: Headers = ()) -> FailedRecord:
    partition = Partition(PLACE, epoch=1, start=0)
    message = FakeMessage(PLACE, 17, key=key, value=value, headers=headers, timestamp_ms=5)
    failed_record = FailedRecord(partition, 0, message, (), 0.0)
    failed_record.note(Attempt(1_700_000_000.0, "ValueError"))
    return failed_record


def back(outgoing: Outgoing) -> Letter:
    return read(filed(outgoing.value, outgoing.headers, key=outgoing.key))


@pytest.mark.parametrize("form", LETTER_FORMATS)
@given(value=values, key=keys, own=headers)
def test_key_value_and_headers_of_a_letter_are_the_originals_and_ours_come_last(
    form: LetterFormat, value: bytes | None, key: bytes | None, own: Headers
) -> None:
    outgoing = publisher(form=form).letter(
        case_of(value, key=key, headers=own), ValueError(), DeadLetter("why", "CODE")
    )
    assert (outgoing.topic, outgoing.partition, outgoing.key) == ("orders.payment.dlq", 3, key)
    assert tuple(outgoing.headers)[: len(own)] == tuple(own)
    if form != "headers":
        assert list(outgoing.headers)[len(own) :] == [
            ("keepfast-origin", b"/00000000/3/17/orders.payment.v1"),
            ("keepfast-letter-id", b"g/orders.payment.v1/3/17"),
            ("keepfast-error-code", b"CODE"),
        ]
    found = back(outgoing)
    assert (found.key, found.value, found.headers) == (key, value, tuple(own))
    assert (found.format, found.id, found.timestamp_ms) == (form, "g/orders.payment.v1/3/17", 5)


def test_headers_of_an_earlier_letter_are_replaced_and_its_count_goes_on() -> None:
    own = [
        ("trace", b"1"),
        ("trace", None),
        ("keepfast-letter-id", b"from a letter that was copied"),
        ("keepfast-replay", b"g/orders.payment.v1/3/9;r;2"),
    ]
    outgoing = publisher().letter(case_of(b"1", headers=own), ValueError(), DeadLetter("why", "CODE"))
    assert [name for name, _ in outgoing.headers] == [
        "trace",
        "trace",
        "keepfast-origin",
        "keepfast-letter-id",
        "keepfast-error-code",
        "keepfast-replay",
    ]
    assert (back(outgoing).replay_count, back(outgoing).replayed_from) == (2, "g/orders.payment.v1/3/9")


class Order(pydantic.BaseModel):
    amount: int

    @pydantic.field_validator("amount")
    @classmethod
    def limit(cls, amount: int) -> int:
        if amount < 0:
            raise ValueError(f"below zero: {amount}")
        return cls.check_high(amount)

    @classmethod
    def check_high(cls, amount: int) -> int:
        if amount > 100:
            raise ValueError(f"too high for ada: {amount}")
        return amount


class TwoRules(pydantic.BaseModel):
    amount: int

    @pydantic.field_validator("amount")
    @classmethod
    def is_even(cls, amount: int) -> int:
        assert amount % 2 == 0, f"odd amount of bob: {amount}"
        return amount

    @pydantic.field_validator("amount")
    @classmethod
    def is_small(cls, amount: int) -> int:
        assert amount < 100, f"high amount of bob: {amount}"
        return amount


def refused(annotation: type, value: bytes) -> Letter:
    with pytest.raises(DecodeError) as caught:
        decoder_for(annotation)(value)
    assert "bob" not in str(caught.value)
    return publisher().compose(case_of(value), caught.value, DeadLetter("why", "CODE"))


def test_two_validators_of_a_field_are_two_causes_with_their_words_and_places() -> None:
    odd, high, odd_too = (refused(TwoRules, b'{"amount": %d}' % amount) for amount in (17, 200, 19))
    assert "odd amount of bob: 17" in odd.error_message
    assert "high amount of bob: 200" in high.error_message
    assert odd.fingerprint == odd_too.fingerprint != high.fingerprint
    assert refused(Order, b'{"amount": -1}').fingerprint != refused(Order, b'{"amount": 101}').fingerprint

    causes = [Diagnosis.of(letter) for letter in (odd, high)]
    for cause, function in zip(causes, (TwoRules.is_even, TwoRules.is_small), strict=True):
        assert cause.message == "the value does not match TwoRules: field amount is rejected by its own validation: *"
        assert cause.place == f"deadletters/test_publisher.py:{function.__code__.co_firstlineno + 3}"


@pytest.mark.parametrize("count", [b"", b"-1", b"1e3", b"\xb2", b"9" * 30, None, b"1 ", b"0x1", b"0"])
def test_a_replay_that_is_none_counts_as_none(count: bytes | None) -> None:
    outgoing = publisher().letter(
        case_of(b"1", headers=[("keepfast-replay", count and b"g/t/0/1;r;" + count)]),
        ValueError(),
        DeadLetter("why", "CODE"),
    )
    assert (back(outgoing).replay_count, back(outgoing).replayed_from) == (0, "")


@pytest.mark.parametrize(("partitions", "chosen"), [(12, 3), (4, 3), (3, None), (1, None)])
def test_a_letter_goes_to_its_records_partition_where_there_is_one(partitions: int, chosen: int | None) -> None:
    letters = publisher(partitions=partitions)
    assert letters.letter(case_of(b"1"), ValueError(), DeadLetter("why", "CODE")).partition == chosen


@pytest.mark.parametrize("form", LETTER_FORMATS)
def test_the_cause_of_an_error_that_has_none_is_the_error_itself(form: LetterFormat) -> None:
    found = back(publisher(form=form).letter(case_of(b"1"), ValueError(), DeadLetter("why", "CODE")))
    assert found.error_cause == "ValueError"


def test_a_letter_tells_the_whole_story() -> None:
    failed_record = case_of(b"1", headers=[("traceparent", f"00-{TRACE}-00f067aa0ba902b7-01".encode())])
    failed_record.note(Attempt(1_700_000_001.5, "KeyError"))
    try:
        try:
            raise TimeoutError("slow")
        except TimeoutError as error:
            raise Reject("no account 17", code="NO_ACCOUNT") from error
    except Reject as error:
        found = back(publisher().letter(failed_record, error, DeadLetter("no account 17", "NO_ACCOUNT")))
    assert (found.error_type, found.error_class, found.error_cause) == (
        "Reject",
        "keepfast.core.errors.Reject",
        "TimeoutError",
    )
    assert (found.error_message, found.error_code, found.classification) == (
        "no account 17",
        "NO_ACCOUNT",
        "non-retryable",
    )
    assert "TimeoutError: slow" in found.stack_trace
    assert (found.failed_at_ms, found.retry_count, len(found.attempts)) == (1_700_000_001_500, 1, 2)
    assert (found.group, found.handler, found.app_version, found.trace_id) == ("g", "app:charge", "1", TRACE)
    assert len(found.fingerprint) == 12


def test_the_classification_is_what_the_caller_says() -> None:
    outgoing = publisher().letter(
        case_of(b"1"), ValueError(), DeadLetter("why", "CODE"), classification="non-retryable"
    )
    assert back(outgoing).classification == "non-retryable"


def test_an_error_without_a_readable_text_is_dead_lettered() -> None:
    found = back(publisher().letter(case_of(b"1"), Unspeakable(), DeadLetter("why", "CODE")))
    assert found.error_type == "Unspeakable"


@pytest.mark.parametrize("form", LETTER_FORMATS)
def test_odd_characters_are_dead_lettered_too(form: LetterFormat) -> None:
    outgoing = publisher(form=form).letter(case_of(b"1"), Reject("x\udcff\x00"), DeadLetter("\udcff", "\ud800"))
    assert (back(outgoing).error_code, back(outgoing).reason) == ("?", "?")
    assert ("keepfast-error-code", b"?") in outgoing.headers


@pytest.mark.parametrize("form", LETTER_FORMATS)
def test_a_letter_is_bounded_however_much_the_error_says_and_however_often_it_failed(form: LetterFormat) -> None:
    failed_record = case_of(b"1")
    for n in range(1_000):
        failed_record.note(Attempt(1_700_000_000.0 + n, f"E{n}"))
    try:
        raise ValueError("x" * 1_000_000)
    except ValueError as error:
        found = back(publisher(form=form).letter(failed_record, error, DeadLetter("y" * 100_000, "CODE")))
    assert (len(found.error_message), len(found.stack_trace)) == (MAX_MESSAGE, MAX_STACK)
    assert (found.retry_count, len(found.attempts)) == (1_000, KEPT_ATTEMPTS)
    assert (found.attempts[0].error_type, found.attempts[-1].error_type) == ("ValueError", "E999")
    assert len(found.reason) == 1_000


def test_sending_hands_the_letter_to_the_sink_as_it_is() -> None:
    sink = FakeSink(hold)
    letters = publisher(sink)
    outgoing = letters.letter(case_of(b"1"), ValueError(), DeadLetter("why", "CODE"))
    reported: list[object] = []
    letters.send(outgoing, reported.append)
    assert sink.held == [(outgoing, reported.append)]


def test_a_refused_letter_gets_smaller_until_nothing_but_the_original_is_left() -> None:
    letters = publisher()
    outgoing = letters.letter(case_of(b"\xff" * 1_000), ValueError("x" * 10_000), DeadLetter("why", "CODE"))
    seen = [outgoing]
    while (smaller := shrunk(seen[-1])) != seen[-1]:
        seen.append(smaller)
    assert 2 <= len(seen) <= 6
    assert seen[-1].value == b"\xff" * 1_000
    assert [name for name, _ in seen[-1].headers] == ["keepfast-origin", "keepfast-letter-id"]


CAUSE = """
import sys, json
from tests.deadletters.test_publisher import back, case_of, publisher
from keepfast.core.verdicts import DeadLetter
def charge(n):
    raise ValueError(f"account {n} of 'x{n}' is closed")
found = []
for n in (1, 22):
    try:
        charge(n)
    except ValueError as error:
        found.append(back(publisher().letter(case_of(b"1"), error, DeadLetter("why", "CODE"))).fingerprint)
print(json.dumps(found))
"""


def test_the_fingerprint_is_the_same_in_every_process() -> None:
    def fingerprints() -> Any:
        done = subprocess.run([sys.executable, "-c", CAUSE], capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    first, second = fingerprints(), fingerprints()
    assert first == second
    assert first[0] == first[1], "numbers and quoted texts are values, not causes"

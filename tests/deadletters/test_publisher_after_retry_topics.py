"""A letter for a record that went through retry topics is about the original record, with the whole story."""

from __future__ import annotations

import pytest
from hypothesis import given

from keepfast.core.policies import LETTER_FORMATS, LetterFormat
from keepfast.core.records import Headers, TopicPartition
from keepfast.core.retry_topics import Returned, Tier, Tiers, moved
from keepfast.core.runs import Attempt, FailedRecord, Partition
from keepfast.core.verdicts import DeadLetter
from keepfast.deadletters.letter import Letter
from keepfast.testing.fakes.log import FakeMessage
from tests.deadletters.test_publisher import back, publisher
from tests.support.letters import TOPIC, headers, keys, values

RETRY = f"{TOPIC}.g.retry.5s"
TIERS = Tiers(group="g", delays_s=(5,), topics={RETRY: Tier(RETRY, TOPIC, 5, 12)})
SENT_MS, MOVED_S = 1_600_000_000_000, 1_700_000_000.0
REPLAYED = (("keepfast-replay", b"g/t/0/1;r;2"),)


def returned(value: bytes | None, key: bytes | None, own: Headers, *, block: bool = True) -> FailedRecord:
    """A record that failed four times in place, was moved, and failed again."""
    source = FakeMessage(TopicPartition(TOPIC, 7), 17, key=key, value=value, headers=own, timestamp_ms=SENT_MS)
    reported = [(MOVED_S - 3, "OSError"), (MOVED_S, "OSError")]
    out = moved(source, tiers=TIERS, step=1, wall_s=MOVED_S, failures=4, attempts=reported)
    place = TopicPartition(RETRY, 3)
    kept = out.headers if block else own
    message = FakeMessage(place, 99, key=key, value=value, headers=kept, timestamp_ms=int(MOVED_S * 1000))
    failed_record = FailedRecord(
        Partition(place, epoch=1, start=0), 0, Returned(message, TIERS.topics[RETRY], TIERS), (), 0.0
    )
    failed_record.note(Attempt(MOVED_S + 6, "ValueError"))
    return failed_record


def letter_of(failed_record: FailedRecord, form: LetterFormat) -> Letter:
    outgoing = publisher(form=form).letter(failed_record, ValueError("bad"), DeadLetter("failed 5 times", "CODE"))
    assert outgoing.topic == "orders.payment.dlq"
    return back(outgoing)


@pytest.mark.parametrize("form", LETTER_FORMATS)
@given(value=values, key=keys, own=headers)
def test_it_names_the_original_record_and_keeps_its_bytes(
    form: LetterFormat, value: bytes | None, key: bytes | None, own: Headers
) -> None:
    letter = letter_of(returned(value, key, own), form)
    assert (letter.key, letter.value, letter.headers) == (key, value, tuple(own))
    assert (letter.topic, letter.partition, letter.offset) == (TOPIC, 7, 17)
    assert (letter.timestamp_ms, letter.timestamp_type) == (SENT_MS, "CreateTime")
    assert letter.id == f"g/{TOPIC}/7/17"


@pytest.mark.parametrize("form", LETTER_FORMATS)
def test_it_tells_of_all_attempts(form: LetterFormat) -> None:
    letter = letter_of(returned(b"v", b"k", REPLAYED), form)
    assert letter.retry_count == 4
    assert [(one.at_ms, one.error_type) for one in letter.attempts] == [
        (int(MOVED_S - 3) * 1000, "OSError"),
        (int(MOVED_S) * 1000, "OSError"),
        (int(MOVED_S + 6) * 1000, "ValueError"),
    ]
    assert (letter.replay_count, letter.replayed_from) == (2, "g/t/0/1")


def test_it_goes_to_the_partition_that_the_record_came_from() -> None:
    assert publisher().letter(returned(b"v", b"k", ()), ValueError(), DeadLetter("why", "CODE")).partition == 7


@pytest.mark.parametrize("form", LETTER_FORMATS)
def test_without_a_believable_origin_it_names_the_retry_topic_and_is_sent_all_the_same(form: LetterFormat) -> None:
    letter = letter_of(returned(b"v", b"k", (("mine", b"1"),), block=False), form)
    assert (letter.topic, letter.partition, letter.offset) == (RETRY, 3, 99)
    assert (letter.value, letter.headers) == (b"v", (("mine", b"1"),))


def test_the_identity_of_a_letter_is_that_of_the_original() -> None:
    direct = FakeMessage(TopicPartition(TOPIC, 7), 17, key=b"k", value=b"v", timestamp_ms=SENT_MS)
    failed_record = FailedRecord(Partition(TopicPartition(TOPIC, 7), epoch=1, start=0), 0, direct, (), 0.0)
    straight = publisher().letter(failed_record, ValueError(), DeadLetter("why", "CODE"))
    outgoing = publisher().letter(returned(b"v", b"k", ()), ValueError(), DeadLetter("why", "CODE"))
    assert back(outgoing).identity == back(straight).identity

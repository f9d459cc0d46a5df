"""P9 over the whole way, without a broker: a record dies, perhaps after retry topics, is dead-lettered in any format,
perhaps shrunk, read from its dead-letter topic and replayed, and dies again. Its key, value and headers never change.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from keepfast.core.policies import LETTER_FORMATS, LetterFormat
from keepfast.core.records import Headers, Message, Outgoing, Record, TopicPartition, read_headers
from keepfast.core.retry_topics import Returned, Tier, Tiers, moved, topic_name
from keepfast.core.runs import Attempt, FailedRecord, Partition
from keepfast.core.verdicts import DeadLetter
from keepfast.deadletters.publisher import Publisher
from keepfast.deadletters.writing import shrunk
from keepfast.desk.letter_topic import stored_letter
from keepfast.desk.planning import ReplayPolicy, ReplayRouter
from keepfast.testing.fakes.log import FakeMessage
from tests.support.letters import headers, keys, values
from tests.support.thorough import examples

TOPIC, DLQ, GROUP = "orders.payment.v1", "orders.payment.dlq", "payments.charge"
DELAYS_S = (5, 60)
TIERS = Tiers(
    group=GROUP,
    delays_s=DELAYS_S,
    topics={(name := topic_name(TOPIC, GROUP, delay_s)): Tier(name, TOPIC, delay_s, 4) for delay_s in DELAYS_S},
)
NOTHING: Any = None


def delivered(outgoing: Outgoing, offset: int) -> FakeMessage:
    """What was sent, as it is read again."""
    place = TopicPartition(outgoing.topic, outgoing.partition or 0)
    return FakeMessage(place, offset, key=outgoing.key, value=outgoing.value, headers=outgoing.headers, timestamp_ms=7)


def through_retry_topics(message: Message) -> Message:
    for step in range(1, len(DELAYS_S) + 1):
        sent = moved(message, tiers=TIERS, step=step, wall_s=1.7e9, failures=step, attempts=[(1.7e9, "OSError")])
        message = Returned(delivered(sent, step), TIERS.topics[sent.topic], TIERS)
    return message


def dead_lettered(message: Message, form: LetterFormat) -> Outgoing:
    failed_record = FailedRecord(Partition(TopicPartition(TOPIC, 3), epoch=1, start=0), 0, message, (), 0.0)
    failed_record.note(Attempt(1.7e9, "ValueError"))
    publisher = Publisher(
        NOTHING, topics={TOPIC: DLQ}, partitions={DLQ: 4}, group=GROUP, handler="app:charge", app_version="1", form=form
    )
    return publisher.letter(
        failed_record, ValueError("no account for card 4111111111111111"), DeadLetter("final", "VALUE_INVALID")
    )


def replayed(letter: Outgoing) -> Outgoing:
    router = ReplayRouter(ReplayPolicy(max_replays=100), partitions_of=lambda _: 4, letters_in=DLQ)
    sent = router.route(stored_letter(Record.of(delivered(letter, 5))))
    assert not isinstance(sent, str), sent
    return sent


@settings(max_examples=examples(300))
@given(
    key=keys,
    value=values,
    own=headers,
    deaths=st.lists(
        st.tuples(st.sampled_from(LETTER_FORMATS), st.booleans(), st.integers(0, 4)), min_size=1, max_size=4
    ),
)
def test_whatever_a_record_goes_through_its_bytes_stay(
    key: bytes | None, value: bytes | None, own: Headers, deaths: list[tuple[LetterFormat, bool, int]]
) -> None:
    message: Message = FakeMessage(TopicPartition(TOPIC, 3), 17, key=key, value=value, headers=own, timestamp_ms=5)
    for number, (form, moves, steps) in enumerate(deaths, start=1):
        letter = dead_lettered(through_retry_topics(message) if moves else message, form)
        for _ in range(steps):
            letter = shrunk(letter)
        sent = replayed(letter)
        assert (sent.topic, sent.partition) == (TOPIC, 3)
        assert (sent.key, sent.value) == (key, value)
        assert tuple(sent.headers)[: len(own)] == tuple(own)
        assert [name for name, _ in tuple(sent.headers)[len(own) :]] == ["keepfast-replay-count", "keepfast-letter-id"]
        assert dict(sent.headers)["keepfast-replay-count"] == b"%d" % number
        message = delivered(sent, 17 + number)
        assert tuple(read_headers(message))[: len(own)] == tuple(own)

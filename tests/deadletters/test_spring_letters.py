"""Letters of Spring, of each version: what they say, and that nothing of Spring goes back with the record."""

from __future__ import annotations

import pytest

from keepfast.core.replays import ReplayMark
from keepfast.deadletters import ours
from keepfast.deadletters.reading import read
from tests.support.letters import filed
from tests.support.spring import CREATED_MS, FAILED_MS, OWN, SpringHeaders, letters

SPRING = letters("deal.events", 7, 1_234_567)


@pytest.mark.parametrize("name", SPRING)
def test_a_letter_of_spring_is_read_and_its_record_is_replayed_byte_for_byte(name: str) -> None:
    written = SPRING[name]
    record = filed(b"\x00raw\xff", written.headers, key=b"k\x00")
    found = read(record)
    assert (found.format, found.exact) == ("spring", True)
    assert (found.topic, found.partition, found.offset) == ("deal.events", 7, 1_234_567)
    assert (found.timestamp_ms, found.timestamp_type) == (CREATED_MS, "CreateTime")
    assert (found.key, found.value, found.headers) == (b"k\x00", b"\x00raw\xff", OWN)
    assert (found.error_type, found.retry_count, found.group) == (
        written.error_type,
        written.retry_count,
        written.group,
    )
    assert found.error_message.endswith(written.message)
    assert found.stack_trace
    sent = ours.for_replay(found, ReplayMark("case", "run", 1), topic="deal.events")
    assert tuple(sent) == (*OWN, ("keepfast-replay", b"case;run;1"))


def test_the_time_of_the_failure_is_that_of_the_retry_topics() -> None:
    assert read(filed(b"", SPRING["2.9-4.1 retryable topic"].headers)).failed_at_ms == FAILED_MS
    assert read(filed(b"", SPRING["2.9-4.1 recoverer"].headers)).failed_at_ms is None


def test_letters_of_one_cause_are_one_cause_whoever_wrote_them() -> None:
    kinds = ("2.9-4.1 recoverer", "2.8-3.2 letter of a letter", "2.9-4.1 retryable topic")
    assert len({read(filed(b"", SPRING[kind].headers)).fingerprint for kind in kinds}) == 1


def test_an_origin_that_a_producer_forged_is_not_believed() -> None:
    for prefix in ("kafka_dlt-", "x-"):
        forged = SpringHeaders().origin(prefix, "secrets", 0, 0).failed("kafka_dlt-")
        found = read(filed(b"", tuple(forged.origin("kafka_dlt-", "deal.events", 7, 1).found)))
        assert (found.topic, found.offset) == ("deal.events", 1)


def test_general_names_of_spring_cloud_stream_stay_where_it_did_not_write_the_letter() -> None:
    own = (("x-original-topic", b"a gateway's"), ("x-original-offset", b"12"))
    one = SpringHeaders(found=list(own)).failed("kafka_dlt-").origin("kafka_dlt-", "deal.events", 7, 1)
    assert read(filed(b"", tuple(one.found))).headers == own
    assert read(filed(b"", own)).format == "unknown"


def test_a_record_that_was_replayed_before_is_counted_also_where_spring_wrote_its_next_letter() -> None:
    replayed = SpringHeaders()
    replayed.add("keepfast-replay", b"shop.orders/deal.events/7/3;run;2")
    found = read(filed(b"", tuple(replayed.failed("kafka_dlt-").origin("kafka_dlt-", "deal.events", 7, 9).found)))
    assert (found.headers, found.replay_count) == (OWN, 2)
    assert found.replayed_from == "shop.orders/deal.events/7/3"


def test_numbers_of_the_wrong_size_are_absent() -> None:
    names = (
        "kafka_original-partition",
        "kafka_original-offset",
        "retry_topic-attempts",
        "retry_topic-backoff-timestamp",
    )
    headers = SPRING["2.9-4.1 retryable topic"].headers
    for bad in (b"", b"\x01\x02", b"\xff" * 8, b"1" * 20, None):
        found = read(filed(b"", tuple((name, bad if name in names else value) for name, value in headers)))
        assert (found.partition, found.retry_count, found.headers) == (None, 0, OWN)

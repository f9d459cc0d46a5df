"""Which record a message is: where it was first, as far as its headers can be believed."""

from __future__ import annotations

import pytest

from keepfast.core.inbox import ORIGIN, RecordOrigin, key_origin, noted_origin, origin_of
from keepfast.core.records import TopicPartition
from keepfast.core.retry_topics import Returned, Tier, Tiers, moved
from tests.support.messages import message

TIERS = Tiers(
    group="g",
    delays_s=(60,),
    topics={"orders.g.retry.1m": Tier(topic="orders.g.retry.1m", source="orders", delay_s=60, partitions=4)},
)


def test_a_record_is_where_it_is() -> None:
    assert origin_of(message(7, b"k", value=b"v"), "id-1") == RecordOrigin("id-1", 0, 7)


def test_without_topic_ids_the_name_counts() -> None:
    assert origin_of(message(7, b"k", value=b"v"), "") == RecordOrigin("orders", 0, 7)


def test_a_replayed_record_is_the_one_that_it_repeats() -> None:
    first = RecordOrigin("id-1", 3, 5)
    again = message(9, b"k", value=b"v", headers=(("a", b"1"), first.header("orders", b"v")))
    assert origin_of(again, "id-1") == first


@pytest.mark.parametrize("value", [None, b"", b"v"])
def test_a_tombstone_and_an_empty_value_differ(value: bytes | None) -> None:
    header = RecordOrigin("id-1", 3, 5).header("orders", value)
    for other in (None, b"", b"v"):
        found = origin_of(message(9, b"k", value=other, headers=(header,)), "id-1")
        assert (found == RecordOrigin("id-1", 3, 5)) is (other == value)


def test_a_derived_record_in_another_topic_with_all_headers_forwarded_is_itself() -> None:
    forwarded = RecordOrigin("id-1", 3, 5).header("orders", b"v")
    derived = message(2, b"k", value=b"v", headers=(forwarded,), place=TopicPartition("derived", 0))
    assert origin_of(derived, "id-2") == RecordOrigin("id-2", 0, 2)


def test_a_derived_record_in_the_same_topic_with_another_value_is_itself() -> None:
    forwarded = RecordOrigin("id-1", 3, 5).header("orders", b"v")
    assert origin_of(message(9, b"k", value=b"w", headers=(forwarded,)), "id-1") == RecordOrigin("id-1", 0, 9)


@pytest.mark.parametrize(
    "text", [b"", b"t", b"t/x/1/2/id", b"t/8/-1/2/id", b"t//1/2/", b"\xff/1/2/3/4", b"t/" * 2000, None]
)
def test_a_malformed_origin_counts_as_none(text: bytes | None) -> None:
    assert noted_origin([(ORIGIN, text)], topic="t", value=b"v") is None


def test_the_note_on_a_letter_is_no_origin_of_the_letter() -> None:
    note = RecordOrigin("id-1", 3, 5).note
    assert noted_origin([note], topic="t.dlq", value=b"{}") is None
    assert noted_origin([note], topic="", value=b"") == RecordOrigin("id-1", 3, 5)


def test_a_record_that_comes_back_from_a_retry_topic_is_where_it_came_from() -> None:
    outgoing = moved(
        message(7, b"k", value=b"v"), tiers=TIERS, step=1, wall_s=1.0, failures=1, attempts=(), topic_id="id-1"
    )
    back = message(
        0, outgoing.key, value=outgoing.value, headers=outgoing.headers, place=TopicPartition("orders.g.retry.1m", 0)
    )
    returned = Returned(back, TIERS.topics["orders.g.retry.1m"], TIERS)
    assert origin_of(returned, "id-of-the-retry-topic") == RecordOrigin("id-1", 0, 7)


def test_a_business_key_is_the_same_in_every_topic_and_long_ones_fit_into_an_index() -> None:
    assert key_origin("order-1") == key_origin("order-1") != key_origin("order-2")
    assert key_origin(b"\x00") != key_origin("\x00")
    assert key_origin("x" * 10_000) != key_origin("x" * 10_001)
    assert len(key_origin("x" * 10_000).source) < 250

"""Which answer belongs to which request."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
from confluent_kafka import KafkaError
from confluent_kafka import TopicPartition as ClientPlace

from keepfast.core.ports import CommitOutcome, CommittedOffset, Position
from keepfast.core.records import TopicPartition
from keepfast.kafka.commits import CommitRequest, Requests


def positions(*offsets: int) -> list[Position]:
    return [Position(TopicPartition("t", partition), offset) for partition, offset in enumerate(offsets)]


def answer(*offsets: int, topic: str = "t") -> list[ClientPlace]:
    return [ClientPlace(topic, partition, offset) for partition, offset in enumerate(offsets)]


@pytest.mark.parametrize("offsets", [(5,), (5, 6, 7)], ids=["one", "three"])
def test_an_answer_settles_the_request_under_way(offsets: tuple[int, ...]) -> None:
    requests = Requests()
    requests.under_way = CommitRequest(tuple(positions(*offsets)))
    request = requests.settle(answer(*offsets))
    assert request is not None
    assert request.outcome(None, answer(*offsets)) == CommitOutcome(tuple(positions(*offsets)))
    assert requests.under_way is None


@pytest.mark.parametrize("offsets", [(5,), (5, 6, 7)], ids=["one", "three"])
def test_an_answer_without_an_error_confirms_the_request_under_way(offsets: tuple[int, ...]) -> None:
    requests = Requests()
    requests.under_way = CommitRequest(tuple(positions(*offsets)))
    assert requests.confirmed(answer(*offsets)) == CommitOutcome(tuple(positions(*offsets)))
    assert requests.under_way is None


def test_an_answer_with_an_error_or_to_something_else_confirms_nothing() -> None:
    requests = Requests()
    assert requests.confirmed(answer(5)) is None, "nothing is under way"
    requests.under_way = CommitRequest(tuple(positions(5, 6)))
    refused = SimpleNamespace(topic="t", partition=1, offset=6, error=KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    for other in (answer(5), answer(5, 7), answer(5, 6, 7), answer(5, 6)[::-1], [*answer(5), refused]):
        assert requests.confirmed(cast("list[ClientPlace]", other)) is None
    assert requests.under_way is not None


def test_while_another_answer_is_still_to_come_none_confirms_by_its_offsets_alone() -> None:
    requests = Requests()
    requests.under_way = CommitRequest(tuple(positions(5)))
    assert requests.read_back([CommittedOffset(TopicPartition("t", 0), 5, "")], now=1.0) is not None
    requests.under_way = CommitRequest(tuple(positions(5)))
    assert requests.confirmed(answer(5)) is None, "it is the late one's"
    assert requests.settle(answer(5)) is None
    assert requests.confirmed(answer(5)) is not None


@pytest.mark.parametrize(
    "other",
    [answer(5), answer(5, 7), answer(5, 6, 7), answer(5, 6, topic="other")],
    ids=["less", "another offset", "more", "another topic"],
)
def test_an_answer_to_something_else_settles_nothing(other: list[ClientPlace]) -> None:
    requests = Requests()
    requests.under_way = CommitRequest(tuple(positions(5, 6)))
    assert requests.settle(other) is None
    assert requests.under_way is not None


def test_an_answer_in_another_order_settles_it_too() -> None:
    requests = Requests()
    requests.under_way = CommitRequest(tuple(positions(5, 6)))
    assert requests.settle(answer(5, 6)[::-1]) is not None

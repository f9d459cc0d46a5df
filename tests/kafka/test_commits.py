"""Which answer belongs to which request, and how an answer is waited for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
from confluent_kafka import KafkaError
from confluent_kafka import TopicPartition as ClientPlace

from keepfast.core.ports import CommitOutcome, CommittedOffset, Position, PreparedCommit
from keepfast.core.records import TopicPartition
from keepfast.kafka.commits import (
    MAX_ROUND_S,
    MAX_ROUNDS,
    MIN_ROUNDS,
    TRIAL_ROUNDS,
    AnswerWait,
    CommitRequest,
    Requests,
)

WAITED_S, POLLED_S = 600e-6, 500e-6
TRIAL = 2 * TRIAL_ROUNDS


class Rounds:
    """Requests one after another, each of which takes as long as its answer is waited for."""

    def __init__(self, wait: AnswerWait, *, waited_s: float = WAITED_S, polled_s: float = POLLED_S) -> None:
        self.wait = wait
        self.times_s = {False: waited_s, True: polled_s}
        self.now = 0.0

    def run(self, count: int, *, partitions: int = 4) -> list[bool]:
        """Whether each of the requests was polled for."""
        polled = []
        for _ in range(count):
            if partitions == 1:
                self.wait.sent_one()
            else:
                self.wait.sent(self.now)
            polled.append(self.wait.polls)
            self.now += self.times_s[self.wait.polls]
        return polled


def test_polling_is_kept_where_it_is_faster() -> None:
    rounds = Rounds(AnswerWait())
    trial = rounds.run(TRIAL)
    assert sum(trial) == TRIAL_ROUNDS
    rounds.run(1)
    assert all(rounds.run(MIN_ROUNDS - 1))


@pytest.mark.parametrize("polled_s", [WAITED_S * 0.97, WAITED_S, WAITED_S * 3], ids=["hardly", "as fast", "slower"])
def test_a_processor_is_not_taken_for_little_or_nothing(polled_s: float) -> None:
    rounds = Rounds(AnswerWait(), polled_s=polled_s)
    assert any(rounds.run(TRIAL))
    assert sum(rounds.run(20 * MAX_ROUNDS)) < 0.02 * 20 * MAX_ROUNDS, "trials get rare"


def test_a_machine_that_becomes_faster_meanwhile_favours_neither() -> None:
    rounds = Rounds(AnswerWait(), polled_s=WAITED_S)
    for _ in range(TRIAL):
        rounds.run(1)
        rounds.times_s = {way: 0.998 * time_s for way, time_s in rounds.times_s.items()}
    rounds.run(1)
    assert not any(rounds.run(MIN_ROUNDS))


def test_it_is_tried_again_after_a_while() -> None:
    rounds = Rounds(AnswerWait())
    rounds.run(TRIAL + MIN_ROUNDS)
    rounds.times_s[True] = WAITED_S * 2  # others need the processor from now on
    rounds.run(TRIAL + 1)
    assert not any(rounds.run(MIN_ROUNDS - 1))
    rounds.times_s[True] = POLLED_S
    rounds.run(TRIAL + 1)
    assert all(rounds.run(100))


def test_a_request_of_one_partition_is_never_polled_for() -> None:
    rounds = Rounds(AnswerWait())
    assert not any(rounds.run(10 * TRIAL_ROUNDS, partitions=1))
    rounds.run(3 * TRIAL_ROUNDS)
    assert rounds.wait.polls
    assert not any(rounds.run(10, partitions=1))


def test_rounds_in_which_there_was_nothing_to_commit_say_nothing() -> None:
    rounds = Rounds(AnswerWait(), waited_s=2 * MAX_ROUND_S)
    assert not any(rounds.run(10 * TRIAL_ROUNDS))


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


def prepared_commit(*, silent: bool = True) -> PreparedCommit:
    [position] = positions(5)
    return PreparedCommit(position, silent=silent)


def test_a_silent_request_is_confirmed_without_a_report() -> None:
    requests, prepared = Requests(), prepared_commit()
    requests.under_way = CommitRequest((prepared.position,), prepared)
    assert requests.confirm_silently(answer(5))
    assert prepared.confirmed
    assert requests.under_way is None


@pytest.mark.parametrize(
    "answered",
    [
        answer(6),
        answer(5, 6),
        [SimpleNamespace(topic="t", partition=0, offset=5, error=KafkaError(KafkaError.REQUEST_TIMED_OUT))],
    ],
    ids=["another offset", "more than one", "an error"],
)
def test_any_other_answer_to_it_is_reported(answered: list[ClientPlace]) -> None:
    requests, prepared = Requests(), prepared_commit()
    requests.under_way = CommitRequest((prepared.position,), prepared)
    assert not requests.confirm_silently(answered)
    assert not prepared.confirmed
    assert requests.under_way is not None


def test_it_is_reported_where_it_is_silent_no_more_and_where_the_answer_may_be_of_a_late_request() -> None:
    requests, prepared = Requests(), prepared_commit(silent=False)
    assert not requests.confirm_silently(answer(5)), "nothing is under way"
    requests.under_way = CommitRequest((prepared.position,), prepared)
    assert not requests.confirm_silently(answer(5))
    held = [CommittedOffset(position.place, position.offset, position.metadata) for position in positions(5)]
    assert requests.read_back(held, 0.0) is not None
    other = prepared_commit()
    requests.under_way = CommitRequest((other.position,), other)
    assert not requests.confirm_silently(answer(5))
    assert not other.confirmed

"""Topics for tests: what a broker refuses only for a moment is asked for again."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from keepfast.core.errors import StartError
from keepfast.testing.topics import TopicAdmin

FENCED = "Unable to replicate the partition 1 time(s): All brokers are currently fenced."
TOO_MANY = "Unable to replicate the partition 3 time(s): only 1 broker(s) are registered."


class Refusing(TopicAdmin):
    """Its broker refuses to create topics, for these reasons, one after another, and then creates them."""

    def __init__(self, *reasons: str) -> None:
        self._reasons = list(reasons)
        self.asked = 0

    @property
    def admin(self) -> Any:
        return self

    def create_topics(self, topics: list[Any]) -> dict[str, Future[None]]:
        self.asked += 1
        answer: Future[None] = Future()
        if self._reasons:
            error = KafkaError(KafkaError.INVALID_REPLICATION_FACTOR, self._reasons.pop(0))
            answer.set_exception(KafkaException(error))
        else:
            answer.set_result(None)
        return {topics[0].topic: answer}

    def list_topics(self, timeout: float) -> Any:
        return SimpleNamespace(topics={"t": SimpleNamespace(partitions={0: SimpleNamespace(leader=1)})})


def test_a_topic_is_created_when_the_broker_is_not_fenced_any_more() -> None:
    broker = Refusing(FENCED, FENCED)
    assert broker.create_topic("t") == "t"
    assert broker.asked == 3


def test_any_other_refusal_is_an_error_at_once() -> None:
    broker = Refusing(TOO_MANY)
    with pytest.raises(StartError, match="did not create topic t"):
        broker.create_topic("t")
    assert broker.asked == 1

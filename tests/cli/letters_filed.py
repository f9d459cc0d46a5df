"""Letters in a topic of a broker, for the tests of `keepfast dlq`."""

from __future__ import annotations

from collections.abc import Iterable

from keepfast.core.policies import LetterFormat
from keepfast.deadletters.letter import Letter
from keepfast.deadletters.writing import write
from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import Client, NewRecord


def file_letters(broker: TopicAdmin, topic: str, letters: Iterable[Letter], form: LetterFormat = "envelope") -> None:
    """Each in the partition of its record."""
    stored = []
    for one in letters:
        value, headers = write(one, form)
        stored.append(NewRecord(value, one.key, headers, one.partition))
    Client(broker).produce(topic, stored)

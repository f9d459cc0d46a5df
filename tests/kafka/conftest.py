"""Members of groups on the session's broker, closed after the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from keepfast.testing.broker import KafkaBroker
from tests.support.members import GroupMember, connection, kafka_member

Join = Callable[..., GroupMember]


@pytest.fixture
def join(kafka: KafkaBroker) -> Iterator[Join]:
    """`join(topic, group, start=0, assignor=…)`: a new member."""
    members: list[GroupMember] = []

    def join(topic: str, group: str, **how: Any) -> GroupMember:
        members.append(kafka_member(connection(kafka.bootstrap), topic, group, **how))
        return members[-1]

    yield join
    for member in members:
        member.source.close()

"""Members of groups on the session's broker, closed after the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from keepfast.testing.broker import KafkaBroker
from tests.support.members import Heard, connection

Join = Callable[..., Heard]


@pytest.fixture
def join(kafka: KafkaBroker) -> Iterator[Join]:
    """`join(topic, group, start=0, assignor=…)`: a new member."""
    members: list[Heard] = []

    def join(topic: str, group: str, **how: Any) -> Heard:
        members.append(Heard(connection(kafka.bootstrap), topic, group, **how))
        return members[-1]

    yield join
    for member in members:
        member.source.close()

"""Consumer groups on a real broker: a reset beside members."""

from __future__ import annotations

import pytest

from keepfast.core.errors import SourceError
from keepfast.core.ports import Position
from keepfast.core.records import TopicPartition
from keepfast.kafka.config import admin_properties
from keepfast.kafka.groups import KafkaGroups
from keepfast.testing.broker import KafkaBroker
from keepfast.testing.pytest_plugin import TopicFactory
from tests.kafka.conftest import Join
from tests.support.members import connection, drive


def test_a_reset_beside_members_says_that_they_are_to_be_stopped(
    kafka: KafkaBroker, topic: TopicFactory, join: Join
) -> None:
    name = topic(partitions=1)
    member = join(name, name)
    drive([member], lambda: member.owned)
    groups = KafkaGroups(admin_properties(connection(kafka.bootstrap)))
    with pytest.raises(SourceError, match=f"The group {name} has running members.* Stop them first") as caught:
        groups.reset(name, [Position(TopicPartition(name, 0), 0, "")])
    assert caught.value.code == "UNKNOWN_MEMBER_ID"

"""Which groups read a topic."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from holdfast.kafka.faults import CLIENT_ERRORS, config_error, source_error

MOST_GROUPS: Final = 500
"""Groups that are asked for their offsets, one request each."""


class KafkaGroups:
    """One thread at a time. `properties`: see `config.admin_properties`."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._properties = dict(properties)

    def reading(self, topics: set[str], timeout_s: float) -> dict[str, set[str]]:
        """Each of these topics → the groups that have an offset committed for it. Raises SourceError.

        A group whose offsets may not be seen is left out; of very many groups only the first are looked at.
        """
        deadline = time.monotonic() + timeout_s
        readers: dict[str, set[str]] = {topic: set() for topic in topics}
        try:
            client = AdminClient(self._properties)
        except CLIENT_ERRORS as error:
            raise config_error("admin client", error) from error
        try:
            listed = client.list_consumer_groups(request_timeout=timeout_s).result(timeout_s + 1)
            names = sorted(group.group_id for group in listed.valid)[:MOST_GROUPS]
            asked = {
                name: client.list_consumer_group_offsets(
                    [ConsumerGroupTopicPartitions(name)], request_timeout=timeout_s
                )[name]
                for name in names
            }
        except (*CLIENT_ERRORS, TimeoutError) as error:
            raise source_error("list the consumer groups", error) from error
        for name, future in asked.items():
            try:
                answer = future.result(max(0.1, deadline - time.monotonic()))
            except (*CLIENT_ERRORS, TimeoutError):
                continue
            for place in answer.topic_partitions:
                if place.topic in readers and place.error is None and place.offset >= 0:
                    readers[place.topic].add(name)
        return readers

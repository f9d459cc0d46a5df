"""Which groups read a topic."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from holdfast.kafka.faults import CLIENT_ERRORS, config_error, source_error

MOST_GROUPS: Final = 500
"""Groups that are asked for their offsets, one after another."""

ONE_GROUP_S: Final = 2.0
"""What one of them may take: one that may not be seen does not say so, it does not answer."""


class KafkaGroups:
    """One thread at a time. `properties`: see `config.admin_properties`."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._properties = dict(properties)

    def reading(self, topics: set[str], timeout_s: float) -> dict[str, set[str]]:
        """Each of these topics → the groups that have an offset committed for it. Raises SourceError.

        A group whose offsets may not be seen is left out; of very many groups only the first are looked at, and no
        longer than timeout_s.
        """
        deadline = time.monotonic() + timeout_s
        readers: dict[str, set[str]] = {topic: set() for topic in topics}
        try:
            client = AdminClient(self._properties)
        except CLIENT_ERRORS as error:
            raise config_error("admin client", error) from error
        try:
            listed = client.list_consumer_groups(request_timeout=timeout_s).result(timeout_s + 1)
            known = client.list_topics(timeout=timeout_s).topics
        except (*CLIENT_ERRORS, TimeoutError) as error:
            raise source_error("list the consumer groups", error) from error
        places = [TopicPartition(topic, one) for topic in topics if topic in known for one in known[topic].partitions]
        for name in sorted(group.group_id for group in listed.valid)[:MOST_GROUPS] if places else ():
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                break
            for topic in self._committed(name, places, min(left_s, ONE_GROUP_S)):
                readers[topic].add(name)
        return readers

    def _committed(self, group: str, places: list[TopicPartition], timeout_s: float) -> set[str]:
        """The topics for which the group has committed. By a consumer that never joins: to the admin client's question
        for offsets librdkafka crashes the process if the coordinator is just moving or loading (a NULL, its issue
        5040).
        """
        consumer = Consumer({**self._properties, "group.id": group, "enable.auto.commit": False})
        try:
            found = consumer.committed(places, timeout=timeout_s)
        except CLIENT_ERRORS:
            return set()
        finally:
            consumer.close()
        return {str(one.topic) for one in found if one.error is None and one.offset >= 0}

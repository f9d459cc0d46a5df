"""Topics and rights on a broker, for tests: each call returns when the broker has done it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined] # all of them public, says its docstring
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    TopicMetadata,
)

from keepfast.core.errors import StartError

REPLY_TIMEOUT_S = 30.0


class TopicAdmin:
    """Administration of any broker. Subclasses have its address. Raises StartError when the broker refuses."""

    _client: tuple[str, AdminClient] | None = None

    @property
    def bootstrap(self) -> str:
        raise NotImplementedError

    @property
    def admin(self) -> AdminClient:
        """An admin client of the plain listener, for what the methods here do not cover.

        It is kept, because a client that is garbage-collected drops its pending requests.
        """
        bootstrap = self.bootstrap
        if self._client is None or self._client[0] != bootstrap:
            quick = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "log_level": 0}
            self._client = bootstrap, AdminClient({"bootstrap.servers": bootstrap, **quick})
        return self._client[1]

    def create_topic(
        self, name: str, *, partitions: int = 1, replicas: int = -1, config: Mapping[str, str] | None = None
    ) -> str:
        """Make a topic and wait until every partition has a leader. `replicas=-1` is the broker's default."""
        admin = self.admin
        topic = NewTopic(name, num_partitions=partitions, replication_factor=replicas, config=dict(config or {}))
        _until(lambda: _created(admin, topic), f"Topic {name} could not be created: all brokers stayed fenced")
        _until(lambda: _led(admin, name) == partitions, f"Topic {name} was created but got no leaders")
        return name

    def delete_topic(self, name: str) -> None:
        """Delete a topic and wait until the broker no longer lists it."""
        admin = self.admin
        _wait(admin.delete_topics([name])[name], f"delete topic {name}")
        _until(lambda: _gone(admin, name), f"Topic {name} was deleted but is still listed")

    def grow_topic(self, name: str, *, partitions: int) -> None:
        """Give a topic more partitions: `partitions` is the new total."""
        admin = self.admin
        _wait(admin.create_partitions([NewPartitions(name, partitions)])[name], f"grow topic {name}")
        _until(lambda: _led(admin, name) == partitions, f"Topic {name} has grown but got no leaders")

    def delete_records(self, name: str, *, partition: int, before: int) -> None:
        """Delete the records of a partition below offset `before`; -1 deletes all."""
        place = TopicPartition(name, partition, before)
        for future in self.admin.delete_records([place]).values():
            _wait(future, f"delete records of {name}[{partition}]")

    def deny(self, user: str, *, topic: str, operation: AclOperation = AclOperation.ALL) -> None:
        """Take a right on a topic away from a user. Needs a broker with an authorizer."""
        rule = AclBinding(
            ResourceType.TOPIC,
            topic,
            ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            operation,
            AclPermissionType.DENY,
        )
        for future in self.admin.create_acls([rule]).values():
            _wait(future, f"deny {user} topic {topic}")


class ExistingBroker(TopicAdmin):
    """A broker that is not started by the tests."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    @property
    def bootstrap(self) -> str:
        return self._bootstrap


def _wait(future: Future[Any], what: str) -> None:
    try:
        future.result(REPLY_TIMEOUT_S)
    except (KafkaException, TimeoutError) as error:
        raise StartError(f"The broker did not {what}: {error}") from error


def _created(admin: AdminClient, topic: NewTopic) -> bool:
    """False while every broker is fenced, as after a pause until the next heartbeat."""
    try:
        admin.create_topics([topic])[topic.topic].result(REPLY_TIMEOUT_S)
    except (KafkaException, TimeoutError) as error:
        if "brokers are currently fenced" in str(error):
            return False
        raise StartError(f"The broker did not create topic {topic.topic}: {error}") from error
    return True


def _topics(admin: AdminClient) -> Mapping[str, TopicMetadata] | None:
    """None when the broker did not answer, which differs from no topics."""
    try:
        return admin.list_topics(timeout=5).topics
    except KafkaException:
        return None


def _gone(admin: AdminClient, name: str) -> bool:
    topics = _topics(admin)
    return topics is not None and name not in topics


def _led(admin: AdminClient, name: str) -> int:
    topic = (_topics(admin) or {}).get(name)
    return sum(1 for partition in topic.partitions.values() if partition.leader >= 0) if topic else 0


def _until(condition: Callable[[], bool], complaint: str) -> None:
    deadline = time.monotonic() + REPLY_TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline:
            raise StartError(f"{complaint} within {REPLY_TIMEOUT_S:g} s: see the broker's log.")
        time.sleep(0.01)

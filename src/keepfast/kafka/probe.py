"""Describes a cluster and the rights of this user, for `keepfast doctor`. Read-only."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final

import confluent_kafka
from confluent_kafka import KafkaError, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined] # all of them public, says its docstring
    AdminClient,
    OffsetSpec,
)
from confluent_kafka.cimpl import NewTopic

from keepfast.core.errors import Fault, SourceError
from keepfast.kafka.client_log import LOGGER
from keepfast.kafka.faults import CLIENT_ERRORS, config_error, source_error

Operations = frozenset[str] | None
"""Operations that this user may perform on a resource: READ, WRITE, … None: unknown."""


@dataclass(frozen=True, slots=True)
class ProbedCluster:
    """`brokers` are the advertised addresses. `has_controller`: False for the embedded broker."""

    cluster_id: str
    brokers: tuple[str, ...]
    has_controller: bool


@dataclass(frozen=True, slots=True)
class TopicProbe:
    """One topic; `replicas` of the partition that has fewest."""

    name: str
    partitions: int
    replicas: int
    operations: Operations


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """One consumer group; the state of a group that was never used is `dead`."""

    state: str
    members: int
    operations: Operations


@dataclass(frozen=True, slots=True)
class RetainedRecords:
    """What a topic holds: how many offsets, and the newest timestamp, if it has one."""

    offsets: int
    newest_ms: int | None


def client_versions() -> tuple[str, str]:
    """Versions of confluent-kafka and of its librdkafka."""
    return version("confluent-kafka"), confluent_kafka.libversion()[0]


_COORDINATOR_MOVES: Final = frozenset({"NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS"})
_RETRY_S: Final = 0.2

_NOT_ALLOWED: Final = KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED).str().removeprefix("Broker: ")


class KafkaProbe:
    """One thread at a time. Each call takes at most its timeout_s and a moment, and raises SourceError.

    `properties`: see `config.admin_properties`.
    """

    def __init__(self, properties: Mapping[str, Any]) -> None:
        try:
            options: dict[str, Any] = {**properties, "logger": LOGGER}
            self._client = AdminClient(options)
        except CLIENT_ERRORS as error:
            raise config_error("admin client", error) from error

    def cluster(self, timeout_s: float) -> ProbedCluster:
        try:
            listed = self._client.list_topics(timeout=timeout_s)
        except CLIENT_ERRORS as error:
            raise source_error("list the topics", error) from error
        addresses = tuple(sorted(f"{one.host}:{one.port}" for one in listed.brokers.values()))
        cluster_id = str(getattr(listed, "cluster_id", None) or "")
        return ProbedCluster(cluster_id, addresses, has_controller=listed.controller_id in listed.brokers)

    def topics(self, names: Sequence[str], timeout_s: float) -> dict[str, TopicProbe | SourceError]:
        """Each topic, or why it cannot be described: MISSING, REFUSED."""
        if not names:
            return {}
        found: dict[str, TopicProbe | SourceError] = {}
        for name, future in self._client.describe_topics(
            TopicCollection(list(names)), include_authorized_operations=True, request_timeout=timeout_s
        ).items():
            try:
                topic = _wait(f"describe topic {name}", future, timeout_s)
                replicas = min(len(one.replicas) for one in topic.partitions)
                found[name] = TopicProbe(name, len(topic.partitions), replicas, _operations(topic))
            except SourceError as error:
                found[name] = error
        return found

    def group(self, name: str, timeout_s: float) -> GroupFacts:
        """Describe a group; again while its coordinator moves or loads, as it does on a cluster that is still new."""
        deadline = time.monotonic() + timeout_s
        while True:
            left_s = max(0.1, deadline - time.monotonic())
            [future] = self._client.describe_consumer_groups(
                [name], include_authorized_operations=True, request_timeout=left_s
            ).values()
            try:
                group = _wait(f"describe group {name}", future, left_s)
            except SourceError as error:
                if error.code not in _COORDINATOR_MOVES or time.monotonic() + _RETRY_S >= deadline:
                    raise
                time.sleep(_RETRY_S)
                continue
            return GroupFacts(group.state.name.lower(), len(group.members), _operations(group))

    def creatable(self, names: Sequence[str], timeout_s: float) -> dict[str, SourceError | None]:
        """Why each topic may not be created: REFUSED; None if it may be, or exists. Creates nothing."""
        if not names:
            return {}
        found: dict[str, SourceError | None] = {}
        for name, future in self._client.create_topics(
            [NewTopic(name, num_partitions=1) for name in names], validate_only=True, request_timeout=timeout_s
        ).items():
            try:
                _wait(f"create topic {name}", future, timeout_s)
                found[name] = None
            except SourceError as error:
                found[name] = None if error.code == "TOPIC_ALREADY_EXISTS" else error
        return found

    @staticmethod
    def transactions(properties: Mapping[str, Any], timeout_s: float) -> None:
        """Whether a producer with these properties may begin transactions: the broker notes its transactional id, and
        forgets it when it is not used. Raises SourceError: REFUSED if this login may not.
        """
        try:
            producer = Producer({**properties, "logger": LOGGER})
            producer.init_transactions(timeout_s)
        except CLIENT_ERRORS as error:
            found = source_error(f"use the transactional id {properties['transactional.id']}", error)
            if _NOT_ALLOWED in str(error):  # which is fatal for the client, and so its own code is lost
                found = SourceError(str(found), fault=Fault.REFUSED, code="TRANSACTIONAL_ID_AUTHORIZATION_FAILED")
            raise found from error

    def held(self, topic: str, partitions: int, timeout_s: float) -> RetainedRecords:
        places = [TopicPartition(topic, number) for number in range(partitions)]
        kinds: Any = OffsetSpec  # brings no types
        first, after, newest = (
            self._offsets(topic, dict.fromkeys(places, spec), timeout_s)
            for spec in (kinds.earliest(), kinds.latest(), kinds.max_timestamp())
        )
        count = sum(one.offset for one in after) - sum(one.offset for one in first)
        return RetainedRecords(count, max((one.timestamp for one in newest if one.timestamp >= 0), default=None))

    def _offsets(self, topic: str, asked: dict[TopicPartition, Any], timeout_s: float) -> list[Any]:
        futures = self._client.list_offsets(asked, request_timeout=timeout_s)
        return [_wait(f"list the offsets of {topic}", future, timeout_s) for future in futures.values()]


def _wait(what: str, future: Future[Any], timeout_s: float) -> Any:
    try:
        return future.result(timeout_s + 1)  # the client's own timeout comes first and has more detail
    except (*CLIENT_ERRORS, TimeoutError) as error:
        raise source_error(what, error) from error


def _operations(description: Any) -> Operations:
    found = description.authorized_operations
    return None if found is None else frozenset(one.name for one in found)

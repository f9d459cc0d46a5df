"""The clients of a consumer, from its settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import uuid4

from keepfast.core.ports import Source
from keepfast.core.records import Message, TopicPartition
from keepfast.kafka import (
    Connection,
    Consuming,
    KafkaSource,
    ShareSource,
    TransactionalSource,
    share_properties,
    source_properties,
    transaction_properties,
)
from keepfast.settings import ConsumerSettings, KafkaSettings
from keepfast.telemetry.logs import get_logger
from keepfast.wiring.cluster import ClusterFacts

log = get_logger("keepfast.start")

EMBEDDED_SESSION_MS, EMBEDDED_HEARTBEAT_MS = 4_500, 500
"""The embedded broker lets a new member wait for the session of the one before it, less 1 s, whether that left or not.
It accepts no session below 3 s, the delay of its first rebalance.
"""


def connection_of(kafka: KafkaSettings) -> Connection:
    return Connection(
        brokers=kafka.brokers,
        client_id=kafka.client_id,
        security_protocol=kafka.security_protocol,
        sasl_mechanism=kafka.sasl_mechanism,
        sasl_username=kafka.sasl_username,
        sasl_password=kafka.sasl_password.reveal() if kafka.sasl_password else None,
        ssl_ca_location=kafka.ssl_ca_location,
        ssl_certificate_location=kafka.ssl_certificate_location,
        ssl_key_location=kafka.ssl_key_location,
        ssl_key_password=kafka.ssl_key_password.reveal() if kafka.ssl_key_password else None,
        ssl_endpoint_identification_algorithm=kafka.ssl_endpoint_identification_algorithm,
        properties=kafka.librdkafka,
    )


def consuming_of(own: ConsumerSettings) -> Consuming:
    return Consuming(
        group=own.group,
        group_instance_id=own.group_instance_id,
        group_protocol="classic" if own.group_protocol == "auto" else own.group_protocol,
        assignor=own.assignor or "cooperative-sticky",
        session_timeout_ms=own.timings.session_timeout_ms or 0,
        heartbeat_interval_ms=own.timings.heartbeat_interval_ms or 0,
        max_poll_interval_ms=own.timings.max_poll_interval_ms,
        isolation_level=own.isolation_level,
        fetch_min_bytes=own.fetch_min_bytes,
        fetch_max_wait_ms=own.fetch_max_wait_ms,
        client_queue_bytes=own.buffer.client_queue_bytes,
        by_pattern=own.pattern is not None,
    )


def in_two_rounds(own: ConsumerSettings) -> bool:
    """Whether it is a static member whose rebalances have two rounds: see `engine.subscription.RejoinCheck`."""
    member = consuming_of(own)
    static = member.group_instance_id is not None and member.group_protocol == "classic"
    return static and member.assignor == "cooperative-sticky"


def share_source_of(own: ConsumerSettings, kafka: KafkaSettings, *, workers: int) -> ShareSource:
    """The consuming client of a queue, which acquires about as many records as it has workers."""
    return ShareSource(share_properties(connection_of(kafka), consuming_of(own), records=workers))


def group_protocol(own: ConsumerSettings, *, new_protocol: bool | None, embedded: bool) -> tuple[str, str]:
    """The group protocol that a consumer joins with, `classic` or `consumer`, and the reason. `new_protocol`: whether
    the brokers support that of KIP-848; None if that is unknown.
    """
    if own.group_protocol == "consumer":
        return "consumer", "group_protocol is consumer"
    if own.group_protocol == "classic":
        return "classic", "group_protocol, a static member, or a session, heartbeat or assignor of its own"
    if embedded:
        return "classic", "the embedded broker"
    match new_protocol:
        case True:
            return "consumer", "the brokers support KIP-848"
        case False:
            return "classic", "the brokers do not support KIP-848; Kafka 4.0 or newer does"
        case None:
            return "consumer", "the brokers did not say whether they support KIP-848: classic follows if they do not"


def source_of(own: ConsumerSettings, kafka: KafkaSettings, cluster: ClusterFacts) -> KafkaSource:
    """The consuming client of a consumer, with the group protocol that its settings and the cluster allow."""
    connection, consuming = connection_of(kafka), consuming_of(own)
    if cluster.embedded:
        consuming = replace(
            consuming, session_timeout_ms=EMBEDDED_SESSION_MS, heartbeat_interval_ms=EMBEDDED_HEARTBEAT_MS
        )
    properties, classic = source_properties(connection, consuming), None
    protocol, reason = group_protocol(own, new_protocol=cluster.new_protocol, embedded=cluster.embedded)
    log.info("group_protocol", consumer=own.name, protocol=protocol, reason=reason)
    if own.group_protocol == "auto" and protocol == "consumer":
        newer = replace(consuming, group_protocol="consumer")
        properties, classic = source_properties(connection, newer), properties
    if not own.exactly_once:
        return KafkaSource(properties, classic=classic)
    producer = transaction_properties(connection, own.group, own.group_instance_id or uuid4().hex)
    return TransactionalSource(properties, producer=producer, classic=classic)


class BoundedSource:
    """Implements `core.ports.Source` with another source. `ends`: of each partition the first offset that is not read;
    of a partition that is not named, nothing is. A partition is paused when its end is reached.
    """

    def __init__(self, source: Source, ends: Mapping[TopicPartition, int]) -> None:
        self._source = source
        self._ends = ends

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def poll(self, timeout_s: float) -> Message | None:
        message = self._source.poll(timeout_s)
        return message if message is None or self._is_within(message) else None

    def sweep(self, limit: int) -> list[Message]:
        return [message for message in self._source.sweep(limit) if self._is_within(message)]

    def _is_within(self, message: Message) -> bool:
        place = TopicPartition(message.topic(), message.partition())
        if message.offset() < self._ends.get(place, 0):
            return True
        self._source.pause([place])
        return False

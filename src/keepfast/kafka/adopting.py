"""Clients that somebody else has made, of whichever library: found out without importing the one that is not there."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from confluent_kafka import Consumer, Producer

from keepfast.core.ports import Sink, Source
from keepfast.kafka.adopted_sink import AdoptedSink
from keepfast.kafka.adopted_source import AdoptedSource

Library = Literal["confluent-kafka", "kafka-python"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptedConsumer:
    """A consumer behind the port, and what could be learned of it; None and empty: nobody can tell."""

    source: Source
    group: str | None
    topics: tuple[str, ...]
    reset: str | None
    max_poll_records: int | None
    deserialise: Callable[[str, Any, bytes | None], Any] | None
    partitions: Callable[[str, float], int]


def library_of(client: object) -> Library | None:
    """Which library a client is of, if of any that we know."""
    if isinstance(client, Consumer | Producer):
        return "confluent-kafka"
    known = {"KafkaConsumer", "KafkaProducer"}
    if any(kind.__module__.partition(".")[0] == "kafka" and kind.__name__ in known for kind in type(client).__mro__):
        return "kafka-python"
    return None


def adopt_consumer(client: Any) -> AdoptedConsumer | None:
    """None if it is no consumer. Raises ConfigError if it is one that must not be used."""
    if isinstance(client, Consumer):
        adopted = AdoptedSource(client)
        return AdoptedConsumer(
            source=adopted,
            group=adopted.group,
            topics=(),
            reset=None,
            max_poll_records=None,
            deserialise=None,
            partitions=adopted.partition_count,
        )
    if library_of(client) != "kafka-python" or not hasattr(client, "subscription"):
        return None
    from keepfast.kafka.kafka_python import KafkaPythonSource
    from keepfast.kafka.kafka_python.questions import partitions_of

    source = KafkaPythonSource(client)
    known = source.adopted
    return AdoptedConsumer(
        source=source,
        group=known.group,
        topics=known.topics,
        reset=known.reset,
        max_poll_records=known.max_poll_records,
        deserialise=known.value_deserialiser,
        partitions=lambda topic, timeout_s: len(partitions_of(client, topic, timeout_s)),
    )


def adopt_producer(client: Any) -> Sink | None:
    """None if it is no producer. Raises ConfigError if letters cannot go through it."""
    if isinstance(client, Producer):
        return AdoptedSink(client)
    if library_of(client) != "kafka-python" or not hasattr(client, "send"):
        return None
    from keepfast.kafka.kafka_python import KafkaPythonSink

    return KafkaPythonSink(client)


def close_consumer(client: Any) -> None:
    """For one that was made and is not used after all; commits nothing. Never raises."""
    with contextlib.suppress(Exception):
        if isinstance(client, Consumer):
            client.close()
        elif library_of(client) == "kafka-python":
            client.close(autocommit=False, timeout_ms=1000)


def close_producer(client: Any, timeout_s: float) -> None:
    """Flush and, where there is such a thing, close. Never raises."""
    with contextlib.suppress(Exception):
        if isinstance(client, Producer):
            client.flush(timeout_s)
        elif hasattr(client, "close"):
            client.close(timeout=timeout_s)

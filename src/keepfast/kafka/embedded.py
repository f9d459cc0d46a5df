"""The embedded broker, librdkafka's mock cluster: how it is recognized, and a query that it answers wrongly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientPlace

from keepfast.core.errors import Fault, SourceError
from keepfast.kafka.places import translated

EMBEDDED_CLUSTER: Final = "mockCluster"
"""Prefix of the embedded broker's cluster id; the id of a real cluster has 22 characters."""


def is_embedded(cluster_id: object) -> bool:
    return str(cluster_id or "").startswith(EMBEDDED_CLUSTER)


def verify_times(client: Consumer, found: Sequence[ClientPlace], timeout_s: float) -> None:
    """Raises SourceError if the embedded broker gave this answer to a query of offsets by time: it answers -1, "no
    record that new", whatever its log holds. Sends a request only if there is such an answer.
    """
    place = next((one for one in found if one.offset < 0), None)
    if place is None:
        return
    with translated("find offsets by time"):
        cluster_id = client.list_topics(place.topic, timeout=timeout_s).cluster_id
    if is_embedded(cluster_id):
        raise SourceError(
            "The embedded broker cannot find offsets by time: name an offset.",
            fault=Fault.FATAL,
            code="_UNSUPPORTED_FEATURE",
        )

"""Waits until a cluster is ready."""

from __future__ import annotations

import time
from collections.abc import Sequence

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined] # both of them public, says its docstring
    AdminClient,
    ClusterMetadata,
)

from keepfast.core.errors import StartError
from keepfast.testing.kafka_node import KafkaNode


class NodeDied(StartError):
    """A node ended while it was starting; the message has the end of its log."""


def wait_until_ready(
    nodes: Sequence[KafkaNode], bootstrap: str, cluster_id: str, *, timeout_s: float, leaders: bool = True
) -> None:
    """Return when every one of `nodes` is registered and, if `leaders`, every partition has a leader.

    Raises NodeDied when a node ends meanwhile, StartError after the timeout or if another cluster answers there.
    """
    deadline = time.monotonic() + timeout_s
    wanted = {node.number for node in nodes}
    admin = _client(bootstrap)
    while True:
        for node in nodes:
            if not node.running:
                raise NodeDied(f"Kafka node {node.number} ended while starting. The end of its log:\n{node.log_tail()}")
        answer = _ask(admin)
        if answer is not None and answer.cluster_id not in (None, cluster_id):
            raise StartError(
                f"Another Kafka (cluster {answer.cluster_id}) answers at {bootstrap}: "
                "choose another port, or none for a free one."
            )
        if answer is not None and wanted <= set(answer.brokers) and (not leaders or _all_led(answer)):
            return
        if time.monotonic() > deadline:
            words = "\n".join(node.log_tail() for node in nodes)
            raise StartError(f"Kafka at {bootstrap} was not ready after {timeout_s:g} s. The end of its log:\n{words}")
        time.sleep(0.02)


def _client(bootstrap: str) -> AdminClient:
    # The client's own back-off grows to 10 s: too long for a boot of 1 s.
    quick = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "log_level": 0}
    return AdminClient({"bootstrap.servers": bootstrap, **quick})


def _ask(admin: AdminClient) -> ClusterMetadata | None:
    try:
        return admin.list_topics(timeout=1)
    except KafkaException:
        return None


def _all_led(answer: ClusterMetadata) -> bool:
    return all(partition.leader >= 0 for topic in answer.topics.values() for partition in topic.partitions.values())

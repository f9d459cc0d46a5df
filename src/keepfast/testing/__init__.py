"""Brokers to test and develop against: a real Apache Kafka, and the small one inside librdkafka.

    from keepfast.testing import KafkaBroker

    with KafkaBroker() as broker:
        broker.create_topic("orders.payment.v1", partitions=4)
        ...                                     # clients use broker.bootstrap

Importing this package loads neither a Kafka client nor anything else that is heavy: the names load on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from keepfast.testing.broker import KafkaBroker
    from keepfast.testing.embedded import EmbeddedBroker
    from keepfast.testing.topics import ExistingBroker

__all__ = ["EmbeddedBroker", "ExistingBroker", "KafkaBroker"]

_HOME = {
    "KafkaBroker": "keepfast.testing.broker",
    "EmbeddedBroker": "keepfast.testing.embedded",
    "ExistingBroker": "keepfast.testing.topics",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)

"""Brokers to test and develop against: a real Apache Kafka, and the small one inside librdkafka.

    from holdfast.testing import KafkaBroker

    with KafkaBroker() as broker:
        broker.create_topic("orders.payment.v1", partitions=4)
        ...                                     # clients use broker.bootstrap

Importing this package loads neither a Kafka client nor anything else that is heavy: the names load on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.testing.broker import KafkaBroker
    from holdfast.testing.embedded import EmbeddedBroker
    from holdfast.testing.topics import ExistingBroker

__all__ = ["EmbeddedBroker", "ExistingBroker", "KafkaBroker"]

_HOME = {
    "KafkaBroker": "holdfast.testing.broker",
    "EmbeddedBroker": "holdfast.testing.embedded",
    "ExistingBroker": "holdfast.testing.topics",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)

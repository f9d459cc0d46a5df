"""The adapter for confluent-kafka: the only place where its objects and errors are known.

Everything here implements `core.ports`; a `KafkaError` never leaves this package.
"""

from keepfast.kafka.admin import KafkaAdmin, TopicFacts
from keepfast.kafka.config import (
    Connection,
    Consuming,
    Producing,
    admin_properties,
    share_properties,
    sink_properties,
    source_properties,
    transaction_properties,
)
from keepfast.kafka.share_source import ShareSource
from keepfast.kafka.sink import KafkaSink
from keepfast.kafka.source import KafkaSource
from keepfast.kafka.transactions import TransactionalSource

__all__ = [
    "Connection",
    "Consuming",
    "KafkaAdmin",
    "KafkaSink",
    "KafkaSource",
    "Producing",
    "ShareSource",
    "TopicFacts",
    "TransactionalSource",
    "admin_properties",
    "share_properties",
    "sink_properties",
    "source_properties",
    "transaction_properties",
]

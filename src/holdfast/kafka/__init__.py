"""The adapter for confluent-kafka: the only place where its objects and errors are known.

Everything here speaks the language of `core.ports`; a `KafkaError` never leaves this package.
"""

from holdfast.kafka.admin import KafkaAdmin, TopicFacts
from holdfast.kafka.config import Connection, Consuming, Producing, admin_properties, sink_properties, source_properties
from holdfast.kafka.sink import KafkaSink
from holdfast.kafka.source import KafkaSource

__all__ = [
    "Connection",
    "Consuming",
    "KafkaAdmin",
    "KafkaSink",
    "KafkaSource",
    "Producing",
    "TopicFacts",
    "admin_properties",
    "sink_properties",
    "source_properties",
]

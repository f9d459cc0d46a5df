"""The adapter for kafka-python (extra `kafka-python`): for clients created by a user's own factories.

Imported only when a factory returns one.
"""

from keepfast.kafka.kafka_python.sink import KafkaPythonSink
from keepfast.kafka.kafka_python.source import KafkaPythonSource

__all__ = ["KafkaPythonSink", "KafkaPythonSource"]

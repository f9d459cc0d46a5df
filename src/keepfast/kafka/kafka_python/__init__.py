"""The adapter for kafka-python (extra `kafka-python`): for clients that a user's own factories have made.

Imported only when one of them is met.
"""

from keepfast.kafka.kafka_python.sink import KafkaPythonSink
from keepfast.kafka.kafka_python.source import KafkaPythonSource

__all__ = ["KafkaPythonSink", "KafkaPythonSource"]

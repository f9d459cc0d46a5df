"""`KafkaConsumerRunner`, which keepfast provides."""

from keepfast.runner import KafkaConsumerRunner, ProcessingFailed

__all__ = ["KafkaConsumerRunner", "ProcessingFailed"]

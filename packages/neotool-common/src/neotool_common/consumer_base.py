"""`KafkaConsumerRunner`, which holdfast provides."""

from holdfast.runner import KafkaConsumerRunner, ProcessingFailed

__all__ = ["KafkaConsumerRunner", "ProcessingFailed"]

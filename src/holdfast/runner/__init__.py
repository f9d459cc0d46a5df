"""`KafkaConsumerRunner`: the hooks of the consumer pattern on the same engine; see docs/runner.md."""

from holdfast.runner.hooks import ProcessingFailed
from holdfast.runner.retry import RetryConfig, calculate_backoff, is_retryable_error
from holdfast.runner.runner import KafkaConsumerRunner

__all__ = ["KafkaConsumerRunner", "ProcessingFailed", "RetryConfig", "calculate_backoff", "is_retryable_error"]

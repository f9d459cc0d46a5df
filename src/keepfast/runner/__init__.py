"""`KafkaConsumerRunner`: the hooks of the consumer pattern on the same engine; see docs/runner.md."""

from keepfast.runner.hooks import NonRetryableException, ProcessingFailed, RetryableException
from keepfast.runner.retry import RetryConfig, calculate_backoff, is_retryable_error
from keepfast.runner.runner import KafkaConsumerRunner

__all__ = [
    "KafkaConsumerRunner",
    "NonRetryableException",
    "ProcessingFailed",
    "RetryConfig",
    "RetryableException",
    "calculate_backoff",
    "is_retryable_error",
]

"""`calculate_backoff` and `RetryConfig`, by the formula of the consumer standard."""

from keepfast.runner import RetryConfig, calculate_backoff

__all__ = ["RetryConfig", "calculate_backoff"]

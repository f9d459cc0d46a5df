"""`is_retryable_error`, by keepfast's table of rules, and the exceptions that say it by themselves."""

from keepfast.runner import NonRetryableException, RetryableException, is_retryable_error

__all__ = ["NonRetryableException", "RetryableException", "is_retryable_error"]

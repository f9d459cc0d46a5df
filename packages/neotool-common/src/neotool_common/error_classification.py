"""`is_retryable_error`, by keepfast's table of rules."""

from keepfast.runner import is_retryable_error

__all__ = ["is_retryable_error"]

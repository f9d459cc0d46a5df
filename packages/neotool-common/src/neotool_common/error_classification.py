"""`is_retryable_error`, by holdfast's table of rules."""

from holdfast.runner import is_retryable_error

__all__ = ["is_retryable_error"]

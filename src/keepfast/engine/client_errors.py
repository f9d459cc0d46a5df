"""What the client complains about, in the log."""

from __future__ import annotations

from logging import WARNING

from keepfast.core.errors import SourceError
from keepfast.telemetry.logs import get_logger

log = get_logger("keepfast.loop")


def say_client_error(consumer: str, error: SourceError, now: float) -> None:
    """A sample of them: a broker that is away is reported twenty times a second."""
    log.sampled(
        WARNING,
        "client_error",
        now=now,
        key=(consumer, error.code),
        consumer=consumer,
        fault=error.fault,
        code=error.code,
        error=str(error),
    )

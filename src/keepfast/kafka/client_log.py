"""The client's own log lines, through Python's logging instead of standard error."""

from __future__ import annotations

import logging
import time

EVERY_S = 10.0
"""A client that cannot reach a broker logs it many times a second; one line in this time is enough."""


class _OncePerKind(logging.Filter):
    """Passes one line of a kind per EVERY_S. Any thread; an occasional extra line is harmless."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[object, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if "ConsumerGroupHeartbeat fatal error" in record.getMessage():
            return False  # the source gets it too, and decides whether it is an error
        kind = (record.levelno, record.args[0] if isinstance(record.args, tuple) and record.args else record.msg)
        now = time.monotonic()
        if now - self._last.get(kind, float("-inf")) < EVERY_S or len(self._last) > 1000:
            return False
        self._last[kind] = now
        return True


LOGGER = logging.getLogger("keepfast.client")
LOGGER.addFilter(_OncePerKind())
"""Every client gets it as `logger`."""

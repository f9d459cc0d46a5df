"""The client's own log lines, through Python's logging instead of straight to the terminal."""

from __future__ import annotations

import logging
import time

EVERY_S = 10.0
"""A client that cannot reach a broker says so many times a second; once in this time is enough."""


class _OncePerKind(logging.Filter):
    """Lets one line of a kind through per EVERY_S. Any thread; a line too many does no harm."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[object, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if "ConsumerGroupHeartbeat fatal error" in record.getMessage():
            return False  # the source hears it too, and knows whether it is one
        kind = (record.levelno, record.args[0] if isinstance(record.args, tuple) and record.args else record.msg)
        now = time.monotonic()
        if now - self._last.get(kind, float("-inf")) < EVERY_S or len(self._last) > 1000:
            return False
        self._last[kind] = now
        return True


LOGGER = logging.getLogger("keepfast.client")
LOGGER.addFilter(_OncePerKind())
"""To be given to every client as `logger`."""

"""What the log of a loop says, for a test to look at."""

from __future__ import annotations

import logging
from typing import Any

from keepfast.telemetry.logs import Entry


class Heard(logging.Handler):
    """What was said, as (logger, level, event, fields)."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[tuple[str, str, str, dict[str, Any]]] = []

    def emit(self, record: logging.LogRecord) -> None:
        assert isinstance(record.msg, Entry)
        self.said.append((record.name, record.levelname, record.msg.event, dict(record.msg.fields)))

    def of(self, event: str) -> list[dict[str, Any]]:
        """The fields of every line about it."""
        return [fields for _, _, said, fields in self.said if said == event]

"""What keepfast logs, as entries for a test to look at."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from keepfast.telemetry.logs import Entry


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One line of the log."""

    logger: str
    level: str
    event: str
    fields: Mapping[str, Any]
    at: float


class LogCapture(logging.Handler):
    """Keeps every entry of a logger, and of those below it, from `level` on: between `attach` and `detach`, or inside
    `with`. Any thread logs; the test reads.
    """

    def __init__(self, logger: str = "keepfast", level: int = logging.INFO) -> None:
        super().__init__(level=level)
        self.entries: list[LogEntry] = []
        self._logger = logging.getLogger(logger)
        self._level_before = logging.NOTSET

    def attach(self) -> None:
        self._level_before = self._logger.level
        self._logger.addHandler(self)
        self._logger.setLevel(self.level)

    def detach(self) -> None:
        self._logger.removeHandler(self)
        if not any(isinstance(other, LogCapture) for other in self._logger.handlers):
            self._logger.setLevel(self._level_before)

    def __enter__(self) -> Self:
        self.attach()
        return self

    def __exit__(self, *_: object) -> None:
        self.detach()

    def emit(self, record: logging.LogRecord) -> None:
        entry = record.msg
        event, fields = (entry.event, dict(entry.fields)) if isinstance(entry, Entry) else (str(entry), {})
        self.entries.append(LogEntry(record.name, record.levelname.lower(), event, fields, time.monotonic()))

    def of(self, event: str) -> list[LogEntry]:
        return [entry for entry in list(self.entries) if entry.event == event]

    def fields(self, event: str) -> list[Mapping[str, Any]]:
        """The fields of each entry of that event."""
        return [entry.fields for entry in self.of(event)]

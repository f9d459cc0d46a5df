"""What the engine said in its log while a harness ran: which records were tried again, and which were discarded."""

from __future__ import annotations

import logging
from collections import Counter

from keepfast.telemetry.logs import Entry

Place = tuple[str, int, int]
"""Topic, partition, offset."""


class Said(logging.Handler):
    """Listens to keepfast's loggers, whatever else does."""

    def __init__(self, groups: frozenset[str]) -> None:
        super().__init__(level=logging.INFO)
        self._groups = groups
        self.retries: Counter[Place] = Counter()
        self.discarded: set[Place] = set()
        self._logger = logging.getLogger("keepfast")
        self._level = self._logger.level

    def __enter__(self) -> Said:
        self._logger.addHandler(self)
        if self._logger.getEffectiveLevel() > logging.INFO:
            self._logger.setLevel(logging.INFO)
        return self

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)
        self._logger.setLevel(self._level)

    def emit(self, record: logging.LogRecord) -> None:
        entry = record.msg
        if not isinstance(entry, Entry) or entry.fields.get("consumer_group") not in self._groups:
            return
        fields = entry.fields
        place = (str(fields.get("topic")), fields.get("partition"), fields.get("offset"))
        if entry.event == "retry":
            self.retries[place] += 1  # type: ignore[index] # such entries have both numbers
        elif entry.event in ("discard", "sensitive_data_discarded"):
            self.discarded.add(place)  # type: ignore[arg-type]

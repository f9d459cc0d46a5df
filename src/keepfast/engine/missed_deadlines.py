"""Shutdowns that took longer than they may: noted by the process that ends, counted by the next one that starts."""

from __future__ import annotations

import os
import re
import time
import uuid
from contextlib import suppress
from pathlib import Path

from keepfast.engine.flight_recorder import StateDirectory
from keepfast.telemetry.logs import get_logger

log = get_logger("keepfast.lifecycle")

_MOST_BYTES = 1_000_000


class MissedDeadlines:
    """Those of one app on this host. A process that has passed its deadline ends at once and is not scraped again, so
    it leaves a line in a file of the state directory, which the next process of the app takes. Where that directory
    does not outlive the process, nothing is counted. Never raises.
    """

    def __init__(self, configured: str | None, app: str) -> None:
        self._configured = configured
        self._name = f"{re.sub(r'[^A-Za-z0-9_.-]', '_', app)[:100]}.missed-deadlines"

    def note(self) -> None:
        """The deadline of this process has passed. Any thread."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with suppress(OSError):
            fd = os.open(self._path(), flags, 0o600)
            try:
                os.write(fd, b"%d\n" % time.time())
            finally:
                os.close(fd)

    def take(self) -> int:
        """How many there were since the last process took them; of several that start at once, one gets them."""
        with suppress(OSError):
            path = self._path()
            taken = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
            path.rename(taken)
            try:
                with taken.open("rb") as file:
                    count = file.read(_MOST_BYTES).count(b"\n")
            finally:
                taken.unlink()
            if count:
                log.warning(
                    "previous_shutdown_timed_out",
                    times=count,
                    consequence="what was not finished then is delivered again",
                    what_to_do="give handlers a timeout_s, or raise shutdown.timeout_s and the platform's grace period",
                )
            return count
        return 0

    def _path(self) -> Path:
        return StateDirectory.open(self._configured).path / self._name

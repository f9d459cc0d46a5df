"""Starts and stops the demo's consumer with its supervisor, and reads their events."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from keepfast.core.errors import KeepfastError
from keepfast.settings.catalogue import SECTIONS
from keepfast.supervisor import ChildProcess

DRAIN_S, HURRY_S, POLL_INTERVAL_S = 8.0, 4.0, 0.02
_NOT_OURS = ("KEEPFAST_", "KAFKA_", "SHOP_")
_ALIASES = frozenset(alias for section in SECTIONS for setting in section.settings for alias in setting.aliases)


def environment() -> dict[str, str]:
    """Environment of the demo's processes. Settings of the user's own apps do not apply."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(_NOT_OURS) and name not in _ALIASES
    }
    # They run in a folder of the demo's; keepfast must be importable there, too.
    paths = [str(Path(__file__).parents[3]), *filter(None, [kept.get("PYTHONPATH")])]
    return {**kept, "PYTHONPATH": os.pathsep.join(paths)}


class ConsumerProcess:
    """A supervisor and its consumer, one release after another. Owner: the main thread; another thread may call
    `happened`.

    They write events to an inherited file, opened for appending: no event is lost when a process crashes.
    """

    def __init__(self, *, target: str, brokers: str, carrier: str, folder: Path, settings: Mapping[str, str]) -> None:
        self._target = target
        self._log = folder / "consumer.log"
        self._log.touch()
        self.events = folder / "events.jsonl"
        self.events.touch()
        self._read_to = 0
        self._supervisor: ChildProcess | None = None
        shop = {"KAFKA_BROKERS": brokers, "SHOP_CARRIER": carrier, "KEEPFAST_HEALTH_ENABLED": "false"}
        self._environ = {**environment(), **shop, "KEEPFAST_SHUTDOWN_TIMEOUT_S": "5", **settings}

    def start(self, release: str) -> None:
        module = "keepfast.demo.consumer_supervisor"
        events = os.open(self.events, os.O_WRONLY | os.O_APPEND)
        try:
            self._supervisor = ChildProcess.start(
                lambda spec: [
                    *(sys.executable, "-m", module, str(spec.parent_fd)),
                    *(str(events), str(self._log), self._target),
                ],
                index=0,
                now=time.monotonic(),
                environ={**self._environ, "SHOP_RELEASE": release},
                pass_fds=(events,),
            )
        finally:
            os.close(events)

    def check(self) -> None:
        """Raises KeepfastError if the supervisor has ended."""
        code = None if self._supervisor is None else self._supervisor.ended()
        if code is not None:
            lines = self._log.read_text(errors="replace").splitlines()[-3:]
            raise KeepfastError("\n".join([f"The consumer of the demo exited unexpectedly with code {code}.", *lines]))

    def stop(self) -> int:
        """Drain and stop it; returns its exit code. Kills it after a timeout."""
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is None:
            return 0
        for timeout_s in (DRAIN_S, HURRY_S):  # the second signal ends it at once
            supervisor.send(signal.SIGTERM)
            deadline = time.monotonic() + timeout_s
            while time.monotonic() < deadline:
                code = supervisor.ended()
                if code is not None:
                    return code
                time.sleep(POLL_INTERVAL_S)
        supervisor.kill_and_wait()  # its child notices, and ends by its own deadline
        return -signal.SIGKILL

    def happened(self) -> Iterator[dict[str, Any]]:
        """The events since the last call."""
        with self.events.open("rb") as lines:
            lines.seek(self._read_to)
            for line in lines:
                if not line.endswith(b"\n"):
                    break
                self._read_to += len(line)
                yield json.loads(line)

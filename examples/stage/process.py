"""A service in a process of its own, to be started, killed and stopped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
POLL_S = 0.05
STOP_S = 40.0
_OF_THE_USER = ("KEEPFAST_", "KAFKA_", "RETRY_", "POSTGRES_", "HEALTH_CHECK_")


class NotInTime(Exception):
    """What was waited for did not happen; the end of the service's log says more."""


def until(condition: Callable[[], object], what: str, timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise NotInTime(f"Not within {timeout_s:g} s: {what}.")
        time.sleep(POLL_S)


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """What a user has set for services of their own is not for this one."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OF_THE_USER)}
    return {**kept, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), **variables}


class Process:
    """`python -m <command>`, with its log (JSON lines) in a file. Start it again after a kill: same log, same name."""

    def __init__(self, command: Sequence[str], variables: Mapping[str, str], log: Path) -> None:
        self._command = [sys.executable, "-m", *command]
        self._environ = environment(variables)
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, cwd=ROOT, env=self._environ, stdout=log, stderr=log)

    def kill(self) -> None:
        """SIGKILL: it can do nothing any more, not even say goodbye."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> int:
        """SIGTERM, as a deployment does it; returns the exit code. By force if that takes too long."""
        if self._process is None:
            return 0
        self._process.terminate()
        try:
            return self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._process.returncode

    def check(self) -> bool:
        """Raises NotInTime if it has ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            raise NotInTime(f"The service ended with code {self._process.returncode}:\n{self.log_tail()}")
        return True

    def log_tail(self) -> str:
        return "\n".join(self.log().splitlines()[-8:])

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def log_entries(self, *events: str) -> Iterator[dict[str, Any]]:
        """Its log entries of these kinds."""
        for line in self.log().splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict) and entry.get("event") in events:
                yield entry


def run(command: Sequence[str], variables: Mapping[str, str]) -> str:
    """Run a command such as `keepfast dlq replay` to its end; returns its output. Raises if it fails."""
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        env=environment(variables),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode:
        raise NotInTime(f"{' '.join(command)} ended with code {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout

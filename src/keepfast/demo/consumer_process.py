"""Starts and stops the demo's consumer with its supervisor, and reads their events.

`python -m keepfast.demo.consumer_process PARENT_FD EVENTS_FD LOG_FILE MODULE:APP` is that supervisor.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from keepfast.core.errors import KeepfastError
from keepfast.settings.catalogue import SECTIONS
from keepfast.supervisor import ChildProcess, ChildSpec, ParentLink, RestartPolicy, Supervisor
from keepfast.telemetry import logs
from keepfast.telemetry.event_log import event_line

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
        events = os.open(self.events, os.O_WRONLY | os.O_APPEND)
        try:
            self._supervisor = ChildProcess.start(
                lambda spec: [
                    *(sys.executable, "-m", __name__, str(spec.parent_fd)),
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


def supervise(parent_fd: str, events_fd: str, log_file: str, target: str) -> int:
    """Keep the consumer running, as `keepfast run --processes 1` does, but restart it sooner: less than a second after
    a crash, every time. The logs of both processes go to the file, their events to the descriptor, as lines of JSON.
    """
    ParentLink(int(parent_fd)).watch()
    # A deliberate crash must not leave a core dump on the user's disk.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # The .env and keepfast.toml of the current folder do not apply.
    os.chdir(Path(log_file).parent)
    log = os.open(log_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for stream in (1, 2):
        os.dup2(log, stream)
    logs.configure(level="info", format="json")

    def command(spec: ChildSpec) -> Sequence[str]:
        here = ["--child", str(spec.index), "--parent-fd", str(spec.parent_fd), "--events-fd", events_fd]
        return [sys.executable, "-m", "keepfast", "run", target, "--log-format", "json", "--log-level", "info", *here]

    # The embedded broker admits a member one second before the session of the crashed one ends, and then waits for
    # that one to return: a member that joins within a second of a crash waits twice.
    restart = RestartPolicy(first_delay_s=0.7, max_delay_s=0.7)
    events = int(events_fd)
    return Supervisor(
        command,
        processes=1,
        restart=restart,
        on_child=lambda event: os.write(events, event_line(event)),
        pass_fds=(events,),
    ).run()


if __name__ == "__main__":
    sys.exit(supervise(*sys.argv[1:]))

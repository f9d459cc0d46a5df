"""A real consumer in a process of its own, to be killed, frozen and signalled."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keepfast
from tests.support import command_server
from tests.support.processor_time import delays_s, longest_delay_s
from tests.support.waiting import DEADLINE_S, POLL_S, wait_until

APPS = Path(__file__).parent / "apps"
ROOT = Path(__file__).parents[2]

SHORT_SESSION: Mapping[str, object] = {
    # The shortest session that a broker allows by default: a dead member is missed after 6 s.
    "consumer.unsafe_timings": True,
    "consumer.session_timeout_ms": 6_000,
    "consumer.heartbeat_interval_ms": 1_000,
}


NEW_PROTOCOL: Mapping[str, object] = {
    # KIP-848: the same session, by the settings of the broker for tests.
    "consumer.unsafe_timings": True,
    "consumer.group_protocol": "consumer",
}


class Member:
    """One process. `settings` are keepfast's own, as {"consumer.order": "key"}; `variables` are the app's; `arguments`
    are more for the command line.

    Not started yet: see `start`. Its log (JSON lines) goes to `log_path`.
    """

    def __init__(
        self,
        *,
        app: Path,
        folder: Path,
        name: str,
        settings: Mapping[str, object],
        variables: Mapping[str, str],
        arguments: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.log_path = folder / f"{name}.log"
        self._app = app
        self._folder = folder
        self._arguments = arguments
        self._environ = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("KEEPFAST_", "KAFKA_"))},
            **{f"KEEPFAST_{key.upper().replace('.', '_')}": _text(value) for key, value in settings.items()},
            **variables,
            # The keepfast of this process, which may be another one than the checkout's.
            "PYTHONPATH": os.pathsep.join([str(Path(keepfast.__file__).parents[1]), str(ROOT)]),
            "PYTHONUNBUFFERED": "1",
        }
        self._process: command_server.Process | None = None
        self._signalled_at = 0.0
        self._delays: tuple[dict[str, float], dict[str, float]] = ({}, {})
        self._read_bytes = 0
        self._events: list[dict[str, Any]] = []

    def start(self) -> Member:
        """Start the process; returns at once (see `wait_assigned`)."""
        self.log_path.touch()
        log = str(self.log_path)
        self._process = command_server.start(
            ["run", f"{self._app}:app", "--log-format", "json", "--log-level", "debug", *self._arguments],
            cwd=self._folder,
            env=self._environ,
            out=log,
            err=log,
            path=[str(self._folder), str(ROOT)],
        )
        return self

    # -- what it does ------------------------------------------------------------------------------------------------

    @property
    def process(self) -> command_server.Process:
        assert self._process is not None, "start() it first"
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def events(self, event: str | None = None) -> list[dict[str, Any]]:
        """What it has logged so far; lines that are no JSON (a traceback) are left out, see `log`."""
        new = b""
        if self.log_path.exists():
            with self.log_path.open("rb") as file:
                file.seek(self._read_bytes)
                new = file.read()
        new = new[: new.rfind(b"\n") + 1]  # what is being written is left for the next look
        self._read_bytes += len(new)
        for line in new.decode(errors="replace").split("\n"):
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict):
                self._events.append(entry)
        return [entry for entry in self._events if event in (None, entry.get("event"))]

    def log(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def wait_event(self, event: str, timeout_s: float = DEADLINE_S, **fields: object) -> dict[str, Any]:
        """Wait until it has logged that event with those fields; fails at once if it died instead."""

        def look() -> dict[str, Any] | None:
            alive = self.running
            for entry in self.events(event):
                if all(entry.get(name) == value for name, value in fields.items()):
                    return entry
            assert alive, f"{self.name} ended with {self.process.returncode} before {event!r}:\n{self.log()}"
            return None

        found = wait_until(look, f"{self.name} logs {event!r} {fields or ''}", timeout_s=timeout_s)
        assert found is not None
        return found

    def assignment(self) -> set[tuple[str, int]]:
        """The partitions that are its own, by its log."""
        own: set[str] = set()
        for entry in self.events():
            if entry["event"] == "partitions_assigned":
                own.update(entry["partitions"])
            elif entry["event"] in ("partitions_revoked", "partitions_lost"):
                own.difference_update(entry["partitions"])
        return {(place.rpartition("[")[0], int(place.rpartition("[")[2].rstrip("]"))) for place in own}

    def wait_assigned(self, partitions: int | None = None, timeout_s: float = DEADLINE_S) -> Member:
        """Wait until it owns so many partitions, or any."""

        def owns() -> bool:
            assert self.running, f"{self.name} ended with {self.process.returncode}:\n{self.log()}"
            own = len(self.assignment())
            return own > 0 if partitions is None else own == partitions

        wait_until(owns, f"{self.name} owns {partitions or 'some'} partitions", timeout_s=timeout_s)
        return self

    # -- what is done to it ------------------------------------------------------------------------------------------

    def signal(self, number: signal.Signals) -> float:
        """Returns the monotonic time just before."""
        self._signalled_at, self._delays = time.monotonic(), (delays_s(self.pid), delays_s())
        self.process.send_signal(number)
        return self._signalled_at

    def terminate(self) -> float:
        return self.signal(signal.SIGTERM)

    def kill(self) -> float:
        """SIGKILL; returns when it is dead."""
        now = self.signal(signal.SIGKILL)
        self.process.wait(DEADLINE_S)
        return now

    def freeze(self) -> float:
        """SIGSTOP: it does nothing and hears nothing, and does not know it. Returns when all its threads stand still:
        on a busy machine they work on for a while after the signal.
        """
        now = self.signal(signal.SIGSTOP)
        wait_until(lambda: _states(self.pid) == {"T"}, f"all threads of {self.name} stand still")
        return now

    def thaw(self) -> float:
        return self.signal(signal.SIGCONT)

    def wait(self, timeout_s: float = DEADLINE_S) -> int:
        """Wait for its end; returns the exit code."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} did not end within {timeout_s:g} s:\n{self.log()}") from None

    def end(self) -> tuple[int, float]:
        """Wait for its end; the exit code, and how many seconds it took after the last signal, without those in which
        it was ready to run and others had the processors. The same holds for us, who look whether it has ended.
        """
        latest: dict[str, float] = {}

        def ended() -> bool:
            latest.update(delays_s(self.pid))
            return not self.running

        wait_until(ended, f"{self.name} ends", between=lambda: time.sleep(POLL_S))
        took_s = time.monotonic() - self._signalled_at
        its, ours = self._delays
        return self.wait(), took_s - longest_delay_s(its, latest) - longest_delay_s(ours, delays_s())

    def stop(self, timeout_s: float = DEADLINE_S) -> int:
        """SIGTERM, and wait for the end; returns the exit code."""
        self.terminate()
        return self.wait(timeout_s)

    def close(self) -> None:
        """Whatever state it is in, it is gone afterwards."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()  # also ends a frozen process
            self._process.wait(DEADLINE_S)


def _states(pid: int) -> set[str]:
    """The states of all threads of a process; "T" is stopped. Nothing if one of them ended meanwhile."""
    try:
        found = [task.read_text() for task in Path(f"/proc/{pid}/task").glob("*/stat")]
    except OSError:
        return set()
    return {text.rpartition(")")[2].split()[0] for text in found}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

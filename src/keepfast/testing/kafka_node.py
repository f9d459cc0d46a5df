"""One Kafka node: its folder, its process, its signals."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from keepfast.testing.jars import KafkaFiles, random_id

# Writes its own process id, then becomes the program: so there is no moment in which a node runs and the watcher
# (watcher.py) does not know it.
_LAUNCH = 'echo $$ > "$0" && exec "$@"'


class KafkaNode:
    """A node in the folder `home`. Owned by one thread at a time, which KafkaBroker ensures.

    Its process is in a process group of its own, so that Ctrl-C in a terminal ends the test, not the broker under it.
    """

    def __init__(self, number: int, home: Path) -> None:
        self.number = number
        self.home = home
        self._process: subprocess.Popen[bytes] | None = None
        self._paused = False

    @property
    def log(self) -> Path:
        return self.home / "kafka.log"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def running(self) -> bool:
        """The process is there (perhaps paused, perhaps not ready)."""
        return self._process is not None and self._process.poll() is None

    @property
    def paused(self) -> bool:
        return self._paused and self.running

    def prepare(self, files: KafkaFiles, cluster_id: str, properties: str) -> None:
        """Write the configuration; format the data folder unless it is formatted already."""
        data = self.home / "data"
        data.mkdir(parents=True, exist_ok=True)
        (self.home / "server.properties").write_text(properties)
        if (data / "meta.properties").exists():
            return
        shutil.copyfile(files.checkpoint, data / "bootstrap.checkpoint")
        # Written last: with it the folder counts as formatted.
        (data / "meta.properties").write_text(
            f"version=1\ncluster.id={cluster_id}\nnode.id={self.number}\ndirectory.id={random_id()}\n"
        )

    def cluster_id(self) -> str | None:
        """The cluster that the data folder belongs to, if it is formatted."""
        try:
            lines = (self.home / "data" / "meta.properties").read_text().splitlines()
        except FileNotFoundError:
            return None
        return next((line.partition("=")[2] for line in lines if line.startswith("cluster.id=")), None)

    def launch(self, java_command: Sequence[str]) -> None:
        """Start the process; returns at once. `java_command` is everything up to the main class."""
        command = [
            "/bin/sh",
            "-c",
            _LAUNCH,
            str(self.home / "pid"),
            *java_command,
            str(self.home / "server.properties"),
        ]
        environment = {name: value for name, value in os.environ.items() if name not in _JVM_VARIABLES}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.home,
                env=environment,
                process_group=0,
            )
        self._paused = False

    def pause(self) -> None:
        """SIGSTOP: the sockets stay open without answers. Returns when each of its threads has stopped."""
        self._send(signal.SIGSTOP)
        if self._process is not None and self._process.returncode is None:
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        self._paused = True

    def resume(self) -> None:
        self._send(signal.SIGCONT)
        self._paused = False

    def terminate(self) -> None:
        """Ask it to end cleanly; returns at once. A paused node is woken for it."""
        self._send(signal.SIGTERM)
        self._send(signal.SIGCONT)
        self._paused = False

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._send(signal.SIGKILL)
        self.join(timeout_s=30)

    def join(self, timeout_s: float) -> bool:
        """Wait for the end of the process; False if it did not come in time."""
        if self._process is None:
            return True
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        # The process id may be reused from now on; it must not be signalled any more.
        (self.home / "pid").unlink(missing_ok=True)
        self._process = None
        return True

    def log_tail(self, lines: int = 15) -> str:
        """The end of its log."""
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        except FileNotFoundError:
            return ""

    def _send(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)


# They would add options to our command line, or text to its output.
_JVM_VARIABLES = frozenset({"JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS"})

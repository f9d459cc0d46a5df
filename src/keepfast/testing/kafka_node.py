"""Kafka nodes: their folders, processes and signals, the wait until they are ready, and what stops them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined] # both of them public, says its docstring
    AdminClient,
    ClusterMetadata,
)

from keepfast.core.errors import StartError
from keepfast.testing.jars import KafkaFiles, random_id

# Writes its own process id, then becomes the program: so there is no moment in which a node runs and the watcher
# (`NodeWatcher`) does not know it.
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
        if (data / "meta.properties").exists() or files.needs_zookeeper:
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


class NodeDied(StartError):
    """A node ended while it was starting; the message has the end of its log."""


def wait_until_ready(
    nodes: Sequence[KafkaNode], bootstrap: str, cluster_id: str | None, *, timeout_s: float, whole: bool = True
) -> None:
    """Return when every one of `nodes` is registered and, if `whole`, every partition has all its replicas in sync.

    Raises NodeDied when a node ends meanwhile, StartError after the timeout or if another cluster answers there.
    `cluster_id` is None if it is not known before: with ZooKeeper, the first node chooses it.
    """
    deadline = time.monotonic() + timeout_s
    wanted = {node.number for node in nodes}
    admin = _client(bootstrap)
    while True:
        for node in nodes:
            if not node.running:
                raise NodeDied(f"Kafka node {node.number} ended while starting. The end of its log:\n{node.log_tail()}")
        answer = _ask(admin)
        if answer is not None and cluster_id and answer.cluster_id not in (None, cluster_id):
            raise StartError(
                f"Another Kafka (cluster {answer.cluster_id}) answers at {bootstrap}: "
                "choose another port, or none for a free one."
            )
        if answer is not None and wanted <= set(answer.brokers) and (not whole or _is_whole(answer)):
            return
        if time.monotonic() > deadline:
            words = "\n".join(node.log_tail() for node in nodes)
            raise StartError(f"Kafka at {bootstrap} was not ready after {timeout_s:g} s. The end of its log:\n{words}")
        time.sleep(0.02)


def leader_of(bootstrap: str, topic: str, partition: int) -> int:
    """The number of the node that leads a partition; -1 if there is none, or no answer."""
    answer = _ask(_client(bootstrap))
    found = answer.topics.get(topic) if answer is not None else None
    return found.partitions[partition].leader if found else -1


def _client(bootstrap: str) -> AdminClient:
    # The client's own back-off grows to 10 s: too long for a boot of 1 s. A node that is frozen is not waited for.
    quick = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "socket.timeout.ms": 1_000, "log_level": 0}
    return AdminClient({"bootstrap.servers": bootstrap, **quick})


def _ask(admin: AdminClient) -> ClusterMetadata | None:
    try:
        return admin.list_topics(timeout=1)
    except KafkaException:
        return None


def _is_whole(answer: ClusterMetadata) -> bool:
    partitions = [partition for topic in answer.topics.values() for partition in topic.partitions.values()]
    return all(one.leader >= 0 and len(one.isrs) == len(one.replicas) for one in partitions)


# $1 the cluster's folder, $2 "remove" to delete it afterwards
_STOP_NODES = """
trap '' INT TERM HUP
cat > /dev/null
for file in "$1"/node-*/pid; do
    [ -f "$file" ] && kill -9 "$(cat "$file")" 2> /dev/null
done
[ "$2" = remove ] && rm -rf -- "$1"
exit 0
"""


class NodeWatcher:
    """Stops the nodes in `folder` when this process has ended in any way, from `start` until `release`.

    A tiny shell waits for the end of its standard input, which only this process holds open: when it exits, is killed
    or crashes, the kernel closes it. (A parent-death signal would come when the *thread* that started the node ends,
    and needs code between fork and exec, which is not safe beside the client's threads.)
    """

    def __init__(self, folder: Path, *, remove: bool) -> None:
        self._folder = folder
        self._remove = remove
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        if self._process is not None:
            return
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _STOP_NODES, "sh", str(self._folder), "remove" if self._remove else "keep"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=os.sep,
            process_group=0,
        )

    def release(self) -> None:
        """Run it now and wait for it: kills running nodes, removes the folder if `remove`."""
        if self._process is None:
            return
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()
        self._process = None

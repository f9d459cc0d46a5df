"""What a test cluster looks like, and the server.properties that follow from it. Pure: starts nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from keepfast.core.errors import ConfigError
from keepfast.testing.jars import KAFKA_VERSION, needs_zookeeper

MAX_MESSAGE_BYTES = 16 * 1024 * 1024

# The broker is tuned for tests: it boots fast, notices the dead soon, and compacts and deletes while one watches.
_FOR_TESTS: dict[str, str] = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    # A member that dies should be missed within seconds, in either protocol.
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "1000",
    # A member of a share group, too; and a lock that a test can wait for.
    "group.share.min.session.timeout.ms": "1000",
    "group.share.session.timeout.ms": "6000",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.heartbeat.interval.ms": "500",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.min.assignment.interval.ms": "0",
    "group.share.assignment.interval.ms": "100",
    # Records of 10 MB.
    "message.max.bytes": str(MAX_MESSAGE_BYTES),
    "replica.fetch.max.bytes": str(MAX_MESSAGE_BYTES),
    "socket.request.max.bytes": str(4 * MAX_MESSAGE_BYTES),
    # Retention and compaction at once; their defaults count in minutes.
    "log.initial.task.delay.ms": "500",
    "log.retention.check.interval.ms": "1000",
    "log.cleaner.backoff.ms": "500",
    "log.segment.delete.delay.ms": "1000",
    # The cleaner's default buffer alone is half of the heap.
    "log.cleaner.dedupe.buffer.size": str(4 * 1024 * 1024),
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "2",
    # A broker that was killed may come back once its old registration has expired.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    # By default it writes a no-op record twice a second.
    "metadata.max.idle.interval.ms": "5000",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    # Transactions of processes that were killed end soon after their timeout.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "share.coordinator.state.topic.num.partitions": "1",
}


@dataclass(frozen=True, slots=True)
class NodePorts:
    """The ports of one node; 0 means that it has no such listener."""

    plain: int
    controller: int
    sasl: int = 0
    tls: int = 0

    def all(self) -> list[int]:
        return [port for port in (self.plain, self.controller, self.sasl, self.tls) if port]


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """The whole cluster. Validates itself; raises ConfigError with every problem."""

    version: str = KAFKA_VERSION
    nodes: int = 1
    port: int | None = None
    sasl_users: Mapping[str, str] = field(default_factory=dict)
    authorize: bool = False
    tls: bool = False
    config: Mapping[str, str] = field(default_factory=dict)
    heap_mb: int = 256
    jvm_options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        problems: list[str] = []
        if self.nodes not in (1, 3):
            problems.append(f"nodes must be 1 or 3; got {self.nodes}")
        if self.port is not None and not 0 < self.port <= 65_535:
            problems.append(f"port must lie between 1 and 65535, or be None for a free one; got {self.port}")
        if self.heap_mb < 128:
            problems.append(f"heap_mb must be 128 or more, or Kafka runs out of memory; got {self.heap_mb}")
        if any('"' in text or ";" in text or "\\" in text for pair in self.sasl_users.items() for text in pair):
            problems.append('sasl_users must not contain ", ; or \\ in names or passwords')
        if problems:
            raise ConfigError(*problems)

    @property
    def needs_zookeeper(self) -> bool:
        return needs_zookeeper(self.version)


def server_properties(plan: ClusterPlan, node: int, ports: Mapping[int, NodePorts], home: Path) -> str:
    """The configuration of node `node` (counted from 1), which keeps its data below `home`."""
    own = ports[node]
    kraft = not plan.needs_zookeeper
    values = {
        **(_quorum(node, ports) if kraft else _in_zookeeper(node, ports)),
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT,TLS:SSL",
        "listeners": _listeners(own, controller=kraft),
        "advertised.listeners": _listeners(own, controller=False),
        "log.dirs": str(home / "data"),
        **_FOR_TESTS,
        **_replication(plan.nodes),
        **_security(plan, home),
        **plan.config,
    }
    return "".join(f"{name}={value}\n" for name, value in values.items())


def zookeeper_properties(ports: Mapping[int, NodePorts], home: Path) -> str:
    """The configuration of the one ZooKeeper of a cluster, which keeps its data below `home`."""
    return (
        f"dataDir={home / 'data'}\nclientPort={_zookeeper_port(ports)}\nclientPortAddress=127.0.0.1\n"
        "admin.enableServer=false\n"
    )


def _quorum(node: int, ports: Mapping[int, NodePorts]) -> dict[str, str]:
    return {
        "process.roles": "broker,controller",
        "node.id": str(node),
        "controller.quorum.voters": ",".join(f"{n}@127.0.0.1:{p.controller}" for n, p in sorted(ports.items())),
        "controller.listener.names": "CONTROLLER",
    }


def _in_zookeeper(node: int, ports: Mapping[int, NodePorts]) -> dict[str, str]:
    return {
        "broker.id": str(node),
        "zookeeper.connect": f"127.0.0.1:{_zookeeper_port(ports)}",
        "zookeeper.session.timeout.ms": "3000",
    }


def _zookeeper_port(ports: Mapping[int, NodePorts]) -> int:
    """The first node's port for the controller, which it does not use itself."""
    return ports[1].controller


def _listeners(ports: NodePorts, *, controller: bool) -> str:
    named = {"PLAINTEXT": ports.plain, "SASL": ports.sasl, "TLS": ports.tls}
    if controller:
        named["CONTROLLER"] = ports.controller
    return ",".join(f"{name}://127.0.0.1:{port}" for name, port in named.items() if port)


def _replication(nodes: int) -> dict[str, str]:
    copies, in_sync = str(nodes), str(min(nodes, 2))
    return {
        "default.replication.factor": copies,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": in_sync,
    }


def _security(plan: ClusterPlan, home: Path) -> dict[str, str]:
    values: dict[str, str] = {}
    if plan.sasl_users:
        users = " ".join(f'user_{name}="{password}"' for name, password in plan.sasl_users.items())
        values["listener.name.sasl.sasl.enabled.mechanisms"] = "PLAIN"
        values["listener.name.sasl.plain.sasl.jaas.config"] = (
            f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
        )
    if plan.authorize:
        values["authorizer.class.name"] = (
            "kafka.security.authorizer.AclAuthorizer"
            if plan.needs_zookeeper
            else "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
        )
        # Clients of the plain listener may do everything: the nodes themselves, and the test.
        values["super.users"] = "User:ANONYMOUS"
        values["allow.everyone.if.no.acl.found"] = "true"
    if plan.tls:
        values["listener.name.tls.ssl.keystore.type"] = "PKCS12"
        values["listener.name.tls.ssl.keystore.location"] = str(home.parent / "tls" / "keystore.p12")
        values["listener.name.tls.ssl.keystore.password"] = KEYSTORE_PASSWORD
        values["listener.name.tls.ssl.key.password"] = KEYSTORE_PASSWORD
    return values


KEYSTORE_PASSWORD = "only-for-tests"  # noqa: S105 - protects a key that is made for one test run

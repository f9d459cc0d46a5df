"""From plain values to the client's properties.

Three layers, the last wins: our defaults, the user's own properties, and what a promise depends on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from keepfast.core.ports import NO_ANSWER_EVERY_S

Properties = dict[str, Any]

EAGER_ASSIGNORS: Final = ("range", "roundrobin")
_MIB: Final = 1024 * 1024
MAX_RECORD_BYTES: Final = 100 * _MIB
"""Limit of the sink; the topic's own limit applies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """How to connect to the brokers. `properties`: further settings by the client's own names."""

    brokers: Sequence[str]
    client_id: str = "keepfast"
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str | None = None
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    ssl_ca_location: str | None = None
    ssl_certificate_location: str | None = None
    ssl_key_location: str | None = None
    ssl_key_password: str | None = field(default=None, repr=False)
    ssl_endpoint_identification_algorithm: str | None = None
    properties: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Consuming:
    """How a group member behaves."""

    group: str
    group_instance_id: str | None = None
    group_protocol: str = "classic"
    assignor: str = "cooperative-sticky"
    session_timeout_ms: int = 60_000
    heartbeat_interval_ms: int = 10_000
    max_poll_interval_ms: int = 600_000
    isolation_level: str = "read_committed"
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    client_queue_bytes: int = 64 * _MIB
    by_pattern: bool = False
    """Topics are added to what it reads, some of them a moment after they were made."""


NEW_PARTITIONS_MS, NEW_TOPICS_MS = 30_000, 5_000
"""How often the client looks at its topics again: for partitions that were added, which under the classic protocol no
member gets before one of them has seen them; and for topics that it took for missing when they were subscribed.
"""

STATISTICS_MS: Final = round(NO_ANSWER_EVERY_S * 1000)
"""How often the client reports which brokers answer (`broker_watch`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Producing:
    """How the sink behaves. A record that is not acknowledged within delivery_timeout_ms is reported as failed."""

    delivery_timeout_ms: int = 30_000
    linger_ms: float = 0
    queue_bytes: int = 64 * _MIB


SOCKET_TIMEOUT_MS: Final = 10_000
"""What a lost reply costs, or a connection that a NAT has forgotten: then the client repeats the request on a new one.
Its own default is a minute.
"""


def source_properties(connection: Connection, consuming: Consuming) -> Properties:
    """For `KafkaSource`."""
    queue_kib = max(1, consuming.client_queue_bytes // 1024)
    # One answer must leave room for others in the queue, and pass a slow link within the timeout of the socket: in 10 s
    # at 4 Mbit/s. The broker always sends at least one batch, however large.
    fetch_bytes = max(_MIB, min(4 * _MIB, consuming.client_queue_bytes // 4))
    defaults: Properties = {
        # The default of 1000 lets the fetcher sleep a second whenever the queue was full.
        "fetch.queue.backoff.ms": 2,
        # A broker that comes back is noticed within seconds, not after the default's long pauses.
        "reconnect.backoff.max.ms": 2_000,
        "socket.keepalive.enable": True,
        # The default is five minutes.
        "topic.metadata.refresh.interval.ms": NEW_TOPICS_MS if consuming.by_pattern else NEW_PARTITIONS_MS,
        "statistics.interval.ms": STATISTICS_MS,
        "socket.timeout.ms": _socket_timeout_ms(consuming),
    }
    fixed: Properties = {
        "group.id": consuming.group,
        "group.protocol": consuming.group_protocol,
        "max.poll.interval.ms": consuming.max_poll_interval_ms,
        "isolation.level": consuming.isolation_level,
        "fetch.min.bytes": consuming.fetch_min_bytes,
        "fetch.wait.max.ms": consuming.fetch_max_wait_ms,
        "fetch.max.bytes": fetch_bytes,
        "max.partition.fetch.bytes": min(_MIB, fetch_bytes),
        "queued.max.messages.kbytes": queue_kib,
        # Offsets move only by our own commits, and a lost position is our decision, never the client's.
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        # Where it ends, markers of transactions included: without it a commit cannot move past them.
        "enable.partition.eof": True,
        "allow.auto.create.topics": False,
    }
    if consuming.group_instance_id is not None:
        fixed["group.instance.id"] = consuming.group_instance_id
    if consuming.group_protocol == "classic":  # the consumer protocol leaves these to the broker and refuses them
        fixed["session.timeout.ms"] = consuming.session_timeout_ms
        fixed["heartbeat.interval.ms"] = consuming.heartbeat_interval_ms
        fixed["partition.assignment.strategy"] = consuming.assignor
    return _merged(defaults, connection, fixed)


def _socket_timeout_ms(consuming: Consuming) -> int:
    """Within the session a heartbeat without a reply must be repeated. The client refuses a timeout that is not a
    second longer than a fetch may wait.
    """
    timeout_ms = SOCKET_TIMEOUT_MS
    if consuming.group_protocol == "classic":
        timeout_ms = min(timeout_ms, consuming.session_timeout_ms - consuming.heartbeat_interval_ms)
    return max(timeout_ms, consuming.fetch_max_wait_ms + 1_000)


def share_properties(connection: Connection, consuming: Consuming, *, records: int) -> Properties:
    """For `ShareSource`. `records`: how many are acquired at once, about. The client refuses most of what others take:
    the broker decides it by the configuration of the group.
    """
    defaults: Properties = {
        "reconnect.backoff.max.ms": 2_000,
        "socket.keepalive.enable": True,
        "socket.timeout.ms": max(SOCKET_TIMEOUT_MS, consuming.fetch_max_wait_ms + 1_000),
    }
    fixed: Properties = {
        "group.id": consuming.group,
        "share.acknowledgement.mode": "explicit",
        "max.poll.records": records,
        "max.poll.interval.ms": consuming.max_poll_interval_ms,
        "fetch.min.bytes": consuming.fetch_min_bytes,
        "fetch.wait.max.ms": consuming.fetch_max_wait_ms,
    }
    return _merged(defaults, connection, fixed)


def sink_properties(connection: Connection, producing: Producing | None = None) -> Properties:
    """For `KafkaSink`."""
    producing = producing or Producing()
    # A request whose reply is lost is sent again while the record may still be delivered.
    request_ms = max(1_000, min(SOCKET_TIMEOUT_MS, producing.delivery_timeout_ms // 3))
    defaults: Properties = {
        "linger.ms": producing.linger_ms,
        # Small enough for topics with a low limit: the client does not split a batch that the broker refuses.
        "batch.size": 65_536,
        "reconnect.backoff.max.ms": 2_000,
        "socket.keepalive.enable": True,
        "delivery.timeout.ms": producing.delivery_timeout_ms,
        "request.timeout.ms": request_ms,
        "socket.timeout.ms": request_ms,
        # A missing topic is reported as such before the delivery timeout; a new topic becomes visible within this time.
        "topic.metadata.propagation.max.ms": max(1_000, min(5_000, producing.delivery_timeout_ms // 2)),
    }
    fixed: Properties = {
        "enable.idempotence": True,
        # One at a time: a partition that is new to the producer takes any sequence number first. If its broker becomes
        # the leader between two batches, the first is refused and the second is taken, and the client reports both as
        # delivered. In order, too.
        "max.in.flight": 1,
        "acks": "all",
        "partitioner": "murmur2_random",
        "message.max.bytes": MAX_RECORD_BYTES,
        "queue.buffering.max.kbytes": max(producing.queue_bytes, 2 * MAX_RECORD_BYTES) // 1024,
    }
    return _merged(defaults, connection, fixed)


TRANSACTION_TIMEOUT_MS: Final = 10_000
"""After a crash, readers and the next owner of the partitions wait for so long, and for the broker's next look."""


def transaction_properties(connection: Connection, group: str, member: str) -> Properties:
    """For the producer of a consumer whose commits are transactions. `member` tells its processes apart."""
    fixed: Properties = {
        "transactional.id": f"{group}.{member}",
        "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
        "delivery.timeout.ms": TRANSACTION_TIMEOUT_MS,
        # The next transaction is tried again and again until the broker has ended the last one.
        "retry.backoff.ms": 5,
        "retry.backoff.max.ms": 100,
    }
    properties = sink_properties(connection, Producing(delivery_timeout_ms=TRANSACTION_TIMEOUT_MS))
    # The client refuses a longer one.
    fixed["socket.timeout.ms"] = min(int(properties["socket.timeout.ms"]), TRANSACTION_TIMEOUT_MS)
    return {**properties, **fixed}


def admin_properties(connection: Connection) -> Properties:
    """For `KafkaAdmin`."""
    return _merged({"reconnect.backoff.max.ms": 1_000, "socket.timeout.ms": SOCKET_TIMEOUT_MS}, connection, {})


def plain_addresses(brokers: Iterable[str]) -> str:
    """The addresses for a command that is printed, without a protocol or a login that was pasted before the host."""
    return ",".join(one.strip().rpartition("@")[2].rpartition("/")[2] for one in brokers)


def is_incremental(properties: Mapping[str, Any]) -> bool:
    """Whether partitions come and go one by one (cooperative, KIP-848) or all at once (eager)."""
    if properties.get("group.protocol", "classic") == "consumer":
        return True
    return "cooperative-sticky" in str(properties.get("partition.assignment.strategy", EAGER_ASSIGNORS))


def _merged(defaults: Properties, connection: Connection, fixed: Properties) -> Properties:
    reach: Properties = {
        "bootstrap.servers": ",".join(connection.brokers),
        "client.id": connection.client_id,
        "security.protocol": connection.security_protocol,
        "sasl.mechanism": connection.sasl_mechanism,
        "sasl.username": connection.sasl_username,
        "sasl.password": connection.sasl_password,
        "ssl.ca.location": connection.ssl_ca_location,
        "ssl.certificate.location": connection.ssl_certificate_location,
        "ssl.key.location": connection.ssl_key_location,
        "ssl.key.password": connection.ssl_key_password,
        "ssl.endpoint.identification.algorithm": connection.ssl_endpoint_identification_algorithm,
    }
    given = {name: value for name, value in reach.items() if value is not None}
    return {**defaults, **connection.properties, **given, **fixed}

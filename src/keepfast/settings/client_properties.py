"""Which of the client's own properties may be set by hand: all but those that break a promise or a check of ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_FINISHED_ONLY = "offsets are committed only after a record is finished, so the client must not move them by itself"
_ACKNOWLEDGED = "a dead letter counts only when all in-sync replicas have it, in order and once"
_CALLBACK = "callbacks belong to keepfast"
_MEMORY = "it bounds the client's memory together with others; set buffer.client_queue_bytes"

# Properties with a setting of their own: it is checked, and keepfast must know the value.
OWN_SETTING: Final = {
    "bootstrap.servers": "kafka.brokers",
    "metadata.broker.list": "kafka.brokers",
    "client.id": "kafka.client_id",
    "security.protocol": "kafka.security_protocol",
    "sasl.mechanism": "kafka.sasl_mechanism",
    "sasl.mechanisms": "kafka.sasl_mechanism",
    "sasl.username": "kafka.sasl_username",
    "sasl.password": "kafka.sasl_password",
    "ssl.ca.location": "kafka.ssl_ca_location",
    "ssl.certificate.location": "kafka.ssl_certificate_location",
    "ssl.key.location": "kafka.ssl_key_location",
    "ssl.key.password": "kafka.ssl_key_password",
    "ssl.endpoint.identification.algorithm": "kafka.ssl_endpoint_identification_algorithm",
    "group.id": "consumer.group",
    "group.instance.id": "consumer.group_instance_id",
    "group.protocol": "consumer.group_protocol",
    "group.remote.assignor": "consumer.group_protocol",
    "partition.assignment.strategy": "consumer.assignor",
    "session.timeout.ms": "consumer.session_timeout_ms",
    "heartbeat.interval.ms": "consumer.heartbeat_interval_ms",
    "max.poll.interval.ms": "consumer.max_poll_interval_ms",
    "auto.offset.reset": "consumer.auto_offset_reset",
    "isolation.level": "consumer.isolation_level",
    "fetch.min.bytes": "consumer.fetch_min_bytes",
    "fetch.wait.max.ms": "consumer.fetch_max_wait_ms",
}

# Properties that may not be set, and why.
FORBIDDEN: Final = {
    "enable.auto.commit": _FINISHED_ONLY,
    "auto.commit.enable": _FINISHED_ONLY,
    "auto.commit.interval.ms": _FINISHED_ONLY,
    "enable.auto.offset.store": _FINISHED_ONLY,
    "offset.store.method": _FINISHED_ONLY,
    "offset.store.path": _FINISHED_ONLY,
    "offset.store.sync.interval.ms": _FINISHED_ONLY,
    "enable.partition.eof": "keepfast sets it, to commit behind markers of transactions, and handles it",
    "allow.auto.create.topics": "a misspelt topic must be an error at start, not a new empty topic",
    "queued.max.messages.kbytes": _MEMORY,
    "fetch.max.bytes": _MEMORY,
    "max.partition.fetch.bytes": _MEMORY,
    "fetch.message.max.bytes": _MEMORY,
    "acks": _ACKNOWLEDGED,
    "request.required.acks": _ACKNOWLEDGED,
    "enable.idempotence": _ACKNOWLEDGED,
    "enable.gapless.guarantee": _ACKNOWLEDGED,
    "max.in.flight": _ACKNOWLEDGED,
    "max.in.flight.requests.per.connection": _ACKNOWLEDGED,
    "retries": _ACKNOWLEDGED,
    "message.send.max.retries": _ACKNOWLEDGED,
    "delivery.report.only.error": "keepfast waits for the report of every letter, also of those that went well",
    "transactional.id": "keepfast does not use transactions, and a producer with this name would wait for one",
    "partitioner": "keys must go to the partitions that Java producers choose for them",
    "plugin.library.paths": "it loads foreign code into the process",
    "opaque": _CALLBACK,
    "on_commit": _CALLBACK,
    "on_delivery": _CALLBACK,
    "logger": _CALLBACK,
}

# The one callback that only the user can write: where an OAuth token comes from.
CALLABLES: Final = frozenset({"oauth_cb"})


def property_problem(name: str) -> str | None:
    """Why this client property may not be set by hand, as the end of a sentence; None if it may."""
    if name in OWN_SETTING:
        return f"may not be set here: use {OWN_SETTING[name]}, which is checked"
    if name in FORBIDDEN:
        return f"may not be set: {FORBIDDEN[name]}; remove it"
    if name.endswith("_cb") and name not in CALLABLES:
        return f"may not be set: {_CALLBACK}; remove it"
    return None


SOCKET_TIMEOUT, REQUEST_TIMEOUT, DELIVERY_TIMEOUT = "socket.timeout.ms", "request.timeout.ms", "delivery.timeout.ms"
DELIVERY_TIMEOUT_MS: Final = 30_000
"""Ours, where the user sets none."""


def timeout_warnings(properties: Mapping[str, object], session_ms: int | None) -> list[str]:
    """Timeouts of the user's that are too long to repeat a request whose reply was lost. `session_ms`: of a consumer;
    None where the broker decides it.
    """
    found = []
    socket_ms, request_ms = _number(properties, SOCKET_TIMEOUT), _number(properties, REQUEST_TIMEOUT)
    delivery_ms = _number(properties, DELIVERY_TIMEOUT) or DELIVERY_TIMEOUT_MS
    if socket_ms is not None and session_ms is not None and socket_ms >= session_ms:
        found.append(
            f"{SOCKET_TIMEOUT}={socket_ms} is not below session_timeout_ms={session_ms}: a heartbeat whose reply is"
            " lost is not repeated before the session ends; lower it, the default is 10,000."
        )
    for name, value in ((SOCKET_TIMEOUT, socket_ms), (REQUEST_TIMEOUT, request_ms)):
        if value is not None and value >= delivery_ms:
            found.append(
                f"{name}={value} is not below {DELIVERY_TIMEOUT}={delivery_ms}: a record whose acknowledgement is lost"
                " fails, where it could be sent again; lower it, the default is 10,000."
            )
    return found


def _number(properties: Mapping[str, object], name: str) -> int | None:
    """None if it is not set, or wrong, which the client says."""
    try:
        return int(str(properties[name]))
    except (KeyError, ValueError):
        return None

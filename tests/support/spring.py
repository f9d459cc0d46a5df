"""Headers of letters as Spring writes them, written here by hand, version by version.

What the versions do was read in the sources of Spring Kafka 2.8.0, 2.8.11, 2.9 to 4.1 and of Spring Cloud Stream 3.0 to
4.3; `SPRING` has one letter for each kind and version that differs.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from keepfast.core.records import Headers

WRAPPER = "org.springframework.kafka.listener.ListenerExecutionFailedException"
TIMED = "org.springframework.kafka.listener.TimestampedException"
NOT_READ = "org.springframework.kafka.support.serializer.DeserializationException"
RAISED = "com.shop.OrderClosedException"
SERIALISED = b"\xac\xed\x00\x05sr\x00Borg.springframework"
STACK = (
    f"{WRAPPER}: Listener failed\n\tat a.B.c(B.java:1)\nCaused by: {RAISED}: order 17 is closed\n\tat x.Y.z(Y.java:9)"
)
TIMED_STACK = STACK.replace("Caused by:", f"Caused by: {TIMED}: Exception thrown at 2026-01-01\n\tat …\nCaused by:", 1)
STREAM_WRAPPER = "org.springframework.messaging.MessageHandlingException"
CREATED_MS, FAILED_MS = 1_712_620_800_000, 1_712_620_815_123

OWN: Headers = (
    ("traceparent", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
    ("__TypeId__", b"com.shop.Order"),
    ("spring_json_header_types", b'{"a":"java.lang.String"}'),
    ("empty", b""),
    ("null", None),
    ("twice", b"1"),
    ("twice", b"\xff\x00"),
)
"""Of the producer: they come back in this order."""


def whole(number: int) -> bytes:
    """As BigInteger writes it: in as few bytes as it needs, with a sign."""
    return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)


@dataclass
class SpringHeaders:
    """The headers of a record as they grow on its way; each method does what one of Spring's classes does."""

    found: list[tuple[str, bytes | None]] = field(default_factory=lambda: list(OWN))

    def add(self, name: str, value: bytes | str | None) -> None:
        self.found.append((name, value.encode() if isinstance(value, str) else value))

    def replace(self, name: str, value: bytes | str) -> None:
        """As Spring does it: the old one goes, the new one is the last."""
        self.found = [pair for pair in self.found if pair[0] != name]
        self.add(name, value)

    def delivered(self, attempt: int) -> SpringHeaders:
        """A container with a delivery attempt header and listener info adds them to what the listener sees."""
        self.replace("kafka_deliveryAttempt", struct.pack(">i", attempt))
        self.replace("kafka_listenerInfo", "shop-1")
        return self

    def failed(
        self,
        prefix: str,
        *,
        error: str = WRAPPER,
        cause: str | None = RAISED,
        message: str | None = "Listener failed; order 17 is closed",
        stack: str = STACK,
        part: str = "",
    ) -> SpringHeaders:
        """`part`: of a key that could not be deserialised the names have a part more, but for the cause."""
        self.replace(f"{prefix}{part}exception-fqcn", error)
        if cause is not None:
            self.replace(f"{prefix}exception-cause-fqcn", cause)
        if message is not None:
            self.replace(f"{prefix}{part}exception-message", message)
        self.replace(f"{prefix}{part}exception-stacktrace", stack)
        return self

    def origin(
        self, prefix: str, topic: str, partition: int, offset: int, *, group: str | None = None, append: bool = True
    ) -> SpringHeaders:
        values: list[tuple[str, bytes | str]] = [
            (f"{prefix}original-topic", topic),
            (f"{prefix}original-partition", struct.pack(">i", partition)),
            (f"{prefix}original-offset", struct.pack(">q", offset)),
            (f"{prefix}original-timestamp", struct.pack(">q", CREATED_MS)),
            (f"{prefix}original-timestamp-type", "CreateTime"),
        ]
        if group is not None:  # only where a listener failed
            values.append(("kafka_dlt-original-consumer-group", group))
        for name, value in values:
            if append or all(known != name for known, _ in self.found):
                self.add(name, value)
        return self

    def retry(self, attempts: int, *, keep: bool, size: int = 4) -> SpringHeaders:
        """Into the next retry topic or the DLT, with the number of the next attempt. 2.8 keeps those of before."""
        write = self.add if keep else self.replace
        write("retry_topic-original-timestamp", whole(CREATED_MS))
        write("retry_topic-attempts", (attempts + 1).to_bytes(size, "big"))
        write("retry_topic-backoff-timestamp", whole(FAILED_MS))
        return self

    def stream(self, topic: str, partition: int, offset: int, *, message: str | None) -> SpringHeaders:
        self.origin("x-", topic, partition, offset)
        self.add("x-exception-fqcn", STREAM_WRAPPER)
        if message is not None:
            self.add("x-exception-message", message)
        self.add("x-exception-stacktrace", STACK.replace(WRAPPER, STREAM_WRAPPER))
        return self


@dataclass(frozen=True)
class SpringLetter:
    """Headers of a letter about the record `place` of `topic`, and what must be read from them."""

    headers: Headers
    error_type: str
    retry_count: int = 0
    group: str = "shop.orders"
    message: str = "order 17 is closed"


def letters(topic: str, partition: int, offset: int) -> dict[str, SpringLetter]:
    """By kind and version. All are about this record."""
    at = (topic, partition, offset)
    dlt, new = f"{topic}.DLT", f"{topic}-dlt"
    group = "shop.orders"
    found: dict[str, SpringLetter] = {}

    def recoverer() -> SpringHeaders:
        return SpringHeaders().failed("kafka_dlt-").origin("kafka_dlt-", *at, group=group)

    def retried(steps: int, *, keep: bool, size: int = 4, cause: str = RAISED, stack: str = STACK) -> SpringHeaders:
        one = SpringHeaders()
        places = [at, *((f"{topic}-retry-{step}", 0, step) for step in range(steps))]
        for number, place in enumerate(places, 1):
            one.failed("kafka_", cause=cause, stack=stack)
            one.origin("kafka_", *place, group=group, append=False)
            one.retry(number, keep=keep, size=size)
        return one

    def add(name: str, headers: SpringHeaders, error_type: str = "OrderClosedException", **more: object) -> None:
        found[name] = SpringLetter(tuple(headers.found), error_type, **more)  # type: ignore[arg-type]

    add(
        "2.8.0 recoverer",
        SpringHeaders().failed("kafka_dlt-", message="Listener failed").origin("kafka_dlt-", *at, group=group),
        message="Listener failed",
    )
    add("2.9-4.1 recoverer", recoverer())
    plain = SpringHeaders().failed("kafka_dlt-", error=RAISED, cause=RAISED, message=None).origin("kafka_dlt-", *at)
    add("3.0-4.1 recoverer, no listener, no message", plain, group="", message="")
    counted = SpringHeaders().delivered(4).failed("kafka_dlt-").origin("kafka_dlt-", *at, group=group)
    add("2.8-4.1 recoverer, delivery attempt and listener info", counted, retry_count=3)
    value = SpringHeaders().failed(
        "kafka_dlt-",
        error=NOT_READ,
        cause="com.fasterxml.jackson.core.JsonParseException",
        message="failed to deserialize",
    )
    add(
        "2.8-4.1 value not deserialised",
        value.origin("kafka_dlt-", *at),
        "DeserializationException",
        group="",
        message="failed to deserialize",
    )
    for version, cause in (("2.8.0", None), ("2.8.4-4.1", "java.lang.IllegalArgumentException")):
        one = SpringHeaders().failed(
            "kafka_dlt-", error=NOT_READ, cause=cause, message="failed to deserialize", part="key-"
        )
        add(
            f"{version} key not deserialised",
            one.origin("kafka_dlt-", *at),
            "DeserializationException",
            group="",
            message="failed to deserialize",
        )
    both = SpringHeaders()
    both.add("springDeserializerExceptionKey", SERIALISED)
    both.add("springDeserializerExceptionValue", SERIALISED)
    both.failed("kafka_dlt-", error=NOT_READ, cause=None, message="the key", part="key-")
    both.failed("kafka_dlt-", error=NOT_READ, cause=None, message="the value").origin("kafka_dlt-", *at)
    add(
        "2.8-4.1 neither deserialised, exceptions retained",
        both,
        "DeserializationException",
        group="",
        message="the value",
    )
    again = recoverer().failed("kafka_dlt-").origin("kafka_dlt-", dlt, 0, 3, group="shop.dlt")
    add("2.8-3.2 letter of a letter", again)
    third = recoverer().origin("kafka_dlt-", new, 0, 3, group="shop.dlt").origin("kafka_dlt-", f"{new}-dlt", 0, 1)
    add("3.3-4.1 letter of a letter of a letter", third)
    add("2.7 retryable topic, attempts in one byte", retried(2, keep=True, size=1), retry_count=2)
    add(
        "2.8 retryable topic, the cause is a wrapper",
        retried(2, keep=True, cause=TIMED, stack=TIMED_STACK),
        retry_count=2,
    )
    add("2.9-4.1 retryable topic", retried(3, keep=False), retry_count=3)
    add("2.9-4.1 retryable topic, at once into the DLT", retried(0, keep=False))
    deserialised = SpringHeaders().failed(
        "kafka_", error=NOT_READ, cause="java.io.IOException", message="the key", part="key-"
    )
    add(
        "2.9-4.1 retryable topic, key not deserialised",
        deserialised.origin("kafka_", *at, append=False).retry(1, keep=False),
        "DeserializationException",
        group="",
        message="the key",
    )
    mixed = retried(1, keep=False).failed("kafka_dlt-").origin("kafka_dlt-", new, 1, 8, group="shop.dlt")
    add("2.9-4.1 retryable topic, then a recoverer of the DLT", mixed)
    stream = SpringHeaders().stream(*at, message="error occurred; order 17 is closed")
    add("3.0-4.3 stream", stream, group="")
    add("3.0-4.3 stream, no message", SpringHeaders().stream(*at, message=None), group="", message="")
    return found

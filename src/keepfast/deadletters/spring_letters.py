"""Letters that Spring wrote: `DeadLetterPublishingRecoverer`, `@RetryableTopic`, and Spring Cloud Stream.

Each keeps the original key and value, and appends headers. Facts of versions 2.8 to 4.1:

- The recoverer appends its origin again when a letter fails and becomes a letter itself; the first origin is then the
  record's. Exceptions replace those of before.
- `@RetryableTopic` writes the origin once, when the record leaves its topic, under names without `dlt`, but for the
  group. The number of the next attempt is 4 bytes, formerly 1; times of its retries are as short as they can be.
- Of a key that could not be deserialised there are headers of its own; if the value could be, only those.
- Until 2.9 the cause is the exception's own, which may be another wrapper; since then the first that is none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from keepfast.deadletters import checked, envelope
from keepfast.deadletters.letter import MAX_GROUP, MAX_MESSAGE, MAX_NAME, MAX_STACK, Bytes, Headers, Letter

ATTEMPTS: Final = "retry_topic-attempts"
BACKOFF: Final = "retry_topic-backoff-timestamp"
DELIVERY: Final = "kafka_deliveryAttempt"
_GROUP: Final = "kafka_dlt-original-consumer-group"

_PREFIXES: Final = ("kafka_dlt-", "kafka_original-", "kafka_exception-", "kafka_key-exception-", "retry_topic-")
_LEFT_BY_CONSUMERS: Final = frozenset(
    [DELIVERY, "kafka_listenerInfo", "springDeserializerExceptionKey", "springDeserializerExceptionValue"]
)
"""What a consumer of Spring adds to a record in memory; a letter is a copy of that."""

_WRAPPERS: Final = (
    "org.springframework.kafka.listener.ListenerExecutionFailedException",
    "org.springframework.kafka.listener.TimestampedException",
    "org.springframework.messaging.MessageHandlingException",
    "org.springframework.messaging.MessageDeliveryException",
    "org.springframework.messaging.MessagingException",
)
_CAUSED_BY: Final = re.compile(r"^Caused by: ([\w.$]{1,300})", re.MULTILINE | re.ASCII)
_LETTER_TOPIC: Final = re.compile(
    r"(?:^|[._-])(?:dlt|dlq|error|retry|dead[._-]?letters?)(?:[._-]|$)", re.IGNORECASE | re.ASCII
)
"""Names of topics that letters and retries are in: where a letter of a letter came from last."""


@dataclass(frozen=True, slots=True)
class SpringFamily:
    """The prefixes of one writer's headers."""

    original: str
    exception: str
    key_exception: str = ""

    @property
    def topic(self) -> str:
        return f"{self.original}topic"


RECOVERER: Final = SpringFamily("kafka_dlt-original-", "kafka_dlt-exception-", "kafka_dlt-key-exception-")
RETRYABLE: Final = SpringFamily("kafka_original-", "kafka_exception-", "kafka_key-exception-")
STREAM: Final = SpringFamily("x-original-", "x-exception-")
MARKS: Final = {family.topic: family for family in (RECOVERER, RETRYABLE, STREAM)}
_STREAM_NAMES: Final = frozenset(
    [
        *(f"{STREAM.original}{name}" for name in ("topic", "partition", "offset", "timestamp", "timestamp-type")),
        *(f"{STREAM.exception}{name}" for name in ("fqcn", "message", "stacktrace")),
    ]
)

Fields = dict[str, Bytes]


def is_letter(family: SpringFamily, headers: Headers) -> bool:
    """Whether it is one: producers use a header `x-original-topic` for purposes of their own."""
    return family is not STREAM or any(name == f"{STREAM.exception}fqcn" for name, _ in headers)


def read(family: SpringFamily, key: Bytes, value: Bytes, headers: Headers) -> Letter:
    """A letter whose last writer was this family. Its headers are those that the record had before Spring saw it."""
    first, origin = _first_origin(headers)
    last = dict(headers)
    error_class, cause, stack = _error(family, last)
    by_stream = STREAM in (family, first)
    return Letter(
        topic=checked.topic(checked.utf8(origin.get(first.topic), 1_000)),
        partition=checked.big_endian(origin.get(f"{first.original}partition"), 4),
        offset=checked.big_endian(origin.get(f"{first.original}offset"), 8),
        timestamp_ms=checked.big_endian(origin.get(f"{first.original}timestamp"), 8),
        timestamp_type=envelope.timestamp_type(_name(origin.get(f"{first.original}timestamp-type"))),
        key=key,
        value=value,
        headers=tuple(pair for pair in headers if not is_springs(pair[0], by_stream=by_stream)),
        error_type=short_name(error_class),
        error_class=error_class,
        error_cause=cause,
        error_message=_message(family, last),
        stack_trace=stack,
        failed_at_ms=_whole_bytes(last.get(BACKOFF)) if family is RETRYABLE else None,
        retry_count=_retries(family, last),
        group=checked.utf8(origin.get(_GROUP), MAX_GROUP),
        format="spring",
    )


def is_springs(name: str, *, by_stream: bool) -> bool:
    """Whether Spring added the header, so that a replay must not send it: a stale count of attempts would end the
    retries of a replayed record at once. Names of Spring Cloud Stream are general, so they count only in its letters.
    """
    return name.startswith(_PREFIXES) or name in _LEFT_BY_CONSUMERS or (by_stream and name in _STREAM_NAMES)


def _first_origin(headers: Headers) -> tuple[SpringFamily, Fields]:
    """The writer that saw the record first, and the headers from its topic to the topic of the next writer.

    That is the last writer, unless it read the record from a topic of letters or retries: then the one before. Headers
    that a producer forged are therefore not believed.
    """
    found: tuple[SpringFamily, Fields] = (RECOVERER, {})
    end = len(headers)
    for position in reversed(range(end)):
        family = MARKS.get(headers[position][0])
        if family is None or not is_letter(family, headers):
            continue
        found, end = (family, dict(reversed(headers[position:end]))), position
        if not _LETTER_TOPIC.search(checked.utf8(headers[position][1], 1_000)):
            break
    return found


def _error(family: SpringFamily, last: Fields) -> tuple[str, str, str]:
    """Class, cause and stack trace. Spring wraps what a listener raises: the class is then that of the cause."""
    prefix = family.exception if f"{family.exception}fqcn" in last else family.key_exception
    error_class, stack = _name(last.get(f"{prefix}fqcn")), checked.utf8(last.get(f"{prefix}stacktrace"), MAX_STACK)
    cause = _name(last.get(f"{family.exception}cause-fqcn"))
    if error_class not in _WRAPPERS:
        return error_class, "" if cause == error_class else cause, stack
    if not cause or cause in _WRAPPERS:
        cause = next((one for one in _CAUSED_BY.findall(stack) if one not in _WRAPPERS), cause)
    return cause or error_class, "", stack


def _message(family: SpringFamily, last: Fields) -> str:
    texts = (last.get(f"{prefix}message") for prefix in (family.exception, family.key_exception))
    return checked.utf8(next((text for text in texts if text is not None), None), MAX_MESSAGE)


def _retries(family: SpringFamily, last: Fields) -> int:
    """`@RetryableTopic` writes the number that the next attempt would have, a listener that of the last one."""
    if family is not RETRYABLE:
        return max(0, (checked.big_endian(last.get(DELIVERY), 4) or 0) - 1)
    attempts = last.get(ATTEMPTS) or b""
    return max(0, (checked.big_endian(attempts.rjust(4, b"\0") if len(attempts) == 1 else attempts, 4) or 0) - 2)


def _whole_bytes(value: Bytes) -> int | None:
    """A number in as few bytes as it needs, as Java's BigInteger writes it."""
    if value is None or not 1 <= len(value) <= 8:
        return None
    return checked.whole(int.from_bytes(value, "big", signed=True))


def short_name(error_class: str) -> str:
    """`java.lang.IllegalStateException` → `IllegalStateException`."""
    return error_class.rpartition(".")[2]


def _name(value: Bytes) -> str:
    return checked.utf8(value, MAX_NAME)

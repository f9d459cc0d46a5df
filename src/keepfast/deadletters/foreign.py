"""Letters of Kafka Connect, Kafka Streams and share groups: the original record, and texts in headers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from keepfast.deadletters import checked
from keepfast.deadletters.letter import (
    MAX_GROUP,
    MAX_MESSAGE,
    MAX_NAME,
    MAX_STACK,
    Bytes,
    ForeignFormat,
    Headers,
    Letter,
)
from keepfast.deadletters.spring_letters import short_name


@dataclass(frozen=True, slots=True)
class LetterFamily:
    """Header names of one of them, after its prefix. Topic, partition and offset have the same names in all."""

    format: ForeignFormat
    prefix: str
    error_class: str = ""
    message: str = "message"
    stack: str = ""
    group: str = ""
    group_prefix: str = ""
    """A sink connector reads as the group `connect-<its name>`, unless its configuration says otherwise."""
    deliveries: str = ""

    @property
    def topic(self) -> str:
        return f"{self.prefix}topic"


FAMILIES: Final = (
    LetterFamily(
        "connect",
        "__connect.errors.",
        error_class="exception.class.name",
        message="exception.message",
        stack="exception.stacktrace",
        group="connector.name",
        group_prefix="connect-",
    ),
    LetterFamily("streams", "__streams.errors.", error_class="exception", stack="stacktrace"),
    LetterFamily("share", "__dlq.errors.", group="group", deliveries="delivery.count"),
)
FOREIGN_READERS: Final = frozenset(family.format for family in FAMILIES)
"""Who wrote these letters reads no topic for replays of one group. (A group of Spring may be one of ours by now.)"""


def read(family: LetterFamily, key: Bytes, value: Bytes, headers: Headers) -> Letter:
    """Headers with the family's prefix belong to the letter, the others to the original record."""
    fields = {name.removeprefix(family.prefix): value for name, value in headers if name.startswith(family.prefix)}
    name: Callable[[str], str] = lambda known: checked.utf8(fields.get(known), MAX_NAME)  # noqa: E731
    error_class = name(family.error_class).partition(":")[0].strip()  # Streams writes `class: message`
    group = checked.utf8(fields.get(family.group), MAX_GROUP) if family.group else ""
    deliveries = checked.digits(fields.get(family.deliveries), 2**31 - 1)
    return Letter(
        topic=checked.topic(checked.utf8(fields.get("topic"), 1_000)),
        partition=checked.digits(fields.get("partition"), checked.MAX_PARTITION),
        offset=checked.digits(fields.get("offset")),
        key=key,
        value=value,
        headers=tuple(pair for pair in headers if not pair[0].startswith(family.prefix)),
        error_type=short_name(error_class),
        error_class=error_class,
        error_message=checked.utf8(fields.get(family.message), MAX_MESSAGE),
        stack_trace=checked.utf8(fields.get(family.stack), MAX_STACK),
        retry_count=max(0, (deliveries or 1) - 1),
        group=f"{family.group_prefix}{group}"[:MAX_GROUP] if group else "",
        format=family.format,
    )

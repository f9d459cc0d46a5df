"""Letters to spool; one number, one letter."""

from __future__ import annotations

from typing import Any

from keepfast.core.records import Outgoing, Record
from keepfast.deadletters.letter import Letter
from keepfast.deadletters.reading import read
from keepfast.deadletters.spool.letters import SpooledLetter, spooled
from keepfast.deadletters.writing import write


def outgoing(
    number: int, *, topic: str = "orders.dlq", size: int = 20, stack: str = "", original: str = "orders", **fields: Any
) -> Outgoing:
    """A letter; one number, one letter."""
    known: dict[str, Any] = {
        "topic": original,
        "partition": 0,
        "offset": number,
        "timestamp_ms": 5,
        "key": b"k%d" % number,
        "value": b"v%d" % number + bytes(size),
        "headers": (("h", b"1"), ("h", None)),
        "group": "g",
        "error_type": "ValueError",
        "error_code": "CODE",
        "stack_trace": stack,
    }
    letter = Letter(**known | fields)
    value, headers = write(letter, "envelope")
    return Outgoing(topic=topic, value=value, key=letter.key, headers=headers, partition=0)


def letter(number: int, *, at_ms: int | None = None, topic: str = "orders.dlq", size: int = 20) -> SpooledLetter:
    return spooled(outgoing(number, topic=topic, size=size), at_ms=1_000 + number if at_ms is None else at_ms)


def numbers(sent: list[Outgoing]) -> list[int]:
    """Which letters these are."""
    found = [read(Record(one.topic, 0, 0, one.key, one.value, tuple(one.headers), None)).offset for one in sent]
    return [offset for offset in found if offset is not None]

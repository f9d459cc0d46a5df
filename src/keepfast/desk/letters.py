"""The letters of a dead-letter topic, as they are read from Kafka."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from keepfast.core.records import Record, RecordPlace
from keepfast.deadletters.letter import Letter
from keepfast.deadletters.reading import read

Span = tuple[int, int]
"""Offsets of one partition: the first, and the one after the last."""


class Browser(Protocol):
    """The part of `kafka.browser.KafkaBrowser` that the desk uses."""

    def spans(self, topic: str, timeout_s: float) -> dict[int, Span]: ...
    def read(self, topic: str, spans: Mapping[int, Span]) -> Iterator[Record | None]: ...


@dataclass(frozen=True, slots=True)
class StoredLetter:
    """A letter with its place in the dead-letter topic, and the time it was written."""

    letter: Letter
    place: RecordPlace
    filed_at_ms: int | None

    @classmethod
    def of(cls, record: Record, diagnosed: Collection[str] = ()) -> StoredLetter:
        """`diagnosed`: see `read`."""
        letter = read(record, diagnosed=diagnosed)
        return cls(letter, RecordPlace(record.topic, record.partition, record.offset), record.timestamp_ms)

    @property
    def at_ms(self) -> int | None:
        """When the record failed for the last time, or the time of the letter."""
        return self.filed_at_ms if self.letter.failed_at_ms is None else self.letter.failed_at_ms

    @property
    def name(self) -> str:
        """Its position, as `dlq show` accepts it."""
        return self.place.name


@dataclass(frozen=True, slots=True)
class SchemaReading:
    """What a letter's value is by its registered schema: `data` is JSON, None if it cannot be read; `why` says by which
    schema it was read, or why not, without a word of the value.
    """

    data: bytes | None
    why: str


ValueReader: TypeAlias = Callable[[Letter], SchemaReading | None]
"""Asks the registry, and blocks meanwhile; None: the letter names no schema. Never raises."""

"""Selection of letters. Frozen: letters that arrive later are not included."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from keepfast.core.errors import ConfigError
from keepfast.core.records import TopicPartition
from keepfast.deadletters.letter import Letter
from keepfast.kafka.browser import Span

_OFFSETS = re.compile(r"(?P<partition>\d{1,9}):(?P<low>\d{1,18})(?P<range>-(?P<high>\d{1,18})?)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class FiledLetter:
    """A letter with its place and offset in the dead-letter topic, and the time it was written."""

    letter: Letter
    place: TopicPartition
    offset: int
    filed_at_ms: int | None

    @property
    def at_ms(self) -> int | None:
        """When the record failed for the last time, or the time of the letter."""
        return self.filed_at_ms if self.letter.failed_at_ms is None else self.letter.failed_at_ms

    @property
    def name(self) -> str:
        """Its position, as `dlq show` accepts it."""
        return f"{self.place.partition}:{self.offset}"


@dataclass(frozen=True, slots=True)
class Offsets:
    """A range of offsets of one partition; `end` is exclusive, None is the end of the partition."""

    partition: int
    start: int
    end: int | None = None

    @classmethod
    def parse(cls, text: str) -> Offsets:
        """`3:100-200` (both included), `3:100` (one), `3:100-` (from there on). Raises ConfigError."""
        found = _OFFSETS.fullmatch(text.strip())
        if found is None:
            raise ConfigError(
                f"{text!r} is not an offset of a partition; write PARTITION:OFFSET, or for several PARTITION:FROM-TO or"
                " PARTITION:FROM-."
            )
        partition, low = int(found["partition"]), int(found["low"])
        high = found["high"]
        if found["range"] and high is None:
            return cls(partition, low)
        last = low if high is None else int(high)
        if last < low:
            raise ConfigError(f"{text!r} ends before it begins; write PARTITION:FROM-TO with FROM first.")
        return cls(partition, low, last + 1)

    def __str__(self) -> str:
        if self.end is None:
            return f"{self.partition}:{self.start}-"
        last = self.end - 1
        return f"{self.partition}:{self.start}" if last == self.start else f"{self.partition}:{self.start}-{last}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """A letter is selected if it matches every given condition; of several values of one condition, any."""

    error_types: frozenset[str] = frozenset()
    """Short or with their module."""
    codes: frozenset[str] = frozenset()
    fingerprints: frozenset[str] = frozenset()
    """Whole or as a prefix."""
    groups: frozenset[str] = frozenset()
    since_ms: int | None = None
    until_ms: int | None = None
    offsets: tuple[Offsets, ...] = field(default=())

    @property
    def is_everything(self) -> bool:
        return self == Selection()

    def takes(self, stored: FiledLetter) -> bool:
        letter, at_ms = stored.letter, stored.at_ms
        return (
            (not self.error_types or not self.error_types.isdisjoint({letter.error_type, letter.error_class}))
            and (not self.codes or letter.error_code in self.codes)
            and (not self.fingerprints or letter.fingerprint.startswith(tuple(self.fingerprints)))
            and (not self.groups or letter.group in self.groups)
            and (self.since_ms is None or (at_ms is not None and at_ms >= self.since_ms))
            and (self.until_ms is None or (at_ms is not None and at_ms < self.until_ms))
            and (not self.offsets or any(_holds(one, stored) for one in self.offsets))
        )

    def spans(self, there: Mapping[int, Span]) -> dict[int, Span]:
        """The ranges to be read: from the lowest to the highest offset that may match."""
        if not self.offsets:
            return dict(there)
        return {
            partition: span
            for partition, whole in there.items()
            if (span := _around((one for one in self.offsets if one.partition == partition), whole)) is not None
        }


def _holds(offsets: Offsets, stored: FiledLetter) -> bool:
    inside = offsets.start <= stored.offset and (offsets.end is None or stored.offset < offsets.end)
    return inside and offsets.partition == stored.place.partition


def _around(wanted: Iterable[Offsets], there: Span) -> Span | None:
    pieces = [(one.start, there[1] if one.end is None else one.end) for one in wanted]
    if not pieces:
        return None
    low = max(there[0], min(start for start, _ in pieces))
    high = min(there[1], max(end for _, end in pieces))
    return (low, high) if low < high else None

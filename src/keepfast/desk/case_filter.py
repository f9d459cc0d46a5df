"""Which cases are meant."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from keepfast.core.errors import ConfigError
from keepfast.core.records import SPOOL_NAME, SPOOL_PARTITION, RecordPlace
from keepfast.deadletters.checked import instant_ms, iso
from keepfast.desk.cases import CaseState

_OFFSETS = re.compile(r"(?P<partition>\d{1,9}|spool):(?P<low>\d{1,18})(?P<range>-(?P<high>\d{1,18})?)?", re.ASCII)


_AGO = re.compile(r"(?P<count>\d{1,6})(?P<unit>[smhdw])", re.ASCII)
_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


def moment_ms(text: str, now_ms: int) -> int | None:
    """`90m`: so long ago; else an ISO time, in UTC unless it says otherwise; None if it is neither."""
    ago = _AGO.fullmatch(text.strip())
    if ago is not None:
        return max(0, now_ms - int(ago["count"]) * _UNITS_MS[ago["unit"]])
    return instant_ms(text.strip())


@dataclass(frozen=True, slots=True)
class Offsets:
    """Offsets of one partition of a dead-letter topic; `end` is exclusive, None is the end of the partition."""

    partition: int
    start: int
    end: int | None = None

    @classmethod
    def parse(cls, text: str) -> Offsets:
        """`3:100-200` (both included), `3:100` (one), `3:100-` (from there on), `spool:100` (one in the spool). Raises
        ConfigError.
        """
        found = _OFFSETS.fullmatch(text.strip())
        if found is None:
            raise ConfigError(
                f"{text!r} is not an offset of a partition; write PARTITION:OFFSET, or for several PARTITION:FROM-TO or"
                " PARTITION:FROM-."
            )
        named = found["partition"]
        partition, low = SPOOL_PARTITION if named == SPOOL_NAME else int(named), int(found["low"])
        high = found["high"]
        if found["range"] and high is None:
            return cls(partition, low)
        last = low if high is None else int(high)
        if last < low:
            raise ConfigError(f"{text!r} ends before it begins; write PARTITION:FROM-TO with FROM first.")
        return cls(partition, low, last + 1)

    def __str__(self) -> str:
        first = RecordPlace("", self.partition, self.start).name
        if self.end is None:
            return f"{first}-"
        last = self.end - 1
        return first if last == self.start else f"{first}-{last}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseFilter:
    """A case is selected if it matches every given condition; of several values of one condition, any."""

    dlqs: frozenset[str] = frozenset()
    """Dead-letter topics."""
    topics: frozenset[str] = frozenset()
    """Topics of the original records."""
    groups: frozenset[str] = frozenset()
    causes: frozenset[str] = frozenset()
    """Fingerprints, whole or as a prefix."""
    error_types: frozenset[str] = frozenset()
    """Short or with their module."""
    codes: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()
    """Keys of the records, as text."""
    text: str = ""
    """Part of what a list shows: error type, masked message, code, place, missing fields, group, topic."""
    since_ms: int | None = None
    until_ms: int | None = None
    """When it failed last."""
    states: frozenset[CaseState] = frozenset()
    offsets: tuple[Offsets, ...] = ()
    """Places of letters."""
    cases: frozenset[str] = frozenset()
    runs: frozenset[str] = frozenset()
    """Replay runs that have sent them."""

    @property
    def is_everything(self) -> bool:
        """Whether it selects all cases of its topics and states."""
        return self == CaseFilter(dlqs=self.dlqs, states=self.states)

    def words(self) -> list[str]:
        """The same filter in the words of the command line, quoted; dead-letter topics and states are left out."""
        words: list[str] = []
        for option, values in self._options():
            for value in values:
                words += [option, shlex.quote(value)]
        return words

    def _options(self) -> Iterable[tuple[str, list[str]]]:
        yield "--cause", sorted(self.causes)
        yield "--group", sorted(self.groups)
        yield "--source", sorted(self.topics)
        yield "--key", sorted(self.keys)
        yield "--error-type", sorted(self.error_types)
        yield "--code", sorted(self.codes)
        yield "--text", [self.text] if self.text else []
        yield "--since", [] if self.since_ms is None else [iso(self.since_ms)]
        yield "--until", [] if self.until_ms is None else [iso(self.until_ms)]
        yield "--offsets", [str(one) for one in self.offsets]
        yield "--case", sorted(self.cases)
        yield "--run", sorted(self.runs)

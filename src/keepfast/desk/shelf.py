"""A dead-letter topic as it is at one moment: its letters, one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from keepfast.core.records import Record, TopicPartition
from keepfast.deadletters.reading import read
from keepfast.desk.selection import Filed, Offsets, Selection
from keepfast.kafka.browser import Span

LOOK_TIMEOUT_S = 15.0


class LetterBrowser(Protocol):
    """What the shelf needs of `kafka.browser.KafkaBrowser`."""

    def spans(self, topic: str, timeout_s: float) -> dict[int, Span]: ...
    def read(self, topic: str, spans: Mapping[int, Span]) -> Iterator[Record | None]: ...


class ReadStopped(Exception):
    """Whoever looks has had enough: a signal came."""


class LetterTopic:
    """The letters of a topic, as many as there were when it was opened. Raises SourceError."""

    def __init__(self, browser: LetterBrowser, topic: str, selection: Selection | None = None) -> None:
        self.topic = topic
        self.selection = selection or Selection()
        self._browser = browser
        self.spans = self.selection.spans(browser.spans(topic, LOOK_TIMEOUT_S))

    @property
    def offsets(self) -> int:
        """How many offsets have to be read at most."""
        return sum(high - low for low, high in self.spans.values())

    def letters(self, stopped: Callable[[], bool] = lambda: False) -> Iterator[Filed]:
        """Those that the selection takes; each partition's in order. Can be asked for again, and gives the same.

        Raises Stopped when `stopped` says so.
        """
        for record in self._browser.read(self.topic, self.spans):
            if stopped():
                raise ReadStopped
            if record is not None:
                filed = filed_of(record)
                if self.selection.takes(filed):
                    yield filed

    def rest(self, starts: Mapping[int, int]) -> tuple[Offsets, ...]:
        """What the selection means of these partitions from these offsets on; as offsets to select it by."""
        left = []
        for partition, start in sorted(starts.items()):
            end = self.spans[partition][1]
            wanted = [one for one in self.selection.offsets if one.partition == partition]
            for one in wanted or [Offsets(partition, start, end)]:
                low, high = max(start, one.start), min(end, end if one.end is None else one.end)
                left += [Offsets(partition, low, high)] if low < high else []
        return tuple(left)


def filed_of(record: Record) -> Filed:
    return Filed(read(record), TopicPartition(record.topic, record.partition), record.offset, record.timestamp_ms)

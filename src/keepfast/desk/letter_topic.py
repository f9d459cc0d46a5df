"""The letters of a dead-letter topic at one moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from keepfast.core.records import Record, TopicPartition
from keepfast.deadletters.reading import read
from keepfast.desk.selection import FiledLetter, Offsets, Selection
from keepfast.kafka.browser import Span

READ_TIMEOUT_S = 15.0


class LetterBrowser(Protocol):
    """The part of `kafka.browser.KafkaBrowser` that is used here."""

    def spans(self, topic: str, timeout_s: float) -> dict[int, Span]: ...
    def read(self, topic: str, spans: Mapping[int, Span]) -> Iterator[Record | None]: ...


class ReadStopped(Exception):
    """Reading was interrupted by a signal."""


class LetterTopic:
    """The letters of a topic, as many as there were when it was opened. Raises SourceError."""

    def __init__(self, browser: LetterBrowser, topic: str, selection: Selection | None = None) -> None:
        self.topic = topic
        self.selection = selection or Selection()
        self._browser = browser
        self.spans = self.selection.spans(browser.spans(topic, READ_TIMEOUT_S))

    @property
    def offsets(self) -> int:
        """The highest number of offsets to be read."""
        return sum(high - low for low, high in self.spans.values())

    def letters(self, stopped: Callable[[], bool] = lambda: False) -> Iterator[FiledLetter]:
        """The selected letters; those of a partition in order. Can be called again, with the same result.

        Raises ReadStopped when `stopped` returns True.
        """
        for record in self._browser.read(self.topic, self.spans):
            if stopped():
                raise ReadStopped
            if record is not None:
                stored = stored_letter(record)
                if self.selection.takes(stored):
                    yield stored

    def rest(self, starts: Mapping[int, int]) -> tuple[Offsets, ...]:
        """The selected ranges of these partitions from these offsets on, for a new selection."""
        left = []
        for partition, start in sorted(starts.items()):
            end = self.spans[partition][1]
            wanted = [one for one in self.selection.offsets if one.partition == partition]
            for one in wanted or [Offsets(partition, start, end)]:
                low, high = max(start, one.start), min(end, end if one.end is None else one.end)
                left += [Offsets(partition, low, high)] if low < high else []
        return tuple(left)


def stored_letter(record: Record) -> FiledLetter:
    return FiledLetter(read(record), TopicPartition(record.topic, record.partition), record.offset, record.timestamp_ms)

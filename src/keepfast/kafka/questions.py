"""Questions about offsets, to the consuming client: all but one block, within a time, and raise our errors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from confluent_kafka import Consumer

from keepfast.core.ports import Committed
from keepfast.core.records import TopicPartition
from keepfast.kafka.faults import source_error
from keepfast.kafka.places import ClientPlace, committed_of, names_of, translated

LATEST, EARLIEST = -1, -2
"""As a time, in a question for offsets: the end of the log, and its beginning."""


def edges_of(client: Consumer, place: TopicPartition, timeout_s: float) -> tuple[int, int]:
    """Blocks up to `fetch.wait.max.ms` on an idle consumer: the question waits behind the fetch that is under way."""
    with translated(f"read the first and last offset of {place}"):
        low, high = client.get_watermark_offsets(ClientPlace(*place), timeout=timeout_s, cached=False)
    return low, high


def ends_of(client: Consumer, places: Sequence[TopicPartition], timeout_s: float) -> dict[TopicPartition, int]:
    """One request to each broker that leads any of them. Blocks as `edges_of` does, once."""
    return _offsets_at(LATEST, "ends", client, places, timeout_s)


def beginnings_of(client: Consumer, places: Sequence[TopicPartition], timeout_s: float) -> dict[TopicPartition, int]:
    """The first offset of each log; asks and blocks as `ends_of` does."""
    return _offsets_at(EARLIEST, "beginnings", client, places, timeout_s)


def _offsets_at(
    when: int, name: str, client: Consumer, places: Sequence[TopicPartition], timeout_s: float
) -> dict[TopicPartition, int]:
    what = f"read the {name} of {names_of(places)}"
    with translated(what):
        found = client.offsets_for_times([ClientPlace(*place, when) for place in places], timeout=timeout_s)
    for one in found:
        if one.error is not None:
            raise source_error(what, one.error)
    return {TopicPartition(one.topic, one.partition): one.offset for one in found}


def seen_ends_of(client: Consumer, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    """As the last fetch of each told; asks nobody, waits for nobody, and is allowed in callbacks. A partition that was
    not fetched yet is left out.
    """
    ends = {}
    with translated(f"tell the ends of {names_of(places)}"):
        for place in places:
            _, end = client.get_watermark_offsets(ClientPlace(*place), cached=True)
            if end >= 0:  # else nothing of it was fetched yet
                ends[place] = end
    return ends


class Questions(ABC):
    """The part of `core.ports.Source` that asks about offsets. Owner: the loop's thread."""

    @property
    @abstractmethod
    def _open(self) -> Consumer:
        """The client. Raises SourceError if there is none."""

    def committed(self, places: Sequence[TopicPartition], timeout_s: float) -> list[Committed]:
        """Ask the group's coordinator. Raises SourceError; an error of one partition is an error, never 'no commit'."""
        if not places:
            return []
        with translated(f"read the committed offsets of {names_of(places)}"):
            found = self._open.committed([ClientPlace(*place) for place in places], timeout_s)
        return committed_of(found)

    def edges(self, place: TopicPartition, timeout_s: float) -> tuple[int, int]:
        """The first offset of the log and the next one to be written. Raises SourceError."""
        return edges_of(self._open, place, timeout_s)

    def ends(self, places: Sequence[TopicPartition], timeout_s: float) -> dict[TopicPartition, int]:
        """The next offset to be written of each, in one question. Raises SourceError, also if it is about one alone."""
        return ends_of(self._open, places, timeout_s) if places else {}

    def beginnings(self, places: Sequence[TopicPartition], timeout_s: float) -> dict[TopicPartition, int]:
        """The first offset of each log, in one question. Raises SourceError, also if it is about one alone."""
        return beginnings_of(self._open, places, timeout_s) if places else {}

    def seen_ends(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """What the client knows of them without asking; never waits. Raises SourceError."""
        return seen_ends_of(self._open, places)

"""Conversion of places, positions and exceptions between this package and the client."""

from __future__ import annotations

from collections.abc import Sequence

import confluent_kafka

from keepfast.core.ports import CommittedOffset
from keepfast.core.records import TopicPartition
from keepfast.kafka.faults import CLIENT_ERRORS, source_error

ClientPlace = confluent_kafka.TopicPartition


class translated:  # noqa: N801 - reads as a word in `with`
    """Raises the client's errors as SourceError; the message names the failed call."""

    __slots__ = ("_what",)

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, CLIENT_ERRORS):
            raise source_error(self._what, error) from error


NO_EPOCH = -1
"""As the client writes a leader epoch that is not known."""


def places_of(partitions: Sequence[ClientPlace]) -> list[TopicPartition]:
    return [TopicPartition(one.topic, one.partition) for one in partitions]


def names_of(places: Sequence[TopicPartition]) -> str:
    shown = ", ".join(map(str, places[:5]))
    return f"{shown} and {len(places) - 5} more" if len(places) > 5 else shown or "nothing"


def committed_of(found: Sequence[ClientPlace]) -> list[CommittedOffset]:
    """Raises SourceError if any of them has an error: that is not the same as no commit."""
    for one in found:
        if one.error is not None:
            raise source_error(f"read the committed offset of {one.topic}[{one.partition}]", one.error)
    return [
        CommittedOffset(
            TopicPartition(one.topic, one.partition),
            one.offset if one.offset >= 0 else None,
            _metadata_of(one),
            one.leader_epoch,
        )
        for one in found
    ]


END_OF_TEXT = "\0"


def ended(metadata: str) -> str:
    """The text of a commit as this client stores it. It reads up to the next NUL: of a text that another client wrote,
    and that has none, it reads whatever lies behind it in memory as well. So whatever commits in a group of ours ends
    its texts in this way.
    """
    return metadata + END_OF_TEXT if metadata else ""


def _metadata_of(found: ClientPlace) -> str:
    """The text of a commit. One that is not UTF-8, because it does not end (see `ended`), is not one of ours."""
    try:
        return found.metadata or ""
    except UnicodeDecodeError:
        return ""

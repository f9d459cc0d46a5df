"""Queries of offsets and topics to a kafka-python consumer: blocking, each with a timeout and with our errors."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as ClientPlace

from keepfast.core.errors import Fault, SourceError
from keepfast.core.ports import CommittedOffset, Position
from keepfast.core.records import TopicPartition
from keepfast.kafka.kafka_python.faults import source_error
from keepfast.kafka.places import END_OF_TEXT, NO_EPOCH, names_of


def offset_of(position: Position, metadata: str = "") -> OffsetAndMetadata:
    """The position as the library takes it."""
    epoch = position.leader_epoch
    return OffsetAndMetadata(position.offset, metadata, NO_EPOCH if epoch is None else epoch)


def committed_of(client: Any, places: Sequence[TopicPartition], timeout_s: float) -> list[CommittedOffset]:
    """The group's committed offsets, partition by partition. Raises SourceError."""
    deadline = time.monotonic() + timeout_s
    found = []
    for place in places:
        left_ms = max(1, int(1000 * (deadline - time.monotonic())))
        try:
            held = client.committed(ClientPlace(*place), metadata=True, timeout_ms=left_ms)
        except Exception as error:
            raise source_error(f"read the committed offset of {place}", error) from error
        text = (held.metadata or "").removesuffix(END_OF_TEXT) if held is not None else ""
        epoch = None if held is None or held.leader_epoch < 0 else held.leader_epoch
        found.append(CommittedOffset(place, None if held is None else held.offset, text, epoch))
    return found


def edges_of(client: Any, place: TopicPartition, timeout_s: float) -> tuple[int, int]:
    """The first offset of the log and the next one to be written. Raises SourceError."""
    asked, timeout_ms = ClientPlace(*place), max(1, int(timeout_s * 500))
    if place.partition not in partitions_of(client, place.topic, timeout_s):
        text = f"{place} does not exist, or this user may not describe it."
        raise SourceError(text, fault=Fault.MISSING, code="UnknownTopicOrPartitionError")
    try:
        low = client.beginning_offsets([asked], timeout_ms=timeout_ms)[asked]
        high = client.end_offsets([asked], timeout_ms=timeout_ms)[asked]
    except Exception as error:
        raise source_error(f"read the first and last offset of {place}", error) from error
    return low, high


def ends_of(client: Any, places: Sequence[TopicPartition], timeout_s: float) -> dict[TopicPartition, int]:
    """The next offset to be written of each. Raises SourceError."""
    asked = [ClientPlace(*place) for place in places]
    try:
        found = client.end_offsets(asked, timeout_ms=max(1, int(timeout_s * 1000))) if asked else {}
        return {place: found[one] for place, one in zip(places, asked, strict=True)}
    except Exception as error:
        raise source_error(f"read the ends of {names_of(places)}", error) from error


def beginnings_of(client: Any, places: Sequence[TopicPartition], timeout_s: float) -> dict[TopicPartition, int]:
    """The first offset of each log. Raises SourceError."""
    asked = [ClientPlace(*place) for place in places]
    try:
        found = client.beginning_offsets(asked, timeout_ms=max(1, int(timeout_s * 1000))) if asked else {}
        return {place: found[one] for place, one in zip(places, asked, strict=True)}
    except Exception as error:
        raise source_error(f"read the beginnings of {names_of(places)}", error) from error


def at_time_of(client: Any, place: TopicPartition, at_ms: int, timeout_s: float) -> int | None:
    """The first offset whose record is not older; None if there is none. Raises SourceError."""
    asked = ClientPlace(*place)
    try:
        found = client.offsets_for_times({asked: at_ms}, timeout_ms=max(1, int(timeout_s * 1000)))[asked]
    except Exception as error:
        raise source_error(f"find the offset by time of {place}", error) from error
    return None if found is None else int(found.offset)


def seen_ends_of(client: Any, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    """From the last fetch of each, without a request; those that are not known or not assigned are left out."""
    ends = {}
    for place in places:
        with contextlib.suppress(Exception):  # what the library raises for a partition that has just gone
            end = client.highwater(ClientPlace(*place))
            if end is not None:
                ends[place] = end
    return ends


def partitions_of(client: Any, topic: str, timeout_s: float) -> set[int]:
    """The partitions of a topic; none if there is no such topic. Raises SourceError.

    Unknown topics need a request for the metadata of all topics, for which the library has no timeout. So it runs on a
    thread of its own, which continues after the timeout.
    """
    answers: list[set[int] | BaseException] = []

    def ask() -> None:
        try:
            answers.append(set(client.partitions_for_topic(topic)))
        except BaseException as error:  # noqa: BLE001 - the thread's edge: raised in the caller
            answers.append(error)

    _run_within(ask, timeout_s)
    if not answers:
        raise SourceError(f"The broker gave no answer within {timeout_s:g} s.", fault=Fault.RETRY, code="TIMED_OUT")
    [answer] = answers
    if isinstance(answer, BaseException):
        raise source_error(f"look up topic {topic}", answer) from answer
    return answer


def _run_within(call: Callable[[], None], timeout_s: float) -> None:
    thread = threading.Thread(target=call, name="kafka-python-metadata", daemon=True)
    thread.start()
    thread.join(timeout_s)


def outside_of(error: BaseException) -> list[TopicPartition]:
    """The partitions whose position lies outside the log, by what `poll` raised; none for other errors."""
    offsets = getattr(error, "divergent_offsets", None)
    if offsets is None and type(error).__name__ == "OffsetOutOfRangeError" and error.args:
        offsets = error.args[0]
    return [TopicPartition(*place) for place in offsets] if isinstance(offsets, dict) else []

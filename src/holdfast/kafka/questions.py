"""Questions about offsets, to the consuming client: each blocks, within a time, and raises our errors."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import Consumer

from holdfast.core.records import TopicPartition
from holdfast.kafka.faults import source_error
from holdfast.kafka.places import ClientPlace, names_of, translated

LATEST = -1
"""As a time, in a question for offsets: the end of the log."""


def edges_of(client: Consumer, place: TopicPartition, timeout_s: float) -> tuple[int, int]:
    """Blocks up to `fetch.wait.max.ms` on an idle consumer: the question waits behind the fetch that is under way."""
    with translated(f"read the first and last offset of {place}"):
        low, high = client.get_watermark_offsets(ClientPlace(*place), timeout=timeout_s, cached=False)
    return low, high


def ends_of(client: Consumer, places: Sequence[TopicPartition], timeout_s: float) -> dict[TopicPartition, int]:
    """One request to each broker that leads any of them. Blocks as `edges_of` does, once."""
    what = f"read the ends of {names_of(places)}"
    with translated(what):
        found = client.offsets_for_times([ClientPlace(*place, LATEST) for place in places], timeout=timeout_s)
    for one in found:
        if one.error is not None:
            raise source_error(what, one.error)
    return {TopicPartition(one.topic, one.partition): one.offset for one in found}

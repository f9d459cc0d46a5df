"""Reads a range of a topic without joining a group: nothing is committed, no group rebalances."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping
from typing import Any, Final, cast

import confluent_kafka
from confluent_kafka import Consumer, KafkaError

from keepfast.core.errors import Fault, SourceError
from keepfast.core.records import Message, Record
from keepfast.kafka.config import Connection, Properties, admin_properties
from keepfast.kafka.faults import CLIENT_ERRORS, config_error, fault_of, source_error
from keepfast.kafka.places import ClientPlace, translated

Span = tuple[int, int]
"""Offsets of one partition: the first, and the one after the last."""

SWEEP: Final = 500
POLL_S: Final = 0.2
_MIB: Final = 1024 * 1024


def browser_properties(connection: Connection) -> Properties:
    """For `KafkaBrowser`."""
    return {
        **admin_properties(connection),
        # The client requires a group id, but a consumer that only assigns never joins the group.
        "group.id": "keepfast-desk",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "allow.auto.create.topics": False,
        "fetch.queue.backoff.ms": 2,
        "fetch.wait.max.ms": 100,
        "queued.max.messages.kbytes": 32 * 1024,
        "fetch.max.bytes": 8 * _MIB,
    }


class KafkaBrowser:
    """Reads topics. One thread at a time; call `close`. Raises SourceError.

    `properties`: see `browser_properties`.
    """

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._properties = dict(properties)
        self._client: Consumer | None = None

    def spans(self, topic: str, timeout_s: float) -> dict[int, Span]:
        """What each partition of a topic holds now. A topic that does not exist is a SourceError (MISSING)."""
        deadline = time.monotonic() + timeout_s
        with translated(f"look into topic {topic}"):
            found = self._open.list_topics(topic, timeout=timeout_s).topics[topic]
        if found.error is not None:
            raise source_error(f"look into topic {topic}", found.error)
        spans: dict[int, Span] = {}
        for partition in sorted(found.partitions):
            left_s = max(0.1, deadline - time.monotonic())
            with translated(f"read the first and last offset of {topic}[{partition}]"):
                place = ClientPlace(topic, partition)
                low, high = self._open.get_watermark_offsets(place, timeout=left_s, cached=False)
            spans[partition] = low, high
        return spans

    def read(
        self, topic: str, spans: Mapping[int, Span], *, silence_s: float = 30.0
    ) -> Generator[Record | None, None, None]:
        """The records of these spans, each partition in order; yields None when no record arrived for a moment, so that
        the caller can do other work.

        Gaps (compaction, transactions) are skipped. Close the generator to stop reading. Raises SourceError if the
        broker sends nothing for `silence_s`; time spent by the caller does not count.
        """
        left = {partition: span for partition, span in spans.items() if span[0] < span[1]}
        if not left:
            return
        with translated(f"read topic {topic}"):
            self._open.assign([ClientPlace(topic, partition, low) for partition, (low, _) in left.items()])
        try:
            yield from self._read(topic, left, silence_s)
        finally:
            with translated(f"release topic {topic}"):
                self._open.unassign()

    def _read(self, topic: str, left: dict[int, Span], silence_s: float) -> Iterator[Record | None]:
        silent_s = 0.0  # the time spent here waiting, not that of the caller
        while left:
            began = time.monotonic()
            batch = self._next(topic)
            if any(_is_from_broker(message) for message in batch):
                silent_s = 0.0
            else:
                silent_s += time.monotonic() - began
                if silent_s > silence_s:
                    text = f"Could not read topic {topic}: the broker has sent nothing for {silence_s:g} s."
                    raise SourceError(text, fault=Fault.RETRY, code="SILENT")
                yield None
            for message in batch:
                partition = cast(int, message.partition())
                if message.error() is not None:
                    if _is_end(topic, cast(KafkaError, message.error())):
                        left.pop(partition, None)
                    continue
                low, high = left.get(partition, (0, 0))
                offset = cast(int, message.offset())
                if offset + 1 >= high:
                    left.pop(partition, None)
                if low <= offset < high:
                    yield Record.of(cast(Message, message))

    def _next(self, topic: str) -> list[confluent_kafka.Message]:
        """Wait for one with `poll`, take the rest with `consume`, which would wait for all of them."""
        with translated(f"read topic {topic}"):
            first = self._open.poll(POLL_S)
            return [] if first is None else [first, *self._open.consume(SWEEP, 0)]

    def close(self) -> None:
        """Never raises."""
        if self._client is not None:
            self._client.close()
            self._client = None

    @property
    def _open(self) -> Consumer:
        if self._client is None:
            try:
                self._client = Consumer({**self._properties, "error_cb": _ignore})
            except CLIENT_ERRORS as error:
                raise config_error("consumer", error) from error
        return self._client


def _ignore(error: KafkaError) -> None:
    """Unreachable brokers are detected by `silence_s`."""


def _is_from_broker(message: confluent_kafka.Message) -> bool:
    """Whether it is a record or the end of a partition: both are responses of the broker."""
    error = message.error()
    return error is None or error.name() == "_PARTITION_EOF"


def _is_end(topic: str, error: KafkaError) -> bool:
    """Whether it marks the end of a partition. Raises SourceError for errors that end the reading."""
    if error.name() == "_PARTITION_EOF":
        return True
    # A user without rights on groups may still read: no group is joined.
    if error.name() != "GROUP_AUTHORIZATION_FAILED" and fault_of(error) not in (Fault.RETRY, Fault.REBALANCING):
        raise source_error(f"read topic {topic}", error)
    return False

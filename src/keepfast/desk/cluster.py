"""The desk's access to Kafka: topics, records by place, facts that are written and acknowledged."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from keepfast.core.errors import Fault, SinkError, SourceError
from keepfast.core.records import Outgoing, Receipt, Record, RecordPlace, TopicPartition
from keepfast.kafka.admin import KafkaAdmin, TopicFacts
from keepfast.kafka.browser import KafkaBrowser, Span, browser_properties
from keepfast.kafka.config import Connection, Producing, admin_properties, sink_properties
from keepfast.kafka.groups import KafkaGroups
from keepfast.kafka.sink import KafkaSink

TIMEOUT_S: Final = 15.0
WRITE_TIMEOUT_S: Final = 40.0
MAX_IN_FLIGHT: Final = 5_000
FACT_CONFIG: Final = {
    "cleanup.policy": "compact",
    "delete.retention.ms": str(7 * 86_400_000),
    "min.cleanable.dirty.ratio": "0.5",
}
AUDIT_CONFIG: Final = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member as the brokers know it: `client id (host)`, its partitions, and their lag together."""

    name: str
    places: tuple[TopicPartition, ...]
    lag: int

    @property
    def partitions(self) -> dict[str, list[int]]:
        """By topic."""
        found: dict[str, list[int]] = {}
        for place in self.places:
            found.setdefault(place.topic, []).append(place.partition)
        return found


class DeskCluster:
    """Clients are made when they are used; call `close`. Any thread may call it: each client has one user at a time.

    Raises SourceError and SinkError.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._lock = threading.Lock()  # of admin, groups and the maps below
        self._reading = threading.Lock()
        self._looking = threading.Lock()
        self._browser = KafkaBrowser(browser_properties(connection))
        self._lookup = KafkaBrowser(browser_properties(connection))
        self._admin = KafkaAdmin(admin_properties(connection))
        self._groups = KafkaGroups(admin_properties(connection))
        self._sink: KafkaSink | None = None

    def close(self) -> None:
        with self._reading:
            self._browser.close()
        with self._looking:
            self._lookup.close()
        with self._lock:
            if self._sink is not None:
                self._sink.close(5.0)
                self._sink = None

    # -- topics and groups

    def topics(self, names: Sequence[str]) -> dict[str, TopicFacts | None]:
        with self._lock:
            return self._admin.topics(names, TIMEOUT_S) if names else {}

    def names(self) -> set[str]:
        with self._lock:
            return self._admin.names(TIMEOUT_S)

    def create(self, name: str, *, partitions: int = 1, config: Mapping[str, str]) -> bool:
        """False if it existed. The embedded broker makes a topic when it is written to."""
        with self._lock:
            if self._admin.embedded:
                return False
            return self._admin.create_topic(name, partitions=partitions, timeout_s=TIMEOUT_S, config=config)

    def readers(self, topics: set[str]) -> dict[str, set[str]]:
        """Each topic → the groups that have committed an offset of it."""
        with self._lock:
            return self._groups.reading(topics, TIMEOUT_S)

    def has_members(self, group: str) -> bool:
        """Whether a consumer of this group runs; also if that is not known."""
        with self._lock:
            try:
                return self._groups.members(group, 5.0) != []
            except SourceError:
                return True

    def committed(self, group: str, places: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int | None]:
        with self._lock:
            found = self._groups.committed(group, [TopicPartition(*place) for place in places], 5.0) or {}
        return {(place.topic, place.partition): offset for place, offset in found.items()}

    def members(self, group: str) -> list[GroupMember] | None:
        """Members with their partitions; None if the brokers do not say."""
        try:
            with self._lock:
                found = self._groups.assignments(group, 5.0)
                places = [place for _, own in found for place in own]
                committed = self._groups.committed(group, places, 5.0) or {} if places else {}
            spans = {topic: self.spans(topic) for topic in {place.topic for place in places}}
        except SourceError as error:
            return [] if error.code == "GROUP_ID_NOT_FOUND" else None
        return [GroupMember(name, tuple(own), _lag(own, committed, spans)) for name, own in found]

    def delete_below(self, topic: str, offsets: Mapping[int, int]) -> None:
        """Delete the records below these offsets, for good."""
        with self._lock:
            self._admin.delete_records(topic, offsets, TIMEOUT_S)

    # -- reading

    def spans(self, topic: str) -> dict[int, Span]:
        with self._reading:
            return self._browser.spans(topic, TIMEOUT_S)

    def read(self, topic: str, spans: Mapping[int, Span]) -> Iterator[Record]:
        """Records of these spans, each partition in order. One reader at a time: exhaust or close it."""
        with self._reading:
            for record in self._browser.read(topic, spans):
                if record is not None:
                    yield record

    def record_at(self, place: RecordPlace) -> Record | None:
        """One record; None if there is none at this place (any more)."""
        with self._looking:
            spans = self._lookup.spans(place.topic, TIMEOUT_S)
            low, high = spans.get(place.partition, (0, 0))
            if not low <= place.offset < high:
                return None
            reader = self._lookup.read(place.topic, {place.partition: (place.offset, place.offset + 1)})
            return next((record for record in reader if record is not None), None)

    # -- writing

    def write(self, records: Iterable[Outgoing]) -> None:
        """Send them and wait until all are acknowledged. Raises SinkError."""
        answers = _Answers()
        sink = self._open_sink()
        for record in records:
            answers.expect()
            sink.send(record, answers.take)
        answers.wait(WRITE_TIMEOUT_S)

    def _open_sink(self) -> KafkaSink:
        with self._lock:
            if self._sink is None:
                self._sink = KafkaSink(sink_properties(self.connection, Producing(linger_ms=5)))
                self._sink.open()
            return self._sink


def _lag(
    places: Sequence[TopicPartition],
    committed: Mapping[TopicPartition, int | None],
    spans: Mapping[str, Mapping[int, Span]],
) -> int:
    """Records behind the committed offsets; where there is none, all."""
    total = 0
    for place in places:
        low, high = spans[place.topic].get(place.partition, (0, 0))
        offset = committed.get(place)
        total += max(0, high - (low if offset is None else max(low, offset)))
    return total


class _Answers:
    """Counts acknowledgements; bounds what is in flight."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._open = 0
        self._error: SinkError | None = None

    def expect(self) -> None:
        with self._changed:
            while self._open >= MAX_IN_FLIGHT:
                self._changed.wait()
            self._open += 1

    def take(self, outcome: Receipt | SinkError) -> None:
        with self._changed:
            self._open -= 1
            if isinstance(outcome, SinkError):
                self._error = self._error or outcome
            self._changed.notify_all()

    def wait(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while self._open and (left_s := deadline - time.monotonic()) > 0:
                self._changed.wait(left_s)
            if self._error is not None:
                raise self._error
            if self._open:
                text = f"The broker acknowledged nothing for {timeout_s:g} s."
                raise SinkError(text, fault=Fault.RETRY, code="TIMED_OUT")


def is_missing(error: SourceError) -> bool:
    return error.fault is Fault.MISSING

"""The desk's access to Kafka: topics, records by place, facts that are written and acknowledged."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
SILENT_CODES: Final = frozenset(
    {"_ALL_BROKERS_DOWN", "_RESOLVE", "_TIMED_OUT", "_TRANSPORT", "SILENT", "TIMED_OUT", "TimeoutError"}
)
"""Errors of a request that no broker has answered."""
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


class _Clients:
    """The clients of a desk, made when they are used. Each has one user at a time: who holds its lock."""

    def __init__(self, connection: Connection) -> None:
        self.asking = threading.Lock()  # of admin and groups
        self.reading = threading.Lock()  # of the browser
        self.looking = threading.Lock()  # of the look-up
        self.sending = threading.Lock()  # of making and closing the sink
        self.browser = KafkaBrowser(browser_properties(connection))
        self.lookup = KafkaBrowser(browser_properties(connection))
        self.admin = KafkaAdmin(admin_properties(connection))
        self.groups = KafkaGroups(admin_properties(connection))
        self.sink: KafkaSink | None = None

    def close(self) -> None:
        with self.reading:
            self.browser.close()
        with self.looking:
            self.lookup.close()
        with self.sending:
            if self.sink is not None:
                self.sink.close(5.0)
                self.sink = None


class DeskCluster:
    """Clients are made when they are used; call `close`. Any thread may call it: each client has one user at a time.

    Raises SourceError and SinkError. `silent_since` is the time (monotonic) of the first request without an answer
    since the last answer; None while the brokers answer.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._clients = _Clients(connection)
        self._limits = threading.local()
        self._waiting: dict[threading.Lock, float] = {}  # which client waits for an answer, and since when
        self.silent_since: float | None = None
        self.answered_at = time.monotonic()

    def close(self) -> None:
        self._clients.close()

    def renew(self) -> None:
        """Replace the clients. The old ones are closed by a thread of their own, because one of them may hang."""
        old, self._clients = self._clients, _Clients(self.connection)
        self._waiting.clear()
        threading.Thread(target=old.close, name="keepfast-desk-close", daemon=True).start()

    @contextmanager
    def waiting_at_most(self, timeout_s: float) -> Iterator[None]:
        """Bound the requests of this thread: each waits for at most `timeout_s` without an answer, and is refused at
        once while the brokers are known to be silent. Others wait longer, and find out when the brokers answer again.
        """
        self._limits.timeout_s = timeout_s
        try:
            yield
        finally:
            self._limits.timeout_s = None

    def note_silence(self) -> None:
        """The brokers have not answered a request in time."""
        if self.silent_since is None:
            self.silent_since = time.monotonic()

    def unanswered_s(self) -> float:
        """How long a request has been waiting for any answer of the brokers."""
        waiting = list(self._waiting.values())
        return time.monotonic() - max(min(waiting), self.answered_at) if waiting else 0.0

    @property
    def _limit_s(self) -> float | None:
        limit_s: float | None = getattr(self._limits, "timeout_s", None)
        return limit_s

    def _timeout_s(self, usual_s: float = TIMEOUT_S) -> float:
        return min(usual_s, self._limit_s or usual_s)

    def _answered(self) -> None:
        self.answered_at, self.silent_since = time.monotonic(), None

    @contextmanager
    def _request(self, lock: threading.Lock, wait_s: float | None = None) -> Iterator[None]:
        """Hold the lock of a client for one request, and note whether it was answered. `wait_s`: how long its user may
        get no answer.
        """
        if self._limit_s is not None and self.silent_since is not None:
            raise _silence(time.monotonic() - self.silent_since)
        self._acquire(lock, self._timeout_s(TIMEOUT_S if wait_s is None else wait_s))
        self._waiting[lock] = time.monotonic()
        try:
            yield
        except SourceError as error:
            if error.code in SILENT_CODES:
                self.note_silence()
            else:
                self._answered()
            raise
        else:
            self._answered()
        finally:
            self._waiting.pop(lock, None)
            lock.release()

    def _acquire(self, lock: threading.Lock, timeout_s: float) -> None:
        """Raises SourceError if the user of the client got no answer for `timeout_s`."""
        began = time.monotonic()
        while not lock.acquire(timeout=0.2):
            silent_s = time.monotonic() - max(began, self.answered_at)
            if silent_s > timeout_s:
                self.note_silence()
                raise _silence(silent_s)

    # -- topics and groups

    def check(self, timeout_s: float) -> None:
        """Return when a broker has answered."""
        clients = self._clients
        with self._request(clients.asking, timeout_s):
            clients.admin.check(timeout_s)

    def topics(self, names: Sequence[str]) -> dict[str, TopicFacts | None]:
        clients = self._clients
        with self._request(clients.asking):
            return clients.admin.topics(names, self._timeout_s()) if names else {}

    def names(self) -> set[str]:
        clients = self._clients
        with self._request(clients.asking):
            return clients.admin.names(self._timeout_s())

    def create(self, name: str, *, partitions: int = 1, config: Mapping[str, str]) -> bool:
        """False if it existed. The embedded broker makes a topic when it is written to."""
        clients = self._clients
        with self._request(clients.asking):
            if clients.admin.embedded:
                return False
            return clients.admin.create_topic(name, partitions=partitions, timeout_s=self._timeout_s(), config=config)

    def refuse_unwritable(self, topic: str) -> None:
        """Raises SourceError (REFUSED) if this user may not write to the topic."""
        clients = self._clients
        with self._request(clients.asking):
            if not clients.admin.may_write(topic, self._timeout_s()):
                text = f"This user may not write to the topic {topic}."
                raise SourceError(text, fault=Fault.REFUSED, code="TOPIC_AUTHORIZATION_FAILED")

    def readers(self, topics: set[str]) -> dict[str, set[str]]:
        """Each topic → the groups that have committed an offset of it."""
        clients = self._clients
        with self._request(clients.asking):
            return clients.groups.reading(topics, self._timeout_s())

    def has_members(self, group: str) -> bool:
        """Whether a consumer of this group runs; also if that is not known."""
        clients = self._clients
        try:
            with self._request(clients.asking):
                return clients.groups.members(group, self._timeout_s(5.0)) != []
        except SourceError:
            return True

    def committed(self, group: str, places: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int | None]:
        clients = self._clients
        with self._request(clients.asking):
            wanted = [TopicPartition(*place) for place in places]
            found = clients.groups.committed(group, wanted, self._timeout_s(5.0)) or {}
        return {(place.topic, place.partition): offset for place, offset in found.items()}

    def members(self, group: str) -> list[GroupMember] | None:
        """Members with their partitions; None if the brokers do not say."""
        clients, timeout_s = self._clients, self._timeout_s(5.0)
        try:
            with self._request(clients.asking):
                clients.admin.check(min(1.0, timeout_s))  # an open request for a group can crash the client
                found = clients.groups.assignments(group, timeout_s)
                places = [place for _, own in found for place in own]
                committed = clients.groups.committed(group, places, timeout_s) or {} if places else {}
            spans = {topic: self.spans(topic) for topic in {place.topic for place in places}}
        except SourceError as error:
            return [] if error.code == "GROUP_ID_NOT_FOUND" else None
        return [GroupMember(name, tuple(own), _lag(own, committed, spans)) for name, own in found]

    def delete_below(self, topic: str, offsets: Mapping[int, int]) -> None:
        """Delete the records below these offsets, for good."""
        clients = self._clients
        with self._request(clients.asking):
            clients.admin.delete_records(topic, offsets, self._timeout_s())

    # -- reading

    def spans(self, topic: str) -> dict[int, Span]:
        clients = self._clients
        with self._request(clients.reading):
            return clients.browser.spans(topic, self._timeout_s())

    def read(self, topic: str, spans: Mapping[int, Span]) -> Iterator[Record]:
        """Records of these spans, each partition in order. One reader at a time: exhaust or close it."""
        clients = self._clients
        with self._request(clients.reading):
            for record in clients.browser.read(topic, spans, silence_s=self._timeout_s(2 * TIMEOUT_S)):
                if record is not None:
                    self.answered_at = time.monotonic()
                    yield record

    def record_at(self, place: RecordPlace) -> Record | None:
        """One record; None if there is none at this place (any more)."""
        clients, timeout_s = self._clients, self._timeout_s()
        with self._request(clients.looking):
            spans = clients.lookup.spans(place.topic, timeout_s)
            low, high = spans.get(place.partition, (0, 0))
            if not low <= place.offset < high:
                return None
            reader = clients.lookup.read(
                place.topic, {place.partition: (place.offset, place.offset + 1)}, silence_s=timeout_s
            )
            return next((record for record in reader if record is not None), None)

    # -- writing

    def write(self, records: Iterable[Outgoing]) -> None:
        """Send them and wait until all are acknowledged. Raises SinkError."""
        if self._limit_s is not None and self.silent_since is not None:
            raise _silence(time.monotonic() - self.silent_since)
        answers = _Answers()
        sink = self._open_sink()
        for record in records:
            answers.expect()
            sink.send(record, answers.take)
        answers.wait(WRITE_TIMEOUT_S)

    def _open_sink(self) -> KafkaSink:
        clients = self._clients
        with clients.sending:
            if clients.sink is None:
                clients.sink = KafkaSink(sink_properties(self.connection, Producing(linger_ms=5)))
                clients.sink.open()
            return clients.sink


def _silence(silent_s: float) -> SourceError:
    text = f"The brokers have not answered for {silent_s:.0f} s."
    return SourceError(text, fault=Fault.RETRY, code="SILENT")


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

"""Consumer groups: their topics, committed offsets and members."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from keepfast.core.errors import Fault, SourceError
from keepfast.core.ports import CommittedOffset, Position
from keepfast.core.records import TopicPartition as Place
from keepfast.kafka.embedded import is_embedded, verify_times
from keepfast.kafka.faults import CLIENT_ERRORS, config_error, source_error
from keepfast.kafka.places import committed_of, translated
from keepfast.kafka.source import client_position

MAX_GROUPS: Final = 500
"""Number of groups whose offsets are read, one after another."""

ONE_GROUP_S: Final = 2.0
"""Timeout of one group: a request for a group that may not be described gets no answer."""

HAS_MEMBERS: Final = (
    "The group {group} has running members, so its offsets cannot be reset. Stop them first; members that were killed"
    " leave when their session ends."
)
REFUSED_BY_EMBEDDED: Final = (
    "The embedded broker resets no group that has members, or had some since it started: stopping them does not help"
    " there. While the app runs, `keepfast ctl seek` moves the offsets of {group}."
)

SETTLED: Final = ("STABLE", "EMPTY", "DEAD")
"""States of a group in which its reported assignment is valid."""


def assigned_in(described: Any) -> set[Place]:
    """The partitions that the members of a described group have."""
    return {
        Place(str(one.topic), int(one.partition))
        for member in described.members
        for one in (member.assignment.topic_partitions if member.assignment else ())
    }


class KafkaGroups:
    """One thread at a time. `properties`: see `config.admin_properties`."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._properties = dict(properties)
        self._made: AdminClient | None = None

    def reading(self, topics: set[str], timeout_s: float) -> dict[str, set[str]]:
        """Each of these topics → the groups that have an offset committed for it. Raises SourceError.

        A group whose offsets may not be read is left out. Only the first `MAX_GROUPS` groups are read, for at most
        timeout_s.
        """
        deadline = time.monotonic() + timeout_s
        readers: dict[str, set[str]] = {topic: set() for topic in topics}
        names = self.names(timeout_s)
        places = self._places(topics, timeout_s)
        for name in names[:MAX_GROUPS] if places else ():
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                break
            found = self.committed(name, places, min(left_s, ONE_GROUP_S)) or {}
            for place in (place for place, offset in found.items() if offset is not None):
                readers[place.topic].add(name)
        return readers

    def names(self, timeout_s: float) -> list[str]:
        """All groups that this user may describe. Raises SourceError."""
        try:
            listed = self._client().list_consumer_groups(request_timeout=timeout_s).result(timeout_s + 1)
        except (*CLIENT_ERRORS, TimeoutError) as error:
            raise source_error("list the consumer groups", error) from error
        return sorted(group.group_id for group in listed.valid)

    def owned(self, group: str, timeout_s: float) -> set[Place] | None:
        """The partitions assigned to members of the group; None if that is unknown, as during
        a rebalance.
        """
        try:
            described = self._described(group, timeout_s)
        except SourceError:
            return None
        return assigned_in(described) if described.state.name in SETTLED else None

    def committed(self, group: str, places: Sequence[Place], timeout_s: float) -> dict[Place, int | None] | None:
        """The group's committed offset of each; None as a whole if they may not be read or the request times out."""
        found = self.commits(group, places, timeout_s)
        return None if found is None else {one.place: one.offset for one in found}

    def commits(self, group: str, places: Sequence[Place], timeout_s: float) -> list[CommittedOffset] | None:
        """The group's committed offset of each, with its metadata; those with an error are left out. None as a whole if
        they may not be read or the request times out.

        Uses a consumer that never joins: the admin client's request crashes the process while the coordinator is moving
        or loading (a NULL in librdkafka, its issue 5040).
        """
        with self._nonmember(group) as consumer:
            try:
                found = consumer.committed([TopicPartition(*place) for place in places], timeout=timeout_s)
            except CLIENT_ERRORS:
                return None
        return committed_of([one for one in found if one.error is None])

    def members(self, group: str, timeout_s: float) -> list[str] | None:
        """Each member as `client id (host)`; None if the brokers do not report members. Raises SourceError."""
        try:
            described = self._described(group, timeout_s)
        except SourceError as error:
            if error.code in ("GROUP_ID_NOT_FOUND", "_UNSUPPORTED_FEATURE", "UNSUPPORTED_VERSION"):
                return [] if error.code == "GROUP_ID_NOT_FOUND" else None
            raise
        return [f"{member.client_id} ({member.host})" for member in described.members]

    def assignments(self, group: str, timeout_s: float) -> list[tuple[str, list[Place]]]:
        """Each member as `client id (host)`, with its partitions. Raises SourceError."""
        return [
            (
                f"{member.client_id} ({member.host.lstrip('/')})",
                sorted(
                    Place(str(one.topic), int(one.partition))
                    for one in (member.assignment.topic_partitions if member.assignment else ())
                ),
            )
            for member in self._described(group, timeout_s).members
        ]

    def owner_of(self, group: str, place: Place, timeout_s: float) -> str:
        """The member that has the partition, as `client id on host (member id)`; empty if none has. Raises SourceError,
        also during a rebalance.
        """
        described = self._described(group, timeout_s)
        if described.state.name not in SETTLED:
            text = f"The group {group} is rebalancing. Try again."
            raise SourceError(text, fault=Fault.REBALANCING, code="REBALANCE_IN_PROGRESS")
        for member in described.members:
            assigned = member.assignment.topic_partitions if member.assignment else ()
            if place in {Place(str(one.topic), int(one.partition)) for one in assigned}:
                return f"{member.client_id} on {member.host.lstrip('/')} ({member.member_id})"
        return ""

    def _described(self, group: str, timeout_s: float) -> Any:
        """State and members of the group. Raises SourceError."""
        try:
            [future] = self._client().describe_consumer_groups([group], request_timeout=timeout_s).values()
            return future.result(timeout_s + 1)
        except (*CLIENT_ERRORS, TimeoutError) as error:
            raise source_error(f"describe the group {group}", error) from error

    def stored(self, group: str, places: Sequence[Place], timeout_s: float) -> list[CommittedOffset]:
        """Offset and metadata of each partition. Raises SourceError, also if a single partition has an error."""
        with self._nonmember(group) as consumer, translated(f"read the committed offsets of the group {group}"):
            return committed_of(consumer.committed([TopicPartition(*place) for place in places], timeout=timeout_s))

    def at_time(self, places: Sequence[Place], at_ms: int, timeout_s: float) -> dict[Place, int]:
        """The first offset of each partition that is not older; the others are left out. Raises SourceError, always on
        the embedded broker.
        """
        with self._nonmember("keepfast-desk") as consumer, translated("find offsets by time"):
            wanted = [TopicPartition(*place, at_ms) for place in places]
            found = consumer.offsets_for_times(wanted, timeout=timeout_s)
            for one in found:
                if one.error is not None:
                    raise source_error(f"find the offset by time of {one.topic}[{one.partition}]", one.error)
            verify_times(consumer, found, timeout_s)
        return {Place(str(one.topic), int(one.partition)): one.offset for one in found if one.offset >= 0}

    def reset(self, group: str, positions: Sequence[Position]) -> None:
        """Commit these for a group without members. Raises SourceError: the broker refuses it if there are members."""
        what = f"reset the offsets of the group {group}"
        with self._nonmember(group) as consumer, translated(what):
            try:
                answer = consumer.commit(offsets=[client_position(one) for one in positions], asynchronous=False)
            except CLIENT_ERRORS as error:
                failed = source_error(what, error)
                if failed.code != "UNKNOWN_MEMBER_ID":
                    raise
                embedded = is_embedded(consumer.list_topics(positions[0].place.topic, timeout=ONE_GROUP_S).cluster_id)
                text = REFUSED_BY_EMBEDDED if embedded else HAS_MEMBERS
                raise SourceError(text.format(group=group), fault=failed.fault, code=failed.code) from error
        committed_of(answer or ())

    def delete(self, group: str, timeout_s: float) -> None:
        """Delete a group without members, with its offsets. Nothing happens if there is none. Raises SourceError."""
        try:
            [future] = self._client().delete_consumer_groups([group], request_timeout=timeout_s).values()
            future.result(timeout_s + 1)
        except (*CLIENT_ERRORS, TimeoutError) as error:
            failed = source_error(f"delete the group {group}", error)
            if failed.code != "GROUP_ID_NOT_FOUND":
                raise failed from error

    @contextmanager
    def _nonmember(self, group: str) -> Iterator[Consumer]:
        """A consumer that never joins the group."""
        consumer = Consumer({**self._properties, "group.id": group, "enable.auto.commit": False})
        try:
            yield consumer
        finally:
            consumer.close()

    def read_by(self, group: str, timeout_s: float) -> set[str]:
        """The topics for which a group has committed offsets, Kafka's own left out; none if they may not be read.

        Raises SourceError.
        """
        found = self.committed(group, self._places(None, timeout_s), timeout_s) or {}
        return {place.topic for place, offset in found.items() if offset is not None}

    def _places(self, topics: set[str] | None, timeout_s: float) -> list[Place]:
        """All partitions of these topics, or of all."""
        try:
            known = self._client().list_topics(timeout=timeout_s).topics
        except CLIENT_ERRORS as error:
            raise source_error("list the topics", error) from error
        wanted = (name for name in known if not name.startswith("__")) if topics is None else topics & known.keys()
        return [Place(topic, one) for topic in wanted for one in known[topic].partitions]

    def _client(self) -> AdminClient:
        if self._made is None:
            try:
                self._made = AdminClient(self._properties)
            except CLIENT_ERRORS as error:
                raise config_error("admin client", error) from error
        return self._made

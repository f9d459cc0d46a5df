"""Requests to the cluster outside of any group: reachability, topics, offsets, creating a topic."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from confluent_kafka import ConsumerGroupType, IsolationLevel, KafkaError, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined] # all of them public, says its docstring
    AdminClient,
    AlterConfigOpType,
    ClusterMetadata,
    ConfigEntry,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from keepfast.core.errors import Fault, SourceError
from keepfast.core.records import TopicPartition
from keepfast.kafka.api_versions import has_new_protocol
from keepfast.kafka.client_log import LOGGER
from keepfast.kafka.config import plain_addresses
from keepfast.kafka.embedded import is_embedded
from keepfast.kafka.faults import CLIENT_ERRORS, config_error, error_in, fault_of, source_error
from keepfast.kafka.groups import assigned_in
from keepfast.kafka.places import ClientPlace

REQUEST_TIMEOUT_S = 10.0
"""For requests that are answered in the background."""

CONNECT_TIMEOUT_S = 1.0
"""One attempt to connect; between attempts the reason of the failure is examined."""

FAIL_FAST_S = 2.0
"""With `fail_fast`: how long to try an address that refuses the connection or does not resolve."""

OFFSETS_RETENTION = "offsets.retention.minutes"

CONTROLLER_RETRY_S = 1.0
"""When the cluster reports no controller, the request is repeated once after this time: an election may be under way.
"""

_LOCAL = re.compile(r"(?:localhost|127\.\d+\.\d+\.\d+|\[?::1\]?):\d+\Z")
_SILENT = ("_TIMED_OUT", "_TRANSPORT")
_PLAIN_GROUPS = (ConsumerGroupType.CLASSIC, ConsumerGroupType.CONSUMER)
_UNSUPPORTED = ("UNSUPPORTED_VERSION", "_UNSUPPORTED_FEATURE")


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """The cluster's metadata of a topic. `topic_id` is None if the broker does not support topic ids (the embedded
    one) or is unable to return it now (no controller); it includes the cluster: `<id>@<cluster>`.
    """

    name: str
    partitions: int
    topic_id: str | None


class KafkaAdmin:
    """One thread at a time. Every method blocks for at most its timeout_s (plus a moment) and raises SourceError.

    `properties`: see `config.admin_properties`. `fail_fast`: for interactive commands; an address that refuses the
    connection is tried for `FAIL_FAST_S` only.
    """

    def __init__(self, properties: Mapping[str, Any], *, fail_fast: bool = False) -> None:
        self.properties = dict(properties)
        self._fail_fast = fail_fast
        self._made: AdminClient | None = None
        self._last_error: KafkaError | None = None
        self._cluster_id = ""
        self._has_controller: bool | None = None
        """Whether the cluster has a controller, which describes topics. The embedded broker has none; a real cluster
        has none during an election. None: not known yet.
        """
        self._any_broker = -1
        self._ids_unsupported = False

    @property
    def embedded(self) -> bool:
        """Whether the last answer came from the embedded broker."""
        return self._has_controller is False and is_embedded(self._cluster_id)

    @property
    def bootstrap(self) -> str:
        """The addresses of the brokers, for `--bootstrap-server`."""
        return plain_addresses(str(self.properties.get("bootstrap.servers")).split(","))

    @property
    def has_topic_ids(self) -> bool:
        """Whether the cluster supports topic ids, even if it is unable to return them now."""
        return not self.embedded and not self._ids_unsupported

    def check(self, timeout_s: float, abandoned: Callable[[], bool] = lambda: False) -> None:
        """Return when a broker has answered. Raises at once when the login is refused, within CONNECT_TIMEOUT_S when
        the caller is not interested any more (`abandoned`), else after timeout_s.
        """
        begun = time.monotonic()
        deadline = begun + timeout_s
        while True:
            try:
                self._client.list_topics(timeout=max(0.01, min(CONNECT_TIMEOUT_S, deadline - time.monotonic())))
                return
            except CLIENT_ERRORS as error:
                self._client.poll(0)  # serves error_cb, which gets the reason: refused, unresolved, authentication
                trouble = self._last_error
                if trouble is not None and fault_of(trouble) is Fault.REFUSED:
                    raise self._unreachable(trouble) from error
                plain = self._fail_fast and trouble is not None and self._is_absent(trouble)
                if abandoned() or time.monotonic() >= (begun + FAIL_FAST_S if plain else deadline):
                    raise self._unreachable(trouble or error) from error

    def topics(self, names: Sequence[str], timeout_s: float) -> dict[str, TopicFacts | None]:
        """Each topic's facts, or None if there is no such topic."""
        listed = self._cluster(timeout_s)
        if not self._has_controller:
            return _from_list(listed, names)
        futures = self._client.describe_topics(TopicCollection(list(names)), request_timeout=timeout_s)
        facts: dict[str, TopicFacts | None] = {}
        for name, future in futures.items():
            try:
                described = _wait(future, timeout_s)
                facts[name] = TopicFacts(name, len(described.partitions), self._id_of(described.topic_id))
            except CLIENT_ERRORS as error:
                inner = error_in(error)
                if inner is not None and inner.name() in _UNSUPPORTED:
                    self._ids_unsupported = True
                    return _from_list(listed, names)
                if inner is None or fault_of(inner) is not Fault.MISSING:
                    raise source_error(f"describe topic {name}", error) from error
                facts[name] = None
        return facts

    def may_write(self, topic: str, timeout_s: float) -> bool:
        """Return False if this user may not write to the topic. True if the brokers do not say: the embedded one, or
        one that does not know a topic yet that was just made. Raises SourceError.
        """
        if self._has_controller is None:
            self._cluster(timeout_s)
        if not self._has_controller:
            return True
        [future] = self._client.describe_topics(
            TopicCollection([topic]), include_authorized_operations=True, request_timeout=timeout_s
        ).values()
        try:
            operations = _wait(future, timeout_s).authorized_operations
        except CLIENT_ERRORS as error:
            inner = error_in(error)
            if inner is not None and (inner.name() in _UNSUPPORTED or fault_of(inner) is Fault.MISSING):
                return True
            raise source_error(f"describe topic {topic}", error) from error
        return operations is None or any(one.name == "WRITE" for one in operations)

    def ask(self, topics: Sequence[str], answer: Callable[[Mapping[str, str | None]], None]) -> None:
        """Implements `core.ports.TopicIds`; any thread. `answer` is called on the client's own thread."""

        def answered(done: Mapping[str, Future[Any]]) -> None:
            ids: dict[str, str | None] = {name: None for name, future in done.items() if _is_missing(future)}
            answer(ids | {name: self._id_of(facts.topic_id) or "" for name, facts in _successful(done).items()})

        try:
            _gather(
                self._client.describe_topics(TopicCollection(list(topics)), request_timeout=REQUEST_TIMEOUT_S), answered
            )
        except (*CLIENT_ERRORS, SourceError):
            return

    def ask_ends(
        self,
        places: Sequence[TopicPartition],
        on_answer: Callable[[Mapping[TopicPartition, int]], None],
        *,
        committed: bool = False,
    ) -> None:
        """Implements `core.ports.AskEnds`; any thread. Never blocks, never raises. `on_answer` is called at most
        once, on the client's own thread, with the ends that were returned. `committed`: the ends for readers with
        `read_committed`, which lie before the first open transaction.
        """

        def answered(done: Mapping[ClientPlace, Future[Any]]) -> None:
            on_answer(
                {
                    TopicPartition(place.topic, place.partition): facts.offset
                    for place, facts in _successful(done).items()
                }
            )

        try:
            kinds: Any = OffsetSpec  # brings no types
            asked: dict[ClientPlace, Any] = {ClientPlace(*place): kinds.latest() for place in places}
            level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
            found = self._client.list_offsets(asked, isolation_level=level, request_timeout=REQUEST_TIMEOUT_S)
            _gather(found, answered)
        except (*CLIENT_ERRORS, SourceError):
            return

    def ask_depths(self, partitions: Mapping[str, int], on_answer: Callable[[Mapping[str, int | None]], None]) -> None:
        """Implements `core.ports.AskDepths`; any thread. Never blocks, never raises. `on_answer` is called on the
        client's own thread.
        """
        places = [ClientPlace(topic, number) for topic, count in partitions.items() for number in range(count)]

        def answered(done: Mapping[tuple[bool, ClientPlace], Future[Any]]) -> None:
            depths: dict[str, int | None] = {}
            for topic in partitions:
                of_it = {key: future for key, future in done.items() if key[1].topic == topic}
                known = _successful(of_it)
                if any(_is_missing(future) for future in of_it.values()):
                    depths[topic] = None
                elif len(known) == len(of_it):
                    depths[topic] = sum(
                        facts.offset if latest else -facts.offset for (latest, _), facts in known.items()
                    )
            on_answer(depths)

        try:
            asked: dict[tuple[bool, ClientPlace], Future[Any]] = {}
            kinds: Any = OffsetSpec  # brings no types
            for latest, which in ((False, kinds.earliest()), (True, kinds.latest())):
                spec: dict[ClientPlace, Any] = dict.fromkeys(places, which)
                futures = self._client.list_offsets(spec, request_timeout=REQUEST_TIMEOUT_S)
                asked |= {(latest, place): future for place, future in futures.items()}
            _gather(asked, answered)
        except (*CLIENT_ERRORS, SourceError):
            return

    def ask_existing(self, names: Collection[str], on_answer: Callable[[Mapping[str, bool]], None]) -> None:
        """Implements `engine.outcomes.AskExisting`; any thread. Never blocks, never raises. `on_answer` is called on
        the client's own thread.
        """

        def answered(done: Mapping[str, Future[Any]]) -> None:
            missing = {name: False for name, future in done.items() if _is_missing(future)}
            on_answer(missing | dict.fromkeys(_successful(done), True))

        if self.embedded:  # it does not describe topics
            by_depth = lambda depths: on_answer({name: depth is not None for name, depth in depths.items()})  # noqa: E731
            self.ask_depths(dict.fromkeys(names, 1), by_depth)
            return
        try:
            wanted = TopicCollection(list(names))
            _gather(self._client.describe_topics(wanted, request_timeout=REQUEST_TIMEOUT_S), answered)
        except (*CLIENT_ERRORS, SourceError):
            return

    def ask_unowned(
        self, group: str, topics: Collection[str], on_answer: Callable[[frozenset[TopicPartition] | None], None]
    ) -> None:
        """Implements `core.ports.AskUnowned` for a group; any thread. Never blocks, never raises. `on_answer` is called
        on the client's own thread.
        """

        def answered(done: Mapping[tuple[str, str], Future[Any]]) -> None:
            known = _successful(done)
            described = known.pop(("group", group), None)
            failed = any(future.exception() is not None and not _is_missing(future) for future in done.values())
            if failed or described is None or described.state.name != "STABLE":
                on_answer(None)
                return
            every = {TopicPartition(name, one.id) for (_, name), facts in known.items() for one in facts.partitions}
            on_answer(frozenset(every - assigned_in(described)))

        try:
            groups = self._client.describe_consumer_groups([group], request_timeout=REQUEST_TIMEOUT_S)
            names = self._client.describe_topics(TopicCollection(list(topics)), request_timeout=REQUEST_TIMEOUT_S)
            asked = {("group", name): future for name, future in groups.items()}
            _gather(asked | {("topic", name): future for name, future in names.items()}, answered)
        except (*CLIENT_ERRORS, SourceError):
            return

    def names(self, timeout_s: float) -> set[str]:
        """The existing topics that this user may describe."""
        return {name for name, topic in self._cluster(timeout_s).topics.items() if topic.error is None}

    def has_new_protocol(self, timeout_s: float) -> bool | None:
        """Whether the brokers support the group protocol of KIP-848; None if that is unknown. Never raises."""
        return has_new_protocol(self.properties, timeout_s)

    def topic_config(self, name: str, timeout_s: float) -> dict[str, str]:
        """A topic's configuration, defaults included. Empty if it is not available: the embedded broker, or a user
        without the right to describe it.
        """
        if self._has_controller is None:
            self._cluster(timeout_s)
        if not self._has_controller:
            return {}
        resource = ConfigResource(ResourceType.TOPIC, name)
        try:
            [future] = self._client.describe_configs([resource], request_timeout=timeout_s).values()
            return {entry.name: entry.value for entry in _wait(future, timeout_s).values() if entry.value is not None}
        except CLIENT_ERRORS as error:
            inner = error_in(error)
            if inner is not None and (fault_of(inner) is Fault.REFUSED or inner.name() in _UNSUPPORTED):
                return {}
            raise source_error(f"describe the configuration of topic {name}", error) from error

    def offsets_retention_s(self, timeout_s: float) -> float | None:
        """How long a broker keeps a committed offset (`offsets.retention.minutes`). None if it does not say: the
        embedded broker, or a user without the right to describe its configuration.
        """
        if self._has_controller is None:
            self._cluster(timeout_s)
        if not self._has_controller:
            return None
        resource = ConfigResource(ResourceType.BROKER, str(self._any_broker))
        try:
            [future] = self._client.describe_configs([resource], request_timeout=timeout_s).values()
            minutes = _wait(future, timeout_s).get(OFFSETS_RETENTION)
        except (*CLIENT_ERRORS, SourceError):
            return None
        return None if minutes is None or not str(minutes.value).isdigit() else 60.0 * int(minutes.value)

    def group_config(self, group: str, timeout_s: float) -> dict[str, str]:
        """The configuration of a group, defaults included; `share.…` is that of a share group. Empty if the broker has
        none. Raises SourceError.
        """
        if self._has_controller is None:
            self._cluster(timeout_s)
        if not self._has_controller:
            return {}
        try:
            resource = ConfigResource(ResourceType.GROUP, group)
            [future] = self._client.describe_configs([resource], request_timeout=timeout_s).values()
            return {entry.name: entry.value for entry in _wait(future, timeout_s).values() if entry.value is not None}
        except CLIENT_ERRORS as error:
            inner = error_in(error)
            # A broker without configurations of groups takes the kind of resource for a malformed request.
            if inner is not None and inner.name() in (*_UNSUPPORTED, "INVALID_REQUEST"):
                return {}
            raise source_error(f"describe the configuration of group {group}", error) from error

    def is_plain_group(self, group: str, timeout_s: float) -> bool:
        """Whether there is a group of plain consumers of this name, with members or without. Raises SourceError."""
        try:
            listed = _wait(self._client.list_consumer_groups(request_timeout=timeout_s), timeout_s).valid
        except CLIENT_ERRORS as error:
            raise source_error("list the consumer groups", error) from error
        return any(one.group_id == group and one.type in _PLAIN_GROUPS for one in listed)

    def configure_group(self, group: str, config: Mapping[str, str], timeout_s: float) -> None:
        """Change these, and wait until the broker shows them. Raises SourceError."""
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in config.items()
        ]
        deadline = time.monotonic() + timeout_s
        try:
            resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)
            [future] = self._client.incremental_alter_configs([resource], request_timeout=timeout_s).values()
            _wait(future, timeout_s)
        except CLIENT_ERRORS as error:
            raise source_error(f"configure group {group}", error) from error
        while time.monotonic() < deadline:
            shown = self.group_config(group, timeout_s)
            if all(shown.get(name) == value for name, value in config.items()):
                return
            time.sleep(0.02)
        text = f"Group {group} was configured, but the cluster does not show it after {timeout_s:g} s."
        raise SourceError(text, fault=Fault.RETRY, code="NOT_SHOWN")

    def create_topic(
        self,
        name: str,
        *,
        partitions: int,
        timeout_s: float,
        replicas: int = -1,
        config: Mapping[str, str] | None = None,
    ) -> bool:
        """Create a topic and wait until the cluster lists it; False if it existed.

        `replicas=-1` is the broker's default.
        """
        topic = NewTopic(name, num_partitions=partitions, replication_factor=replicas, config=dict(config or {}))
        deadline = time.monotonic() + timeout_s
        made = True
        try:
            [future] = self._client.create_topics([topic], request_timeout=timeout_s).values()
            _wait(future, timeout_s)
        except CLIENT_ERRORS as error:
            inner = error_in(error)
            if inner is None or inner.name() != "TOPIC_ALREADY_EXISTS":
                raise source_error(f"create topic {name}", error) from error
            made = False
        while (left_s := deadline - time.monotonic()) > 0:
            if self.topics([name], left_s)[name] is not None:
                return made
            time.sleep(0.02)
        text = f"Topic {name} was created, but the cluster does not list it after {timeout_s:g} s."
        raise SourceError(text, fault=Fault.RETRY, code="NOT_SHOWN")

    def delete_records(self, topic: str, offsets: Mapping[int, int], timeout_s: float) -> None:
        """Delete the records of each partition below an offset."""
        below = [ClientPlace(topic, partition, offset) for partition, offset in offsets.items()]
        for future in self._client.delete_records(below, request_timeout=timeout_s).values() if below else ():
            try:
                _wait(future, timeout_s)
            except CLIENT_ERRORS as error:
                raise source_error(f"delete records of topic {topic}", error) from error

    def _cluster(self, timeout_s: float) -> ClusterMetadata:
        found = self._list_topics(timeout_s)
        if not self._has_controller and not self.embedded:
            time.sleep(min(CONTROLLER_RETRY_S, timeout_s))
            found = self._list_topics(timeout_s)
        return found

    def _list_topics(self, timeout_s: float) -> ClusterMetadata:
        try:
            found = self._client.list_topics(timeout=timeout_s)
        except CLIENT_ERRORS as error:
            raise source_error("list the topics", error) from error
        self._cluster_id = str(getattr(found, "cluster_id", None) or "")
        self._has_controller = found.controller_id in found.brokers
        self._any_broker = min(found.brokers, default=-1)
        return found

    def _id_of(self, topic_id: object) -> str | None:
        return None if topic_id is None else f"{topic_id}@{self._cluster_id}"

    @property
    def _client(self) -> AdminClient:
        if self._made is None:
            try:
                self._made = AdminClient(self.properties | {"error_cb": self._on_error, "logger": LOGGER})
            except CLIENT_ERRORS as error:
                raise config_error("admin client", error) from error
        return self._made

    def _on_error(self, error: KafkaError) -> None:
        if error.name() != "_ALL_BROKERS_DOWN":  # follows each reason, and has less detail
            self._last_error = error

    def _is_absent(self, trouble: KafkaError) -> bool:
        """Connection refused or name not resolved, and there is no other address to try."""
        single = "," not in str(self.properties.get("bootstrap.servers"))
        return single and (trouble.name() == "_RESOLVE" or "refused" in trouble.str())

    def _unreachable(self, trouble: KafkaError | BaseException) -> SourceError:
        addresses = str(self.properties.get("bootstrap.servers"))
        error = source_error(f"reach Kafka at {addresses}", trouble)
        if error.fault is not Fault.RETRY:
            return error
        hint = "Check the address (KAFKA_BROKERS), and that the broker runs and can be reached from here."
        if all(_LOCAL.match(address) for address in addresses.split(",")):
            hint = (
                "Check the address (KAFKA_BROKERS), and that a broker runs there; `keepfast dev` starts one of its own,"
                " `keepfast broker --embedded` one for other programs."
            )
        if error.code in _SILENT and "refused" not in str(
            error
        ):  # the port accepts connections and closes them or does not reply
            hint += f" Does that port use {self.properties.get('security.protocol', 'PLAINTEXT')}?"
        return SourceError(f"{error} {hint}", fault=error.fault, code=error.code)


def _from_list(listed: ClusterMetadata, names: Sequence[str]) -> dict[str, TopicFacts | None]:
    """What a metadata listing contains: everything but the topic id."""
    known = {name: topic for name, topic in listed.topics.items() if topic.error is None}
    return {name: TopicFacts(name, len(known[name].partitions), None) if name in known else None for name in names}


def _wait(future: Future[Any], timeout_s: float) -> Any:
    try:
        return future.result(timeout_s + 1)  # the client's own timeout comes first and has more detail
    except TimeoutError as error:
        raise SourceError(
            f"The broker gave no answer within {timeout_s:g} s.", fault=Fault.RETRY, code="TIMED_OUT"
        ) from error


def _successful(done: Mapping[Any, Future[Any]]) -> dict[Any, Any]:
    """Results of the futures that did not fail."""
    return {one: future.result() for one, future in done.items() if future.exception() is None}


def _is_missing(future: Future[Any]) -> bool:
    inner = error_in(error) if (error := future.exception()) is not None else None
    return inner is not None and fault_of(inner) is Fault.MISSING


def _gather(futures: Mapping[Any, Future[Any]], on_complete: Callable[[Mapping[Any, Future[Any]]], None]) -> None:
    """Call `on_complete` once all are done, with all of them."""
    answers: dict[Any, Any] = {}
    lock = threading.Lock()

    def answered(key: Any, future: Future[Any]) -> None:
        with lock:
            answers[key] = future
            complete = len(answers) == len(futures)
        if complete:
            on_complete(answers)

    for key, future in futures.items():
        future.add_done_callback(partial(answered, key))

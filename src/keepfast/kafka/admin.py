"""Questions to the cluster that no group member asks: is it there, which topics, make one."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined] # all of them public, says its docstring
    AdminClient,
    ClusterMetadata,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from keepfast.core.errors import Fault, SourceError
from keepfast.core.records import TopicPartition
from keepfast.kafka.client_log import LOGGER
from keepfast.kafka.faults import CLIENT_ERRORS, config_error, error_in, fault_of, source_error
from keepfast.kafka.places import ClientPlace

ASK_S = 10.0
"""For a question that nobody waits for."""

TRY_S = 1.0
"""One attempt to reach the brokers; between attempts the reason of the failure is looked at."""

PLAIN_S = 2.0
"""How long a broker that is plainly not there is tried by the hurried."""

CONTROLLER_S = 1.0
"""When a cluster says that it has no controller, it is asked once more after this time: it may be choosing one."""

EMBEDDED_CLUSTER = "mockCluster"
"""How the embedded broker's cluster id begins; that of a real one is made of 22 characters."""

_LOCAL = re.compile(r"(?:localhost|127\.\d+\.\d+\.\d+|\[?::1\]?):\d+\Z")
_SILENT = ("_TIMED_OUT", "_TRANSPORT")
_CANNOT_TELL = ("UNSUPPORTED_VERSION", "_UNSUPPORTED_FEATURE")


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """What the cluster says about a topic. `topic_id` is None where the broker cannot tell it (the embedded one) or
    cannot tell it now (no controller); it names the cluster, too: `<id>@<cluster>`.
    """

    name: str
    partitions: int
    topic_id: str | None


class KafkaAdmin:
    """One thread at a time. Every method blocks for at most its timeout_s (plus a moment) and raises SourceError.

    `properties`: see `config.admin_properties`. `hurried`: for somebody who waits; a broker that is plainly not there
    is not tried for long.
    """

    def __init__(self, properties: Mapping[str, Any], *, hurried: bool = False) -> None:
        self._properties = dict(properties)
        self._hurried = hurried
        self._made: AdminClient | None = None
        self._trouble: KafkaError | None = None
        self._cluster_id = ""
        self._led: bool | None = None
        """There is a controller, who could describe a topic; the embedded broker has none, and others may have none for
        a while. None: not asked yet.
        """
        self._cannot_tell = False

    @property
    def embedded(self) -> bool:
        """Whether the last answer came from the embedded broker."""
        return self._led is False and self._cluster_id.startswith(EMBEDDED_CLUSTER)

    @property
    def tells_ids(self) -> bool:
        """Whether the cluster can tell ids of topics, if perhaps not now."""
        return not self.embedded and not self._cannot_tell

    def check(self, timeout_s: float) -> None:
        """Return when a broker has answered. Raises at once when the login is refused, else after timeout_s."""
        begun = time.monotonic()
        deadline = begun + timeout_s
        while True:
            try:
                self._client.list_topics(timeout=max(0.01, min(TRY_S, deadline - time.monotonic())))
                return
            except CLIENT_ERRORS as error:
                self._client.poll(0)  # serves error_cb, which knows the reason: refused, unresolved, no such login
                trouble = self._trouble
                if trouble is not None and fault_of(trouble) is Fault.REFUSED:
                    raise self._unreachable(trouble) from error
                plain = self._hurried and trouble is not None and self._is_plain(trouble)
                if time.monotonic() >= (begun + PLAIN_S if plain else deadline):
                    raise self._unreachable(trouble or error) from error

    def topics(self, names: Sequence[str], timeout_s: float) -> dict[str, TopicFacts | None]:
        """Each topic's facts, or None if there is no such topic."""
        listed = self._cluster(timeout_s)
        if not self._led:
            return _from_list(listed, names)
        futures = self._client.describe_topics(TopicCollection(list(names)), request_timeout=timeout_s)
        facts: dict[str, TopicFacts | None] = {}
        for name, future in futures.items():
            try:
                described = _wait(future, timeout_s)
                facts[name] = TopicFacts(name, len(described.partitions), self._id_of(described.topic_id))
            except CLIENT_ERRORS as error:
                inner = error_in(error)
                if inner is not None and inner.name() in _CANNOT_TELL:
                    self._cannot_tell = True
                    return _from_list(listed, names)
                if inner is None or fault_of(inner) is not Fault.MISSING:
                    raise source_error(f"describe topic {name}", error) from error
                facts[name] = None
        return facts

    def ask(self, topics: Sequence[str], told: Callable[[Mapping[str, str]], None]) -> None:
        """Implements `core.ports.TopicIds`; any thread. The client's own thread answers."""

        def answered(done: Mapping[str, Future[Any]]) -> None:
            ids = {name: self._id_of(facts.topic_id) for name, facts in _good(done).items()}
            told({name: topic_id for name, topic_id in ids.items() if topic_id})

        try:
            _gather(self._client.describe_topics(TopicCollection(list(topics)), request_timeout=ASK_S), answered)
        except (*CLIENT_ERRORS, SourceError):
            return

    def ask_ends(self, places: Sequence[TopicPartition], told: Callable[[Mapping[TopicPartition, int]], None]) -> None:
        """Implements `engine.status.AskEnds`; any thread. Never blocks, never raises; the client's own thread answers,
        at most once, with the ends that could be had.
        """

        def answered(done: Mapping[ClientPlace, Future[Any]]) -> None:
            told({TopicPartition(place.topic, place.partition): facts.offset for place, facts in _good(done).items()})

        try:
            asked = {ClientPlace(*place): OffsetSpec.latest() for place in places}  # type: ignore[no-untyped-call]
            _gather(self._client.list_offsets(asked, request_timeout=ASK_S), answered)
        except (*CLIENT_ERRORS, SourceError):
            return

    def ask_depths(self, partitions: Mapping[str, int], told: Callable[[Mapping[str, int | None]], None]) -> None:
        """Implements `runtime.letter_depths.AskDepths`; any thread. Never blocks, never raises; the client's own thread
        answers.
        """
        places = [ClientPlace(topic, number) for topic, count in partitions.items() for number in range(count)]

        def answered(done: Mapping[tuple[bool, ClientPlace], Future[Any]]) -> None:
            depths: dict[str, int | None] = {}
            for topic in partitions:
                of_it = {key: future for key, future in done.items() if key[1].topic == topic}
                known = _good(of_it)
                if any(_is_missing(future) for future in of_it.values()):
                    depths[topic] = None
                elif len(known) == len(of_it):
                    depths[topic] = sum(
                        facts.offset if latest else -facts.offset for (latest, _), facts in known.items()
                    )
            told(depths)

        try:
            asked: dict[tuple[bool, ClientPlace], Future[Any]] = {}
            for latest, which in ((False, OffsetSpec.earliest()), (True, OffsetSpec.latest())):  # type: ignore[no-untyped-call]
                futures = self._client.list_offsets(dict.fromkeys(places, which), request_timeout=ASK_S)
                asked |= {(latest, place): future for place, future in futures.items()}
            _gather(asked, answered)
        except (*CLIENT_ERRORS, SourceError):
            return

    def names(self, timeout_s: float) -> set[str]:
        """The topics that there are, as far as this login may see them."""
        return {name for name, topic in self._cluster(timeout_s).topics.items() if topic.error is None}

    def topic_config(self, name: str, timeout_s: float) -> dict[str, str]:
        """What was set for a topic, and what holds by default. Empty where nobody can tell: the embedded broker, or a
        login that may not ask.
        """
        if self._led is None:
            self._cluster(timeout_s)
        if not self._led:
            return {}
        resource = ConfigResource(ResourceType.TOPIC, name)
        try:
            [future] = self._client.describe_configs([resource], request_timeout=timeout_s).values()
            return {entry.name: entry.value for entry in _wait(future, timeout_s).values() if entry.value is not None}
        except CLIENT_ERRORS as error:
            inner = error_in(error)
            if inner is not None and (fault_of(inner) is Fault.REFUSED or inner.name() in _CANNOT_TELL):
                return {}
            raise source_error(f"describe the configuration of topic {name}", error) from error

    def create_topic(
        self,
        name: str,
        *,
        partitions: int,
        timeout_s: float,
        replicas: int = -1,
        config: Mapping[str, str] | None = None,
    ) -> bool:
        """Make a topic and wait until the cluster shows it; False if it was there already.

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
        text = f"Topic {name} was created, but the cluster does not show it after {timeout_s:g} s."
        raise SourceError(text, fault=Fault.RETRY, code="NOT_SHOWN")

    def _cluster(self, timeout_s: float) -> ClusterMetadata:
        found = self._listed(timeout_s)
        if not self._led and not self.embedded:
            time.sleep(min(CONTROLLER_S, timeout_s))
            found = self._listed(timeout_s)
        return found

    def _listed(self, timeout_s: float) -> ClusterMetadata:
        try:
            found = self._client.list_topics(timeout=timeout_s)
        except CLIENT_ERRORS as error:
            raise source_error("list the topics", error) from error
        self._cluster_id = str(getattr(found, "cluster_id", None) or "")
        self._led = found.controller_id in found.brokers
        return found

    def _id_of(self, topic_id: object) -> str | None:
        return None if topic_id is None else f"{topic_id}@{self._cluster_id}"

    @property
    def _client(self) -> AdminClient:
        if self._made is None:
            try:
                self._made = AdminClient(self._properties | {"error_cb": self._on_error, "logger": LOGGER})
            except CLIENT_ERRORS as error:
                raise config_error("admin client", error) from error
        return self._made

    def _on_error(self, error: KafkaError) -> None:
        if error.name() != "_ALL_BROKERS_DOWN":  # follows each reason, and says less than it
            self._trouble = error

    def _is_plain(self, trouble: KafkaError) -> bool:
        """Nobody listens there, or there is no such name; and there is no other address that may still answer."""
        alone = "," not in str(self._properties.get("bootstrap.servers"))
        return alone and (trouble.name() == "_RESOLVE" or "refused" in trouble.str())

    def _unreachable(self, trouble: KafkaError | BaseException) -> SourceError:
        addresses = str(self._properties.get("bootstrap.servers"))
        error = source_error(f"reach Kafka at {addresses}", trouble)
        if error.fault is not Fault.RETRY:
            return error
        hint = "Check the address (KAFKA_BROKERS), and that the broker runs and can be reached from here."
        if all(_LOCAL.match(address) for address in addresses.split(",")):
            hint = (
                "Check the address (KAFKA_BROKERS), and that a broker runs there; `keepfast dev` brings one of its own."
            )
        if error.code in _SILENT and "refused" not in str(error):  # somebody listens, and hangs up or says nothing
            hint += f" Does that port speak {self._properties.get('security.protocol', 'PLAINTEXT')}?"
        return SourceError(f"{error} {hint}", fault=error.fault, code=error.code)


def _from_list(listed: ClusterMetadata, names: Sequence[str]) -> dict[str, TopicFacts | None]:
    """What a plain listing tells: everything but the id."""
    known = {name: topic for name, topic in listed.topics.items() if topic.error is None}
    return {name: TopicFacts(name, len(known[name].partitions), None) if name in known else None for name in names}


def _wait(future: Future[Any], timeout_s: float) -> Any:
    try:
        return future.result(timeout_s + 1)  # the client's own timeout comes first and says more
    except TimeoutError as error:
        raise SourceError(
            f"The broker gave no answer within {timeout_s:g} s.", fault=Fault.RETRY, code="TIMED_OUT"
        ) from error


def _good(done: Mapping[Any, Future[Any]]) -> dict[Any, Any]:
    """The answers that are no errors."""
    return {one: future.result() for one, future in done.items() if future.exception() is None}


def _is_missing(future: Future[Any]) -> bool:
    inner = error_in(error) if (error := future.exception()) is not None else None
    return inner is not None and fault_of(inner) is Fault.MISSING


def _gather(futures: Mapping[Any, Future[Any]], told: Callable[[Mapping[Any, Future[Any]]], None]) -> None:
    """Call `told` once all have answered, with all of them."""
    answers: dict[Any, Any] = {}
    lock = threading.Lock()

    def answered(key: Any, future: Future[Any]) -> None:
        with lock:
            answers[key] = future
            complete = len(answers) == len(futures)
        if complete:
            told(answers)

    for key, future in futures.items():
        future.add_done_callback(partial(answered, key))

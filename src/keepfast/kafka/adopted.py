"""Clients created by the user's own factories, of either library; the library that is not installed is not imported.

The user's confluent-kafka producer behind the port
---------------------------------------------------

Its configuration cannot be read: whether it is idempotent, and how many replicas it waits for (all by default). Nor
can it be replaced after a fatal error; then every record fails until the process restarts.

The user's confluent-kafka consumer behind the port
---------------------------------------------------

Its configuration cannot be read and its callbacks cannot be set any more, so it does less than `KafkaSource`:

- Commits are confirmed by reading them back, a request of about a millisecond each. A refused commit is not reported;
  it is inferred when the offsets are not stored after a while, or after a rebalance.
- The end of a partition is reported only if it was created with `enable.partition.eof`. Without, a commit stays in
  front of the marker of a transaction until the next record.
- Brokers that cannot be reached are not reported (`error_cb`).
- Its own `auto.offset.reset` applies, silently, when retention removes the records a running consumer is about to
  read. The start position is checked before, so records lost while the consumer was down are reported as usual.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from keepfast.core.errors import ConfigError, Fault, SinkError, SourceError
from keepfast.core.ports import Delivery, Listener, Position, Sink, Source
from keepfast.core.records import Outgoing, TopicPartition
from keepfast.kafka.faults import error_in, sink_error
from keepfast.kafka.membership import GroupMembership
from keepfast.kafka.places import ClientPlace, names_of, translated
from keepfast.kafka.producer_worker import ProducerWorker, Sending
from keepfast.kafka.sink import closed, notify, receipt
from keepfast.kafka.source import KafkaSource

_sink_log = logging.getLogger("keepfast.kafka.sink")


class AdoptedSink:
    """Any thread may call it. Raises ConfigError for a client that is no plain Producer."""

    def __init__(self, client: Any) -> None:
        if type(client).produce is not Producer.produce:
            raise ConfigError(
                f"producer_factory: a {type(client).__name__} serialises values, but a letter is already bytes;"
                " return a plain confluent_kafka.Producer, or the dict of its configuration."
            )
        self._client: Producer = client
        self._lock = threading.Lock()  # guards the fields below
        self._worker: ProducerWorker | None = None
        self._closing = False

    def send(self, outgoing: Outgoing, delivered: Delivery) -> None:
        """Never blocks, never raises; calls `delivered` exactly once, from any thread, perhaps before this returns."""
        failed: Exception | None
        try:
            failed = self._open().put(Sending(outgoing, delivered))
        except Exception as error:  # noqa: BLE001 - whatever it is, it becomes the outcome of this record
            failed = error
        if failed is not None:
            notify(delivered, failed if isinstance(failed, SinkError) else _send_error(outgoing.topic, failed))

    def close(self, timeout_s: float) -> None:
        """Flush all records in flight, those of other users of the client too, for at most timeout_s."""
        deadline = time.monotonic() + timeout_s
        with self._lock:
            self._closing = True
            worker, self._worker = self._worker, None
        if worker is None:
            self._client.flush(timeout_s)
            return
        worker.flush(deadline)
        for one in worker.close():
            notify(one.delivered, closed(one.outgoing.topic))

    def _open(self) -> ProducerWorker:
        with self._lock:
            if self._closing:
                raise SinkError("The sink is closed.", fault=Fault.FATAL, code="CLOSED")
            if self._worker is None:
                self._worker = ProducerWorker({}, reported=self._reported, on_fatal=_on_fatal, client=self._client)
            return self._worker

    def _reported(
        self, worker: ProducerWorker, one: Sending, report: confluent_kafka.Message | KafkaError | Exception
    ) -> None:
        topic = one.outgoing.topic
        if isinstance(report, confluent_kafka.Message):
            notify(one.delivered, receipt(topic, report))
        elif isinstance(report, KafkaError) and report.name() in ("_PURGE_QUEUE", "_PURGE_INFLIGHT"):
            notify(one.delivered, closed(topic) if worker.fatal is None else _send_error(topic, worker.fatal))
        else:
            notify(one.delivered, _send_error(topic, report))


def _send_error(topic: str, report: KafkaError | Exception) -> SinkError:
    return sink_error(f"send to {topic}", report)


def _on_fatal(worker: ProducerWorker) -> None:
    _sink_log.error("producer_failed: %s; it came from producer_factory and is not replaced: restart", worker.fatal)


_source_log = logging.getLogger("keepfast.kafka.source")

READ_BACK_TIMEOUT_S = 0.02
"""How long reading back the offsets may block the loop."""
CONFIRM_TIMEOUT_S = 5.0
"""A commit that is not found after this time is treated as failed, and sent again."""
EDGES_TIMEOUT_S = 2.0
FINAL_COMMIT_TIMEOUT_S = 1.0

_PROBE = ClientPlace("keepfast.probe", 0, 0)


class AdoptedSource(KafkaSource):
    """See the module. Raises ConfigError for a client that stores offsets by itself, or is no plain Consumer."""

    def __init__(self, client: Any) -> None:
        super().__init__({})
        self._wake = None  # it has no callback for commits
        _require_usable(client)
        self._given: Consumer = client
        self._sent_at = 0.0
        self._protocol_known = False
        self._outside: set[TopicPartition] = set()

    @property
    def group(self) -> str | None:
        """Its group id, or None if it cannot be read."""
        membership = GroupMembership.read(self._given.consumer_group_metadata())
        return None if membership is None else membership.group or None

    def partition_count(self, topic: str, timeout_s: float) -> int:
        """0: the topic does not exist or may not be described. Call before `subscribe`, from any thread. Raises
        SourceError.
        """
        with translated(f"look up topic {topic}"):
            found = self._given.list_topics(topic, timeout=timeout_s).topics[topic]
        return 0 if found.error is not None else len(found.partitions)

    def subscribe(self, topics: Sequence[str], listener: Listener) -> None:
        self._client = self._given
        self._join(topics, listener)

    def _recovers_from(self, error: KafkaError) -> bool:  # noqa: ARG002 - whatever it is
        """Never: the client belongs to the user and is not replaced."""
        return False

    def renew(self) -> bool:
        """Never, as above."""
        return False

    # -- commits -----------------------------------------------------------------------------------------------------

    def commit(self, positions: Sequence[Position]) -> None:
        self._requests.forget_late()  # no late answer will come: there is no callback
        self._sent_at = time.monotonic()
        self._read_back_at = 0.0
        super().commit(positions)

    def _before(self) -> bool:
        request = self._requests.under_way
        if request is not None:
            self._confirm()
        return super()._before() or self._requests.under_way is not request

    def _confirm(self) -> None:
        """Check whether the commit in flight is stored; report it as failed after `CONFIRM_TIMEOUT_S`."""
        if time.monotonic() < self._read_back_at:
            return
        self.serve(READ_BACK_TIMEOUT_S)
        if time.monotonic() - self._sent_at >= CONFIRM_TIMEOUT_S:
            self._give_up(Fault.RETRY)

    def _give_up(self, fault: Fault) -> None:
        request = self._requests.drop()
        if request is not None:
            text = f"Could not commit {names_of(request.places())}: the group does not hold it."
            self._unsent = request.all_failed(SourceError(text, fault=fault, code="UNCONFIRMED"))

    @property
    def _is_static(self) -> bool:
        membership = GroupMembership.read(self._given.consumer_group_metadata())
        return membership is not None and membership.instance is not None

    def _before_leave(self) -> None:
        self.serve(FINAL_COMMIT_TIMEOUT_S)

    # -- partitions --------------------------------------------------------------------------------------------------

    def _on_assign(self, client: Consumer, partitions: list[ClientPlace]) -> None:
        if not self._protocol_known and not self._ending:  # inside the client's `close` either kind of answer will do
            self._notify(self._learn_protocol)
        super()._on_assign(client, partitions)
        self._notify(self._settle)

    def _on_lost(self, client: Consumer, partitions: list[ClientPlace]) -> None:
        super()._on_lost(client, partitions)
        self._notify(self._settle)

    def _settle(self) -> None:
        """Membership has changed: a commit that was sent before and is not stored was refused because of it."""
        self.serve(READ_BACK_TIMEOUT_S)
        self._give_up(Fault.REBALANCING)

    def _learn_protocol(self) -> None:
        try:
            self._open.incremental_assign([])
            self._incremental = True
        except KafkaException as error:
            inner = error_in(error)
            if inner is None or inner.name() != "_STATE":
                raise
            self._incremental = False
        self._protocol_known = True

    def start(self, positions: Sequence[Position]) -> None:
        outside = [position.place for position in positions if self._is_outside(position)]
        super().start(positions)
        if not outside:
            return
        self._outside.update(outside)
        with translated(f"pause {names_of(outside)}"):
            self._open.pause([ClientPlace(*place) for place in outside])
        for place in outside:
            text = f"Could not read {place}: its position lies outside the log."
            self._listener.on_error(SourceError(text, fault=Fault.OUT_OF_RANGE, code="OFFSET_OUT_OF_RANGE"), place)

    def _is_outside(self, position: Position) -> bool:
        if position.offset < 0:
            return False
        try:
            low, high = self.edges(position.place, EDGES_TIMEOUT_S)
        except SourceError:
            _source_log.warning("start_not_checked %s", position.place)
            return False
        return not low <= position.offset <= high

    def reset(self, position: Position) -> None:
        super().reset(position)
        if position.place in self._outside:
            self._outside.discard(position.place)
            if position.place not in self._paused:
                with translated(f"resume {position.place}"):
                    self._open.resume([ClientPlace(*position.place)])

    def _release(self, places: Sequence[TopicPartition]) -> None:
        outside = [place for place in places if place in self._outside and place not in self._paused]
        if outside:
            self._outside.difference_update(places)
            with translated(f"resume {names_of(outside)}"):
                self._open.resume([ClientPlace(*place) for place in outside])
        super()._release(places)


def _require_usable(client: Any) -> None:
    """Raises ConfigError with what to do about it."""
    if type(client).poll is not Consumer.poll:
        raise ConfigError(
            f"consumer_factory: a {type(client).__name__} deserialises values, so the bytes that a letter needs are"
            " lost; return a plain confluent_kafka.Consumer and decode in message_factory."
        )
    try:
        client.store_offsets(offsets=[_PROBE])
    except KafkaException as error:
        inner = error_in(error)
        if inner is not None and inner.name() == "_INVALID_ARG":
            raise ConfigError(
                "consumer_factory: the Consumer stores offsets automatically, before the records are processed;"
                ' create it with "enable.auto.offset.store": False (and "enable.auto.commit": False), or return'
                " the dict of its configuration."
            ) from error
    except RuntimeError as error:
        raise ConfigError(f"consumer_factory: the Consumer cannot be used: {error}") from error


Library = Literal["confluent-kafka", "kafka-python"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptedConsumer:
    """A consumer behind the port, and its configuration as far as it can be read; None or empty: unknown."""

    source: Source
    group: str | None
    topics: tuple[str, ...]
    reset: str | None
    max_poll_records: int | None
    deserialise: Callable[[str, Any, bytes | None], Any] | None
    partitions: Callable[[str, float], int]


def library_of(client: object) -> Library | None:
    """The library of a client; None if it is not a supported one."""
    if isinstance(client, Consumer | Producer):
        return "confluent-kafka"
    known = {"KafkaConsumer", "KafkaProducer"}
    if any(kind.__module__.partition(".")[0] == "kafka" and kind.__name__ in known for kind in type(client).__mro__):
        return "kafka-python"
    return None


def adopt_consumer(client: Any) -> AdoptedConsumer | None:
    """None if it is not a consumer. Raises ConfigError if it is one that cannot be used safely."""
    if isinstance(client, Consumer):
        adopted = AdoptedSource(client)
        return AdoptedConsumer(
            source=adopted,
            group=adopted.group,
            topics=(),
            reset=None,
            max_poll_records=None,
            deserialise=None,
            partitions=adopted.partition_count,
        )
    if library_of(client) != "kafka-python" or not hasattr(client, "subscription"):
        return None
    _require_version("consumer_factory")
    from keepfast.kafka.kafka_python import KafkaPythonSource
    from keepfast.kafka.kafka_python.offsets import partitions_of

    source = KafkaPythonSource(client)
    known = source.adopted
    return AdoptedConsumer(
        source=source,
        group=known.group,
        topics=known.topics,
        reset=known.reset,
        max_poll_records=known.max_poll_records,
        deserialise=known.value_deserialiser,
        partitions=lambda topic, timeout_s: len(partitions_of(client, topic, timeout_s)),
    )


def adopt_producer(client: Any) -> Sink | None:
    """None if it is not a producer. Raises ConfigError if it cannot publish letters."""
    if isinstance(client, Producer):
        return AdoptedSink(client)
    if library_of(client) != "kafka-python" or not hasattr(client, "send"):
        return None
    _require_version("producer_factory")
    from keepfast.kafka.kafka_python import KafkaPythonSink

    return KafkaPythonSink(client)


def _require_version(factory: str) -> None:
    """Raises ConfigError for a kafka-python whose internals are others: they are needed for every promise."""
    version = str(getattr(sys.modules["kafka"], "__version__", "unknown"))  # the client's: it is imported already
    if not version.startswith("3."):
        raise ConfigError(
            f"{factory}: kafka-python {version} is not supported; install kafka-python 3, or return a dict of"
            " configuration or a confluent-kafka client."
        )


def close_consumer(client: Any) -> None:
    """Close a consumer that was created and is not used; commits nothing. Never raises."""
    with contextlib.suppress(Exception):
        if isinstance(client, Consumer):
            client.close()
        elif library_of(client) == "kafka-python":
            client.close(autocommit=False, timeout_ms=1000)


def close_producer(client: Any, timeout_s: float) -> None:
    """Flush and, if the client has a `close`, close. Never raises."""
    with contextlib.suppress(Exception):
        if isinstance(client, Producer):
            client.flush(timeout_s)
        elif hasattr(client, "close"):
            client.close(timeout=timeout_s)

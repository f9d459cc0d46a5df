"""The consuming client of a queue: a member of a share group (KIP-932).

What the client can and cannot do, as far as this file depends on it (measured; confluent-kafka 2.16.1, Kafka 4.3.1):

- `poll` raises until every record of the last one is acknowledged. `max.poll.records` is a soft bound: whole batches of
  the producer are acquired (100 records where 8 were asked for), and all of them are handed out.
- The answer to an acknowledgement is served by `poll`, by `commit_sync` and by `commit_async`, also if there is nothing
  to send. It names the offsets, and one error for all offsets of a partition: the broker takes all or none of them.
- An acknowledgement after the lock has run out is INVALID_RECORD_STATE. So those are sent apart from the others.
- There is no callback about the membership: whether it has joined is not known before the first record.
- `close` has no timeout of its own, it may take `socket.timeout.ms`.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import confluent_kafka
from confluent_kafka import AcknowledgeType, KafkaError, ShareConsumer

from keepfast.core.errors import Fault, SourceError
from keepfast.core.ports import CommitOutcome, CommittedOffset, Listener, Position
from keepfast.core.records import Message, TopicPartition
from keepfast.kafka.client_log import LOGGER
from keepfast.kafka.faults import CLIENT_ERRORS, config_error, source_error
from keepfast.kafka.places import ClientPlace, names_of
from keepfast.kafka.source import ListeningSource, opened

_log = logging.getLogger("keepfast.kafka.source")

NO_POSITION = "a queue has no assignments and no positions"
PLAIN_GROUP = "It is a group of plain consumers, and cannot be that of a queue: give this consumer another one."
UNACKNOWLEDGED = SourceError("The consumer closed before it was answered.", fault=Fault.RETRY, code="CLOSED")


class ShareSource(ListeningSource):
    """Implements `core.ports.QueueSource`. Owner: the loop's thread, from `subscribe` to `close`.

    `connect` makes the client from its properties; `sleep` lets time pass.
    """

    def __init__(
        self,
        properties: Mapping[str, Any],
        *,
        connect: Callable[[dict[str, Any]], ShareConsumer] = ShareConsumer,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        super().__init__()
        self._properties = dict(properties)
        self._connect = connect
        self._sleep = sleep
        self._client: ShareConsumer | None = None
        self._wanted: list[str] | None = None  # topics to read from the next delivery on
        self._locked: dict[TopicPartition, set[int]] = {}  # handed out and not acknowledged
        self._acquired: list[Message] = []  # and not handed out yet
        self._sent: dict[TopicPartition, Position] = {}  # acknowledged, and not answered yet
        self._confirmed: list[Position] = []
        self._failed: list[tuple[Position, SourceError]] = []

    # -- records -----------------------------------------------------------------------------------------------------

    def subscribe(self, topics: Sequence[str], listener: Listener) -> None:
        """See `core.ports.Source`. While records are not acknowledged, other topics wait for the `poll` after that.
        Raises ConfigError if the client rejects its properties, else SourceError.
        """
        self._registered = listener
        try:
            if self._client is None:
                properties = {**self._properties, "error_cb": self._on_error, "logger": LOGGER}
                self._client = self._connect(properties)
                self._client.set_acknowledgement_commit_callback(self._on_acknowledged)
        except CLIENT_ERRORS as error:
            raise config_error("share consumer", error) from error
        self._wanted = list(topics)
        self._subscribe_if_free()

    def _subscribe_if_free(self) -> None:
        """Between deliveries only. Raises SourceError."""
        if self._wanted is None or self._locked or self._sent:
            return
        topics, self._wanted = self._wanted, None
        try:
            self._open.subscribe(topics)
        except CLIENT_ERRORS as error:
            raise source_error(f"subscribe to {', '.join(topics)}", error) from error

    def poll(self, timeout_s: float) -> Message | None:
        """The first of the records that were acquired together; `sweep` has the others. While some of the last ones are
        not acknowledged, it only waits and serves answers.
        """
        self._before()
        if self._locked:
            self.serve(timeout_s)
            return None
        self._subscribe_if_free()
        try:
            found = list(self._open.poll(timeout_s))
        except CLIENT_ERRORS as error:
            self._not_polled(error, timeout_s)
            return None
        good: list[Message] = []
        for message in found:
            if message.error() is None:
                good.append(cast(Message, message))
                place = TopicPartition(cast(str, message.topic()), cast(int, message.partition()))
                self._locked.setdefault(place, set()).add(cast(int, message.offset()))
            else:
                self._report(message)
        self._acquired = good[1:]
        return good[0] if good else None

    def sweep(self, limit: int) -> list[Message]:
        """The rest of what the last `poll` acquired."""
        found, self._acquired = self._acquired[:limit], self._acquired[limit:]
        return found

    def serve(self, timeout_s: float) -> float:
        """Serve the answer to an acknowledgement, if one is awaited; waits in any case."""
        if self._sent:
            with contextlib.suppress(*CLIENT_ERRORS):  # there is nothing to send
                self._open.commit_async()
        self._before()
        if timeout_s > 0:
            self._sleep(timeout_s)
        return 0.0

    def _before(self) -> None:
        """Report what could not be sent, and raise an exception of the listener."""
        self._answer()
        self._raise_listener_error()

    def _not_polled(self, error: Exception, timeout_s: float) -> None:
        """What passes by itself is reported, and the next poll tries again. Raises SourceError for anything else."""
        found = source_error("poll", error)
        if found.code == "GROUP_ID_NOT_FOUND":
            text = f"{found} {PLAIN_GROUP}"
            raise SourceError(text, fault=found.fault, code=found.code) from error
        if found.fault is not Fault.RETRY:
            raise found from error
        self._notify(self._listener.on_error, found, None)
        self._sleep(timeout_s)

    def _report(self, message: confluent_kafka.Message) -> None:
        error = source_error(f"read {message.topic() or 'from the group'}", cast(KafkaError, message.error()))
        self._notify(self._listener.on_error, error, None)

    # -- acknowledgements --------------------------------------------------------------------------------------------

    def commit(self, positions: Sequence[Position]) -> None:
        """Acknowledge what is finished and return at once; `on_committed` answers from a later call."""
        if self._sent:
            raise SourceError("An acknowledgement is in flight already.", fault=Fault.FATAL, code="BUSY")
        self._sent = {position.place: position for position in positions}
        try:
            for place, position in self._sent.items():
                self._acknowledge(place, position.finished, AcknowledgeType.ACCEPT)
            self._open.commit_async()
        except CLIENT_ERRORS as error:  # answered by the next call
            reason = source_error(f"acknowledge records of {names_of(list(self._sent))}", error)
            self._failed += [(position, reason) for position in positions]
            self._sent = {}

    def release(self, places: Sequence[TopicPartition]) -> None:
        """Their locks have run out, as far as is known: the answer does not matter."""
        with contextlib.suppress(*CLIENT_ERRORS):
            for place in places:
                self._acknowledge(place, sorted(self._locked.get(place, ())), AcknowledgeType.RELEASE)
            self._open.commit_async()

    def _acknowledge(self, place: TopicPartition, offsets: Sequence[int], how: AcknowledgeType) -> None:
        client, locked = self._open, self._locked.get(place, set())
        locked.difference_update(offsets)  # whatever comes of it: there is no second attempt
        if not locked:
            self._locked.pop(place, None)
        for offset in offsets:
            client.acknowledge_offset(*place, offset, how)

    def _on_acknowledged(self, offsets: Mapping[ClientPlace, set[int]], error: Any) -> None:
        for one, acknowledged in offsets.items():
            place = TopicPartition(one.topic, one.partition)
            position = self._sent.get(place)
            if position is None or not acknowledged.intersection(position.finished):
                continue  # of what was released
            del self._sent[place]
            if error is None:
                self._confirmed.append(position)
            else:
                self._failed.append((position, source_error(f"acknowledge records of {place}", error)))
        self._answer()

    def _answer(self) -> None:
        """When everything of the request is answered."""
        if self._sent or not (self._confirmed or self._failed):
            return
        outcome = CommitOutcome(tuple(self._confirmed), tuple(self._failed))
        self._confirmed, self._failed = [], []
        self._notify(self._listener.on_committed, outcome)

    # -- the end -----------------------------------------------------------------------------------------------------

    def close(self, *, leave: bool = True) -> None:  # noqa: ARG002 - there are no static members
        """Release what is not acknowledged, and leave. May block while the broker is down. Never raises."""
        if (client := self._client) is None:
            return
        self.release(list(self._locked))
        with contextlib.suppress(*CLIENT_ERRORS):
            client.close()
        self._client = None
        self._failed += [(position, UNACKNOWLEDGED) for position in self._sent.values()]
        self._sent = {}
        self._answer()
        if self._listener_error is not None:
            _log.error("source_listener_failed_while_closing", exc_info=self._listener_error)

    # -- callbacks: they run inside calls of the client, and never raise ---------------------------------------------

    def _on_error(self, error: KafkaError) -> None:
        self._notify(self._listener.on_error, source_error("reach the brokers", error), None)

    # -- what a queue does not have ----------------------------------------------------------------------------------

    def pause(self, places: Sequence[TopicPartition]) -> None:
        """Nothing is fetched while records are not acknowledged."""

    def resume(self, places: Sequence[TopicPartition]) -> None:
        """As `pause`."""

    def start(self, positions: Sequence[Position]) -> None:
        raise _no_position("start", [position.place for position in positions])

    def reset(self, position: Position) -> None:
        raise _no_position("reset", [position.place])

    def committed(self, places: Sequence[TopicPartition], timeout_s: float) -> list[CommittedOffset]:  # noqa: ARG002
        raise _no_position("read the committed offsets of", places)

    def edges(self, place: TopicPartition, timeout_s: float) -> tuple[int, int]:  # noqa: ARG002
        raise _no_position("read the ends of", [place])

    def ends(self, places: Sequence[TopicPartition], timeout_s: float) -> dict[TopicPartition, int]:  # noqa: ARG002
        raise _no_position("read the ends of", places)

    def beginnings(self, places: Sequence[TopicPartition], timeout_s: float) -> dict[TopicPartition, int]:  # noqa: ARG002
        raise _no_position("read the beginnings of", places)

    def at_time(self, place: TopicPartition, at_ms: int, timeout_s: float) -> int | None:  # noqa: ARG002
        raise _no_position("look up a time in", [place])

    def seen_ends(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:  # noqa: ARG002
        return {}

    @property
    def _open(self) -> ShareConsumer:
        return opened(self._client)


def _no_position(what: str, places: Sequence[TopicPartition]) -> SourceError:
    return SourceError(f"Cannot {what} {names_of(places)}: {NO_POSITION}.", fault=Fault.FATAL, code="QUEUE")

"""The consuming client behind the port.

What the client can and cannot do, as far as this file depends on it (measured; confluent-kafka 2.16.1):

- Inside a rebalance callback `poll`, `consume`, `list_topics` and `close` abort the process (a C assertion). Commits
  can be sent there, but their answers are only served after the callback: `serve` reads the offsets back instead.
- If a callback raises, the client destroys records that it has already taken from its queue: every callback is guarded.
- `poll` keeps waiting for a record after the answer to a commit has arrived, unless the callback calls the client's
  `rd_kafka_yield`. In `consume` that would lose the next record: it is called in `poll` only.
- A callback that neither assigns nor unassigns makes the binding do it, at the committed offset: we always do.
- Bool of a message is False for an empty value: compare with None.
- Under KIP-848 some errors are fatal that the client recovers from under the classic protocol: see `transient_end`.
- A fatal error reaches `poll` behind the answers to commits, and these say only that there is one. The binding has no
  call for its reason.
- A static member leaves the group when it unsubscribes, and not when it just closes. Under KIP-848 it never leaves.
- A rebalance callback always sends a request to the client's main thread and waits for the answer without a timeout: if
  we do not (un)assign, the binding does. Inside `close` the main thread waits for one such request only, however many
  callbacks are queued. Then it ends; a request that arrives at that moment is never answered: see `_end`.
- After "offset out of range" only a new assignment restarts the partition; `seek` does not.
- A leader epoch is compared with the log (OffsetForLeaderEpoch) after a `seek`, not after an assignment. If the log was
  cut below the position, that is an offset out of range. The position behind the end of a partition has the epoch of
  what lies before it, markers included; the message that reports the end has none.
- The end of a partition is queued behind its last record, once for each position, with the offset of the next fetch. A
  pause, a new assignment and a `seek` remove it from the queue, and it comes again.
- Non-record messages that concern no partition have partition 0.
- A partition that is resumed is fetched again when the thread of its leader wakes up, which it does once a second if it
  has nothing else to do. `seek` wakes it: the first record is there after 2 ms instead of up to a second.

Queries of offsets: all but `seen_ends` block, with a timeout, and raise our errors.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, cimpl

from keepfast.core.errors import Fault, SourceError
from keepfast.core.ports import NO_ANSWER, THROTTLED, CommitOutcome, CommittedOffset, Listener, Position
from keepfast.core.records import Message, TopicPartition
from keepfast.kafka.broker_watch import BrokerWatch
from keepfast.kafka.client_log import LOGGER
from keepfast.kafka.commits import CommitRequest, Requests
from keepfast.kafka.config import is_incremental
from keepfast.kafka.embedded import verify_times
from keepfast.kafka.faults import (
    CLIENT_ERRORS,
    config_error,
    error_in,
    lacks_new_protocol,
    lacks_reason,
    source_error,
    transient_end,
)
from keepfast.kafka.join_watch import NO_NEW_PROTOCOL, QUIET_S, has_given_up
from keepfast.kafka.places import NO_EPOCH, ClientPlace, committed_of, names_of, places_of, translated

LATEST, EARLIEST = -1, -2
"""Special timestamps in a query of offsets: the end and the beginning of the log."""


def edges_of(client: Consumer, place: TopicPartition, timeout_s: float) -> tuple[int, int]:
    """Blocks up to `fetch.wait.max.ms` on an idle consumer: the request queues behind the fetch in flight."""
    with translated(f"read the first and last offset of {place}"):
        low, high = client.get_watermark_offsets(ClientPlace(*place), timeout=timeout_s, cached=False)
    return low, high


def ends_of(client: Consumer, places: Sequence[TopicPartition], timeout_s: float) -> dict[TopicPartition, int]:
    """One request to each broker that leads any of them. Blocks as `edges_of` does, once."""
    return _offsets_at(LATEST, "ends", client, places, timeout_s)


def beginnings_of(client: Consumer, places: Sequence[TopicPartition], timeout_s: float) -> dict[TopicPartition, int]:
    """The first offset of each log. One request to each leader; blocks as `ends_of` does."""
    return _offsets_at(EARLIEST, "beginnings", client, places, timeout_s)


def at_time_of(client: Consumer, place: TopicPartition, at_ms: int, timeout_s: float) -> int | None:
    """The first offset whose record is not older; None if there is none. Asks and blocks as `edges_of` does. The
    embedded broker does not know: SourceError.
    """
    found = _offsets_at(at_ms, "offset by time", client, [place], timeout_s)
    verify_times(client, [ClientPlace(*place, found[place])], timeout_s)
    return found[place] if found[place] >= 0 else None


def _offsets_at(
    when: int, name: str, client: Consumer, places: Sequence[TopicPartition], timeout_s: float
) -> dict[TopicPartition, int]:
    what = f"read the {name} of {names_of(places)}"
    with translated(what):
        found = client.offsets_for_times([ClientPlace(*place, when) for place in places], timeout=timeout_s)
    for one in found:
        if one.error is not None:
            raise source_error(what, one.error)
    return {TopicPartition(one.topic, one.partition): one.offset for one in found}


def seen_ends_of(client: Consumer, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    """From the last fetch of each; sends no request, never blocks, and is allowed in callbacks. A partition that was
    not fetched yet is left out.
    """
    ends = {}
    with translated(f"read the cached ends of {names_of(places)}"):
        for place in places:
            _, end = client.get_watermark_offsets(ClientPlace(*place), cached=True)
            if end >= 0:  # else nothing of it was fetched yet
                ends[place] = end
    return ends


class OffsetQueries(ABC):
    """The part of `core.ports.Source` that queries offsets. Owner: the loop's thread."""

    @property
    @abstractmethod
    def _open(self) -> Consumer:
        """The client. Raises SourceError if there is none."""

    def committed(self, places: Sequence[TopicPartition], timeout_s: float) -> list[CommittedOffset]:
        """Ask the group's coordinator. Raises SourceError; an error of one partition is an error, never 'no commit'."""
        if not places:
            return []
        with translated(f"read the committed offsets of {names_of(places)}"):
            found = self._open.committed([ClientPlace(*place) for place in places], timeout_s)
        return committed_of(found)

    def edges(self, place: TopicPartition, timeout_s: float) -> tuple[int, int]:
        """The first offset of the log and the next one to be written. Raises SourceError."""
        return edges_of(self._open, place, timeout_s)

    def ends(self, places: Sequence[TopicPartition], timeout_s: float) -> dict[TopicPartition, int]:
        """The next offset to be written of each, in one query. Raises SourceError, also if one partition fails."""
        return ends_of(self._open, places, timeout_s) if places else {}

    def beginnings(self, places: Sequence[TopicPartition], timeout_s: float) -> dict[TopicPartition, int]:
        """The first offset of each log, in one query. Raises SourceError, also if one partition fails."""
        return beginnings_of(self._open, places, timeout_s) if places else {}

    def at_time(self, place: TopicPartition, at_ms: int, timeout_s: float) -> int | None:
        """The first offset whose record is not older than this; None if there is none. Raises SourceError."""
        return at_time_of(self._open, place, at_ms, timeout_s)

    def seen_ends(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The ends that the client has cached; never blocks. Raises SourceError."""
        return seen_ends_of(self._open, places)


C = TypeVar("C")


class ListeningSource:
    """Base of the sources. The listener is called inside callbacks of the client, which must not raise: an exception of
    the listener is raised by the next call of the source.
    """

    def __init__(self) -> None:
        self._registered: Listener | None = None
        self._listener_error: BaseException | None = None
        self.emptied = False
        """See `core.ports.Source`."""

    @property
    def _listener(self) -> Listener:
        assert self._registered is not None
        return self._registered

    def _notify(self, call: Callable[..., None], *arguments: object) -> None:
        try:
            call(*arguments)
        except BaseException as error:  # noqa: BLE001 - at the client's edge
            self._listener_error = self._listener_error or error

    @property
    def reports_ends(self) -> bool:
        """See `core.ports.Source`."""
        return False

    def reset(self, position: Position) -> None:
        raise NotImplementedError

    def refetch(self, position: Position) -> None:
        """See `core.ports.Source`."""
        self.reset(position)

    def renew(self) -> bool:
        """See `core.ports.Source`. The client is the user's own."""
        return False

    def _raise_listener_error(self) -> None:
        """The first exception since the last call, if there was one."""
        if self._listener_error is not None:
            error, self._listener_error = self._listener_error, None
            raise error


def opened(client: C | None) -> C:
    """Raises SourceError if there is none."""
    if client is None:
        raise SourceError("The consumer is not open: subscribe first.", fault=Fault.FATAL, code="CLOSED")
    return client


_log = logging.getLogger("keepfast.kafka.source")
_error_of = confluent_kafka.Message.error

COMMIT_POLL_S, SHORT_POLL_S = 0.1, 0.001
"""Longest poll while a commit is in flight: if its answer can end the poll (above 200 ms the binding keeps waiting),
and if it cannot.
"""

EXPLANATION_S = 2.0
"""How long a fatal error without a reason, in the answer to a commit, waits for the error that has the reason."""
READ_BACK_PAUSE_S = 0.1
"""After a read-back that timed out: requests must not pile up at an unresponsive coordinator."""
UNASSIGN_TIMEOUT_S = 5.0
"""How long `close` waits for the partitions to be revoked, which is immediate unless a rebalance is under way."""
SERVE_QUEUED_S = 1.0
"""How long what is queued is served at most before the client is closed. Mostly nothing is."""
END_TIMEOUT_S, END_POLL_S = 10.0, 0.02
"""How long a callback inside the client's `close` waits at most for the end of the client, and how often it looks."""
READ_BACK_AGAIN_S = 0.005
"""After a read-back that found other offsets than were sent."""
CLOSED = SourceError("The consumer closed before the commit was answered.", fault=Fault.RETRY, code="CLOSED")
REJOIN_S, MAX_REJOIN_S = 1.0, 30.0
"""Delay before a new client replaces one that failed for a transient reason; doubled until partitions are assigned."""


def _yield_function() -> Callable[[None], None] | None:
    """librdkafka's function that makes the call serving a callback return; the binding does not expose it."""
    try:
        function = ctypes.PyDLL(cimpl.__file__).rd_kafka_yield
    except (OSError, AttributeError):
        return None
    function.argtypes, function.restype = [ctypes.c_void_p], None
    return cast(Callable[[None], None], function)


def client_position(position: Position) -> ClientPlace:
    """The position as the client takes it."""
    epoch = position.leader_epoch
    return ClientPlace(*position.place, position.offset, position.metadata, NO_EPOCH if epoch is None else epoch)


class KafkaSource(ListeningSource, OffsetQueries):
    """One member of a consumer group. Owner: the loop's thread, from `subscribe` to `close`.

    `properties` are the client's (see `config.source_properties`). `classic`: the properties to fall back to if the
    broker does not support KIP-848.

    Which records come out of `poll` and `sweep`: the client itself drops what it fetched under an older assignment,
    except, in a race of microseconds, for records that it had already put into the batch when a callback stopped their
    partition *during that same call*. So it is enough to remember what was stopped within the call (`_stopped`) and to
    filter the batch only if something was; otherwise no record is examined.
    """

    def __init__(self, properties: Mapping[str, Any], *, classic: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self._properties = dict(properties)
        self._classic = classic
        self._topics: list[str] = []
        self._renew_at: float | None = None
        self._renew_after_s = REJOIN_S
        self._has_failed = False  # the client that is to be replaced: its partitions are lost
        self._falls_back = False  # to the classic protocol, which is no failure
        self._closing = False  # the client is given up: no partition is started any more
        self._ending = False  # inside the client's `close`
        self._end_answered = False  # and it has had the answer that it waits for
        self._incremental = is_incremental(properties)
        self._client: Consumer | None = None
        self._started: dict[TopicPartition, Position] = {}
        self._unverified: dict[TopicPartition, Position] = {}  # starts that the client has not compared with the log
        self._paused: set[TopicPartition] = set()
        self._stopped: set[TopicPartition] = set()
        self._ends: dict[TopicPartition, int] = {}  # reached in the last call, whose records the caller has by now
        self._requests = Requests()
        self._unsent: CommitOutcome | None = None
        self._fatal: tuple[KafkaError, float] | None = None  # in the answer to the commit, without a reason, until then
        self._read_back_at = 0.0
        self._wake = _yield_function()
        self._changing = False  # inside a callback in which the membership changes
        self._awaits_commit = False  # in `poll`, for the answer to a commit
        self._brokers = BrokerWatch({})
        self._joining_since: float | None = None  # under KIP-848, until partitions are assigned

    # -- records -----------------------------------------------------------------------------------------------------

    def subscribe(self, topics: Sequence[str], listener: Listener) -> None:
        """See `core.ports.Source`. Raises ConfigError if the client rejects its properties, else SourceError."""
        if self._client is None:
            self._make()
        self._join(topics, listener)

    def _make(self) -> None:
        self._brokers = BrokerWatch(self._properties)
        callbacks = {"error_cb": self._on_error, "on_commit": self._on_commit, "stats_cb": self._on_statistics}
        try:
            self._client = Consumer({**self._properties, **callbacks, "logger": LOGGER})
        except CLIENT_ERRORS as error:
            raise config_error("consumer", error) from error
        self._closing = False

    def _join(self, topics: Sequence[str], listener: Listener) -> None:
        self._registered = listener
        before, self._topics = self._topics, list(topics)
        joining = bool(topics) and self._properties.get("group.protocol") == "consumer"
        self._joining_since = time.monotonic() if joining else None
        try:
            if topics:
                self._open.subscribe(
                    list(topics), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
                )
            elif before:  # the client takes no empty list
                self._open.unsubscribe()
        except CLIENT_ERRORS as error:
            raise source_error(f"subscribe to {', '.join(topics)}", error) from error

    def poll(self, timeout_s: float) -> Message | None:
        """Wait for one record or the answer to a commit, at most timeout_s; serves callbacks. 0 never waits."""
        if self._before():
            timeout_s = 0  # the caller waits for the answer to a commit, and has it
        if timeout_s > 0 and self._requests.under_way is not None:
            timeout_s = min(timeout_s, SHORT_POLL_S if self._wake is None else COMMIT_POLL_S)
            self._awaits_commit = self._wake is not None
        try:
            message = (self._client or self._open).poll(timeout_s)
        except CLIENT_ERRORS as error:
            raise source_error("poll", error) from error
        finally:
            awaited, self._awaits_commit = self._awaits_commit, False
        self.emptied = message is None and not awaited  # an answer that was awaited ends the call, whatever there is
        if message is None:
            if timeout_s == 0:
                os.sched_yield()  # a caller that polls in a loop waits for other threads, which may need this processor
            return None
        if message.error() is not None:
            self._report(message)
            return None
        if self._stopped and not self._without_stopped([message]):
            return None
        return cast(Message, message)

    def sweep(self, limit: int) -> list[Message]:
        """Return fetched records, at most `limit`; never blocks; serves callbacks."""
        self._before()
        try:
            batch = self._open.consume(limit, 0)
        except CLIENT_ERRORS as error:
            raise source_error("consume", error) from error
        self.emptied = len(batch) < limit  # events, such as ends of partitions, count
        if any(map(_error_of, batch)):
            for message in batch:
                if message.error() is not None:
                    self._report(message)
            batch = [message for message in batch if message.error() is None]
        if self._stopped:
            batch = self._without_stopped(batch)
        return cast(list[Message], batch)

    def _before(self) -> bool:
        """Work due before each call of the client: report a commit that could not be sent and ends of partitions, raise
        an exception of the listener, replace a failed client. Returns whether there was an outcome.
        """
        if self._ends:
            ends, self._ends = self._ends, {}
            for place, offset in ends.items():
                self._notify(self._listener.on_end, place, offset, self._epoch_at(place, offset))
        if self._unverified:
            self._verify_again()
        if self._fatal is not None and time.monotonic() >= self._fatal[1]:
            self._answer_commit(self._fatal[0])
        answered = self._unsent is not None
        if self._unsent is not None:
            outcome, self._unsent = self._unsent, None
            self._notify(self._listener.on_committed, outcome)
        self._raise_listener_error()
        if self._stopped:
            self._stopped.clear()
        if self._renew_at is not None and time.monotonic() >= self._renew_at:
            self._renew()
        return answered

    # -- a client that has failed ------------------------------------------------------------------------------------

    def _recovers_from(self, error: KafkaError) -> bool:
        """Whether a new client can continue after this fatal error: then it is created, at once or after a delay."""
        recovers = self._renew_at is not None or self._plan_renewal(error)
        if recovers and self._fatal is not None:
            self._answer_commit(error)
        return recovers

    def _plan_renewal(self, error: KafkaError) -> bool:
        if self._classic is not None and lacks_new_protocol(error):
            self._fall_back(self._classic)
            return True
        reason = transient_end(error)
        if reason is None:
            return False
        self._renew_at, self._has_failed = time.monotonic() + self._renew_after_s, True
        self._renew_after_s = min(MAX_REJOIN_S, 2 * self._renew_after_s)
        self._notify(self._listener.on_error, source_error("join the group", reason), None)
        return True

    def _fall_back(self, classic: Mapping[str, Any]) -> None:
        self._properties, self._classic = dict(classic), None
        self._incremental = is_incremental(self._properties)
        self._renew_at, self._has_failed, self._falls_back = 0.0, True, True
        _log.info("group_protocol_classic: the broker does not support KIP-848")

    @property
    def reports_ends(self) -> bool:
        """See `core.ports.Source`."""
        return self._properties.get("enable.partition.eof") is True

    def renew(self) -> bool:
        """See `core.ports.Source`. The broker revokes nothing and is asked for nothing before: a client that works, but
        for one partition, commits and leaves.
        """
        if self._renew_at is None:
            self._renew_at, self._has_failed = time.monotonic(), False
        return True

    def _renew(self) -> None:
        """Replace the client with a new one. The partitions of one that has failed are lost."""
        self._renew_at = time.monotonic()  # until the old client is closed, its errors need no new one
        self._give_up_all(self._listener.on_lost if self._has_failed else self._listener.on_revoked)
        self._end(self._open)
        self._renew_at = None
        if not self._falls_back:
            self._notify(self._listener.on_replaced)
        self._falls_back = False
        self._paused.clear()
        self._drop_unanswered()
        self._requests.forget_late()  # their late answers went with the old client
        self._make()
        self._join(self._topics, self._listener)

    def _answer_commit(self, error: KafkaError) -> None:
        """The commit whose answer was a fatal error without a reason fails with the next call: as a passing failure, if
        a new client continues.
        """
        self._fatal = None
        request = self._requests.drop()
        if request is not None:
            self._not_sent(request, error)

    def _drop_unanswered(self) -> None:
        self._fatal = None
        request = self._requests.drop()
        if request is not None:
            self._unsent = request.all_failed(CLOSED)

    def _without_stopped(self, batch: list[confluent_kafka.Message]) -> list[confluent_kafka.Message]:
        """Drop records of partitions that were stopped (revoked, lost, reset) during this very call.

        A partition that was started again in the same call may have lost records of its new start this way, so it is
        reset to that start: records are fetched twice rather than skipped.
        """
        kept, dropped = [], set()
        for message in batch:
            place = TopicPartition(cast(str, message.topic()), cast(int, message.partition()))
            if place in self._stopped:
                dropped.add(place)
            else:
                kept.append(message)
        for place in dropped:
            if place in self._started:
                self.reset(self._started[place])
        return kept

    def _report(self, message: confluent_kafka.Message) -> None:
        error = cast(KafkaError, message.error())
        topic = message.topic()
        place = None if topic is None else TopicPartition(topic, cast(int, message.partition()))
        if error.name() == "_PARTITION_EOF":
            if place is not None and place in self._started and place not in self._stopped:
                self._ends[place] = cast(int, message.offset())
            return
        if self._recovers_from(error):
            return
        if place is not None and place not in self._started:
            place = None
        self._notify(self._listener.on_error, source_error(f"read {place or topic or 'from the group'}", error), place)

    # -- partitions --------------------------------------------------------------------------------------------------

    def start(self, positions: Sequence[Position]) -> None:
        """Begin fetching these partitions at these offsets (inside on_assigned)."""
        self._started.update({position.place: position for position in positions})
        self._assign(positions, "start")
        self._verify(positions)

    def reset(self, position: Position) -> None:
        """Drop the fetched records of a started partition and continue at another offset; a pause is kept."""
        place = position.place
        if place not in self._started:
            raise SourceError(f"Could not reset {place}: it is not started.", fault=Fault.FATAL, code="NOT_STARTED")
        self._started[place] = position
        self._stopped.add(place)
        self._ends.pop(place, None)
        if self._incremental:
            with translated(f"reset {place}"):
                self._open.incremental_unassign([ClientPlace(*place)])
        self._assign([position], "reset")  # a pause is kept
        self._verify([position])

    def _verify(self, positions: Iterable[Position]) -> None:
        """Have the client compare these starts with the log, by their leader epochs. One that it cannot seek yet is
        tried again before the next call: it starts no partition while it awaits the answer to a commit.
        """
        for position in positions:
            self._unverified.pop(position.place, None)
            if position.leader_epoch is not None and position.offset > 0:
                try:
                    self._open.seek(client_position(position))
                except CLIENT_ERRORS:
                    self._unverified[position.place] = position

    def _verify_again(self) -> None:
        """Verify what could not be verified before, unless records of it were handed out: a seek would repeat them."""
        with contextlib.suppress(*CLIENT_ERRORS):
            handed_out = self._open.position([ClientPlace(*place) for place in self._unverified])
            for place in [TopicPartition(one.topic, one.partition) for one in handed_out if one.offset >= 0]:
                del self._unverified[place]
        self._verify(list(self._unverified.values()))

    def refetch(self, position: Position) -> None:
        """See `core.ports.Source`. A pause that this source has not asked for ends."""
        with translated(f"resume {position.place}"):
            self._open.resume([ClientPlace(*position.place)])
        self.reset(position)

    def _assign(self, positions: Sequence[Position], verb: str) -> None:
        with translated(f"{verb} {names_of([position.place for position in positions])}"):
            if self._incremental:
                self._open.incremental_assign([client_position(position) for position in positions])
                return
            # Eager: assign the whole list. The others continue after the last record handed out; pauses are kept.
            given = {position.place for position in positions}
            others = [place for place in self._started if place not in given]
            self._open.assign(
                [client_position(position) for position in positions] + [self._where(place) for place in others]
            )

    def _where(self, place: TopicPartition) -> ClientPlace:
        [found] = self._open.position([ClientPlace(*place)])
        return found if found.offset >= 0 else client_position(self._started[place])

    def _epoch_at(self, place: TopicPartition, offset: int) -> int | None:
        """The leader epoch of the partition's position; None unless that is the offset."""
        with contextlib.suppress(*CLIENT_ERRORS):
            [found] = self._open.position([ClientPlace(*place)])
            return found.leader_epoch if found.offset == offset else None
        return None

    def pause(self, places: Sequence[TopicPartition]) -> None:
        """Stop handing out records of these; prefetched records are dropped and fetched again later."""
        with translated(f"pause {names_of(places)}"):
            self._open.pause([ClientPlace(*place) for place in places])
        self._paused.update(places)

    def resume(self, places: Sequence[TopicPartition]) -> None:
        """Continue with these. Partitions that were not paused are skipped: resuming them would move them back."""
        for place in self._unpause(places):
            self._fetch_now(place)

    def _unpause(self, places: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Resume in the client. Returns those that were paused."""
        paused = [place for place in places if place in self._paused]
        if paused:
            with translated(f"resume {names_of(paused)}"):
                self._open.resume([ClientPlace(*place) for place in paused])
            self._paused.difference_update(paused)
        return paused

    def _fetch_now(self, place: TopicPartition) -> None:
        """Fetch a resumed partition from its position at once, not at the client's next wake-up."""
        with contextlib.suppress(*CLIENT_ERRORS):  # then it is fetched at the next wake-up
            [found] = self._open.position([ClientPlace(*place)])
            if found.offset >= 0:  # else no record was handed out yet, and it begins at its start
                # Without its leader epoch: the client would compare that with the log first, for half a second.
                self._open.seek(ClientPlace(*place, found.offset))
                self._started[place] = Position(place, found.offset)  # after a seek, the client does not know it

    def _release(self, places: Sequence[TopicPartition]) -> None:
        self._forget(places)
        self._stopped.update(places)
        self._unpause(places)  # the client keeps a pause beyond the assignment
        with translated(f"unassign {names_of(places)}"):
            if self._incremental:
                self._open.incremental_unassign([ClientPlace(*place) for place in places])
            else:
                self._open.unassign()

    def _forget(self, places: Sequence[TopicPartition]) -> None:
        for place in places:
            self._started.pop(place, None)
            self._unverified.pop(place, None)
            self._ends.pop(place, None)

    # -- offsets -----------------------------------------------------------------------------------------------------

    def at_time(self, place: TopicPartition, at_ms: int, timeout_s: float) -> int | None:
        """See `OffsetQueries`. Inside a callback it may need a request that is impossible there: SourceError."""
        if self._changing:
            text = "Offsets cannot be found by time while the group rebalances."
            raise SourceError(text, fault=Fault.REBALANCING, code="REBALANCING")
        return super().at_time(place, at_ms, timeout_s)

    def commit(self, positions: Sequence[Position]) -> None:
        """Send one commit request and return at once; `on_committed` answers, exactly once, from a later call."""
        requests = self._requests
        if requests.under_way is not None or self._unsent is not None:
            raise SourceError("A commit is already in flight: wait for its outcome.", fault=Fault.FATAL, code="BUSY")
        request = CommitRequest(tuple(positions))
        client = self._client or self._open  # a call less: every record comes through here under `commit="each"`
        try:
            offsets = list(map(client_position, positions))
            client.commit(offsets=offsets, asynchronous=True)
            os.sched_yield()  # to the client's thread that sends it: what the caller does meanwhile must not delay it
        except CLIENT_ERRORS as error:
            self._not_sent(request, error)
            return
        requests.under_way = request  # its answer is served by a later call

    def _not_sent(self, request: CommitRequest, error: Exception | KafkaError) -> None:
        """The next call reports that the commit has failed: in passing, if a new client continues."""
        inner = error if isinstance(error, KafkaError) else error_in(error)
        recovers = inner is not None and self._recovers_from(inner)
        reason = CLOSED if recovers else source_error(f"commit {names_of(request.places())}", error)
        self._unsent = request.all_failed(reason)

    def serve(self, timeout_s: float) -> float:
        """Inside on_revoked only, where polling is impossible: wait at most timeout_s for the commit in flight. Returns
        for how long the group was observed to hold none of its offsets.
        """
        if self._unsent is not None:
            outcome, self._unsent = self._unsent, None
            self._notify(self._listener.on_committed, outcome)
            return 0.0
        deadline = time.monotonic() + timeout_s
        request = self._requests.under_way
        while request is not None and (left_s := deadline - time.monotonic()) > 0:
            pause_s = self._read_back_at - time.monotonic()
            if pause_s > 0:
                time.sleep(min(pause_s, left_s))
                continue
            try:
                held = self.committed(request.places(), left_s)
            except SourceError:
                self._read_back_at = time.monotonic() + READ_BACK_PAUSE_S
                continue
            seen = self._requests.read_back(held, time.monotonic())
            if seen is not None:
                self._notify(self._listener.on_committed, seen)
                return 0.0
            self._read_back_at = time.monotonic() + READ_BACK_AGAIN_S
        return 0.0 if request is None or request.absence is None else request.absence.seconds

    def close(self, *, leave: bool = True) -> None:
        """See `core.ports.Source`. Callbacks may come during it; may block while the broker is down.

        A commit that is still unanswered afterwards is reported as failed, because its outcome is unknown. Never
        raises; exceptions of the listener are logged.
        """
        if (client := self._client) is None:
            return
        # Inside the client's close() offsets cannot be read back, so partitions are given up before it.
        with contextlib.suppress(*CLIENT_ERRORS):  # a fenced client refuses, and has nothing to give up
            if leave or not self._is_static:
                client.unsubscribe()
                deadline = time.monotonic() + UNASSIGN_TIMEOUT_S
                while self._started and time.monotonic() < deadline:
                    client.poll(0.05)  # records are discarded: the partitions are being revoked
            else:
                self._give_up_all(self._listener.on_revoked)
            self._before_leave()
        self._end(client)
        self._client = None
        self._started.clear()
        self._unverified.clear()
        self._paused.clear()
        self._renew_at = None
        self._drop_unanswered()
        try:
            self._before()
        except BaseException:  # noqa: BLE001 - there is no later call that could raise it
            _log.exception("source_listener_failed_while_closing")

    def _give_up_all(self, tell: Callable[[Sequence[TopicPartition]], None]) -> None:
        """The listener gives up all its partitions; only the end of the client may follow. A cooperative client keeps
        them until then: if a callback is queued, its partitions must not be unassigned before it, see `_end`.
        """
        if not (places := list(self._started)):
            return
        self._notify_of(tell, places)
        if self._incremental:
            self._forget(places)
        else:
            self._notify(self._release, places)

    def _end(self, client: Consumer) -> None:
        """Close the client, whatever is queued in it. Never raises.

        A rebalance may be queued when the client begins to close, which adds a revoke. A cooperative client takes the
        first answer for both, and an eager one forgets what is queued. So an eager one is served before, and callbacks
        after the first do not ask the client before it has ended.
        """
        self._closing = True
        with contextlib.suppress(*CLIENT_ERRORS):
            deadline = time.monotonic() + SERVE_QUEUED_S
            while not self._incremental and client.poll(0) is not None and time.monotonic() < deadline:
                pass  # records are discarded
        self._ending, self._end_answered = True, False
        with contextlib.suppress(*CLIENT_ERRORS):
            client.close()
        self._ending = False

    def _await_turn(self, client: Consumer) -> None:
        """At the start of each rebalance callback. Inside the client's `close`, all but the first wait until the client
        has ended, at most `END_TIMEOUT_S`: from then on it refuses requests at once.
        """
        if not self._ending:
            return
        if not self._end_answered:
            self._end_answered = True
            return
        deadline = time.monotonic() + END_TIMEOUT_S
        while time.monotonic() < deadline:
            try:
                client.committed([ClientPlace("keepfast.probe", 0)], END_POLL_S)  # a request with a timeout
            except CLIENT_ERRORS as error:
                inner = error_in(error)
                if inner is None or inner.name() == "_DESTROY":
                    return
            time.sleep(END_POLL_S)

    @property
    def _is_static(self) -> bool:
        """Whether it is a static member (`group.instance.id`)."""
        return "group.instance.id" in self._properties

    def _before_leave(self) -> None:
        """Hook: partitions are given up, the group is not left yet."""

    # -- callbacks: they run inside poll, sweep or close, and never raise --------------------------------------------

    def _on_assign(self, client: Consumer, partitions: list[ClientPlace]) -> None:
        self._notify(self._await_turn, client)
        if self._closing:
            self._ask(self._assign, [], "start nothing")
            return
        places = places_of(partitions)
        self._classic, self._joining_since, self._renew_after_s = None, None, REJOIN_S
        self._notify_of(self._listener.on_assigned, places)
        not_started = [place for place in places if place not in self._started]
        if len(not_started) == len(places):  # also for an empty list: the group waits for an answer
            self._notify(self._assign, [], "start nothing")

    def _on_revoke(self, client: Consumer, partitions: list[ClientPlace]) -> None:
        self._on_end_of(client, partitions, self._listener.on_revoked)

    def _on_lost(self, client: Consumer, partitions: list[ClientPlace]) -> None:
        self._on_end_of(client, partitions, self._listener.on_lost)

    def _on_end_of(
        self, client: Consumer, partitions: list[ClientPlace], tell: Callable[[Sequence[TopicPartition]], None]
    ) -> None:
        self._notify(self._await_turn, client)
        places = places_of(partitions)
        if self._closing:  # the others were given up before, or never started
            places = [place for place in places if place in self._started]
        if places or not self._closing:
            self._notify_of(tell, places)
        self._ask(self._release, places)

    def _ask(self, request: Callable[..., None], *arguments: object) -> None:
        """A request to the client. Inside its `close` it may have ended, and then nothing depends on the answer."""
        if self._ending:
            with contextlib.suppress(SourceError):
                request(*arguments)
        else:
            self._notify(request, *arguments)

    def _notify_of(self, change: Callable[[Sequence[TopicPartition]], None], places: Sequence[TopicPartition]) -> None:
        """The membership changes with the assignment, perhaps not before the listener returns."""
        before, self._changing = self._changing, True
        self._notify(change, places)
        self._changing = before

    def _on_commit(self, error: KafkaError | None, partitions: list[ClientPlace] | None) -> None:
        outcome = self._outcome(error, partitions or [])
        if outcome is None:
            return
        self._notify(self._listener.on_committed, outcome)
        if self._awaits_commit and self._wake is not None:
            self._wake(None)

    def _outcome(self, error: KafkaError | None, answer: list[ClientPlace]) -> CommitOutcome | None:
        """Of the request that was answered; None if it was known already, or is not known yet."""
        if error is None and (taken := self._requests.confirmed(answer)) is not None:
            return taken
        request = self._requests.settle(answer)
        if request is None:
            return None
        if error is not None and self._recovers_from(error):
            return request.all_failed(CLOSED)
        if error is not None and lacks_reason(error):
            self._requests.under_way = request
            self._fatal = error, time.monotonic() + EXPLANATION_S
            return None
        return request.outcome(error, answer)

    def _on_error(self, error: KafkaError) -> None:
        if self._recovers_from(error):
            return
        self._notify(self._listener.on_error, source_error("reach the brokers", error), None)

    def _on_statistics(self, statistics: str) -> None:
        since = self._joining_since
        if since is not None and time.monotonic() - since > QUIET_S and has_given_up(statistics):
            if self._classic is not None:
                self._fall_back(self._classic)
            else:
                self._notify(self._listener.on_error, NO_NEW_PROTOCOL, None)
        self._notify(self._report_brokers, statistics)

    def _report_brokers(self, statistics: str) -> None:
        for address, silent_s in self._brokers.observe(statistics).items():
            text = f"The broker {address} has not answered for {silent_s:.0f} s."
            self._listener.on_error(SourceError(text, fault=Fault.RETRY, code=NO_ANSWER), None)
        for address, throttled_s in self._brokers.throttled.items():
            text = f"The broker {address} delays its answers by {throttled_s:.1f} s: a quota of this client is used up."
            self._listener.on_error(SourceError(text, fault=Fault.RETRY, code=THROTTLED), None)
        if self._brokers.repeated:
            self._listener.on_commit_repeated()

    @property
    def _open(self) -> Consumer:
        return opened(self._client)

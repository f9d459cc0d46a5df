"""The consuming client behind the port, on kafka-python: for consumers created by a user's own factory.

What the library can and cannot do, as far as this file depends on it (measured; kafka-python 3.0.12):

- It must be polled on another thread, and with long polls; why: `kafka_python.thread`.
- A `seek` is overwritten by a `poll` that is about to hand out records, so it waits for the end of the poll under way.
  Commits, pauses and queries may come from this thread at any time.
- `poll` raises for one partition again and again until that is moved or paused, and keeps all others from being read.
- An error of one partition in a commit is reported for the whole request.
- A member that learns while joining that the group has removed it joins again and keeps its assignment without a
  callback, although other members may have had it meanwhile. A new member id shows it (`_check_membership`).
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from queue import Empty
from typing import Any

from kafka.structs import MemberState  # pyright: ignore[reportAttributeAccessIssue] - of version 3
from kafka.structs import TopicPartition as ClientPlace

from keepfast.core.errors import Fault, SourceError
from keepfast.core.ports import BEGINNING, CommitOutcome, CommittedOffset, Listener, Position
from keepfast.core.records import Message, TopicPartition
from keepfast.kafka.commits import CommitRequest
from keepfast.kafka.kafka_python import offsets as queries
from keepfast.kafka.kafka_python.faults import source_error
from keepfast.kafka.kafka_python.internals import Adopted, adopt, seek_in_epoch
from keepfast.kafka.kafka_python.records import PythonMessage
from keepfast.kafka.kafka_python.thread import (
    Answered,
    CallbackTurn,
    ClientThread,
    Fetched,
    ThreadClosed,
    ThreadMessage,
)
from keepfast.kafka.places import ended, names_of
from keepfast.kafka.source import ListeningSource, opened


class Backlog:
    """Records that were fetched and not yet handed out, in order of arrival. Records of partitions that are held
    (paused, or outside their log) are parked. Owner: the loop's thread.
    """

    def __init__(self) -> None:
        self._ready: deque[PythonMessage] = deque()
        self._parked: dict[TopicPartition, list[PythonMessage]] = {}
        self.paused: set[TopicPartition] = set()
        self.outside: set[TopicPartition] = set()

    def __len__(self) -> int:
        """How many may be handed out."""
        return len(self._ready)

    def holds(self, place: TopicPartition) -> bool:
        return place in self.paused or place in self.outside

    def add(self, place: TopicPartition, messages: Iterable[PythonMessage]) -> None:
        if self.holds(place):
            self._parked.setdefault(place, []).extend(messages)
        else:
            self._ready.extend(messages)

    def take_one(self) -> Message | None:
        return self._ready.popleft() if self._ready else None

    def take(self, limit: int) -> list[Message]:
        return [self._ready.popleft() for _ in range(min(limit, len(self._ready)))]

    def pause(self, places: Collection[TopicPartition]) -> None:
        self.paused.update(places)
        ready, self._ready = self._ready, deque()
        for message in ready:
            self.add(TopicPartition(message.topic(), message.partition()), (message,))

    def resume(self, places: Collection[TopicPartition]) -> list[TopicPartition]:
        """Returns the partitions that continue: paused before, and not held for another reason."""
        going = [place for place in places if place in self.paused]
        self.paused.difference_update(going)
        going = [place for place in going if not self.holds(place)]
        for place in going:
            self._ready.extend(self._parked.pop(place, ()))
        return going

    def drop(self, places: Collection[TopicPartition]) -> None:
        """Drop the fetched records of these; a pause is kept."""
        gone = set(places)
        self._ready = deque(message for message in self._ready if (message.topic(), message.partition()) not in gone)
        self.outside -= gone
        for place in places:
            self._parked.pop(place, None)


_log = logging.getLogger("keepfast.kafka.source")

BATCH = 500
"""Records fetched by one poll, by default."""
MIN_WAIT_S, PAUSE_S = 0.5e-3, 0.1
"""The shortest wait of `poll` (the client's threads need the interpreter while a caller polls in a loop for the answer
to a commit), and the pause after a failed poll.
"""
LOOKUP_TIMEOUT_S, LEAVE_TIMEOUT_S = 30.0, 5.0
"""How long topics are looked up before the group is joined, and how long leaving it may take."""


class KafkaPythonSource(ListeningSource):
    """One member of a consumer group. Owner: the loop's thread, from `subscribe` to `close`.

    `client` is a KafkaConsumer that was not polled yet; from now on only this object may use it. Raises ConfigError if
    it commits automatically, or is of an unsupported version.
    """

    def __init__(self, client: Any) -> None:
        super().__init__()
        self.adopted: Adopted = adopt(client)
        self._client = client
        self._thread: ClientThread | None = None
        self._started: dict[TopicPartition, Position] = {}
        self._backlog = Backlog()
        self._limit = BATCH
        self._fetched_all = False  # the last poll of the client returned less than it may
        self._not_before = float("-inf")
        self._moved: dict[TopicPartition, Position] = {}  # reset while a poll was under way: what that brings is old
        self._starts = self._starts_asked = 0  # how often partitions were started, moved or given up; at the last poll
        self._in_turn = self._rejoining = False
        self._member = ""
        self._request: CommitRequest | None = None
        self._unsent: CommitOutcome | None = None
        self._failed = False

    # -- records -----------------------------------------------------------------------------------------------------

    def subscribe(self, topics: Sequence[str], listener: Listener) -> None:
        """Join the group. Raises SourceError."""
        self._registered = listener
        self._thread = ClientThread(self._client, name=f"kafka-python-{self.adopted.group}")
        try:
            self._client.subscribe(topics=list(topics), listener=self._thread.listener)
        except Exception as error:
            raise source_error(f"subscribe to {', '.join(topics)}", error) from error
        # A subscription during a metadata request takes effect with the next request only, five minutes later. This
        # waits for the request in flight, and then for one that includes these topics.
        for topic in topics:
            queries.partitions_of(self._client, topic, LOOKUP_TIMEOUT_S)

    def poll(self, timeout_s: float) -> Message | None:
        """Wait for one record or the answer to a commit, at most timeout_s (0: MIN_WAIT_S); serves callbacks."""
        if self._before():  # the caller waits for the answer to a commit, and has it
            self._ask()
            return self._take_one()
        until = time.monotonic() + max(timeout_s, MIN_WAIT_S)
        while not self._backlog and (left_s := until - time.monotonic()) > 0:
            self._ask()
            try:
                message = self._open.inbox.get(timeout=left_s)
            except Empty:
                break
            self._handle(message)
            if isinstance(message, Answered):
                break  # the caller may wait for it
        return self._take_one()

    def sweep(self, limit: int) -> list[Message]:
        """Return fetched records, at most `limit`; never blocks; serves callbacks."""
        self._limit = limit
        self._before()
        self._ask()
        taken = self._backlog.take(limit)
        self.emptied = self._fetched_all and not self._backlog
        return taken

    def _take_one(self) -> Message | None:
        taken = self._backlog.take_one()
        self.emptied = self._fetched_all and not self._backlog
        return taken

    def _ask(self) -> None:
        """Request a poll of the client, unless one is under way or records wait."""
        thread = self._open
        if thread.idle and not self._backlog and not self._failed and time.monotonic() >= self._not_before:
            self._starts_asked = self._starts
            thread.poll(self._limit)

    def _before(self) -> bool:
        """Work due before each call: handle the inbox, report a commit that could not be sent, raise an exception of
        the listener. Returns whether the answer to a commit was among it.
        """
        answered = self._unsent is not None
        inbox = self._open.inbox
        while not inbox.empty():
            message = inbox.get()
            self._handle(message)
            answered = answered or isinstance(message, Answered)
        if self._unsent is not None:
            outcome, self._unsent = self._unsent, None
            self._notify(self._listener.on_committed, outcome)
        self._raise_listener_error()
        return answered

    def _handle(self, message: ThreadMessage) -> None:
        match message:
            case Fetched(records=records, positions=positions, error=error):
                self._open.idle = True
                self._fetched_all = error is None and sum(map(len, records.values())) < self._limit
                for place, found in records.items():
                    self._keep(TopicPartition(*place), found)
                for place, position in positions.items():
                    self._reached(TopicPartition(*place), position)
                self._catch_up()
                if error is not None:
                    self._report(error)
                if self._check_membership() == MemberState.STABLE and self._rejoining:
                    self._take_assignment(())
            case CallbackTurn():
                self._take_turn(message)
            case Answered(request=request, error=error):
                if self._request is request:
                    self._request = None
                    confirmed = CommitOutcome(confirmed=request.positions)
                    self._notify(self._listener.on_committed, confirmed if error is None else request.all_failed(error))
            case ThreadClosed():
                pass

    def _keep(self, place: TopicPartition, records: list[Any]) -> None:
        if place in self._started and place not in self._moved:
            self._backlog.add(place, map(PythonMessage, records))

    def _reached(self, place: TopicPartition, position: int) -> None:
        """A poll found no records: all below this position were handed out, unless they are parked, or the position is
        one of an earlier start.
        """
        if self._starts == self._starts_asked and place in self._started and not self._backlog.holds(place):
            self._notify(self._listener.on_end, place, position)

    def _report(self, error: BaseException) -> None:
        self._not_before = time.monotonic() + PAUSE_S
        outside = queries.outside_of(error)
        for place in outside:
            if place in self._started and place not in self._backlog.outside:
                self._backlog.outside.add(place)
                self._client_call("pause", [place])
                self._notify(self._listener.on_error, source_error(f"read {place}", error), place)
        if not outside:
            trouble = source_error("read from the group", error)
            self._failed = trouble.fault in (Fault.FATAL, Fault.FENCED)
            self._notify(self._listener.on_error, trouble, None)

    # -- partitions --------------------------------------------------------------------------------------------------

    def start(self, positions: Sequence[Position]) -> None:
        """Begin fetching these partitions at these offsets (inside on_assigned)."""
        self._starts += 1
        for position in positions:
            self._started[position.place] = position
            self._backlog.paused.discard(position.place)
            self._moved.pop(position.place, None)
            self._seek(position)

    def reset(self, position: Position) -> None:
        """Drop the fetched records of a started partition and continue at another offset; a pause is kept."""
        place = position.place
        if place not in self._started:
            raise SourceError(f"Could not reset {place}: it is not started.", fault=Fault.FATAL, code="NOT_STARTED")
        self._started[place] = position
        self._starts += 1
        self._backlog.drop([place])
        if self._in_turn or self._open.idle:
            self._seek(position)
        else:
            self._moved[place] = position

    def _catch_up(self) -> None:
        """After a poll: perform the seeks that had to wait for it."""
        moved, self._moved = self._moved, {}
        for place, position in moved.items():
            if place in self._started:
                self._notify(self._seek, position)

    def _seek(self, position: Position) -> None:
        place = ClientPlace(*position.place)
        try:
            if position.offset == BEGINNING:
                self._client.seek_to_beginning(place)
            else:
                self._client.seek(place, position.offset)
                if position.leader_epoch is not None:
                    seek_in_epoch(self._client, place, queries.offset_of(position))
        except Exception as error:
            raise source_error(f"start {position.place} at {position.offset}", error) from error
        self._client_call("pause" if self._backlog.holds(position.place) else "resume", [position.place])

    def pause(self, places: Sequence[TopicPartition]) -> None:
        """Stop handing out records of these; prefetched records are kept."""
        self._backlog.pause(places)
        self._client_call("pause", places)

    def resume(self, places: Sequence[TopicPartition]) -> None:
        """Continue with these."""
        self._client_call("resume", self._backlog.resume(places))

    def _client_call(self, name: str, places: Sequence[TopicPartition]) -> None:
        """`pause` or `resume`; of those that are still assigned: for others the library raises KeyError."""
        assigned = self._client.assignment()
        getattr(self._client, name)(*[one for one in (ClientPlace(*place) for place in places) if one in assigned])

    def _take_turn(self, turn: CallbackTurn) -> None:
        places = [TopicPartition(*place) for place in turn.places]
        self._in_turn = True
        try:
            self._check_membership()
            if turn.what == "assigned":
                self._take_assignment(places)
            else:
                self._give_up(places, self._listener.on_revoked if turn.what == "revoked" else self._listener.on_lost)
        finally:
            self._in_turn = False
            turn.done()

    def _check_membership(self) -> str:
        """A new member id means that all partitions were lost. Returns the state of the membership."""
        membership = self._client.group_metadata()
        if membership.member_id != self._member:
            self._member = membership.member_id
            self._rejoining = self._rejoining or bool(self._started)
            self._give_up(list(self._started), self._listener.on_lost)
        return str(membership.state)

    def _take_assignment(self, places: Sequence[TopicPartition]) -> None:
        if self._rejoining:  # partitions that the library kept are new to us, too
            kept = {TopicPartition(*place) for place in self._client.assignment()} - self._started.keys()
            places = sorted(kept.union(places))
            self._rejoining = False
        self._notify(self._listener.on_assigned, places)

    def _give_up(self, places: Sequence[TopicPartition], notify: Callable[[Sequence[TopicPartition]], None]) -> None:
        own = [place for place in places if place in self._started]
        if own:
            self._notify(notify, own)
            self._starts += 1
            self._backlog.drop(own)
            self._backlog.paused.difference_update(own)
            for place in own:
                self._started.pop(place, None)

    # -- offsets -----------------------------------------------------------------------------------------------------

    def committed(self, places: Sequence[TopicPartition], timeout_s: float) -> list[CommittedOffset]:
        """Ask the group's coordinator. Raises SourceError; an error of one partition is an error, never 'no commit'."""
        return queries.committed_of(self._client, places, timeout_s)

    def edges(self, place: TopicPartition, timeout_s: float) -> tuple[int, int]:
        return queries.edges_of(self._client, place, timeout_s)

    def ends(self, places: Sequence[TopicPartition], timeout_s: float) -> dict[TopicPartition, int]:
        return queries.ends_of(self._client, places, timeout_s)

    def beginnings(self, places: Sequence[TopicPartition], timeout_s: float) -> dict[TopicPartition, int]:
        return queries.beginnings_of(self._client, places, timeout_s)

    def at_time(self, place: TopicPartition, at_ms: int, timeout_s: float) -> int | None:
        return queries.at_time_of(self._client, place, at_ms, timeout_s)

    def seen_ends(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return queries.seen_ends_of(self._client, places)

    def commit(self, positions: Sequence[Position]) -> None:
        """Send one commit request and return at once; `on_committed` answers, exactly once, from a later call."""
        if self._request is not None or self._unsent is not None:
            raise SourceError("A commit is already in flight: wait for its outcome.", fault=Fault.FATAL, code="BUSY")
        request = CommitRequest(tuple(positions))
        inbox, what = self._open.inbox, f"commit {names_of(request.places())}"

        def answer(_: object, outcome: object) -> None:  # on the library's I/O thread
            error = source_error(what, outcome) if isinstance(outcome, BaseException) else None
            inbox.put(Answered(request, error))

        offsets = {
            ClientPlace(*position.place): queries.offset_of(position, ended(position.metadata))
            for position in positions
        }
        try:
            self._client.commit_async(offsets, callback=answer)
            self._request = request
        except Exception as error:  # noqa: BLE001 - whatever it is, it becomes the outcome of this request
            self._unsent = request.all_failed(source_error(what, error))

    def serve(self, timeout_s: float) -> float:
        """Inside on_revoked only, where polling is impossible: wait at most timeout_s for the commit in flight. Returns
        0: the library's own answer arrives here, so reading back is not needed.
        """
        if self._unsent is not None:
            outcome, self._unsent = self._unsent, None
            self._notify(self._listener.on_committed, outcome)
            return 0.0
        deadline = time.monotonic() + timeout_s
        while self._request is not None:
            try:
                self._handle(self._open.inbox.get(timeout=max(0.0, deadline - time.monotonic())))
            except Empty:
                break
        return 0.0

    def close(self, *, leave: bool = True) -> None:  # noqa: ARG002 - a static member of this library never leaves
        """Leave the group. Callbacks may come during it. Over within seconds even when the broker is down.

        A commit that is still unanswered afterwards is reported as failed, because its outcome is unknown. Never
        raises; exceptions of the listener are logged.
        """
        if (thread := self._thread) is None:
            return
        thread.close(LEAVE_TIMEOUT_S)
        deadline = time.monotonic() + 2 * LEAVE_TIMEOUT_S
        message: ThreadMessage | None = None
        try:
            while not isinstance(message, ThreadClosed):
                try:
                    message = thread.inbox.get(timeout=max(0.0, deadline - time.monotonic()))
                except Empty:
                    break
                self._handle(message)
            while not thread.inbox.empty():
                self._handle(thread.inbox.get())
            if self._request is not None:
                request, self._request = self._request, None
                text = "The consumer closed before the commit was answered."
                self._unsent = request.all_failed(SourceError(text, fault=Fault.RETRY, code="CLOSED"))
            self._before()
        except BaseException:  # noqa: BLE001 - there is no later call that could raise it
            _log.exception("source_listener_failed_while_closing")
        self._thread = None
        self._started.clear()

    @property
    def _open(self) -> ClientThread:
        return opened(self._thread)

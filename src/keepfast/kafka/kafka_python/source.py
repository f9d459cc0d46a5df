"""The consuming client behind the port, on kafka-python: for consumers that a user's own factory has made.

What the library can and cannot do, as far as this file depends on it (measured; kafka-python 3.0.12):

- It must be polled on another thread, and with patience; why: `kafka_python.thread`.
- A `seek` is overwritten by a `poll` that is about to hand out records, so it waits for the end of the one under way.
  Commits, pauses and questions may come from here at any time.
- `poll` raises for one partition again and again until that is moved or paused, and keeps all others from being read.
- Errors of one partition in a commit are told for the whole request.
- A member that learns only while joining that the group has forgotten it joins anew and goes on with what it had, and
  says nothing, although others may have had it meanwhile. A new member id tells (`_mind_membership`).

Records that were fetched and not yet handed out, and those of them that must wait. Owner: the loop's thread.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from queue import Empty
from typing import Any

from kafka.structs import MemberState, OffsetAndMetadata
from kafka.structs import TopicPartition as ClientPlace

from keepfast.core.errors import Fault, SourceError
from keepfast.core.ports import BEGINNING, CommitOutcome, CommittedOffset, Listener, Position
from keepfast.core.records import Message, TopicPartition
from keepfast.kafka.commits import CommitRequest
from keepfast.kafka.kafka_python import questions
from keepfast.kafka.kafka_python.faults import source_error
from keepfast.kafka.kafka_python.inside import Adopted, adopt
from keepfast.kafka.kafka_python.records import PythonMessage
from keepfast.kafka.kafka_python.thread import Answered, CallbackTurn, ClientThread, Fetched, ThreadClosed, Word
from keepfast.kafka.places import names_of


class Backlog:
    """In order of arrival. Of partitions that are held (paused, or outside their log), records are parked."""

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
        """Which of them go on: those that were paused, and may."""
        going = [place for place in places if place in self.paused]
        self.paused.difference_update(going)
        going = [place for place in going if not self.holds(place)]
        for place in going:
            self._ready.extend(self._parked.pop(place, ()))
        return going

    def drop(self, places: Collection[TopicPartition]) -> None:
        """Forget what was fetched of these; a pause stays."""
        gone = set(places)
        self._ready = deque(message for message in self._ready if (message.topic(), message.partition()) not in gone)
        self.outside -= gone
        for place in places:
            self._parked.pop(place, None)


_log = logging.getLogger("keepfast.kafka.source")

BATCH = 500
"""Records asked for when nobody has said how many."""
NAP_S, PAUSE_S = 0.5e-3, 0.1
"""For whoever polls in a circle for a commit's answer, whose threads need the interpreter; and after a failed poll."""
POLL_INTERVAL_S, LEAVE_S = 30.0, 5.0
"""How long topics are looked for before the group is joined, and how long leaving it may take."""


class KafkaPythonSource:
    """One member of a consumer group. Owner: the loop's thread, from `subscribe` to `close`.

    `client` is a KafkaConsumer that nobody has polled; from now on nobody else may. Raises ConfigError if it commits by
    itself, or is of a version whose inside is not known.
    """

    def __init__(self, client: Any) -> None:
        self.adopted: Adopted = adopt(client)
        self._client = client
        self._thread: ClientThread | None = None
        self._registered: Listener | None = None
        self._started: dict[TopicPartition, Position] = {}
        self._backlog = Backlog()
        self._limit = BATCH
        self._not_before = float("-inf")
        self._moved: dict[TopicPartition, Position] = {}  # reset while a poll was under way: what that brings is old
        self._in_turn = self._joining_anew = False
        self._member = ""
        self._request: CommitRequest | None = None
        self._unsent: CommitOutcome | None = None
        self._kept: BaseException | None = None
        self._broken = False

    # -- records -----------------------------------------------------------------------------------------------------

    def subscribe(self, topics: Sequence[str], listener: Listener) -> None:
        """Join the group. Raises SourceError."""
        self._registered = listener
        self._thread = ClientThread(self._client, name=f"kafka-python-{self.adopted.group}")
        try:
            self._client.subscribe(topics=list(topics), listener=self._thread.listener)
        except Exception as error:
            raise source_error(f"subscribe to {', '.join(topics)}", error) from error
        # A subscription that meets a metadata request under way is not looked up until the next one, five minutes
        # later. This waits for the one under way, and then for one that knows these topics.
        for topic in topics:
            questions.partitions_of(self._client, topic, POLL_INTERVAL_S)

    def poll(self, timeout_s: float) -> Message | None:
        """Wait for one record or the answer to a commit, at most timeout_s; serves callbacks. 0: for NAP_S only."""
        if self._before():  # whoever waits for the answer to a commit has it
            self._ask()
            return self._backlog.take_one()
        until = time.monotonic() + max(timeout_s, NAP_S)
        while not self._backlog and (left_s := until - time.monotonic()) > 0:
            self._ask()
            try:
                word = self._open.inbox.get(timeout=left_s)
            except Empty:
                break
            self._hear(word)
            if isinstance(word, Answered):
                break  # somebody may have waited for it
        return self._backlog.take_one()

    def sweep(self, limit: int) -> list[Message]:
        """Take what is already fetched, at most `limit`; never waits; serves callbacks."""
        self._limit = limit
        self._before()
        self._ask()
        return self._backlog.take(limit)

    def _ask(self) -> None:
        """Have the client polled, if it is not, and there is room."""
        thread = self._open
        if thread.idle and not self._backlog and not self._broken and time.monotonic() >= self._not_before:
            thread.poll(self._limit)

    def _before(self) -> bool:
        """What is due first: what was heard, an outcome that never left, an exception of the listener. Returns whether
        the answer to a commit was among it.
        """
        answered = self._unsent is not None
        inbox = self._open.inbox
        while not inbox.empty():
            word = inbox.get()
            self._hear(word)
            answered = answered or isinstance(word, Answered)
        if self._unsent is not None:
            outcome, self._unsent = self._unsent, None
            self._tell(self._listener.on_committed, outcome)
        if self._kept is not None:
            kept, self._kept = self._kept, None
            raise kept
        return answered

    def _hear(self, word: Word) -> None:
        match word:
            case Fetched(records=records, error=error):
                self._open.idle = True
                for place, found in records.items():
                    self._keep(TopicPartition(*place), found)
                self._catch_up()
                if error is not None:
                    self._report(error)
                if self._mind_membership() == MemberState.STABLE and self._joining_anew:
                    self._gain(())
            case CallbackTurn():
                self._take_turn(word)
            case Answered(request=request, error=error):
                if self._request is request:
                    self._request = None
                    confirmed = CommitOutcome(confirmed=request.positions)
                    self._tell(self._listener.on_committed, confirmed if error is None else request.all_failed(error))
            case ThreadClosed():
                pass

    def _keep(self, place: TopicPartition, records: list[Any]) -> None:
        if place in self._started and place not in self._moved:
            self._backlog.add(place, map(PythonMessage, records))

    def _report(self, error: BaseException) -> None:
        self._not_before = time.monotonic() + PAUSE_S
        outside = questions.outside_of(error)
        for place in outside:
            if place in self._started and place not in self._backlog.outside:
                self._backlog.outside.add(place)
                self._client_call("pause", [place])
                self._tell(self._listener.on_error, source_error(f"read {place}", error), place)
        if not outside:
            trouble = source_error("read from the group", error)
            self._broken = trouble.fault in (Fault.FATAL, Fault.FENCED)
            self._tell(self._listener.on_error, trouble, None)

    # -- partitions --------------------------------------------------------------------------------------------------

    def start(self, positions: Sequence[Position]) -> None:
        """Begin fetching these partitions at these offsets (inside on_assigned)."""
        for position in positions:
            self._started[position.place] = position
            self._backlog.paused.discard(position.place)
            self._moved.pop(position.place, None)
            self._seek(position)

    def reset(self, position: Position) -> None:
        """Drop what was fetched of a started partition and go on from another offset; keeps it paused if it was."""
        place = position.place
        if place not in self._started:
            raise SourceError(f"Could not reset {place}: it is not started.", fault=Fault.FATAL, code="NOT_STARTED")
        self._started[place] = position
        self._backlog.drop([place])
        if self._in_turn or self._open.idle:
            self._seek(position)
        else:
            self._moved[place] = position

    def _catch_up(self) -> None:
        """A poll is over: the seeks that had to wait for it."""
        moved, self._moved = self._moved, {}
        for place, position in moved.items():
            if place in self._started:
                self._tell(self._seek, position)

    def _seek(self, position: Position) -> None:
        place = ClientPlace(*position.place)
        try:
            if position.offset == BEGINNING:
                self._client.seek_to_beginning(place)
            else:
                self._client.seek(place, position.offset)
        except Exception as error:
            raise source_error(f"start {position.place} at {position.offset}", error) from error
        self._client_call("pause" if self._backlog.holds(position.place) else "resume", [position.place])

    def pause(self, places: Sequence[TopicPartition]) -> None:
        """Stop handing out records of these; what was fetched ahead of them is kept."""
        self._backlog.pause(places)
        self._client_call("pause", places)

    def resume(self, places: Sequence[TopicPartition]) -> None:
        """Go on with these."""
        self._client_call("resume", self._backlog.resume(places))

    def _client_call(self, name: str, places: Sequence[TopicPartition]) -> None:
        """`pause` or `resume`; of those that are still assigned: for others the library raises KeyError."""
        assigned = self._client.assignment()
        getattr(self._client, name)(*[one for one in (ClientPlace(*place) for place in places) if one in assigned])

    def _take_turn(self, turn: CallbackTurn) -> None:
        places = [TopicPartition(*place) for place in turn.places]
        self._in_turn = True
        try:
            self._mind_membership()
            if turn.what == "assigned":
                self._gain(places)
            else:
                self._give_up(places, self._listener.on_revoked if turn.what == "revoked" else self._listener.on_lost)
        finally:
            self._in_turn = False
            turn.done()

    def _mind_membership(self) -> str:
        """Whoever has a new member id has lost what it had. Returns the state of the membership."""
        membership = self._client.group_metadata()
        if membership.member_id != self._member:
            self._member = membership.member_id
            self._joining_anew = self._joining_anew or bool(self._started)
            self._give_up(list(self._started), self._listener.on_lost)
        return str(membership.state)

    def _gain(self, places: Sequence[TopicPartition]) -> None:
        if self._joining_anew:  # what the library thinks it has kept is new to us, too
            kept = {TopicPartition(*place) for place in self._client.assignment()} - self._started.keys()
            places = sorted(kept.union(places))
            self._joining_anew = False
        self._tell(self._listener.on_assigned, places)

    def _give_up(self, places: Sequence[TopicPartition], tell: Callable[[Sequence[TopicPartition]], None]) -> None:
        own = [place for place in places if place in self._started]
        if own:
            self._tell(tell, own)
            self._backlog.drop(own)
            self._backlog.paused.difference_update(own)
            for place in own:
                self._started.pop(place, None)

    # -- offsets -----------------------------------------------------------------------------------------------------

    def committed(self, places: Sequence[TopicPartition], timeout_s: float) -> list[CommittedOffset]:
        """Ask the group's coordinator. Raises SourceError; an error of one partition is an error, never 'no commit'."""
        return questions.committed_of(self._client, places, timeout_s)

    def edges(self, place: TopicPartition, timeout_s: float) -> tuple[int, int]:
        return questions.edges_of(self._client, place, timeout_s)

    def ends(self, places: Sequence[TopicPartition], timeout_s: float) -> dict[TopicPartition, int]:
        return questions.ends_of(self._client, places, timeout_s)

    def beginnings(self, places: Sequence[TopicPartition], timeout_s: float) -> dict[TopicPartition, int]:
        return questions.beginnings_of(self._client, places, timeout_s)

    def seen_ends(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return questions.seen_ends_of(self._client, places)

    def commit(self, positions: Sequence[Position]) -> None:
        """Send one commit request and return at once; `on_committed` answers, exactly once, from a later call."""
        if self._request is not None or self._unsent is not None:
            raise SourceError("A commit is under way already: wait for its outcome.", fault=Fault.FATAL, code="BUSY")
        request = CommitRequest(tuple(positions))
        inbox, what = self._open.inbox, f"commit {names_of(request.places())}"

        def answer(_: object, outcome: object) -> None:  # on the library's I/O thread
            error = source_error(what, outcome) if isinstance(outcome, BaseException) else None
            inbox.put(Answered(request, error))

        offsets = {
            ClientPlace(*position.place): OffsetAndMetadata(position.offset, questions.ended(position.metadata), -1)
            for position in positions
        }
        try:
            self._client.commit_async(offsets, callback=answer)
            self._request = request
        except Exception as error:  # noqa: BLE001 - whatever it is, it becomes the outcome of this request
            self._unsent = request.all_failed(source_error(what, error))

    def serve(self, timeout_s: float) -> float:
        """Inside on_revoked only, where polling is impossible: wait at most timeout_s for the commit under way. Returns
        0: the library's own answer is heard here, so nobody has to ask the broker.
        """
        if self._unsent is not None:
            outcome, self._unsent = self._unsent, None
            self._tell(self._listener.on_committed, outcome)
            return 0.0
        deadline = time.monotonic() + timeout_s
        while self._request is not None:
            try:
                self._hear(self._open.inbox.get(timeout=max(0.0, deadline - time.monotonic())))
            except Empty:
                break
        return 0.0

    def close(self, *, leave: bool = True) -> None:  # noqa: ARG002 - a static member of this library never leaves
        """Leave the group. Callbacks may come during it. Over within seconds even when the broker is away.

        A commit that is still unanswered afterwards is reported as failed: nobody will ever know. Never raises; what a
        listener raises meanwhile is logged.
        """
        if (thread := self._thread) is None:
            return
        thread.close(LEAVE_S)
        deadline = time.monotonic() + 2 * LEAVE_S
        word: Word | None = None
        try:
            while not isinstance(word, ThreadClosed):
                try:
                    word = thread.inbox.get(timeout=max(0.0, deadline - time.monotonic()))
                except Empty:
                    break
                self._hear(word)
            while not thread.inbox.empty():
                self._hear(thread.inbox.get())
            if self._request is not None:
                request, self._request = self._request, None
                text = "The consumer closed before the commit was answered."
                self._unsent = request.all_failed(SourceError(text, fault=Fault.RETRY, code="CLOSED"))
            self._before()
        except BaseException:  # noqa: BLE001 - there is no later call that could raise it
            _log.exception("source_listener_failed_while_closing")
        self._thread = None
        self._started.clear()

    def _tell(self, call: Callable[..., None], *arguments: object) -> None:
        try:
            call(*arguments)
        except BaseException as error:  # noqa: BLE001 - at the client's edge: kept, and raised by the next poll or sweep
            self._kept = self._kept or error

    @property
    def _open(self) -> ClientThread:
        if self._thread is None:
            raise SourceError("The consumer is not open: subscribe first.", fault=Fault.FATAL, code="CLOSED")
        return self._thread

    @property
    def _listener(self) -> Listener:
        assert self._registered is not None
        return self._registered

"""The simulated consuming client."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import assert_never

from keepfast.core.errors import Fault, SourceError
from keepfast.core.ports import CommitOutcome, CommittedOffset, Listener, Position
from keepfast.core.records import Message, TopicPartition
from keepfast.testing.fakes.acts import OffsetsRead
from keepfast.testing.fakes.broker import FakeBroker
from keepfast.testing.fakes.commits import Commits
from keepfast.testing.fakes.fetcher import Fetched, Fetcher, Neglect, PartitionEnd
from keepfast.testing.fakes.membership import Membership, Phase
from keepfast.testing.fakes.operations import (
    AssignOp,
    CommitOp,
    ErrorOp,
    LostOp,
    Operation,
    Operations,
    RepeatedOp,
    RevokeOp,
)
from keepfast.testing.fakes.process import Process, SimulationError
from keepfast.testing.fakes.trace import (
    AssignCalled,
    ClientClosed,
    ClientReplaced,
    Delivered,
    LostCalled,
    Refetched,
    Reset,
    RevokedBegin,
    RevokedEnd,
    Started,
)
from keepfast.testing.fakes.wire import Channel, Failure


class FakeSource:
    """Implements `core.ports.Source` for one member. Breaking a rule of the port raises SimulationError."""

    def __init__(self, process: Process, broker: FakeBroker, *, group: str, instance_id: str | None = None) -> None:
        self._process = process
        self._broker = broker
        self._group = broker.group(group)
        self._operations: Operations = deque()
        self._channel = Channel(process, broker.coordinator, broker.rng, broker.settings.latency_s)
        self._fetcher = Fetcher(process, broker, self._operations)
        self._membership = Membership(
            process,
            broker,
            self._channel,
            self._operations,
            group=self._group,
            instance_id=instance_id,
            suspend=self._fetcher.suspend,
            may_rejoin=lambda: self._commits.unanswered == 0,
        )
        self._commits = Commits(
            process,
            broker,
            self._channel,
            self._operations,
            group=self._group,
            answered=self._membership.commit_answered,
            unknown=self._membership.renew,
            ended=self._membership.end_client,
        )
        self._ends: list[PartitionEnd] = []  # reached in the last call, whose records the caller has by now
        self._listener: Listener | None = None
        self._listener_error: Exception | None = None
        self._callback = ""
        self._event_taken = False
        self._answered = False  # a commit, in the poll at hand
        self._closed = False
        self._renews = False

    @property
    def owned(self) -> tuple[TopicPartition, ...]:
        """What the client itself counts as its own: for tests and oracles, not part of the port."""
        return self._membership.owned

    def subscribe(self, topics: Sequence[str], listener: Listener) -> None:
        self._enter("subscribe")
        self._listener = listener
        for topic in topics:
            if self._broker.partitions(topic) is None:
                error = Failure("UNKNOWN_TOPIC_OR_PART").error(f"subscribed topic {topic}")
                self._operations.append(ErrorOp(error, None))
        self._membership.subscribe(topics)

    def poll(self, timeout_s: float) -> Message | None:
        self._enter_polling("poll")
        if timeout_s > 0:
            self._membership.polled_at = inf  # a member that waits in poll does not exceed the poll interval
        deadline = self._now() + timeout_s
        fetched = self._next()
        while fetched is None and self._now() < deadline and not (self._event_taken or self._answered):
            waited = self._process.wait(
                deadline - self._now(), lambda: self._operations or self._fetcher.ready(), yields=True
            )
            fetched = self._next()
            if not waited:
                break
        self._membership.polled_at = self._now()
        return self._hand_out([fetched])[0] if fetched is not None else None

    def sweep(self, limit: int) -> list[Message]:
        self._enter_polling("sweep")
        self._membership.polled_at = self._now()
        taken: list[Fetched] = []
        if self._operations:
            # Records that lie before an event in the client's queue are taken before the event is served.
            self._take(taken, self._broker.rng.randint(0, limit))
            self._serve_all()
        self._take(taken, limit)
        return self._hand_out([fetched for fetched in taken if self._fetcher.is_current(fetched)])

    @property
    def emptied(self) -> bool:
        return not self._operations and not self._fetcher.ready()

    def serve(self, timeout_s: float) -> float:
        self._enter("serve")
        if self._callback != "on_revoked":
            raise SimulationError("serve is only for the inside of on_revoked")
        self._report_unsent()
        outcome = self._commits.read_back(timeout_s)
        if outcome is not None:
            self._notify(outcome)
        return self._commits.absent_s

    def start(self, positions: Sequence[Position]) -> None:
        self._enter("start")
        for position in positions:
            self._fetcher.start(position)
            self._broker.trace.add(Started(self._now(), self._process.name, position.place, position.offset))

    def reset(self, position: Position) -> None:
        self._enter("reset")
        if not self._fetcher.started(position.place):
            raise SourceError(f"reset of {position.place}, which is not started", fault=Fault.FATAL, code="NOT_STARTED")
        self._fetcher.reset(position)
        self._broker.trace.add(Reset(self._now(), self._process.name, position.place, position.offset))

    @property
    def reports_ends(self) -> bool:
        return True

    def refetch(self, position: Position) -> None:
        self._enter("refetch")
        self._fetcher.refetch(position)
        self._broker.trace.add(Refetched(self._now(), self._process.name, position.place, position.offset))

    def neglect(self, place: TopicPartition, until: Neglect) -> None:
        """A fault: the client does not fetch the partition any more. Not part of the port."""
        self._fetcher.neglect(place, until)

    def renew(self) -> bool:
        self._enter("renew")
        self._renews = True
        return True

    def _renew(self) -> None:
        self._renews = False
        self._broker.trace.add(ClientReplaced(self._now(), self._process.name))
        if self._membership.owned and self._membership.phase is not Phase.FENCED:
            self._serve(RevokeOp(self._membership.owned))
        self._membership.renew()
        self._guard(self._the_listener().on_replaced)

    def pause(self, places: Sequence[TopicPartition]) -> None:
        self._enter("pause")
        self._fetcher.pause(places)

    def resume(self, places: Sequence[TopicPartition]) -> None:
        self._enter("resume")
        self._fetcher.resume(places)

    def committed(self, places: Sequence[TopicPartition], timeout_s: float) -> list[CommittedOffset]:
        self._enter("committed")
        answer = self._commits.stored(places, timeout_s) if places else []
        if isinstance(answer, Failure):
            raise answer.error("reading committed offsets")
        for found in answer:
            self._broker.trace.add(
                OffsetsRead(self._now(), self._process.name, found.place, found.offset, found.metadata)
            )
        return answer

    def edges(self, place: TopicPartition, timeout_s: float) -> tuple[int, int]:
        return self._edges_of([place], timeout_s)[place]

    def ends(self, places: Sequence[TopicPartition], timeout_s: float) -> dict[TopicPartition, int]:
        return {place: end for place, (_, end) in self._edges_of(places, timeout_s).items()} if places else {}

    def beginnings(self, places: Sequence[TopicPartition], timeout_s: float) -> dict[TopicPartition, int]:
        return {place: start for place, (start, _) in self._edges_of(places, timeout_s).items()} if places else {}

    def at_time(self, place: TopicPartition, at_ms: int, timeout_s: float) -> int | None:
        self._edges_of([place], timeout_s)
        log = self._broker.log(place)
        messages = log.messages() if log is not None else ()
        return next((message.offset() for message in messages if message.timestamp()[1] >= at_ms), None)

    def seen_ends(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Takes no simulated time, unlike every other call."""
        logs = {place: self._broker.log(place) for place in places}
        return {place: log.end for place, log in logs.items() if log is not None}

    def _edges_of(self, places: Sequence[TopicPartition], timeout_s: float) -> dict[TopicPartition, tuple[int, int]]:
        self._enter("edges")
        answers: list[None] = []
        delay_s = self._broker.rng.uniform(*self._broker.settings.edges_delay_s)  # it queues behind a long fetch
        self._broker.data.after(delay_s, lambda: answers.append(None))
        if not self._process.wait(timeout_s, lambda: answers):
            raise Failure("_TIMED_OUT").error("asking for the edges")
        found = {}
        for place in places:
            log = self._broker.log(place)
            if log is None:
                raise Failure("UNKNOWN_TOPIC_OR_PART").error(f"asking for the edges of {place}")
            found[place] = log.start, log.end
        return found

    def commit(self, positions: Sequence[Position]) -> None:
        self._enter("commit")
        self._commits.send(self._membership.identity(), positions)

    def close(self, *, leave: bool = True) -> None:  # noqa: ARG002 - there are no static members here
        if self._closed:
            return
        self._enter("close")
        self._membership.stop_joining()
        self._report_unsent()
        self._serve_all()
        if self._membership.owned and self._membership.phase is not Phase.FENCED:
            self._serve(RevokeOp(self._membership.owned))
        # The client does not leave before its commits are answered, or have timed out.
        self._report_unsent()
        while self._commits.under_way:
            self._process.wait(self._broker.settings.request_timeout_s, lambda: self._operations)
            self._serve_all()
            self._report_unsent()
        self._membership.leave()
        self._fetcher.close()
        self._closed = True
        self._broker.trace.add(ClientClosed(self._now(), self._process.name))

    def _enter(self, call: str) -> None:
        self._process.enter()
        if self._closed:
            raise SourceError(f"{call} on a closed source; make a new one", fault=Fault.FATAL, code="_STATE")
        if self._callback and call in ("poll", "sweep", "close", "subscribe"):
            raise SimulationError(f"{call} from inside {self._callback}: the real client aborts the process")

    def _enter_polling(self, call: str) -> None:
        self._enter(call)
        self._report_unsent()
        self._report_ends()
        self._raise_listener_error()
        if self._renews:
            self._renew()
        self._membership.polled()

    def _report_ends(self) -> None:
        ends, self._ends = self._ends, []
        for end in ends:
            if self._fetcher.is_current(end):
                self._guard(partial(self._the_listener().on_end, end.place, end.offset))

    def _raise_listener_error(self) -> None:
        kept, self._listener_error = self._listener_error, None
        if kept is not None:
            raise kept

    def _report_unsent(self) -> None:
        outcome = self._commits.take_unsent()
        if outcome is not None:
            self._notify(outcome)

    def _next(self) -> Fetched | None:
        """Serve what is queued, then the next record; an error takes the place of a record, as in the client."""
        self._event_taken = self._answered = False
        while self._operations and not self._event_taken:
            operation = self._operations.popleft()
            self._event_taken = isinstance(operation, ErrorOp)
            self._answered = self._answered or isinstance(operation, CommitOp)
            self._serve(operation)
        if self._event_taken:
            return None
        fetched = self._fetcher.take()
        if isinstance(fetched, PartitionEnd):
            self._event_taken = True
            self._ends.append(fetched)
            return None
        return fetched

    def _take(self, taken: list[Fetched], limit: int) -> None:
        while len(taken) < limit:
            fetched = self._fetcher.take()
            if fetched is None:
                return
            if isinstance(fetched, PartitionEnd):
                self._ends.append(fetched)
            else:
                taken.append(fetched)

    def _hand_out(self, fetched: Sequence[Fetched]) -> list[Message]:
        for message, _ in fetched:
            place = TopicPartition(message.topic(), message.partition())
            self._broker.trace.add(Delivered(self._now(), self._process.name, place, message.offset()))
        return [message for message, _ in fetched]

    def _serve_all(self) -> None:
        while self._operations:
            self._serve(self._operations.popleft())

    def _serve(self, operation: Operation) -> None:
        listener, trace, name, now = self._the_listener(), self._broker.trace, self._process.name, self._now()
        generation = self._membership.generation
        match operation:
            case AssignOp(places):
                trace.add(AssignCalled(now, name, generation, places))
                self._rebalance("on_assigned", lambda: listener.on_assigned(places))
                self._membership.assigned(places)
            case RevokeOp(places):
                trace.add(RevokedBegin(now, name, generation, places))
                self._rebalance("on_revoked", lambda: listener.on_revoked(places))
                trace.add(RevokedEnd(self._now(), name, generation, places))
                self._fetcher.drop(places)
                self._membership.released(places)
            case LostOp(places):
                trace.add(LostCalled(now, name, places))
                self._rebalance("on_lost", lambda: listener.on_lost(places))
                self._fetcher.drop(places)
                self._membership.forgotten()
            case CommitOp(outcome):
                self._notify(outcome)
            case RepeatedOp():
                self._guard(listener.on_commit_repeated)
            case ErrorOp(error, place):
                self._guard(lambda: listener.on_error(error, place))
            case _:
                assert_never(operation)

    def _rebalance(self, name: str, call: Callable[[], None]) -> None:
        self._callback = name
        self._process.in_callback = True
        self._membership.serving()
        self._guard(call)
        self._process.in_callback = False
        self._callback = ""
        self._fetcher.unsuspend()

    def _notify(self, outcome: CommitOutcome) -> None:
        self._commits.settle(outcome)
        self._guard(lambda: self._the_listener().on_committed(outcome))

    def _guard(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - as in the adapter: no exception may pass through the client
            self._listener_error = self._listener_error or error

    def _the_listener(self) -> Listener:
        if self._listener is None:
            raise SimulationError("subscribe first")
        return self._listener

    def _now(self) -> float:
        return self._process.clock.monotonic()

"""Commits of a simulated client: one under way, answered exactly once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from keepfast.core.absence import Absence
from keepfast.core.errors import Fault, SourceError
from keepfast.core.ports import PRODUCER_HANGS, CommitOutcome, CommittedOffset, Position
from keepfast.core.records import TopicPartition
from keepfast.testing.fakes.broker import FakeBroker, PositionAnswer
from keepfast.testing.fakes.coordinator import Group, Identity
from keepfast.testing.fakes.faults import CommitFault
from keepfast.testing.fakes.operations import CommitOp, ErrorOp, Operations, RepeatedOp
from keepfast.testing.fakes.process import Process, SimulationError
from keepfast.testing.fakes.trace import CommitAnswered, CommitSent, ProducerGivenUp
from keepfast.testing.fakes.wire import Channel, Failure

READ_BACK_PAUSE_S = 0.02
"""Interval of read-backs inside on_revoked."""

GIVE_UP_S = 15.0
"""How long a call of the producer of transactions may take."""

LATE_S = (0.5, 15.0)
"""How long a commit is held back that is delivered late."""

NOTICED_S = 5.0
"""Within this time the client reports that it has sent a commit twice."""

PARTLY_S = 0.1
"""How long the rest of a request may take once some of it is held."""


@dataclass(slots=True, eq=False)
class _Request:
    positions: tuple[Position, ...]
    partly_since: float | None = None
    absence: Absence = field(default_factory=Absence)


class Commits:
    """`unanswered` counts requests the broker has not answered; `under_way` says whether the listener waits for one.

    `unknown` is called if a transaction has no answer: nothing of it may be sent again. `ended` is called when the
    client has ended itself; it returns when a new one takes its place.
    """

    def __init__(
        self,
        process: Process,
        broker: FakeBroker,
        channel: Channel,
        operations: Operations,
        *,
        group: Group,
        answered: Callable[[], None],
        unknown: Callable[[], None],
        ended: Callable[[], float],
    ) -> None:
        self._ended = ended
        self._ended_until = 0.0
        self._unknown = unknown
        self._process = process
        self._broker = broker
        self._channel = channel
        self._operations = operations
        self._group = group
        self._answered = answered
        self._request: _Request | None = None
        self._unsent: CommitOutcome | None = None
        self.unanswered = 0

    @property
    def under_way(self) -> bool:
        return self._request is not None

    @property
    def absent_s(self) -> float:
        """How long the group was observed to hold none of the request in flight."""
        return 0.0 if self._request is None else self._request.absence.seconds

    def send(self, who: Identity, positions: Sequence[Position]) -> None:
        if self._request is not None:
            raise SimulationError("a second commit while one is under way")
        self._request = request = _Request(tuple(positions))
        now = self._process.clock.monotonic()
        for p in request.positions:
            self._broker.trace.add(CommitSent(now, who.name, who.generation, p.place, p.offset, p.metadata))
        if self._broker.faults.commits.take(only=CommitFault.UNSENT) is not None:
            self._unsent = _outcome(request.positions, Failure("_TRANSPORT"))
            return
        if now >= self._ended_until and self._broker.faults.clients.take() is not None:
            self._ended_until = self._ended()
        if now < self._ended_until:
            self._unsent = _outcome(request.positions, Failure("CLOSED"))
            return
        if self._broker.faults.network.take() is not None:
            self._hold_back(who, request)
        self.unanswered += 1
        if self._broker.faults.transactions.take() is not None:
            self._hang(who, request)
            return
        self._channel.send(
            lambda respond: respond(self._broker.commit(self._group, who, request.positions)),
            lambda answer: self._on_answer(request, answer),
            timeout_s=self._broker.settings.request_timeout_s,
            cuts=True,
        )

    def _hang(self, who: Identity, request: _Request) -> None:
        """A call of the producer, which has a connection of its own, never returns: it is given up."""
        if self._broker.rng.random() < 0.5:
            self._broker.commit(self._group, who, request.positions)
        self._process.later(GIVE_UP_S, lambda: self._give_up(request))

    def _give_up(self, request: _Request) -> None:
        self.unanswered -= 1
        if self._request is request:
            error = SourceError("The producer has not answered.", fault=Fault.RETRY, code=PRODUCER_HANGS)
            self._operations.append(ErrorOp(error, None))
            self._broker.trace.add(ProducerGivenUp(self._process.clock.monotonic(), self._process.name))
            self._unknown()
            self._operations.append(CommitOp(_outcome(request.positions, Failure("CLOSED"))))
        self._answered()

    def _hold_back(self, who: Identity, request: _Request) -> None:
        """The first copy of a request that the client sends again."""
        broker, rng = self._broker, self._broker.rng
        broker.held_back += 1
        broker.coordinator.after(rng.uniform(*LATE_S), lambda: broker.deliver_late(self._group, who, request.positions))
        self._process.later(rng.uniform(0.0, NOTICED_S), lambda: self._operations.append(RepeatedOp()))

    def take_unsent(self) -> CommitOutcome | None:
        """The outcome of a request that was never sent; reported by the next call that serves callbacks."""
        outcome, self._unsent = self._unsent, None
        return outcome

    def read_back(self, timeout_s: float) -> CommitOutcome | None:
        """Read back until the group holds what was sent, at most timeout_s. A refusal is detected only if some of
        the request was stored; else the offsets just stay absent.
        """
        clock = self._process.clock
        deadline = clock.monotonic() + timeout_s
        while self._request is not None and clock.monotonic() < deadline:
            outcome = self._observe(self._request, deadline - clock.monotonic())
            if outcome is not None:
                # The client's own answer may have arrived meanwhile, but could not be delivered.
                for operation in [op for op in self._operations if isinstance(op, CommitOp)]:
                    self._operations.remove(operation)
                return outcome
            self._process.wait(min(READ_BACK_PAUSE_S, max(0.0, deadline - clock.monotonic())), lambda: False)
        return None

    def stored(self, places: Sequence[TopicPartition], timeout_s: float) -> Failure | list[CommittedOffset]:
        """Ask the coordinator; waits for the answer."""
        answers: list[Any] = []
        self._channel.send(
            lambda respond: respond(self._broker.committed(self._group, places)), answers.append, timeout_s=timeout_s
        )
        self._process.wait(timeout_s, lambda: answers)
        answer: Failure | list[CommittedOffset] = answers[0] if answers else Failure("_TIMED_OUT")
        return answer

    def settle(self, outcome: CommitOutcome) -> None:
        """The listener is about to be called: the next commit may be sent."""
        self._request = None
        now, name = self._process.clock.monotonic(), self._process.name
        for position in outcome.confirmed:
            self._broker.trace.add(CommitAnswered(now, name, position.place, position.offset, ""))
        for position, error in outcome.failed:
            self._broker.trace.add(CommitAnswered(now, name, position.place, position.offset, error.code))

    def _observe(self, request: _Request, timeout_s: float) -> CommitOutcome | None:
        stored = self.stored([p.place for p in request.positions], timeout_s)
        if isinstance(stored, Failure):
            return None
        held = {(c.place, c.offset, c.metadata) for c in stored}
        confirmed = tuple(p for p in request.positions if (p.place, p.offset, p.metadata) in held)
        missing = [p for p in request.positions if p not in confirmed]
        now = self._process.clock.monotonic()
        if not confirmed:
            request.absence.seen(now)
        if missing and confirmed and request.partly_since is None:
            request.partly_since = now
        if missing and (not confirmed or request.partly_since is None or now - request.partly_since < PARTLY_S):
            return None
        return CommitOutcome(confirmed, tuple((p, Failure("NOT_HELD").error(f"commit {p.place}")) for p in missing))

    def _on_answer(self, request: _Request, answer: Failure | list[PositionAnswer]) -> None:
        self.unanswered -= 1
        if self._request is request:
            if isinstance(answer, Failure) and any(position.outputs for position in request.positions):
                self._broker.trace.fault("transaction_unknown")
                self._unknown()
            self._operations.append(CommitOp(_outcome(request.positions, answer)))
        self._answered()


def _outcome(positions: tuple[Position, ...], answer: Failure | list[PositionAnswer]) -> CommitOutcome:
    """As the client reports the answer: the last error of any partition becomes the error of all of them."""
    if not isinstance(answer, Failure):
        codes = [a.code for a in answer if a.code]
        if not codes:
            return CommitOutcome(confirmed=positions)
        answer = Failure(codes[-1])
    return CommitOutcome((), tuple((position, answer.error(f"committing {position.place}")) for position in positions))

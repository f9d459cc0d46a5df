"""Commit requests in flight, which way they go, how their answers are waited for, and whose answer is whose."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from statistics import median
from typing import Any

from confluent_kafka import KafkaError

from keepfast.core.absence import Absence
from keepfast.core.errors import Fault, SourceError
from keepfast.core.ports import CommitOutcome, CommittedOffset, Position, PreparedCommit
from keepfast.core.records import TopicPartition
from keepfast.kafka.commit_connection import (
    CommitConnection,
    CommitFrame,
    ConnectError,
    GroupMembership,
    NotPossible,
    Opener,
)
from keepfast.kafka.faults import source_error
from keepfast.kafka.places import ClientPlace

_log = logging.getLogger("keepfast.kafka.commits")
_ERROR = attrgetter("error")
PARTLY_S = 0.1
"""How long the rest of a request may take once some of it is held: offsets may be held that an earlier request stored.
"""

TRIAL_ROUNDS, TURN_ROUNDS = 32, 8
"""Rounds in which each way to wait for an answer is tried, by turns of so many, so that both meet the same machine."""
MIN_ROUNDS, MAX_ROUNDS = 500, 8_000
"""Rounds until the next trial: the first number after a result that is new, twice as many after each that is not."""
MIN_GAIN = 0.95
"""Polling needs a processor, so it must take at most this part of the time that waiting takes."""
MAX_ROUND_S = 0.005
"""A longer round is one in which there was nothing to commit."""

WORTHWHILE_COMMITS, WITHIN_S = 100, 2.0
"""A connection of our own is opened after so many commits, if they took no longer."""
RETRY_S, MAX_RETRY_S = 1.0, 60.0
"""After one has failed, the next is opened so much later; doubled until one has sent WORTHWHILE_COMMITS."""
CONFIRM_TIMEOUT_S, RETIRED_TIMEOUT_S = 5.0, 0.5
"""How old a request gets on it without an answer before the client sends the same, and once the membership changes:
what the client has sent can be read back inside a callback. What was given up by then is not sent.
"""


GIVEN_UP = SourceError(
    "The partition was given up before its commit was answered.", fault=Fault.REBALANCING, code="GIVEN_UP"
)
UNANSWERED = SourceError(
    "The commit was not answered before other partitions of it were given up; it is sent again.",
    fault=Fault.RETRY,
    code="UNANSWERED",
)


class AnswerWait:
    """Whether the answer to a commit is waited for in the client, or by polling the client without a pause. Owner: the
    loop's thread.

    Polling gets the answer sooner where a processor is free for it. Where none is, it takes one from the broker or from
    the client's own threads, and is slower. So both ways are tried in turn, by the time from a request to the next one,
    and the faster one is kept for a while. A request of one partition is always waited for in the client: its records
    would have to pay for the polling alone.
    """

    __slots__ = ("_faster", "_left", "_polls", "_rounds", "_sent_at", "_until_trial", "polls")

    def __init__(self) -> None:
        self.polls = False  # for the answer to the last request
        self._polls = False
        self._faster = False  # whether polling was, in the last trial
        self._until_trial = MIN_ROUNDS
        self._left = 0  # rounds until the next trial
        self._rounds: tuple[list[float], list[float]] = ([], [])  # of the trial: those waited in, and those polled in
        self._sent_at: float | None = None  # the last request, of several partitions

    def sent_one(self) -> None:
        """A request of one partition is sent."""
        self._sent_at = None
        self.polls = False

    def sent(self, now: float) -> None:
        """A request of several partitions is sent."""
        before, self._sent_at = self._sent_at, now
        if before is not None and now - before <= MAX_ROUND_S:
            if self._left:
                self._left -= 1
            else:
                self._try(now - before)
        self.polls = self._polls

    def _try(self, round_s: float) -> None:
        """A round of the trial took so long."""
        waited, polled = self._rounds
        (polled if self._polls else waited).append(round_s)
        if len(polled) == TRIAL_ROUNDS:
            self._judge(median(waited), median(polled))
        elif (len(waited) + len(polled)) % TURN_ROUNDS == 0:
            self._polls = not self._polls

    def _judge(self, waited_s: float, polled_s: float) -> None:
        self._polls = polled_s <= MIN_GAIN * waited_s
        same, self._faster = self._polls is self._faster, self._polls
        self._left = self._until_trial = min(MAX_ROUNDS, 2 * self._until_trial) if same else MIN_ROUNDS
        self._rounds = ([], [])


@dataclass(slots=True, eq=False)
class CommitRequest:
    """One commit request. `partly_since`: when the broker was first seen to hold some of it, and not all. `absence`:
    how long it held nothing. `prepared`: which one it is, if it was prepared.
    """

    positions: tuple[Position, ...]
    prepared: PreparedCommit | None = None
    partly_since: float | None = None
    absence: Absence | None = None

    def places(self) -> list[TopicPartition]:
        return [position.place for position in self.positions]

    def read_back(self, held: Sequence[CommittedOffset], now: float) -> CommitOutcome | None:
        """The outcome of this request, from the offsets that the broker holds; None: not known yet.

        The broker stores what it takes of a request at once and as a whole. So if it holds some of it, and after
        PARTLY_S the rest is still not there, it has refused the rest.
        """
        found = {(one.place, one.offset, one.metadata) for one in held}
        stored = tuple(sent for sent in self.positions if (sent.place, sent.offset, sent.metadata) in found)
        missing = [] if len(stored) == len(self.positions) else [sent for sent in self.positions if sent not in stored]
        if not stored:
            self.absence = self.absence or Absence()
            self.absence.seen(now)
        if missing and stored and self.partly_since is None:
            self.partly_since = now
        if missing and (not stored or self.partly_since is None or now - self.partly_since < PARTLY_S):
            return None
        return CommitOutcome(stored, tuple((sent, _not_held(sent.place)) for sent in missing))

    def outcome(self, error: KafkaError | None, answer: Sequence[ClientPlace]) -> CommitOutcome:
        """The outcome by partition, from the client's answer.

        If the broker refused some of them, the client gives their error to all: then all count as failed, and sending
        those again that were stored does no harm.
        """
        if error is None and len(answer) == len(self.positions) and not any(map(_ERROR, answer)):
            return CommitOutcome(self.positions)
        errors = {TopicPartition(one.topic, one.partition): one.error for one in answer}
        confirmed, failed = [], []
        for position in self.positions:
            own = errors.get(position.place) or error
            if own is None:
                confirmed.append(position)
            else:
                failed.append((position, source_error(f"commit {position.place}", own)))
        return CommitOutcome(confirmed=tuple(confirmed), failed=tuple(failed))

    def given_up(self, gone: Sequence[TopicPartition]) -> CommitOutcome:
        """Not answered by the time at which these partitions were given up."""
        failed = [(position, GIVEN_UP if position.place in gone else UNANSWERED) for position in self.positions]
        return CommitOutcome(confirmed=(), failed=tuple(failed))

    def all_failed(self, error: SourceError) -> CommitOutcome:
        return CommitOutcome(confirmed=(), failed=tuple((position, error) for position in self.positions))


def _not_held(place: TopicPartition) -> SourceError:
    text = f"Could not commit {place}: the group holds the rest of the request, but not this."
    return SourceError(text, fault=Fault.REFUSED, code="NOT_HELD")


@dataclass(slots=True)
class Requests:
    """Owner: the loop's thread. `under_way`: the one request whose outcome is not known yet. `_late`: those whose
    outcome was read back, and whose answer is still to come.
    """

    under_way: CommitRequest | None = None
    _late: list[CommitRequest] = field(default_factory=list)

    def drop(self) -> CommitRequest | None:
        """Stop waiting for the answer to the request in flight."""
        request, self.under_way = self.under_way, None
        return request

    def read_back(self, held: Sequence[CommittedOffset], now: float) -> CommitOutcome | None:
        """The outcome of the request in flight, from the offsets that the broker holds; None: not known yet."""
        request = self.under_way
        outcome = None if request is None else request.read_back(held, now)
        if request is not None and outcome is not None:
            self._late.append(request)
            self.under_way = None
        return outcome

    def forget_late(self) -> None:
        """No late answer will come."""
        self._late.clear()

    def confirm(self) -> CommitOutcome | None:
        """The request in flight went well. Its outcome, unless it is confirmed in silence."""
        request, self.under_way = self.under_way, None
        if request is None:
            return None
        if request.prepared is not None and request.prepared.silent:
            request.prepared.confirmed = True
            return None
        return CommitOutcome(request.positions)

    def confirm_silently(self, answer: Sequence[ClientPlace]) -> bool:
        """As `confirmed`, for a silent request: whether it was one. Every record comes through here in a stretch."""
        request = self.under_way
        if request is None or self._late or len(answer) != 1:
            return False
        prepared, one = request.prepared, answer[0]
        if prepared is None or not prepared.silent or one.offset != prepared.position.offset or one.error is not None:
            return False
        self.under_way = None
        prepared.confirmed = True
        return True

    def confirmed(self, answer: Sequence[ClientPlace]) -> CommitOutcome | None:
        """The outcome of the request in flight, if this is the answer to it, and everything went well; else None, and
        `settle` says whose answer it is. The client's answer has the positions in the order of the request. Offsets are
        enough to compare: no other request waits for an answer.
        """
        request = self.under_way
        if request is None or self._late or len(answer) != len(request.positions):
            return None
        for one, position in zip(answer, request.positions):  # noqa: B905 - as long; between a record and the next
            if one.offset != position.offset or one.error is not None:
                return None
        self.under_way = None
        return CommitOutcome(request.positions)

    def settle(self, answer: Sequence[ClientPlace]) -> CommitRequest | None:
        """The request to which the client's answer belongs; None if its outcome was known already."""
        request = self._match(answer)
        if request in self._late:
            self._late.remove(request)
            return None
        if request is not None:
            self.under_way = None
        return request

    def _match(self, answer: Sequence[ClientPlace]) -> CommitRequest | None:
        # The client retries by itself, so answers may overtake each other: compare what was asked, not the order.
        requests = self._late if self.under_way is None else [*self._late, self.under_way]
        answered = {(one.topic, one.partition, one.offset) for one in answer}
        for request in requests:
            if answered == {(*position.place, position.offset) for position in request.positions}:
                return request
        return requests[0] if requests and not answered else None


class _Attempt:
    """A connection that is being opened, on a thread of its own: every step of that blocks."""

    def __init__(self, properties: Mapping[str, Any], membership: GroupMembership) -> None:
        self.connection: CommitConnection | None = None
        self.error: Exception | None = None
        self._opener: Opener | None = None
        self._cancelled = False
        self._thread = threading.Thread(
            target=self._open, args=(properties, membership), name="keepfast-commit-connection", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def _open(self, properties: Mapping[str, Any], membership: GroupMembership) -> None:
        try:
            self._opener = Opener(properties)
            self.connection = self._opener.open(membership)
        except Exception as error:  # noqa: BLE001 - the thread's edge: the client sends the commits
            self.error = error
        if self._cancelled:
            self._close()

    def cancel(self) -> None:
        self._cancelled = True
        self._close()

    def _close(self) -> None:
        if self._opener is not None:
            self._opener.cancel()
        if self.connection is not None:
            self.connection.close()


class DirectCommits:
    """Which commits are sent on a connection of our own, and not by the client. Owner: the loop's thread.

    One is opened when there are many commits in a short time, and used until the membership changes or anything goes
    wrong with it. `properties` are the client's; `on`: whether there may be one at all.
    """

    def __init__(self, properties: Mapping[str, Any], *, on: bool) -> None:
        self._properties = properties
        self._possible = on
        self._connection: CommitConnection | None = None
        self._attempt: _Attempt | None = None
        self._retired = False  # the membership has changed: nothing more is sent in its name
        self._sent = 0  # on the connection; without one, by the client since then
        self._since = 0.0
        self._not_before = 0.0
        self._retry_s = RETRY_S

    @property
    def waiting(self) -> bool:
        """Whether a request is under way that was sent on our own connection."""
        connection = self._connection
        return connection is not None and connection.waiting

    def frame(self, positions: Sequence[Position]) -> CommitFrame | None:
        """A request, made ready to be sent; None if the client is to send it."""
        connection = self._connection
        return None if connection is None or self._retired else connection.frame(positions)

    def send(self, frame: CommitFrame) -> bool:
        """Whether it is under way. If not, the client has to send it."""
        connection = self._connection
        if connection is None or self._retired:
            return False
        if not connection.fresh:
            self._drop()
            return False
        if not connection.send(frame):
            self._failed(ConnectError("the connection has ended"))
            return False
        self._sent += 1
        return True

    def answer(self, wait_s: float) -> bool | None:
        """Whether the request under way is confirmed; None: not known after wait_s. If it is not confirmed in time, the
        client has to send it.
        """
        connection = self._connection
        if connection is None:
            return False
        answer = connection.answer(wait_s, timeout_s=RETIRED_TIMEOUT_S if self._retired else CONFIRM_TIMEOUT_S)
        if answer is False:
            self._failed(ConnectError("a commit was not confirmed"))
        elif answer and self._retired:
            self._drop()
        return answer

    def sent_by_client(self, metadata: Callable[[], bytes | None]) -> None:
        """The client has sent a request. Many of them in a short time open a connection. `metadata`: what it says of
        its membership, if it has one.
        """
        if self._attempt is not None:
            self._take(self._attempt)
        if self._connection is not None or not self._possible:
            return
        now = time.monotonic()
        if not self._sent or now - self._since > WITHIN_S:
            self._sent, self._since = 0, now
        self._sent += 1
        if self._sent < WORTHWHILE_COMMITS or now < self._not_before or self._attempt is not None:
            return
        described = metadata()
        if described is None:
            return
        membership = GroupMembership.read(described)
        if membership is None:
            self._give_up("the client describes its membership in a format that is not known")
        elif membership.epoch >= 0 and membership.member_id:
            attempt = _Attempt(self._properties, membership)
            attempt.start()
            self._attempt = attempt

    def _take(self, attempt: _Attempt) -> None:
        """See what has become of it."""
        if attempt.connection is not None:
            self._attempt, self._connection, self._retired, self._sent = None, attempt.connection, False, 0
            _log.debug("commit_connection_opened")
        elif attempt.error is not None:
            self._attempt = None
            if isinstance(attempt.error, NotPossible):
                self._give_up(str(attempt.error))
            else:
                self._failed(attempt.error)

    def _give_up(self, reason: str) -> None:
        self._possible = False
        _log.info("commit_connection_not_possible: the client sends all commits: %s", reason)

    def _failed(self, error: Exception) -> None:
        if self._connection is not None and self._sent >= WORTHWHILE_COMMITS:
            self._retry_s = RETRY_S
        self._not_before = time.monotonic() + self._retry_s
        _log.info("commit_connection_failed: the client sends the commits for %g s: %s", self._retry_s, error)
        self._retry_s = min(MAX_RETRY_S, 2 * self._retry_s)
        self._drop()

    def retire(self) -> None:
        """The membership changes: the answer to the request under way is still awaited, and no other one is sent."""
        if self._attempt is not None:
            self._attempt.cancel()
            self._attempt = None
        self._retired = self.waiting
        if not self._retired:
            self._drop()

    def close(self) -> None:
        """The answer to the request under way is not awaited any more."""
        self.retire()
        self._drop()

    def _drop(self) -> None:
        connection, self._connection, self._retired, self._sent = self._connection, None, False, 0
        if connection is not None:
            connection.close()

"""Commit requests in flight, and whose answer is whose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from confluent_kafka import KafkaError

from keepfast.core.absence import Absence
from keepfast.core.errors import Fault, SourceError
from keepfast.core.ports import CommitOutcome, CommittedOffset, Position
from keepfast.core.records import TopicPartition
from keepfast.kafka.faults import source_error
from keepfast.kafka.places import ClientPlace

_ERROR = attrgetter("error")
PARTLY_S = 0.1
"""How long the rest of a request may take once some of it is held: offsets may be held that an earlier request stored.
"""


@dataclass(slots=True, eq=False)
class CommitRequest:
    """One commit request. `partly_since`: when the broker was first seen to hold some of it, and not all. `absence`:
    how long it held nothing.
    """

    positions: tuple[Position, ...]
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

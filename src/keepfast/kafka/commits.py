"""Commit requests on their way, and which answer belongs to which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from confluent_kafka import KafkaError

from keepfast.core.absence import Absence
from keepfast.core.errors import Fault, SourceError
from keepfast.core.ports import CommitOutcome, CommittedOffset, Position
from keepfast.core.records import TopicPartition
from keepfast.kafka.faults import source_error
from keepfast.kafka.places import ClientPlace

PARTLY_S = 0.1
"""How long the rest of a request may take once some of it is held: offsets may be held that an earlier request stored.
"""


@dataclass(slots=True, eq=False)
class CommitRequest:
    """One commit request. `answered`: its outcome is known already, by reading back; the client's answer comes late.
    `partly_since`: when the broker was first seen to hold some of it, and not all. `absence`: how long it held nothing.
    """

    positions: tuple[Position, ...]
    answered: bool = False
    partly_since: float | None = None
    absence: Absence | None = None

    def places(self) -> list[TopicPartition]:
        return [position.place for position in self.positions]

    def is_about(self, one: ClientPlace) -> bool:
        """Whether it asked for this position, and for no other."""
        first = self.positions[0]
        place = first.place
        return (
            first.offset == one.offset
            and place.partition == one.partition
            and place.topic == one.topic
            and len(self.positions) == 1
        )

    def read_back(self, held: Sequence[CommittedOffset], now: float) -> CommitOutcome | None:
        """What the offsets that the broker holds say about this request; None: nothing yet.

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
        self.answered = True
        return CommitOutcome(stored, tuple((sent, _not_held(sent.place)) for sent in missing))

    def outcome(self, error: KafkaError | None, answer: Sequence[ClientPlace]) -> CommitOutcome:
        """What the client's answer says, partition by partition.

        If the broker refused some of them, the client gives their error to all: then all count as failed, and sending
        those again that were stored does no harm.
        """
        if error is None and len(answer) == 1 and answer[0].error is None:
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
    """Owner: the loop's thread. Usually one entry; more only while answers of read-back requests are still to come."""

    sent: list[CommitRequest] = field(default_factory=list)

    def under_way(self) -> CommitRequest | None:
        """The one request whose outcome nobody knows yet."""
        for request in self.sent:
            if not request.answered:
                return request
        return None

    def add(self, positions: Sequence[Position]) -> CommitRequest:
        request = CommitRequest(tuple(positions))
        self.sent.append(request)
        return request

    def drop(self, request: CommitRequest) -> None:
        self.sent = [other for other in self.sent if other is not request]

    def forget_answered(self) -> None:
        self.sent = [request for request in self.sent if not request.answered]

    def settle(self, answer: Sequence[ClientPlace]) -> CommitRequest | None:
        """The request to which the client's answer belongs; None if its outcome was known already."""
        if len(self.sent) == 1 == len(answer) and self.sent[0].is_about(answer[0]):
            request = self.sent.pop()  # the usual case, on the way of every record that is committed by itself
            return None if request.answered else request
        found = self._match(answer)
        if found is None:
            return None
        self.drop(found)
        return None if found.answered else found

    def _match(self, answer: Sequence[ClientPlace]) -> CommitRequest | None:
        # The client retries by itself, so answers may overtake each other: compare what was asked, not the order.
        told = {(one.topic, one.partition, one.offset) for one in answer}
        for request in self.sent:
            if told == {(*position.place, position.offset) for position in request.positions}:
                return request
        return self.sent[0] if self.sent and not told else None

"""Commit requests on their way, and which answer belongs to which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from confluent_kafka import KafkaError

from holdfast.core.errors import SourceError
from holdfast.core.ports import CommitOutcome, Committed, Position
from holdfast.core.records import TopicPartition
from holdfast.kafka.faults import source_error
from holdfast.kafka.places import ClientPlace


@dataclass(slots=True, eq=False)
class Request:
    """One commit request. `answered`: its outcome is known already, by reading back; the client's answer comes late."""

    positions: tuple[Position, ...]
    answered: bool = False

    def places(self) -> list[TopicPartition]:
        return [position.place for position in self.positions]

    def is_held(self, held: Sequence[Committed]) -> bool:
        """Whether the broker holds exactly what was sent."""
        found = {(one.place, one.offset, one.metadata) for one in held}
        return found == {(sent.place, sent.offset, sent.metadata) for sent in self.positions}

    def outcome(self, error: KafkaError | None, answer: Sequence[ClientPlace]) -> CommitOutcome:
        """What the client's answer says, partition by partition.

        If the broker refused some of them, the client gives their error to all: then all count as failed, and sending
        those again that were stored does no harm.
        """
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


@dataclass(slots=True)
class Requests:
    """Owner: the loop's thread. Usually one entry; more only while answers of read-back requests are still to come."""

    sent: list[Request] = field(default_factory=list)

    def under_way(self) -> Request | None:
        """The one request whose outcome nobody knows yet."""
        return next((request for request in self.sent if not request.answered), None)

    def add(self, positions: Sequence[Position]) -> Request:
        request = Request(tuple(positions))
        self.sent.append(request)
        return request

    def drop(self, request: Request) -> None:
        self.sent = [other for other in self.sent if other is not request]

    def forget_answered(self) -> None:
        self.sent = [request for request in self.sent if not request.answered]

    def settle(self, answer: Sequence[ClientPlace]) -> Request | None:
        """The request to which the client's answer belongs; None if its outcome was known already."""
        request = self._match(answer)
        if request is None:
            return None
        self.drop(request)
        return None if request.answered else request

    def _match(self, answer: Sequence[ClientPlace]) -> Request | None:
        # The client retries by itself, so answers may overtake each other: compare what was asked, not the order.
        told = {(one.topic, one.partition, one.offset) for one in answer}
        for request in self.sent:
            if told == {(*position.place, position.offset) for position in request.positions}:
                return request
        return self.sent[0] if self.sent and not told else None

"""Callbacks waiting in a simulated client's queue."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from keepfast.core.errors import SourceError
from keepfast.core.ports import CommitOutcome
from keepfast.core.records import TopicPartition
from keepfast.testing.fakes.trace import Places


@dataclass(frozen=True, slots=True)
class AssignOp:
    """Call on_assigned."""

    places: Places


@dataclass(frozen=True, slots=True)
class RevokeOp:
    """Call on_revoked, then release."""

    places: Places


@dataclass(frozen=True, slots=True)
class LostOp:
    """Call on_lost, then release."""

    places: Places


@dataclass(frozen=True, slots=True)
class CommitOp:
    """Call on_committed."""

    outcome: CommitOutcome


@dataclass(frozen=True, slots=True)
class RepeatedOp:
    """Call on_commit_repeated."""


@dataclass(frozen=True, slots=True)
class ErrorOp:
    """Call on_error."""

    error: SourceError
    place: TopicPartition | None


Operation = AssignOp | RevokeOp | LostOp | CommitOp | RepeatedOp | ErrorOp
Operations = deque[Operation]

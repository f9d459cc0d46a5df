"""Fault injection: which requests fail next, and how."""

from __future__ import annotations

from enum import StrEnum
from math import inf
from random import Random
from typing import Generic, TypeVar

from keepfast.core.records import TopicPartition
from keepfast.testing.fakes.clock import SimClock
from keepfast.testing.fakes.trace import Trace

RETRY_CODES = ("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "_TIMED_OUT")

REFUSAL_CODES = ("TOPIC_AUTHORIZATION_FAILED", "UNKNOWN_TOPIC_OR_PART")
"""Codes with which the coordinator refuses one partition of a commit."""


class CommitFault(StrEnum):
    """Faults of a commit."""

    RETRY = "commit_retry"
    """Refused with a transient error; nothing was stored."""
    APPLIED = "commit_applied_but_failed"
    """Stored, but a transient error is reported to the client."""
    REBALANCING = "commit_rebalancing"
    """Refused with REBALANCE_IN_PROGRESS, and no callback follows."""
    PARTIAL = "commit_partial"
    """One partition of the request is refused with a transient error, the others are stored."""
    UNSENT = "commit_unsent"
    """The client could not even send it."""


class ClientFault(StrEnum):
    """Faults of a client."""

    ENDED = "commit_fatal"
    """The client has ended itself, because its member lost a right for a moment: commits fail in passing until a new
    client has taken its place, and the partitions are lost.
    """


class TransactionFault(StrEnum):
    """Faults of a commit that is a transaction."""

    HANGS = "transaction_hangs"
    """A call of its producer never returns. The broker may have committed it before; it does nothing with it later."""


class NetworkFault(StrEnum):
    """Faults of the way to the coordinator."""

    LATE = "commit_delivered_late"
    """The connection breaks with a commit on its way: the client sends it again, and the first copy arrives later."""


class ReadFault(StrEnum):
    """Faults of a read of committed offsets."""

    RETRY = "committed_read_failed"


class SendFault(StrEnum):
    """Faults of a produced record."""

    RETRY = "send_failed"
    """Not written, and reported so."""
    WRITTEN = "send_written_but_failed"
    """Written, but reported as failed: sending again makes a duplicate."""
    TOO_LARGE = "send_too_large"
    """Refused for its size, whatever its size is."""
    REFUSED = "send_refused"
    """The topic may not be written to: only with seeds that have a spool."""


class IdFault(StrEnum):
    """Faults of a request for topic ids."""

    FAILED = "topic_ids_failed"
    """The answer has no id."""


K = TypeVar("K", bound=StrEnum)


class Switch(Generic[K]):
    """Ordered faults that have not occurred yet. An order ends with its count or its time, whichever comes first."""

    def __init__(self, clock: SimClock, trace: Trace) -> None:
        self._clock = clock
        self._trace = trace
        self._orders: list[tuple[K, float, float]] = []
        self.taken_at = -inf  # time of the last injected fault

    @property
    def open(self) -> bool:
        """Whether a request may fail now."""
        now = self._clock.monotonic()
        return any(left > 0 and until > now for _, left, until in self._orders)

    def order(self, kind: K, *, count: int | None = None, duration_s: float | None = None) -> None:
        if count is None and duration_s is None:
            raise ValueError("say for how many requests (count) or for how long (duration_s) they fail")
        until = inf if duration_s is None else self._clock.monotonic() + duration_s
        self._orders.append((kind, inf if count is None else count, until))

    def take(self, *, only: K | None = None, but: K | None = None) -> K | None:
        """The fault of the current request; None if there is none. Only the oldest open order applies."""
        now = self._clock.monotonic()
        self._orders = [(kind, left, until) for kind, left, until in self._orders if left > 0 and until > now]
        if not self._orders:
            return None
        kind, left, until = self._orders[0]
        if kind == but or (only is not None and kind != only):
            return None
        self._orders[0] = (kind, left - 1, until)
        self.taken_at = now
        self._trace.fault(kind.value)
        return kind

    def clear(self) -> None:
        self._orders.clear()


class RefusedPartitions:
    """Partitions whose commits the coordinator refuses for a while, from any member."""

    def __init__(self, clock: SimClock) -> None:
        self._clock = clock
        self._until: dict[TopicPartition, tuple[float, str]] = {}

    def order(self, place: TopicPartition, code: str, *, duration_s: float) -> None:
        self._until[place] = self._clock.monotonic() + duration_s, code

    def code_of(self, place: TopicPartition) -> str:
        """Empty when its commits are taken."""
        until, code = self._until.get(place, (-inf, ""))
        return code if self._clock.monotonic() < until else ""

    @property
    def open(self) -> bool:
        """Whether commits of any partition are refused now."""
        return any(self.code_of(place) for place in self._until)

    def clear(self) -> None:
        self._until.clear()


class Faults:
    """All switches of a broker."""

    def __init__(self, clock: SimClock, rng: Random, trace: Trace) -> None:
        self._rng = rng
        self.commits: Switch[CommitFault] = Switch(clock, trace)
        self.clients: Switch[ClientFault] = Switch(clock, trace)
        self.transactions: Switch[TransactionFault] = Switch(clock, trace)
        self.network: Switch[NetworkFault] = Switch(clock, trace)
        self.refused = RefusedPartitions(clock)
        self.committed_reads: Switch[ReadFault] = Switch(clock, trace)
        self.sends: Switch[SendFault] = Switch(clock, trace)
        self.topic_ids: Switch[IdFault] = Switch(clock, trace)
        self.deaf: dict[str, float] = {}  # processes whose questions for topic ids fail, until then

    def retry_code(self) -> str:
        return self._rng.choice(RETRY_CODES)

    def clear(self) -> None:
        """Clear all ordered faults."""
        self.commits.clear()
        self.clients.clear()
        self.transactions.clear()
        self.network.clear()
        self.refused.clear()
        self.committed_reads.clear()
        self.sends.clear()
        self.topic_ids.clear()
        self.deaf.clear()

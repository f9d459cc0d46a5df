"""Work in flight: a run is what a worker gets, a case is a record in trouble."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from keepfast.core.ports import Outgoing, Sends
from keepfast.core.records import Message
from keepfast.core.retry_topics import Returned
from keepfast.core.verdicts import Classification, Verdict

if TYPE_CHECKING:
    from keepfast.core.batches import Batch
    from keepfast.core.partitions import Partition


KEPT_ATTEMPTS = 20


class NotBegun(Exception):
    """Raised in place of calling the user's function: the run was told to stop while its record waited for its turn. No
    failure: the record counts as never begun.
    """


@dataclass(frozen=True, slots=True)
class Attempt:
    """One failed attempt: when (wall clock) and with what. Not the exception: its frames would keep payloads alive."""

    at: float
    error_type: str


class FailedRecord:
    """A record that failed at least once; it holds its lane until it is finished. Owner: the loop thread.

    `verdict` is sticky: once it is DeadLetter or Move, only the publishing is repeated, never the handler.
    `failures` and `attempts` of a record that came back from a retry topic begin with those before it.
    """

    __slots__ = (
        "attempts",
        "begun_at",
        "dropped",
        "failures",
        "found",
        "keys",
        "message",
        "outgoing",
        "partition",
        "publishes",
        "seq",
        "stays",
        "still_s",
        "verdict",
    )

    def __init__(
        self, partition: Partition, seq: int, message: Message, keys: tuple[bytes, ...], begun_at: float
    ) -> None:
        self.partition = partition
        self.seq = seq
        self.message = message
        self.keys = keys
        self.begun_at = begun_at
        past = message.past if isinstance(message, Returned) else None
        self.failures = past.failures if past else 0
        self.attempts = [Attempt(*told) for told in past.attempts] if past else []
        self.found: Classification | None = None  # what the rules said of the last failure
        self.verdict: Verdict | None = None
        self.outgoing: Outgoing | None = None  # the letter, or the record on its way to a retry topic; built once
        self.stays = False  # too large for a retry topic: what is left of its way is here
        self.publishes = 0
        self.dropped = False
        self.still_s: float | None = None  # how long guards had held everything when it first failed

    def note(self, attempt: Attempt) -> None:
        """One more failure. The first attempt and the last ones are kept: a record may be retried for ever."""
        self.failures += 1
        self.attempts.append(attempt)
        if len(self.attempts) > KEPT_ATTEMPTS:
            del self.attempts[1]


class Run:
    """Records of one partition handed to a worker in one go, in order; several lanes may travel in one run.

    While it is out, the worker alone writes `current`, `attempt`, `done`, `failure`, `waits`, `sends`, `sending` and
    `elapsed_s`; the loop alone writes `stop`, `abandoned` and `taken` and adds to `messages`. The worker writes
    `current` and *then* reads `stop` before each record, so once the loop has set `stop` and read `current`, nothing
    behind that record will be started. Otherwise the loop thread owns it. Once `abandoned`, it stays with its worker:
    the loop goes on with a stand-in.
    """

    __slots__ = (
        "abandoned",
        "attempt",
        "batch",
        "begun_at",
        "case",
        "current",
        "done",
        "elapsed_s",
        "failure",
        "keys",
        "messages",
        "partition",
        "sending",
        "sends",
        "seqs",
        "stop",
        "taken",
        "waits",
    )

    def __init__(
        self,
        partition: Partition,
        messages: list[Message],
        seqs: Sequence[int],
        keys: dict[bytes, None],
        case: FailedRecord | None = None,
    ) -> None:
        self.partition = partition
        self.messages = messages
        self.seqs = seqs
        self.keys = keys
        self.case = case
        self.batch: Batch | None = None  # which it is a part of
        self.attempt = 1 if case is None else case.failures + 1
        self.begun_at = 0.0
        self.stop = False
        self.current = -1
        self.done = 0
        self.failure: BaseException | None = None
        self.elapsed_s = 0.0
        self.waits = False  # for its turn: the record is in hand, and the handler has not begun
        self.sends: Sends | None = None  # of the attempt in hand, or of the last one
        self.sending = False  # the handler is over, and what it sent is not acknowledged yet
        self.abandoned = False
        self.taken = 0  # so many of its first records are finished although it is still out

    @classmethod
    def again(cls, case: FailedRecord) -> Run:
        """The next attempt of a case: on its own, in the lane that the case holds."""
        return cls(case.partition, [case.message], (case.seq,), {}, case)

    @property
    def may_grow(self) -> bool:
        """Whether its worker would find records that are added to it."""
        return self.case is None and self.batch is None and not self.stop and self.failure is None

    def enter(self) -> None:
        """It goes out to a worker."""
        self.partition.running.add(self)

    def leave(self) -> None:
        """It is back from its worker."""
        self.partition.running.discard(self)

    def stand_in(self, done: int, failure: BaseException, now: float) -> Run:
        """The same run as if it came back now, with this failure at record `done`, whatever its worker writes."""
        other = Run(self.partition, list(self.messages), self.seqs, self.keys, self.case)
        other.begun_at = self.begun_at
        other.current = other.done = done
        other.failure = failure
        other.taken = self.taken
        other.elapsed_s = now - self.begun_at  # so it was no quick one
        return other

    def rest(self, messages: list[Message], seqs: Sequence[int]) -> None:
        """Make it a run over what is left, as if it had never been out."""
        self.messages = messages
        self.seqs = seqs
        self.batch = None
        self.stop = False
        self.current = -1
        self.done = 0
        self.taken = 0
        self.failure = None
        self.sends = None
        self.sending = False
        self.elapsed_s = 0.0

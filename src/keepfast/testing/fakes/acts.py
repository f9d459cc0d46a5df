"""Trace events of simulated members: handlers, letters and loops."""

from __future__ import annotations

from dataclasses import dataclass

from keepfast.core.records import TopicPartition
from keepfast.testing.fakes.trace import Fact


@dataclass(frozen=True, slots=True)
class OffsetsRead(Fact):
    """The member read this committed offset; None is no commit."""

    member: str
    place: TopicPartition
    offset: int | None
    metadata: str


@dataclass(frozen=True, slots=True)
class OutOfRange(Fact):
    """The member's client reports that this position lies outside the log."""

    member: str
    place: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class LetterSent(Fact):
    """The member handed a record to its sink; `number` is the sink's count of sends."""

    member: str
    number: int
    letter: str


@dataclass(frozen=True, slots=True)
class HandlerSent(Fact):
    """A handler sent a record with `ctx.send`; `number` is the sink's count of sends, the record's key is the call."""

    member: str
    number: int
    letter: str


@dataclass(frozen=True, slots=True)
class HandlerBegan(Fact):
    """The handler was called. `call` numbers the calls of a world, `number` is the record's own."""

    member: str
    place: TopicPartition
    offset: int
    number: int
    attempt: int
    call: int


@dataclass(frozen=True, slots=True)
class HandlerEnded(Fact):
    """The handler returned (`outcome` is "ok") or raised the error of that name."""

    member: str
    place: TopicPartition
    offset: int
    number: int
    outcome: str
    call: int


@dataclass(frozen=True, slots=True)
class BatchBegan(Fact):
    """A handler that takes lists was called. `batch` is the same for all calls that are about the same batch; the
    others have an entry for each record that it was given.
    """

    member: str
    batch: int
    attempt: int
    numbers: tuple[int, ...]
    calls: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BatchEnded(Fact):
    """It returned (`error` is empty) or raised the error of that name. Each record went well ("ok"), was named with an
    error of its own, or (empty) has the outcome of the call.
    """

    member: str
    batch: int
    error: str
    after_s: float
    numbers: tuple[int, ...]
    calls: tuple[int, ...]
    outcomes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LoopRefused(Fact):
    """A record of a batch could not be decoded, so the handler does not get it."""

    member: str
    place: TopicPartition
    number: int


@dataclass(frozen=True, slots=True)
class ReleaseSeen(Fact):
    """The loop received an operator's request to release this hold."""

    member: str
    hold: str


@dataclass(frozen=True, slots=True)
class TimedOut(Fact):
    """The loop abandoned the run whose handler is at this record; the handler may continue."""

    member: str
    place: TopicPartition
    offset: int
    number: int
    call: int
    outcome: str = "HandlerTimeout"


@dataclass(frozen=True, slots=True)
class BatchTimedOut(Fact):
    """The loop abandoned a batch, whose handler may continue. The others are as of `BatchBegan`."""

    member: str
    batch: int
    numbers: tuple[int, ...]
    calls: tuple[int, ...]
    outcome: str = "HandlerTimeout"

    @property
    def number(self) -> int:
        """The record that stands for it."""
        return self.numbers[0]

    @property
    def ended(self) -> BatchEnded:
        """The end of the call, as far as the loop is concerned."""
        outcomes = ("",) * len(self.numbers)
        return BatchEnded(self.at, self.member, self.batch, self.outcome, 0.0, self.numbers, self.calls, outcomes)


@dataclass(frozen=True, slots=True)
class StaleGivenUp(Fact):
    """The loop abandoned a run of an earlier epoch, whose handler is at this record and continues."""

    member: str
    place: TopicPartition
    offset: int
    number: int
    call: int


@dataclass(frozen=True, slots=True)
class Blocked(Fact):
    """A handler blocks the member's event loop for this long."""

    member: str
    seconds: float


@dataclass(frozen=True, slots=True)
class StopRequested(Fact):
    """SIGTERM was sent; the process ends at `deadline` at the latest."""

    member: str
    deadline: float


@dataclass(frozen=True, slots=True)
class StopSeen(Fact):
    """The loop has noticed it."""

    member: str


@dataclass(frozen=True, slots=True)
class Ended(Fact):
    """The process exited in an orderly way: `kind` is the loop's result, or "deadline" after the deadline."""

    member: str
    kind: str


@dataclass(frozen=True, slots=True)
class LetterHanded(Fact):
    """The loop passed a letter to its spool; `number` is the spool's count."""

    member: str
    number: int
    letter: str


@dataclass(frozen=True, slots=True)
class LetterKept(Fact):
    """The spool confirmed the letter to the loop; `known`: it already had a copy."""

    member: str
    number: int
    known: bool = False


@dataclass(frozen=True, slots=True)
class LetterNotKept(Fact):
    """The spool reported to the loop that it could not store the letter."""

    member: str
    number: int


@dataclass(frozen=True, slots=True)
class SpooledLetterSent(Fact):
    """The spool handed a letter to the sink; `number` is the sink's count of sends."""

    member: str
    number: int
    letter: str


@dataclass(frozen=True, slots=True)
class PowerCut(Fact):
    """Power failure: all processes ended, the disk has its final state."""

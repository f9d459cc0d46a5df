"""Events of a trace that the simulated members leave: what handlers, letters and the loops themselves did."""

from __future__ import annotations

from dataclasses import dataclass

from keepfast.core.records import TopicPartition
from keepfast.testing.fakes.trace import Fact


@dataclass(frozen=True, slots=True)
class OffsetsRead(Fact):
    """The member asked for the committed offset and was told this; None is no commit."""

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
    error of its own, or (empty) shares the fate of the call.
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
class ReleaseTaken(Fact):
    """The loop has heard that a person wants this hold to go."""

    member: str
    hold: str


@dataclass(frozen=True, slots=True)
class TimedOut(Fact):
    """The loop gave up the run whose handler is at this record; the handler may well go on."""

    member: str
    place: TopicPartition
    offset: int
    number: int
    call: int
    outcome: str = "HandlerTimeout"


@dataclass(frozen=True, slots=True)
class StaleGivenUp(Fact):
    """The loop gave up a run of an epoch that is over, whose handler is at this record and goes on."""

    member: str
    place: TopicPartition
    offset: int
    number: int
    call: int


@dataclass(frozen=True, slots=True)
class Blocked(Fact):
    """A handler keeps the member's event loop from everything else for so long."""

    member: str
    seconds: float


@dataclass(frozen=True, slots=True)
class StopAsked(Fact):
    """Somebody sent SIGTERM; the process ends at `deadline` at the latest."""

    member: str
    deadline: float


@dataclass(frozen=True, slots=True)
class StopTaken(Fact):
    """The loop has heard of it."""

    member: str


@dataclass(frozen=True, slots=True)
class Ended(Fact):
    """The process ended in order: `kind` is the loop's own word, or "deadline" when time was up."""

    member: str
    kind: str


@dataclass(frozen=True, slots=True)
class LetterHanded(Fact):
    """The loop gave a letter to its spool; `number` is the spool's count."""

    member: str
    number: int
    letter: str


@dataclass(frozen=True, slots=True)
class LetterKept(Fact):
    """The loop was told that its spool has the letter; `known`: it had a copy of it already."""

    member: str
    number: int
    known: bool = False


@dataclass(frozen=True, slots=True)
class LetterSentOn(Fact):
    """The spool handed a letter to the sink; `number` is the sink's count of sends."""

    member: str
    number: int
    letter: str


@dataclass(frozen=True, slots=True)
class PowerCut(Fact):
    """The machine went down with all its processes; the disk is as it will be found."""

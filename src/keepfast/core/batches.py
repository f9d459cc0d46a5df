"""A *batch*: a run over several partitions, for one call of a handler that takes lists, with the search for the bad
record among them. Owner: the loop thread.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from keepfast.core.errors import SchemaPending
from keepfast.core.policies import Order
from keepfast.core.records import Message
from keepfast.core.runs import FilteredOut, LaneOf, Partition, Run, SelectedRecords
from keepfast.core.verdicts import Classification


def lane_of(order: Order) -> LaneOf:
    """The lanes of an order, as the members of one batch see them."""
    if order == "partition":
        return lambda message: (message.topic(), message.partition())
    if order in ("none", "queue"):
        return lambda _: None
    return lambda message: None if message.key() is None else (message.topic(), message.key())


@dataclass(frozen=True, slots=True)
class Search:
    """The bad one is among the first `suspects` records of what is left; the first `size` of them are tried next.

    What was tried and went well is left no more, so the next part always begins at the front: left first, in order.
    `atomic`: a call that failed has changed nothing, so halves may be tried; otherwise every further call may repeat
    what an earlier one did, so each record is tried once more, alone.
    """

    suspects: int
    size: int
    atomic: bool

    @classmethod
    def among(cls, suspects: int, *, atomic: bool) -> Search:
        """So many records failed together."""
        return cls(suspects, max(1, suspects // 2) if atomic else 1, atomic)

    def succeeded(self, count: int) -> Search | None:
        """So many of them went well; None when no suspect is left."""
        left = self.suspects - count
        return self.among(left, atomic=self.atomic) if left > 0 else None

    def failed(self, count: int) -> Search | None:
        """So many of them failed together; None when that was the bad one itself."""
        return self.among(count, atomic=self.atomic) if count > 1 else None


def _resumed(
    decode: Callable[[Message], Any], decoded: Sequence[Any], error: BaseException
) -> Callable[[Message], Any]:
    """Decode once more from the first record on, without calling `decode` again where it was called: it returned these
    values and then raised this.
    """
    values, errors = iter(decoded), iter((error,))

    def decode_on(message: Message) -> Any:
        for value in values:
            return value
        for raised in errors:
            raise raised
        return decode(message)

    return decode_on


class Trial:
    """What a batch has been through: its first record stands for all. As for a failed record, the time that counts
    begins with the first attempt.
    """

    __slots__ = ("begun_at", "message", "still_s")

    def __init__(self, message: Message, begun_at: float) -> None:
        self.message = message
        self.begun_at = begun_at
        self.still_s: float | None = None


class Batch(Run):
    """Records of several lanes and partitions for one call of a batch handler.

    `parts` are runs that hold the lanes, one or more a partition; their records one after another are what is left to
    do. `messages` are those of them that go out now: the first ones, all unless there is a search. While it is out, the
    worker alone writes what it writes of a run, and `bad`, `given`, `leading` and the `done` of the parts.
    """

    __slots__ = ("bad", "failures", "found", "given", "heads", "leading", "named", "parts", "search", "trial")

    parts: list[Run]
    given: list[int] | None

    def __init__(self, parts: list[Run]) -> None:
        super().__init__(parts[0].partition, [], (), {})
        self.parts = parts  # pyright: ignore[reportIncompatibleMethodOverride] - those of a run never change
        for part in parts:
            part.batch = self
        self.heads: list[Run] = []
        """What was done of parts that are not, and is not committed yet: the lanes of both are the same."""
        self.failures = 0
        self.trial: Trial | None = None
        self.found: Classification | None = None  # what the rules say of its last failure
        self.search: Search | None = None
        self.named: dict[tuple[Run, int], BaseException] = {}
        """Records (by part and sequence number) that the handler named as failed: left out of the next call."""
        self.bad: dict[int, BaseException] = {}
        """Positions in `messages` of records that cannot be handed over, with what to judge them by."""
        self.given = None
        self.leading: Sequence[int] = ()
        """Those of `filtered` with nothing in front of them in their lane: finished whatever becomes of the call."""

    @property
    def may_grow(self) -> bool:
        return False

    def enter(self) -> None:
        for part in self.parts:
            part.enter()

    def leave(self) -> None:
        for part in self.parts:
            part.partition.running.discard(part)

    def stand_in(self, done: int, failure: BaseException, now: float) -> Batch:
        """As of a run; with parts of its own, because its worker may still write to these."""
        parts = [Run(part.partition, list(part.messages), part.seqs, part.keys) for part in self.parts]
        other = Batch(parts)
        heirs = dict(zip(self.parts, parts, strict=True))
        other.messages = list(self.messages)
        other.heads = self.heads
        for head in other.heads:
            head.batch = other
        other.named = {(heirs[part], seq): error for (part, seq), error in self.named.items() if part in heirs}
        other.failures, other.trial, other.search, other.found = self.failures, self.trial, self.search, self.found
        other.bad, other.given = dict(self.bad), None if self.given is None else list(self.given)
        other.filtered, other.leading, other.skipped = self.filtered, self.leading, self.skipped
        other.begun_at, other.current = self.begun_at, done
        other.failure = failure
        other.failed_s = other.elapsed_s = now - self.begun_at
        return other

    @property
    def call_size(self) -> int:
        return len(self.messages)

    def in_hand(self) -> Sequence[tuple[Partition, int]]:
        """All of them, once it has begun."""
        if self.current < 0:
            return ()
        return [(part.partition, part.partition.ledger.offset_of(seq)) for part, seq in self.members()]

    def stale_holders(self) -> Sequence[Run]:
        return [part for part in self.parts if not part.partition.live]

    @property
    def stopped(self) -> bool:
        """As of a run: it was asked to stop, or one of its partitions is about to go."""
        return self.stop or any(part.stop for part in self.parts)

    def select(self, decode: Callable[[Message], Any], lane_of: LaneOf) -> SelectedRecords | None:
        self.current = 0
        if self.stopped:
            return None
        if self.bad:
            return self._without_bad(decode, lane_of)
        decoded: list[Any] = []
        try:
            for message in self.messages:
                decoded.append(decode(message))  # noqa: PERF401 - what came before an error is kept
        except BaseException as error:  # noqa: BLE001 - the error becomes an outcome of this record
            return self._without_bad(_resumed(decode, decoded, error), lane_of)
        return SelectedRecords(self.messages, decoded)

    def unselect(self) -> None:
        self.given, self.filtered, self.leading = None, (), ()

    def _without_bad(self, decode: Callable[[Message], Any], lane_of: LaneOf) -> SelectedRecords | None:
        """Leave out what does not pass the filter; what cannot be decoded or was named before, and in each lane what is
        behind that: it must wait.
        """
        values: list[Any] = []
        given: list[int] = []
        filtered: list[int] = []
        leading: list[int] = []
        blocked: set[Hashable] = set()
        handed: set[Hashable] = set()  # lanes
        for index, message in enumerate(self.messages):
            lane = lane_of(message)
            if lane is not None and lane in blocked:
                continue
            if index not in self.bad:
                try:
                    values.append(decode(message))
                    given.append(index)
                    handed.add(lane)
                    continue
                except FilteredOut:
                    filtered.append(index)
                    if lane is None or lane not in handed:
                        leading.append(index)
                    continue
                except SchemaPending:  # soon it can be decoded: the batch waits as a whole
                    raise
                except BaseException as error:  # noqa: BLE001 - the error becomes an outcome of this record
                    self.bad[index] = error
            blocked.add(lane)
        self.filtered, self.leading, self.given = filtered, leading, given
        return SelectedRecords([self.messages[index] for index in given], values) if given or filtered else None

    def skip(self, positions: Iterable[int]) -> None:
        """As of a run; the others are what the handler gets."""
        given = range(len(self.messages)) if self.given is None else self.given
        self.skipped = [given[position] for position in positions]
        known = frozenset(self.skipped)
        self.given = [position for position in given if position not in known]

    def judged_by(self, error: BaseException) -> BaseException:
        return error

    @property
    def left(self) -> int:
        """Records that are not finished."""
        return sum(len(part.messages) for part in self.parts)

    def muster(self, now: float) -> None:
        """Make it ready to go out, as if it had never been out."""
        messages = [message for part in self.parts for message in part.messages]
        self.messages = messages[: self.search.size] if self.search is not None else messages
        if self.trial is None:
            self.trial = Trial(messages[0], now)
        self.trial.message = messages[0]
        self.rest(self.messages, ())
        self.attempt = self.failures + 1
        self.given = None  # pyright: ignore[reportIncompatibleMethodOverride] - reported where it is set last
        self.leading = ()
        self.bad = {}
        if self.named:
            self.bad = {at: self.named[one] for at, one in enumerate(self.members()) if one in self.named}
        for part in self.parts:
            part.stop = False
            part.done = 0

    def members(self) -> Iterator[tuple[Run, int]]:
        """Part and sequence number of each of `messages`, in order."""
        left = len(self.messages)
        for part in self.parts:
            for seq in part.seqs[:left]:
                yield part, seq
            left -= len(part.seqs)
            if left <= 0:
                return

    def succeeded(self) -> None:
        """The worker: what was selected is done, and what was filtered or skipped. The parts know it, too, should one
        of them have to go.
        """
        done = None if self.given is None else frozenset((*self.given, *self.filtered, *self.skipped))
        self.done = len(self.messages) if done is None else len(done)
        at = 0
        for part in self.parts:
            count = min(len(part.messages), len(self.messages) - at)
            if done is not None:
                count = next((index for index in range(count) if at + index not in done), count)
                part.filtered = [index for index in range(count) if at + index in self.filtered]
            part.done = count
            at += len(part.messages)
            if at >= len(self.messages):
                return

    def finished_of(self, part: Run, first: int) -> list[int]:
        """Positions in the part of what is done; the part begins at position `first` of all."""
        count = max(0, min(len(part.messages), len(self.messages) - first))
        if self.given is None:
            return list(range(count)) if self.done else []
        done = frozenset((*self.given, *self.filtered, *self.skipped) if self.done else self.leading)
        return [index for index in range(count) if first + index in done]


def as_batch(run: Run | None) -> Batch | None:
    """The same run, if all its records are one call."""
    return run if isinstance(run, Batch) else None

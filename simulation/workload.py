"""The records of a simulated world, each with what its handler will do about it, and the handler itself."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from random import Random

from keepfast.core import retry_topics
from keepfast.core.batches import Batch, Trial
from keepfast.core.errors import BatchError, DecodeError, Discard, Halt, Reject, RetryLater
from keepfast.core.records import Message, TopicPartition
from keepfast.core.retry_topics import Returned
from keepfast.core.runs import FilteredOut, Run
from keepfast.engine.calls import attempt_of
from keepfast.testing.fakes.acts import BatchBegan, BatchEnded, HandlerBegan, HandlerEnded, LoopRefused
from keepfast.testing.fakes.broker import FakeBroker
from simulation.setup import Setup

NUMBER = "n"
"""The header that carries a record's number: its identity, whatever its key, its value and its offset are."""

MAX_VALUE, MAX_RECORD = 16, 32
"""In bytes; the record with its key and the header that carries its number."""

ROUNDING_S = 0.002
"""Headers and timestamps have milliseconds."""

LIED_ABOUT = (
    retry_topics.STEP, retry_topics.FAILURES, retry_topics.DUE, retry_topics.TOPIC, retry_topics.PARTITION,
    retry_topics.OFFSET, retry_topics.TIMESTAMP, retry_topics.ATTEMPTS,
)  # fmt: skip
LIES = (b"", b"0", b"1", b"2", b"-3", b"\xff", b"253402300799999", b"99999999999999999999", b"[[", None)

VERY_SLOW_S = (1.0, 6.0)
CALM_S = 0.05
LATE, NEVER_S = (1.2, 5.0), 1e6
"""A handler that hangs takes so many times its `timeout_s`, or does not end."""
STUCK = 0.1
"""The share of records whose handler gets stuck, until there are enough of them."""
KILLERS = 0.05
"""The share of records that kill, until there are enough of them."""


@dataclass(slots=True, eq=False)
class Entry:
    """One produced record and all that is known about it. A copy in a retry topic is an entry of its own."""

    number: int
    place: TopicPartition
    offset: int
    key: bytes | None
    value: bytes | None
    conduct: str
    """What the handler does: "ok", "kill" or one of `setup.TROUBLES`."""
    takes_s: float
    failures_left: int
    after_s: float = 0.0
    manners: str = ""
    """What a coroutine does when it is cancelled (`Setup.manners`)."""
    stuck: bool = False
    """Its first call does not end while things go wrong; and then only if its partition is still the member's."""
    digits: int = 0
    """Of its number in its header, at least."""
    terminal: str = ""
    """The fact that lets a commit pass it: "handled", "dead-lettered", "moved", "discarded"; empty while there is none.
    """
    shadowed: bool = False
    """A former topic of this name had a record at its offset, so that a commit may mean that one."""
    excused: str = ""
    """Why it need not be handled: it was deleted, or lies before the start that the policy chose."""
    copied: Copied | None = None
    """Set if it lies in a retry topic."""

    @property
    def root(self) -> Entry:
        """The record that was produced."""
        return self.copied.root if self.copied is not None else self

    @property
    def forged(self) -> bool:
        """Another program wrote it into a retry topic: its headers need not be true."""
        return self.root.copied is not None

    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        return ((NUMBER, str(self.root.number).zfill(self.root.digits).encode()),)

    @property
    def size(self) -> int:
        """In bytes: its value, its key and the header of its own."""
        return len(self.value or b"") + len(self.key or b"") + sum(len(n) + len(v or b"") for n, v in self.headers)

    @property
    def open(self) -> bool:
        return not (self.terminal or self.excused)


@dataclass(frozen=True, slots=True)
class Copied:
    """How a record came into a retry topic. One that was forged there is its own `root`."""

    root: Entry
    step: int
    failures: int
    """Of all attempts before."""
    due_at: float
    """It must not start before."""
    open_at: float
    """From then on nothing holds it back."""


@dataclass(slots=True, eq=False)
class Attempt:
    """One call of the handler that has begun."""

    entry: Entry
    member: str
    call: int
    takes_s: float
    stuck: bool = False

    @property
    def entries(self) -> list[Entry]:
        return [self.entry]

    @property
    def calls(self) -> tuple[int, ...]:
        return (self.call,)

    @property
    def manners(self) -> str:
        return self.entry.manners


@dataclass(slots=True, eq=False)
class BatchAttempt:
    """One call of a handler that takes lists. `outcomes`: as of `BatchEnded`, once it is decided."""

    entries: list[Entry]
    member: str
    batch: int
    calls: tuple[int, ...]
    takes_s: float
    error: BaseException | None = None
    after_s: float = 0.0
    outcomes: tuple[str, ...] = ()
    stuck: bool = False

    @property
    def call(self) -> int:
        return self.calls[0]

    @property
    def manners(self) -> str:
        """Those of the record that takes longest."""
        return max(self.entries, key=lambda entry: entry.takes_s).manners


def dropped_by_filter(setup: Setup, entry: Entry) -> bool:
    """Whether the filter of the consumer does not let the record pass."""
    return setup.filters and entry.root.conduct == "ok" and entry.root.number % 3 == 0


class Workload:
    """Makes records and plays the handler. `calm` takes the slowness out, so that everything comes to an end.

    `outage` applies to every record that reaches the handler (see `guarded.OUTAGES`).
    """

    def __init__(self, broker: FakeBroker, setup: Setup, rng: Random) -> None:
        self._broker = broker
        self._setup = setup
        self._rng = rng
        self._hanging = Random(rng.getrandbits(32)) if setup.hang or setup.stuck else None
        self._stuck_left = setup.stuck
        self._calls = 0
        self._killers_left = setup.killers
        self._copies: dict[tuple[str, int, int], Entry] = {}
        self._batches: dict[Trial | None, int] = {}  # a stand-in has the trial of its batch
        self.calm = False
        self.outage = ""
        self.entries: list[Entry] = []
        self.tiers = setup.retry_topics()

    def partition_count(self, topic: str) -> int:
        return self._broker.partitions(topic) or 0

    def topic_id(self, topic: str) -> str:
        return self._broker.topic_id(topic) or ""

    def produce(self, place: TopicPartition) -> Entry:
        entry = self._entry(place)  # before it is written: whatever reads it must find it
        self._broker.produce(place, value=entry.value, key=entry.key, headers=entry.headers)
        return entry

    def _entry(self, place: TopicPartition) -> Entry:
        number = len(self.entries)
        key, value = self._key(), self._value(number)
        entry = Entry(number, place, self._broker.existing(place).end, key, value, *self._conduct())
        entry.digits = self._setup.header_bytes
        if self._hanging is not None and entry.conduct != "kill":
            self._hang(entry, self._hanging)
        self.entries.append(entry)
        return entry

    def copy(self, entry: Entry, place: TopicPartition, offset: int, copied: Copied) -> Entry:
        """A copy of the record is in this retry topic now."""
        root = entry.root
        number = len(self.entries)
        conduct = (root.conduct, root.takes_s, 0, root.after_s, root.manners)
        copy = Entry(number, place, offset, root.key, root.value, *conduct, copied=copied)
        self.entries.append(copy)
        self._copies[place.topic, place.partition, offset] = copy
        return copy

    def forge(self, place: TopicPartition) -> Entry:
        """Another program writes a record into a retry topic, with arbitrary headers."""
        entry, rng = self._entry(place), self._rng
        now, delay_s = self._broker.clock.monotonic(), self.tiers.topics[place.topic].delay_s if self.tiers else 0
        entry.copied = Copied(entry, 0, 0, 0.0, now + delay_s + ROUNDING_S)
        self._copies[place.topic, place.partition, entry.offset] = entry
        forged = [(name, rng.choice(LIES)) for name in rng.sample(LIED_ABOUT, rng.randint(1, len(LIED_ABOUT)))]
        count = rng.choice((b"1", b"1", b"0", b"7", b"x"))
        headers = (*entry.headers, *forged, (retry_topics.OWN_HEADERS, count))
        self._broker.produce(place, value=entry.value, key=entry.key, headers=headers)
        return entry

    def of(self, message: Message) -> Entry:
        copy = self._copies.get((message.topic(), message.partition(), message.offset()))
        if copy is not None:
            return copy
        headers = message.headers() or ()
        return self.entries[int(headers[0][1] or b"")]

    def begin(self, member: str, message: Message, run: Run) -> Attempt:
        """The handler is called."""
        entry = self.of(message)
        self._calls += 1
        now = self._broker.clock.monotonic()
        count = attempt_of(message, run) if isinstance(message, Returned) else run.attempt
        self._broker.trace.add(
            HandlerBegan(now, member, entry.place, message.offset(), entry.number, count, self._calls)
        )
        takes_s = min(entry.takes_s, CALM_S) if self.calm else entry.takes_s
        stuck, entry.stuck = entry.stuck and not self.calm, False
        if stuck:
            self._broker.trace.fault("handler_stuck")
        return Attempt(entry, member, self._calls, takes_s, stuck=stuck)

    def decide(self, attempt: Attempt) -> BaseException | None:
        """What the handler raises, if anything; or the filter in front of it."""
        return FilteredOut() if dropped_by_filter(self._setup, attempt.entry) else self._error(attempt.entry.root)

    def end(self, attempt: Attempt, error: BaseException | None) -> None:
        """The attempt is over, with this error."""
        entry = attempt.entry
        outcome = "ok" if error is None or isinstance(error, FilteredOut) else type(error).__name__
        if outcome != "ok" and entry.root.failures_left > 0 and not self.outage:
            entry.root.failures_left -= 1
        now = self._broker.clock.monotonic()
        self._broker.trace.add(
            HandlerEnded(now, attempt.member, entry.place, entry.offset, entry.number, outcome, attempt.call)
        )

    # -- a handler that takes lists

    def decode(self, member: str, message: Message) -> Entry:
        entry = self.of(message)
        if entry.conduct == "decode":
            now = self._broker.clock.monotonic()
            self._broker.trace.add(LoopRefused(now, member, entry.place, entry.number))
            self._broker.trace.fault("record_not_decoded")
            raise DecodeError("not readable")
        return entry

    def begin_batch(self, member: str, entries: list[Entry], batch: Batch) -> BatchAttempt:
        number = self._batches.setdefault(batch.trial, len(self._batches))
        calls = tuple(range(self._calls + 1, self._calls + 1 + len(entries)))
        self._calls = calls[-1]
        now, numbers = self._broker.clock.monotonic(), tuple(entry.number for entry in entries)
        self._broker.trace.add(BatchBegan(now, member, number, batch.attempt, numbers, calls))
        takes_s = max(entry.takes_s for entry in entries)
        return BatchAttempt(entries, member, number, calls, min(takes_s, CALM_S) if self.calm else takes_s)

    def decide_batch(self, attempt: BatchAttempt) -> BaseException | None:
        """What it raises, if anything: it goes through its list and stops at the first bad record, or reports all that
        are bad.
        """
        found = {at: error for at, entry in enumerate(attempt.entries) if (error := self._error(entry)) is not None}
        first = next(iter(found), None)
        outcomes = [""] * len(attempt.entries)
        if first is None:
            outcomes = ["ok"] * len(attempt.entries)
        else:
            named = self._named(found, first)
            for at in named or (first,):
                attempt.entries[at].failures_left -= attempt.entries[at].failures_left > 0
            for at, error in named.items():
                outcomes[at] = type(error).__name__
            attempt.error = BatchError(named) if named else found[first]
            attempt.after_s = attempt.entries[first].after_s
            self._broker.trace.fault("batch_failed_by_name" if named else "batch_failed")
        attempt.outcomes = tuple(outcomes)
        return attempt.error

    def end_batch(self, attempt: BatchAttempt, error: BaseException | None) -> None:
        """The call is over, with this error, which may be another one than was decided."""
        decided = attempt.outcomes and error is attempt.error
        outcomes = attempt.outcomes if decided else ("",) * len(attempt.entries)
        now, name = self._broker.clock.monotonic(), "" if error is None else type(error).__name__
        numbers, after_s = tuple(entry.number for entry in attempt.entries), attempt.after_s if decided else 0.0
        self._broker.trace.add(
            BatchEnded(now, attempt.member, attempt.batch, name, after_s, numbers, attempt.calls, outcomes)
        )

    def _named(self, found: dict[int, BaseException], first: int) -> dict[int, BaseException]:
        """What the handler says by name. To drop all for the sake of one would be its own fault, so that has a name."""
        stops = isinstance(found[first], Halt | SystemExit)
        if self._setup.names and not stops:
            return {at: error for at, error in found.items() if not isinstance(error, Halt | SystemExit)}
        return {first: found[first]} if isinstance(found[first], Discard) else {}

    def _error(self, entry: Entry) -> BaseException | None:
        if self.outage == "bad" and entry.conduct != "decode":
            return Reject("nothing is liked")
        if self.outage and entry.conduct != "decode" and (self.outage == "outage" or entry.number % 2):
            return ConnectionRefusedError("connection refused")
        if self.calm and self._setup.storm_guard is not None and entry.conduct in ("reject", "decode", "doomed"):
            return None  # the handler was repaired: a storm would never end by itself
        return self._own_error(entry)

    def _own_error(self, entry: Entry) -> BaseException | None:
        match entry.conduct:
            case "reject":
                return Reject("no use")
            case "decode":
                return DecodeError("not readable")
            case "discard":
                return Discard("not wanted")
            case "doomed":
                return RuntimeError("never")
            case "flaky" if entry.failures_left:
                return OSError("not now")
            case "later" if entry.failures_left:
                return RetryLater(after_s=entry.after_s)
            case "halt" if entry.failures_left:
                return SystemExit(1) if entry.number % 2 else Halt("stop everything")
        return None

    def _conduct(self) -> tuple[str, float, int, float]:
        rng, setup = self._rng, self._setup
        takes_s = rng.uniform(*VERY_SLOW_S) if rng.random() < setup.slow else rng.uniform(*setup.pace)
        if self._killers_left and rng.random() < KILLERS:
            self._killers_left -= 1
            # While it is waited for: a run abandoned before it crashes the process is dead-lettered for the timeout, or
            # leaves no evidence.
            return "kill", min(takes_s, setup.alone_s / 2, (setup.timeout.timeout_s or inf) / 2), 0, 0.0
        if not setup.troubles or rng.random() >= setup.trouble:
            return "ok", takes_s, 0, 0.0
        conduct = rng.choice(setup.troubles)
        if conduct == "halt" and rng.random() < 0.9:
            return "ok", takes_s, 0, 0.0  # each of them costs a restart
        if conduct == "doomed" and setup.retry.max_retries is None and setup.retry.max_elapsed_s is None:
            conduct = "flaky"
        return conduct, takes_s, 1 if conduct == "halt" else rng.randint(1, 4), rng.choice((0.0, 0.02, 0.6))

    def _hang(self, entry: Entry, rng: Random) -> None:
        if self._setup.stuck:
            entry.manners = "polite"
            entry.stuck = self._stuck_left > 0 and rng.random() < STUCK
            self._stuck_left -= entry.stuck
            return
        entry.manners = rng.choice(self._setup.manners)
        if rng.random() < self._setup.hang:
            timeout = self._setup.timeout
            never = timeout.on_timeout == "dead-letter" and entry.manners != "blocks" and rng.random() < 0.4
            entry.takes_s = NEVER_S if never else (timeout.timeout_s or 0.0) * rng.uniform(*LATE)
        elif entry.manners == "blocks":
            entry.manners = "polite"

    def _key(self) -> bytes | None:
        match self._setup.keys:
            case "few":
                return self._rng.choice((b"a", b"b", b"c"))
            case "many":
                return b"k%d" % self._rng.randrange(40)
            case "null":
                return None
            case _:
                return self._rng.choice((None, b"a", b"b", b"k%d" % self._rng.randrange(20)))

    def _value(self, number: int) -> bytes | None:
        """JSON, text that is not, nothing at all."""
        kind = self._rng.random()
        if kind < 0.1:
            return None
        return b'{"n":%d}' % number if kind < 0.7 else b"\xff%d" % number


FIRST_OUTPUT, LAST_OUTPUT = b"1", b"2"


def outputs_of(entry: Entry) -> list[bytes]:
    """What its handler sends, if it comes to its end: before and after its work."""
    number = entry.root.number
    return [FIRST_OUTPUT] * bool(number % 2) + [LAST_OUTPUT] * bool(number % 3)

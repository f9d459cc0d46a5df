"""The records of a simulated world, each with what its handler will do about it, and the handler itself."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from random import Random

from holdfast.core.errors import DecodeError, Discard, Halt, Reject, RetryLater
from holdfast.core.records import Message, TopicPartition
from holdfast.core.runs import Run
from holdfast.testing.simulator.acts import HandlerBegan, HandlerEnded
from holdfast.testing.simulator.broker import FakeBroker
from holdfast.testing.simulator.setup import Setup

NUMBER = "n"
"""The header that carries a record's number: its identity, whatever its key, its value and its offset are."""

LONGEST_VALUE = 16

VERY_SLOW_S = (1.0, 6.0)
CALM_S = 0.05
LATE, NEVER_S = (1.2, 5.0), 1e6
"""A handler that hangs takes so many times its `timeout_s`, or does not end."""
KILLERS = 0.05
"""The share of records that kill, until there are enough of them."""


@dataclass(slots=True, eq=False)
class Entry:
    """One produced record and all that is known about it."""

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
    terminal: str = ""
    """The fact that lets a commit pass it: "handled", "buried", "discarded"; empty while there is none."""
    excused: str = ""
    """Why nobody has to handle it: it was deleted, or lies where the policy said not to begin."""

    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        return ((NUMBER, str(self.number).encode()),)

    @property
    def open(self) -> bool:
        return not (self.terminal or self.excused)


@dataclass(slots=True, eq=False)
class Attempt:
    """One call of the handler that has begun."""

    entry: Entry
    member: str
    call: int
    takes_s: float
    error: BaseException | None = None


class Workload:
    """Makes records and plays the handler. `calm` takes the slowness out, so that everything comes to an end.

    `spell` is what befalls every record that gets as far as the handler (see `guarded.SPELLS`).
    """

    def __init__(self, broker: FakeBroker, setup: Setup, rng: Random) -> None:
        self._broker = broker
        self._setup = setup
        self._rng = rng
        self._hanging = Random(rng.getrandbits(32)) if setup.hang else None
        self._calls = 0
        self._killers_left = setup.killers
        self.calm = False
        self.spell = ""
        self.entries: list[Entry] = []

    def produce(self, place: TopicPartition) -> Entry:
        number = len(self.entries)
        key, value = self._key(), self._value(number)
        entry = Entry(number, place, -1, key, value, *self._conduct())
        if self._hanging is not None and entry.conduct != "kill":
            self._hang(entry, self._hanging)
        self.entries.append(entry)  # before it is there: whoever hears of it must find it
        entry.offset = self._broker.existing(place).end
        self._broker.produce(place, value=value, key=key, headers=entry.headers)
        return entry

    def of(self, message: Message) -> Entry:
        headers = message.headers() or ()
        return self.entries[int(headers[0][1] or b"")]

    def begin(self, member: str, message: Message, run: Run) -> Attempt:
        """The handler is called."""
        entry = self.of(message)
        self._calls += 1
        now = self._broker.clock.monotonic()
        self._broker.trace.add(
            HandlerBegan(now, member, entry.place, message.offset(), entry.number, run.attempt, self._calls)
        )
        takes_s = min(entry.takes_s, CALM_S) if self.calm else entry.takes_s
        return Attempt(entry, member, self._calls, takes_s)

    def end(self, attempt: Attempt, error: BaseException | None = None) -> None:
        """The handler is over: decide how, unless it was told, and say so. Sets the attempt's error."""
        entry = attempt.entry
        attempt.error = error or self._error(entry)
        outcome = "ok" if attempt.error is None else type(attempt.error).__name__
        if attempt.error is not None and entry.failures_left > 0 and not self.spell:
            entry.failures_left -= 1
        now = self._broker.clock.monotonic()
        self._broker.trace.add(
            HandlerEnded(now, attempt.member, entry.place, entry.offset, entry.number, outcome, attempt.call)
        )

    def _error(self, entry: Entry) -> BaseException | None:
        if self.spell and entry.conduct != "decode":
            return ConnectionRefusedError("nobody is there") if self.spell == "outage" else Reject("nothing is liked")
        if self.calm and self._setup.storm_guard is not None and entry.conduct in ("reject", "decode", "doomed"):
            return None  # somebody has repaired the handler: a storm of its own would never end
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
            # While it is waited for: what is given up before it kills is buried for that, or tells nobody.
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
        entry.manners = rng.choice(self._setup.manners)
        if rng.random() < self._setup.hang:
            timeout = self._setup.timeout
            never = timeout.on_timeout == "bury" and entry.manners != "blocks" and rng.random() < 0.4
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

"""Whether the children live: each is asked for its health every few seconds, as an orchestrator asks a process.

A child whose interpreter is blocked, or that is stopped, answers nothing; one whose event loop is blocked answers that
it is not live. Only probes that the supervisor could send and wait for in time count: after a time in which it did not
run itself (a suspended machine, a stopped process group, an overloaded host), counting begins again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from logging import WARNING
from typing import Final, Literal

import msgspec

from keepfast.core.errors import ConfigError
from keepfast.http.client import fetch
from keepfast.telemetry.logs import get_logger
from keepfast.telemetry.state import AppState, HealthReport

log = get_logger("keepfast.supervisor")

Outcome = Literal["live", "not live", "silent", "away", "not asked"]
"""What came of a probe. `away`: no server listens, because the child is starting or exits. `not asked`: the supervisor
itself could not send it.
"""

LATE_S: Final = 5.0
"""A round of probes that begins or ends so much too late was delayed by the machine, and says nothing of the child."""
STATE_TIMEOUT_S: Final = 2.0
STATE_EVERY_S: Final = 60.0
"""The partitions of a child are asked for when their number has changed, and this often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LivenessPolicy:
    """When a child is restarted: after it has not answered for `restart_after_s`, or has answered for as long, every
    time, that it is not live.
    """

    every_s: float = 5.0
    timeout_s: float = 5.0
    """How long a child may take to answer."""
    failures: int = 3
    """Failed probes in a row that are needed in any case."""
    restart_after_s: float = 30.0
    grace_s: float = 10.0
    """How long a child that does not answer has after SIGTERM; then comes SIGKILL."""

    def __post_init__(self) -> None:
        if min(self.every_s, self.timeout_s, self.failures, self.restart_after_s) <= 0:
            raise ConfigError("LivenessPolicy needs numbers above 0: a child would be restarted without any failure.")


@dataclass(frozen=True, slots=True)
class Liveness:
    """What is known of a child from its answers. Times are those of the monotonic clock."""

    up: bool = False
    """Its server listens, or has listened."""
    answered_at: float | None = None
    silent: bool = False
    """The last probe was not answered."""
    failures: int = 0
    """Probes in a row that failed in the same way."""
    failing_since: float | None = None
    """When the first of them was sent."""
    asked_at: float = 0.0
    """When the last probe ended."""
    reasons: tuple[str, ...] = ()
    """Why it is not live, as codes."""
    partitions: tuple[str, ...] = ()
    """Those that it, or the last child with this number, had at its last answer: `topic[number]`."""

    @property
    def failing_s(self) -> float:
        """How long probes have failed."""
        return 0.0 if self.failing_since is None else self.asked_at - self.failing_since

    def after(self, outcome: Outcome, *, sent_at: float, ended_at: float, reasons: Sequence[str] = ()) -> Liveness:
        """With the outcome of one more probe."""
        match outcome:
            case "live":
                return Liveness(up=True, answered_at=ended_at, asked_at=ended_at, partitions=self.partitions)
            case "away" if not self.up:  # how long a start takes is not known: it imports the app
                return replace(self, asked_at=ended_at)
            case "not asked":
                return replace(self.counting_again(), asked_at=ended_at)
            case _:
                silent = outcome != "not live"
                same = self.failures > 0 and silent is self.silent
                return replace(
                    self,
                    up=True,
                    answered_at=self.answered_at if silent else ended_at,
                    silent=silent,
                    failures=self.failures + 1 if same else 1,
                    failing_since=self.failing_since if same else sent_at,
                    asked_at=ended_at,
                    reasons=tuple(reasons),
                )

    def counting_again(self) -> Liveness:
        """Without the failures so far: they may be the supervisor's own."""
        return replace(self, failures=0, failing_since=None)

    def restart_due(self, policy: LivenessPolicy) -> bool:
        return self.failures >= policy.failures and self.failing_s >= policy.restart_after_s


@dataclass(frozen=True, slots=True)
class _Answer:
    """The outcome of a probe. `partitions` None: they were not asked for, or there was no answer."""

    outcome: Outcome
    sent_at: float
    ended_at: float
    reasons: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    partitions: tuple[str, ...] | None = None


@dataclass(slots=True)
class _Watched:
    """One child: only its own answers count, not those of another one at the same address."""

    pid: int
    known: Liveness = field(default_factory=Liveness)
    counts: Mapping[str, int] = field(default_factory=dict)
    state_at: float | None = None


class ChildWatch:
    """Asks the children, at `addresses` by their numbers, on a thread of its own. Thread-safe.

    `start` begins, `stop` ends. `started` and `ended` say which children there are.
    """

    def __init__(
        self,
        addresses: Mapping[int, str],
        policy: LivenessPolicy | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.policy = policy or LivenessPolicy()
        self._addresses = addresses
        self._clock = clock
        self._lock = threading.Lock()  # guards `_watched`, what is in it, and `_lasting`
        self._watched: dict[int, _Watched] = {}
        self._lasting: dict[int, tuple[str, ...]] = {}
        """Partitions of children that have ended."""
        self._stopped = threading.Event()
        self._round_ended_at: float | None = None
        """Of the thread."""

    def start(self) -> None:
        threading.Thread(target=self._run, name="keepfast-liveness", daemon=True).start()

    def stop(self) -> None:
        """A round that is under way is not waited for."""
        self._stopped.set()

    def restart_after(self, seconds: float) -> None:
        """Set the limit, which is known when a child has reported its settings."""
        self.policy = replace(self.policy, restart_after_s=seconds)

    def started(self, index: int, pid: int) -> None:
        with self._lock:
            # It gets the partitions of the last one back, and may hang before it has answered.
            last = self._lasting.pop(index, ())
            self._watched[index] = _Watched(pid, Liveness(partitions=last))

    def ended(self, index: int) -> None:
        with self._lock:
            watched = self._watched.pop(index, None)
            if watched is not None:
                self._lasting[index] = watched.known.partitions

    def of(self, index: int) -> Liveness:
        with self._lock:
            watched = self._watched.get(index)
            return Liveness() if watched is None else watched.known

    def _run(self) -> None:
        with ThreadPoolExecutor(max(1, len(self._addresses)), "keepfast-liveness") as threads:
            wait_s = self.policy.every_s
            while not self._stopped.wait(wait_s):
                began = self._clock()
                try:
                    self.ask_all(threads)
                except Exception as error:  # noqa: BLE001 - the thread's edge: the next round tries again
                    log.error("liveness_not_asked", exc=error)  # noqa: TRY400 - it logs `exc`
                wait_s = max(0.0, self.policy.every_s - (self._clock() - began))

    def ask_all(self, threads: ThreadPoolExecutor) -> None:
        """One round: every child once, all of them in parallel."""
        with self._lock:
            asked = [(index, one.pid, one.counts, one.state_at) for index, one in self._watched.items()]
        began_at = self._clock()
        waited_s = 0.0 if self._round_ended_at is None else began_at - self._round_ended_at
        answers = list(threads.map(lambda one: self._ask(one[0], one[2], one[3]), asked))
        ended_at = self._round_ended_at = self._clock()
        longest_s = self.policy.timeout_s + STATE_TIMEOUT_S + LATE_S
        delayed = waited_s > self.policy.every_s + LATE_S or ended_at - began_at > longest_s
        with self._lock:
            for (index, pid, _, _), answer in zip(asked, answers, strict=True):
                watched = self._watched.get(index)
                if watched is not None and watched.pid == pid:
                    _note(watched, answer, delayed=delayed)

    def _ask(self, index: int, counts: Mapping[str, int], state_at: float | None) -> _Answer:
        sent_at = self._clock()
        try:
            answer = fetch(self._addresses[index], "/health", timeout_s=self.policy.timeout_s)
        except (ConnectionRefusedError, FileNotFoundError):
            return _Answer("away", sent_at, self._clock())
        except (TimeoutError, ConnectionError, BlockingIOError):
            return _Answer("silent", sent_at, self._clock())
        except OSError as error:  # too many open files, a path that is too long: no fault of the child
            log.sampled(WARNING, "child_not_asked", now=sent_at, key=index, process=index, why=str(error))
            return _Answer("not asked", sent_at, self._clock())
        try:
            report = msgspec.json.decode(answer.body, type=HealthReport)
        except msgspec.MsgspecError:  # it is busy: it answers that it does not
            return _Answer("live", sent_at, self._clock(), counts=counts)
        found = {name: one.partitions for name, one in report.consumers.items()}
        outdated = state_at is None or sent_at - state_at > STATE_EVERY_S
        partitions = self._partitions(index) if found != counts or outdated else None
        reasons = tuple(dict.fromkeys(one.code for one in report.reasons if one.fails_live))
        drains = any(one.code == "draining" for one in report.reasons)  # it ends by its own deadline
        outcome: Outcome = "live" if report.live or drains else "not live"
        return _Answer(outcome, sent_at, self._clock(), reasons, found, partitions)

    def _partitions(self, index: int) -> tuple[str, ...] | None:
        try:
            answer = fetch(self._addresses[index], "/api/state", timeout_s=STATE_TIMEOUT_S)
            state = msgspec.json.decode(answer.body, type=AppState)
        except (OSError, msgspec.MsgspecError):
            return None
        found = {(one.topic, one.partition) for of in state.consumers.values() for one in of.partitions}
        return tuple(f"{topic}[{partition}]" for topic, partition in sorted(found))


def _note(watched: _Watched, answer: _Answer, *, delayed: bool) -> None:
    if delayed:
        watched.known = watched.known.counting_again()
        if answer.outcome in ("silent", "away"):
            return
    known = watched.known.after(
        answer.outcome, sent_at=answer.sent_at, ended_at=answer.ended_at, reasons=answer.reasons
    )
    if answer.partitions is not None:
        known = replace(known, partitions=answer.partitions)
        watched.counts, watched.state_at = answer.counts, answer.ended_at
    watched.known = known

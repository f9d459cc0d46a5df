"""Rules about handlers that take too long: abandoned in time and not before, not too many, and their late results
ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from keepfast.testing.fakes import acts, trace
from simulation.member import Member
from simulation.oracle.book import Book
from simulation.oracle.health import Health
from simulation.oracle.violation import Blame
from simulation.setup import Setup

LATE_S = 3.0
"""A handler is given up so long after its time at the latest, if nothing holds its member up: callbacks take theirs."""

EARLY_S = 1e-6


@dataclass(slots=True)
class _Call:
    member: str
    begun_at: float
    stopped_s: float
    blocked_s: float
    pauses: int
    number: int
    given_up_at: float | None = None


class TimeoutRules:
    """Looks at every call of a handler, from its beginning to its end."""

    def __init__(self, book: Book, blame: Blame, health: Health, setup: Setup) -> None:
        self._book = book
        self._blame = blame
        self._health = health
        self._policy = setup.timeout
        self._grace_s = 0.0 if setup.threads else 1.0
        self._calls: dict[int, _Call] = {}
        self._stopped_since: dict[str, float] = {}
        self._stopped_s: dict[str, float] = {}
        self._blocked_s: dict[str, float] = {}
        self._pauses: dict[str, int] = {}
        self._full_at: dict[str, float] = {}

    def update(self, event: trace.Fact) -> None:
        if self._policy.timeout_s is None:
            return
        match event:
            case acts.HandlerBegan(member=name):
                self._calls[event.call] = self._begun(name, event.at, event.number)
            case acts.BatchBegan(member=name):
                self._calls[event.calls[0]] = self._begun(name, event.at, event.numbers[0])
            case acts.HandlerEnded():
                self._calls.pop(event.call, None)
            case acts.BatchEnded():
                self._calls.pop(event.calls[0], None)
            case acts.TimedOut():
                what = f"{event.member} gives up record {event.number} ({event.place} offset {event.offset})"
                self._timed_out(event.at, self._calls[event.call], what, self._policy.timeout_s)
            case acts.BatchTimedOut():
                what = f"{event.member} gives up batch {event.batch}"
                self._timed_out(event.at, self._calls[event.calls[0]], what, self._policy.timeout_s)
            case acts.Blocked(member=name):
                self._blocked_s[name] = self._blocked_s.get(name, 0.0) + event.seconds
                self._pauses[name] = self._pauses.get(name, 0) + 1
            case trace.ProcessStopped(member=name):
                self._stopped_since[name] = event.at
                self._pauses[name] = self._pauses.get(name, 0) + 1
            case trace.Continued(member=name):
                self._stopped_s[name] = self._stopped(name, event.at)
                self._stopped_since.pop(name, None)
            case _:
                pass

    def _begun(self, member: str, at: float, number: int) -> _Call:
        return _Call(member, at, *self._stood_still(member, at), self._pauses.get(member, 0), number)

    def stale_given_up(self, event: acts.StaleGivenUp) -> None:
        """Only what belongs to an epoch that is over, and not before its successor has waited long enough."""
        epoch, _ = self._book.calls[event.call]
        what = f"{event.member} gives up its handler of record {event.number} ({event.place} offset {event.offset})"
        if epoch is not None and epoch.alive:
            self._blame("stale", f"{what}, and nothing may time out while the partition is its own")
        elif epoch is not None and event.at - epoch.ended_at < (self._policy.stale_s or inf) - EARLY_S:
            self._blame("stale", f"{what} {event.at - epoch.ended_at:.3f} s after it lost the partition")

    def probe(self, member: Member, now: float) -> None:
        """Is there a handler that should have been given up long ago?"""
        timeout_s = self._policy.timeout_s
        if timeout_s is None or self._policy.on_timeout == "hold":
            return
        if self._outstanding(member.name, now) >= self._policy.max_abandoned:
            self._full_at[member.name] = now
        disturbed_at = max(self._health.process_disturbed_at(member.name), self._full_at.get(member.name, 0.0))
        if member.source.inside or disturbed_at > now - LATE_S:
            return
        for call in self._calls.values():
            stopped_s, blocked_s = self._stood_still(call.member, now)
            idle_s = stopped_s - call.stopped_s + blocked_s - call.blocked_s
            if call.member == member.name and call.given_up_at is None:
                over_s = now - call.begun_at - idle_s - timeout_s
                if over_s > LATE_S:
                    self._blame("timeout", f"{member.name} is at record {call.number} for {over_s:.2f} s too long")

    def _timed_out(self, at: float, call: _Call, what: str, timeout_s: float) -> None:
        if self._policy.on_timeout == "hold":
            self._blame("timeout", f"{what}, and should wait for its handler")
        stopped_s, blocked_s = self._stood_still(call.member, at)
        spent_s = at - call.begun_at - max(stopped_s - call.stopped_s, blocked_s - call.blocked_s)
        pauses = self._pauses.get(call.member, 0) - call.pauses  # of each, a look or two may be taken for work
        if spent_s < timeout_s - EARLY_S - 2 * pauses * self._policy.check_interval_s:
            self._blame("timeout", f"{what} after {spent_s:.3f} s of the {timeout_s:g} s that it may take")
        if self._outstanding(call.member, at) >= self._policy.max_abandoned:
            self._blame("timeout", f"{what}; {self._policy.max_abandoned} handlers are given up and not back already")
        call.given_up_at = at

    def _outstanding(self, member: str, now: float) -> int:
        return sum(
            call.member == member and call.given_up_at is not None and now - call.given_up_at >= self._grace_s
            for call in self._calls.values()
        )

    def _stood_still(self, member: str, now: float) -> tuple[float, float]:
        """How long the process was stopped so far, and how long its event loop was blocked."""
        return self._stopped(member, now), self._blocked_s.get(member, 0.0)

    def _stopped(self, member: str, now: float) -> float:
        since = self._stopped_since.get(member)
        return self._stopped_s.get(member, 0.0) + (0.0 if since is None else now - since)

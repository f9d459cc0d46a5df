"""Rules about breaker, storm guard and rate limits (P8): nothing is burnt, one probe at a time, no start too soon."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field
from math import inf

from keepfast.core.guards import BreakerPolicy
from keepfast.core.records import Outgoing
from keepfast.engine.guards import BREAKER, STORM
from keepfast.testing.fakes import acts
from simulation.executor import HAND_OVER_S
from simulation.oracle.book import Book, is_final, is_outage
from simulation.oracle.health import Health
from simulation.oracle.violation import Blame
from simulation.setup import Setup
from simulation.workload import Entry

LATE_S = HAND_OVER_S[1] + 1e-4
"""A handler begins so much later than the loop started it, at most."""

SLACK = 1.1
"""The breaker's window moves in steps, and results reach it a little late."""

HEARD_S = 0.3
"""So old a result is known to the loop, if nothing holds it up."""


@dataclass(slots=True)
class _Seen:
    """What was seen of one process."""

    probe: int | None = None  # the call that was begun under a hold
    holds: dict[str, float] = field(default_factory=dict)  # since when
    freed_at: float = -inf  # when a probe succeeded, or an operator released it: earlier holds may end
    over_at: float = -inf  # the same, without probes whose partition was gone by then: holds of before have to end
    passed_at: float | None = None  # when a probe went through, unless a person has ended the hold since
    breaker_at: float = -inf  # when a probe last met an outage
    storm_at: float = -inf  # when a probe last failed
    began: list[float] = field(default_factory=list)
    blocked: tuple[float, float] = (-inf, -inf)  # from when until when its event loop last was
    by_place: dict[object, list[float]] = field(default_factory=dict)
    ended: deque[tuple[float, bool]] = field(default_factory=deque)  # when, whether it met an outage
    enough_at: float = inf  # when the breaker should have opened
    letters: int = 0  # in a row, with nothing that went through between them
    dead_lettered: set[int] = field(default_factory=set)


class GuardRules:
    """Looks at starts, ends and letters of members that are guarded."""

    def __init__(self, book: Book, blame: Blame, health: Health, setup: Setup) -> None:
        self._book = book
        self._blame = blame
        self._health = health
        self._setup = setup
        self._members: dict[str, _Seen] = {}
        storm = setup.storm_guard
        # This many in a row are a storm whatever came before; results of other records may arrive in between.
        self._most_letters = max(storm.dead_lettered, storm.share * storm.last) + storm.last if storm else 0

    def _seen(self, member: str) -> _Seen:
        return self._members.setdefault(member, _Seen())

    def _holds(self, member: str) -> set[str]:
        return self._book.members[member].loop.holds & {BREAKER, STORM}

    # -- starts

    def began(self, event: acts.HandlerBegan) -> None:
        what = f"{event.member} starts record {event.number} ({event.place} offset {event.offset})"
        seen = self._seen(event.member)
        self._ended_rightly(event.member, seen)
        if self._holds(event.member):
            self._is_probe(what, event, seen)
        else:
            self._does_not_hammer(what, event, seen)
        if self._setup.rate is not None:
            self._in_time(what, event, seen)

    def blocked(self, event: acts.Blocked) -> None:
        """What the loop starts meanwhile begins when the block is over."""
        self._seen(event.member).blocked = event.at, event.at + event.seconds

    def batch_began(self, event: acts.BatchBegan) -> None:
        seen = self._seen(event.member)
        self._ended_rightly(event.member, seen)
        if not self._holds(event.member):
            return
        what, entry = f"{event.member} starts batch {event.batch}", self._book.entries[event.numbers[0]]
        single = acts.HandlerBegan(
            event.at, event.member, entry.place, entry.offset, entry.number, event.attempt, event.calls[0]
        )
        self._is_probe(what, single, seen)

    def _ended_rightly(self, member: str, seen: _Seen) -> None:
        """A hold that is gone, or is a new one, was ended by a probe or by hand."""
        since = {
            hold: at for hold, at in self._book.members[member].loop.holds.since.items() if hold in (BREAKER, STORM)
        }
        if BREAKER in since:
            seen.ended.clear()
            seen.enough_at = inf
        elif BREAKER in seen.holds and seen.passed_at is not None:
            seen.ended.append((seen.passed_at, False))  # the probe that closed it is the first that counts again
        for hold, at in seen.holds.items():
            if since.get(hold) != at and seen.freed_at < at:
                self._blame("P8", f"{member} continues although no probe has ended its hold {hold}")
        seen.holds = since

    def _is_probe(self, what: str, event: acts.HandlerBegan, seen: _Seen) -> None:
        other = self._book.calls.get(seen.probe) if seen.probe is not None else None
        if other is not None and other[0] is not None and other[0].alive:
            self._blame("P8", f"{what} as a probe while record {other[1].number} is one already")
        if seen.over_at > max(seen.holds.values()):
            self._blame("P8", f"{what} with a probe that has gone through already")
        seen.probe = event.call
        since = self._book.members[event.member].loop.holds.since
        breaker, storm = self._setup.breaker, self._setup.storm_guard
        if breaker is not None and BREAKER in since:
            self._not_before(what, event, max(since[BREAKER], seen.breaker_at) + breaker.open_s)
        if storm is not None and STORM in since:
            self._not_before(what, event, max(since[STORM], seen.storm_at) + storm.probe_every_s)

    def _not_before(self, what: str, event: acts.HandlerBegan, due: float) -> None:
        if event.at < due - 1e-6:
            self._blame("P8", f"{what} {due - event.at:.3f} s before a probe is due")

    def _does_not_hammer(self, what: str, event: acts.HandlerBegan, seen: _Seen) -> None:
        member = self._book.members[event.member]
        disturbed = member.source.inside or self._health.process_disturbed_at(event.member) > event.at - 1.0
        if not disturbed and event.at - HEARD_S > seen.enough_at:
            self._blame("P8", f"{what} although enough attempts met an outage {event.at - seen.enough_at:.2f} s ago")

    def _in_time(self, what: str, event: acts.HandlerBegan, seen: _Seen) -> None:
        rate = self._setup.rate
        own = seen.by_place.setdefault(event.place, [])
        if rate is not None and self._health.process_disturbed_at(event.member) < event.at - 1.5:
            last = seen.began[-1] if seen.began else -inf
            since, until = seen.blocked
            late = since < last <= until + LATE_S  # the last start: by so much that only the loop knows when it was
            if not late and event.at - last < rate.min_delay_ms / 1000 - LATE_S:
                self._blame("rate", f"{what} {event.at - last:.4f} s after the last start")
            limits = ((seen.began, rate.per_s), (own, rate.partition_per_s))
            for starts, per_s in limits:
                most = inf if per_s is None else per_s + rate.burst_at(per_s) + 1
                count = len(starts) - bisect_left(starts, event.at - 1.0 + LATE_S) + 1
                if count > most:
                    self._blame("rate", f"{what}, number {count} within a second; at most {most:g} may")
        seen.began.append(event.at)
        own.append(event.at)

    # -- ends

    def ended(self, event: acts.HandlerEnded | acts.TimedOut) -> None:
        if event.call in self._book.given_up:
            return  # too late
        seen, outage = self._seen(event.member), is_outage(self._setup, event.outcome)
        self._ended_rightly(event.member, seen)
        judged = self._is_judged(event)
        if seen.probe == event.call:
            seen.probe = None
            if event.outcome == "ok":
                seen.freed_at = seen.passed_at = event.at
                seen.over_at = event.at if self._is_owned(event) else seen.over_at
            if outage and judged:
                seen.breaker_at = event.at
            if event.outcome not in ("ok", "Discard") and judged:
                seen.storm_at = event.at
        if event.outcome in ("ok", "Discard"):
            seen.letters = 0
        if self._setup.batch is not None:
            return
        if self._setup.breaker is not None and BREAKER not in seen.holds and (judged or not outage):
            self._count(self._setup.breaker, seen, event.at, outage=outage)

    def batch_ended(self, event: acts.BatchEnded) -> None:
        """What each record came to, and the first one of a probe. How many outages the breaker counts for a list is not
        looked at.
        """
        if event.calls[0] in self._book.given_up:
            return  # too late
        seen, named = self._seen(event.member), any(event.outcomes)
        if named and event.error and len(event.numbers) > 1 and seen.probe in event.calls:
            seen.probe = None  # the others are tried once more, without those
        for number, call, outcome in zip(event.numbers, event.calls, event.outcomes, strict=True):
            shared = event.error if len(event.numbers) == 1 or (seen.probe == call and not named) else ""
            entry, ended = self._book.entries[number], outcome or shared
            if ended:
                self.ended(acts.HandlerEnded(event.at, event.member, entry.place, entry.offset, number, ended, call))

    def _is_judged(self, event: acts.HandlerEnded | acts.TimedOut) -> bool:
        """Whether a failure decides anything: the next owner starts again with records that failed during the
        revocation.
        """
        partition = self._book.members[event.member].loop.ownership.get(event.place)
        return self._is_owned(event) and partition is not None and not partition.closing

    def _is_owned(self, event: acts.HandlerEnded | acts.TimedOut) -> bool:
        """Whether the partition was not taken away since the call began: else the loop need not listen any more."""
        epoch, _ = self._book.calls[event.call]
        return epoch is not None and epoch.alive

    def _count(self, breaker: BreakerPolicy, seen: _Seen, now: float, *, outage: bool) -> None:
        """Results count when their run is back: those before one that hangs come later by its time limit."""
        hung_s = SLACK * (self._setup.timeout.timeout_s or 0.0)
        seen.ended.append((now, outage))
        while seen.ended[0][0] < now - breaker.window_s * SLACK - hung_s:
            seen.ended.popleft()
        if not outage:
            return
        recent = sum(outage for at, outage in seen.ended if at > now - breaker.window_s / SLACK)
        if recent >= max(breaker.failures, breaker.share * len(seen.ended)):
            seen.enough_at = min(seen.enough_at, now)

    def released(self, event: acts.ReleaseSeen) -> None:
        """By hand: what was counted until then does not count any more."""
        seen = self._seen(event.member)
        seen.letters = 0
        seen.breaker_at = seen.storm_at = -inf
        seen.probe = seen.passed_at = None
        seen.freed_at = seen.over_at = event.at
        seen.enough_at = inf
        seen.ended.clear()

    # -- letters

    def letter(self, event: acts.LetterSent) -> None:
        self._given_up(event, *self._book.letter(event.member, event.number))

    def handed(self, event: acts.LetterHanded) -> None:
        self._given_up(event, *self._book.handed(event.member, event.number))

    def _given_up(self, event: acts.LetterSent | acts.LetterHanded, outgoing: Outgoing, entry: Entry) -> None:
        seen = self._seen(event.member)
        if entry.number in seen.dead_lettered or outgoing.topic in self._book.tiers.topics:
            return  # sent again, or moved to a retry topic
        seen.dead_lettered.add(entry.number)
        epoch = self._book.epochs.get((event.member, entry.place))
        outcome = epoch.outcomes.get(entry.number, "") if epoch else ""
        if self._setup.breaker is not None and is_outage(self._setup, outcome):
            self._blame("P8", f"{event.member} dead-letters record {entry.number}, which failed in an outage only")
        if self._setup.storm_guard is not None:
            self._no_storm(event, entry, seen)

    def _no_storm(self, event: acts.LetterSent | acts.LetterHanded, entry: Entry, seen: _Seen) -> None:
        since = self._book.members[event.member].loop.holds.since.get(STORM)
        if since is not None and event.at > since + 1e-3:
            self._blame("P8", f"{event.member} dead-letters record {entry.number} in a detected storm")
        seen.letters += 1
        if seen.letters > self._most_letters:
            self._blame(
                "P8", f"{event.member} has dead-lettered {seen.letters} records in a row; it should have stopped"
            )


def uncounted(setup: Setup, outcome: str) -> bool:
    """Whether a failed attempt may be one that a guard takes back."""
    held = setup.breaker is not None and is_outage(setup, outcome)
    # A storm keeps what would have been dead-lettered, which may be the last of several attempts.
    return held or (setup.storm_guard is not None and (is_final(setup, outcome) or setup.retry.max_retries is not None))

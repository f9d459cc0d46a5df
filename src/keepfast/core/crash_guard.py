"""The crash guard: a record that kills its process is found and dead-lettered; records beside it are not.

What it knows has to outlive the process, so it travels with the partition's commit, in the field that the completion
map leaves free for it (see `core.ledger`). While records of a partition are in flight the commit has a limit: records
below the *lease* may be in flight, nothing beyond it starts before a later commit is confirmed. An orderly end takes
the lease back, so an owner that finds one knows that the last owner died, and which records it may have had in flight.

The first time that only leaves a *mark*. The second time in about the same place (the committed offset lies below the
mark) those records become *suspects*. More than `ONE_BY_ONE` of them are searched by halves: the lease ends behind the
first half, so the confirmed commit says which suspects are tried before any of them starts. If all come back, half of
the others is next; if the process dies, the next owner continues with half of those that were tried. At most
`ONE_BY_ONE` run alone in their process, one by one, and each start is counted before it happens, in a confirmed commit.
The count is taken back when the record comes back, whatever became of it, so what is found there after a death are
starts that nothing came back from; after `max_deliveries` of them it is dead-lettered.

Where the next owner can read the flight recorder of the last one (see `engine.flight_recorder`), it knows the records
in flight exactly, and also whether the last owner died at all. Then only those records are marked, and the suspects are
the records that were in flight at both deaths.

The text is `d<lease>,t<token>,g,m<mark>,p<until>,h<spans>,q<spans>,n<ends>,c<offset>,s<offset>:<starts>…`; what is not
there is left out, every number is counted from the committed offset, spans are `<first>+<length>` and ends are numbers,
with dots between them. Whatever does not parse says nothing: then a death more is needed, and no record is harmed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

from keepfast.core.commit_metadata import GUARD_LIMIT, WINDOW

MIN_LEASE = 32
"""Offsets that may be started without asking, at least: few, because after two deaths each of them runs alone."""

FIRST_LEASE_BETWEEN_INTERVALS = 2_048
"""The first lease of a consumer that commits now and then: it has no commit at hand for every few records."""

LEASE_GROWTH = 8
"""A lease is so many times what was started since the last commit: a consumer that speeds up soon has enough."""

MAX_COUNTED = 12
"""Records whose starts are remembered at the same time, so that the text keeps within its limit."""

MAX_STARTS = 1_000
"""As high as a count can get, and `max_deliveries` with it."""

ONE_BY_ONE = MIN_LEASE
"""So few suspects run alone, one by one; among more of them the killer is searched by halves, beside other records."""

MAX_SUSPECTS = 64
"""Spans of offsets in one list of the text, so records that are far from each other and are kept exactly; where there
are more, those closest together are joined.
"""

MAX_NARROWED = 12
"""Ends of halves that are remembered: as often can the largest lease be halved."""

TOKEN = re.compile(r"[0-9a-f]{16}")
"""What names a process and its flight recorder. It becomes part of a file name: nothing else is a token."""

_DIGITS, _COUNT_DIGITS = 19, 4

Spans = tuple[tuple[int, int], ...]
"""Offsets as ranges `(first, end)`, ascending; they neither touch nor overlap."""


def spans_of(ranges: Iterable[tuple[int, int]]) -> Spans:
    """Ranges in any order, overlapping or not, as spans."""
    joined: list[tuple[int, int]] = []
    for first, end in sorted(ranges):
        if joined and first <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        elif first < end:
            joined.append((first, end))
    return tuple(joined)


def common(one: Spans, other: Spans) -> Spans:
    """The offsets that are in both."""
    found = ((max(a, b), min(c, d)) for a, c in one for b, d in other)
    return spans_of((first, end) for first, end in found if first < end)


def coarser(spans: Spans, most: int) -> Spans:
    """The same offsets, and those between the spans that are closest together, in at most `most` spans."""
    if len(spans) <= most:
        return spans
    gaps = sorted(range(1, len(spans)), key=lambda at: spans[at][0] - spans[at - 1][1], reverse=True)[: most - 1]
    cuts = [0, *sorted(gaps), len(spans)]
    return tuple((spans[a][0], spans[b - 1][1]) for a, b in pairwise(cuts))


def covers(spans: Spans, offset: int) -> bool:
    return any(first <= offset < end for first, end in spans)


def count_of(spans: Spans) -> int:
    """Number of offsets in them."""
    return sum(end - first for first, end in spans)


@dataclass(frozen=True, slots=True)
class SuspectTrial:
    """The suspects that may start now: those below `end`, all if it is None. `alone`: one by one, and each start is
    counted; otherwise together, beside whatever else runs.
    """

    end: int | None = None
    alone: bool = False


def next_trial(suspects: Spans, begin: int, narrowed: tuple[int, ...], *, passed: bool) -> SuspectTrial | None:
    """The next part of a search among suspects; None when none is left from `begin` on, where all below came back.

    `narrowed` are ends, ascending: below each of them were the suspects that were tried when a process died, so those
    below the first one are tried before the others. `passed`: some came back in this search, so what is left of them
    runs alone only after a death has pointed at it.
    """
    left = _from(suspects, begin)
    if not left:
        return None
    limit = next((end for end in narrowed if end > left[0][0]), None)
    if count_of(left) <= ONE_BY_ONE:
        return SuspectTrial(alone=limit is not None or not passed)
    hot = left if limit is None else common(left, ((begin, limit),))
    count = count_of(hot)
    if count <= ONE_BY_ONE:
        return SuspectTrial(hot[-1][1], alone=True)
    half = (count + 1) // 2
    for first, end in hot:
        if end - first >= half:
            return SuspectTrial(first + half)
        half -= end - first
    raise AssertionError("half of them are more than all of them")


@dataclass(frozen=True, slots=True)
class Guard:
    """What a commit says about crashes. All offsets are those of the log; None: nothing to say.

    `lease`: an owner is active, and records below it may be in flight. `mark`: records below it may have been in
    flight when a process died. `until`: unfinished records below it are suspects. `starts`: how often a suspect was
    started and did not come back; `charged` is the one whose latest start is counted ahead of it.

    `in_hand` are records that were in flight at a death and `suspects` those in flight at two, where that is known
    exactly. `narrowed` are the ends, ascending, of those that were tried when a process died. `token` names the owner
    that has the lease; `draining`: it is about to end.
    """

    lease: int | None = None
    mark: int | None = None
    until: int | None = None
    starts: Mapping[int, int] = field(default_factory=dict)
    in_hand: Spans = ()
    suspects: Spans = ()
    charged: int | None = None
    token: str = ""
    draining: bool = False
    narrowed: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of the owner of a lease. `in_hand`: the records that it had in flight; None: not known."""

    dead: bool
    in_hand: Spans | None = None


UNKNOWN = Fate(dead=True)
"""No flight recorder is found: an owner that left a lease is assumed to have died."""
NOT_DEAD = Fate(dead=False)
"""It lives, or it ended on purpose and could not say so in a commit."""


def write(guard: Guard, base: int) -> str:
    """The text for a commit at `base`; empty if there is nothing to say. Never longer than GUARD_LIMIT."""
    for most in (MAX_SUSPECTS, MAX_SUSPECTS // 2, MAX_SUSPECTS // 8, 1):
        text = _written(guard, base, most)
        if len(text) <= GUARD_LIMIT:
            break
    return text


def _written(guard: Guard, base: int, most_spans: int) -> str:
    limits = [
        f"{letter}{offset - base}"
        for letter, offset in (("d", guard.lease), ("m", guard.mark), ("p", guard.until))
        if offset is not None and offset > base
    ]
    owner = [f"t{guard.token}"] * bool(guard.token) + ["g"] * guard.draining
    items = limits[:1] + owner + limits[1:] if guard.lease is not None and guard.lease > base else limits
    for letter, spans in (("h", guard.in_hand), ("q", guard.suspects)):
        left = coarser(_from(spans, base), most_spans)
        if left:
            items.append(letter + ".".join(f"{first - base}+{end - first}" for first, end in left))
    ends = [str(end - base) for end in guard.narrowed[:MAX_NARROWED] if end > base]
    items += ["n" + ".".join(ends)] if ends else []
    items += [f"c{guard.charged - base}"] if guard.charged is not None and guard.charged >= base else []
    items += [f"s{offset - base}:{count}" for offset, count in sorted(guard.starts.items()) if offset >= base]
    return ",".join(items)


def read(text: str, base: int) -> Guard:
    """What the text, found with a commit at `base`, says; nothing at all unless every word of it can be understood."""
    if not text or len(text) > GUARD_LIMIT:
        return Guard()
    numbers: dict[str, int] = {}
    spans: dict[str, Spans] = {}
    starts: dict[int, int] = {}
    token, draining = "", False
    narrowed: tuple[int, ...] = ()
    for item in text.split(","):
        letter, rest = item[:1], item[1:]
        offset, colon, count = rest.partition(":")
        if letter in numbers or letter in spans:
            return Guard()
        if letter in ("d", "m", "p", "c") and _is_number(rest, _DIGITS):
            numbers[letter] = base + int(rest)
        elif letter == "s" and _is_number(offset, _DIGITS) and _is_number(count, _COUNT_DIGITS) and colon:
            starts[base + int(offset)] = int(count)
        elif letter in ("h", "q") and (found := _read_spans(rest, base)) is not None:
            spans[letter] = found
        elif letter == "t" and not token and TOKEN.fullmatch(rest):
            token = rest
        elif item == "g" and not draining:
            draining = True
        elif letter == "n" and not narrowed and (ends := _read_ends(rest, base)) is not None:
            narrowed = ends
        else:
            return Guard()
    if len(starts) > MAX_COUNTED or ((token or draining) and "d" not in numbers):
        return Guard()
    lease, mark, until, charged = map(numbers.get, "dmpc")
    in_hand, suspects = spans.get("h", ()), spans.get("q", ())
    return Guard(lease, mark, until, starts, in_hand, suspects, charged, token, draining, narrowed)


def _read_spans(text: str, base: int) -> Spans | None:
    ranges: list[tuple[int, int]] = []
    for item in text.split("."):
        first, _, length = item.partition("+")
        if not (_is_number(first, _DIGITS) and _is_number(length, _DIGITS)) or len(ranges) >= MAX_SUSPECTS:
            return None
        start = base + int(first)
        if int(length) < 1 or (ranges and start <= ranges[-1][1]):
            return None
        ranges.append((start, start + int(length)))
    return tuple(ranges)


def _read_ends(text: str, base: int) -> tuple[int, ...] | None:
    items = text.split(".")
    if len(items) > MAX_NARROWED or not all(_is_number(item, _DIGITS) for item in items):
        return None
    ends = tuple(base + int(item) for item in items)
    return ends if base < ends[0] and all(one < other for one, other in pairwise(ends)) else None


def _is_number(text: str, digits: int) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= digits


def _from(spans: Spans, base: int) -> Spans:
    """What of them is not finished below `base`."""
    if not spans or spans[0][0] >= base:
        return spans
    return tuple((max(first, base), end) for first, end in spans if end > base)


def inherited(found: Guard, base: int, fate: Fate = UNKNOWN) -> Guard:
    """What a new owner makes of what it finds with the commit at `base`: a lease that was not taken back is a death,
    unless the `fate` of its owner is known to be another, or it was about to end.

    Marks and suspects that everything has been finished below are forgotten; the others continue from owner to owner.
    """
    mark = found.mark if found.mark is not None and found.mark > base else None
    until = found.until if found.until is not None and found.until > base else None
    starts = {offset: count for offset, count in found.starts.items() if offset >= base and count > 0}
    in_hand, suspects = _from(found.in_hand, base), _from(found.suspects, base)
    narrowed = tuple(end for end in found.narrowed if end > base)
    if found.lease is None or found.lease <= base:
        return Guard(None, mark, until, starts, in_hand, suspects, narrowed=narrowed)
    if found.draining or not fate.dead:
        starts = _taken_back(starts, found.charged)
        return Guard(None, mark, until, starts, in_hand, suspects, narrowed=narrowed)
    leased = ((base, found.lease),)
    if found.charged is not None and fate.in_hand is None:  # nothing runs beside the one whose start is counted
        fate = replace(fate, in_hand=((found.charged, found.charged + 1),))
    if fate.in_hand is None:
        reach = max(found.lease, mark or 0)
        if mark is not None:  # the second time in about the same place
            until = max(reach, until or 0)
        both = spans_of(suspects + common(in_hand, leased))
        guard = Guard(None, reach, until, starts, in_hand, both, narrowed=narrowed)
        return replace(guard, narrowed=_narrowed(found, base, leased, guard))
    hand = common(fate.in_hand, leased)
    if found.charged is not None and not covers(hand, found.charged):
        starts = _taken_back(starts, found.charged)
    before = in_hand if mark is None else spans_of((*in_hand, (base, mark)))
    both = coarser(spans_of(suspects + common(before, hand)), MAX_SUSPECTS)
    in_hand = coarser(spans_of(in_hand + hand), MAX_SUSPECTS)
    guard = Guard(None, mark, until, starts, in_hand, both, narrowed=narrowed)
    return replace(guard, narrowed=_narrowed(found, base, hand, guard))


def all_suspects(guard: Guard, base: int) -> Spans:
    """The suspects of an owner that begins at `base`, however they are known."""
    until = guard.until or base
    return spans_of((*_from(guard.suspects, base), (base, max(base, until))))


def _narrowed(found: Guard, base: int, in_flight: Spans, guard: Guard) -> tuple[int, ...]:
    """The ends after a death with this in flight, for those who are suspects now: the killer is among the ones below
    the first end, if it is one of those that were tried.
    """
    suspects, tried = all_suspects(guard, base), common(all_suspects(found, base), in_flight)
    if count_of(suspects) <= ONE_BY_ONE or not tried:
        return guard.narrowed
    end = tried[-1][1] if found.charged is None else found.charged + 1
    ends = (end, *(other for other in guard.narrowed if other > end))
    return tuple(end for end in ends if base < end < suspects[-1][1])[:MAX_NARROWED]


def _taken_back(starts: dict[int, int], charged: int | None) -> dict[int, int]:
    """The counts without the start that was counted ahead of it and which killed no process."""
    return {offset: left for offset, count in starts.items() if (left := count - (offset == charged)) > 0}


def lease_length(before: int, used: int) -> int:
    """How many offsets may be started until the next commit: `used` of them were since the last one, out of `before`.

    It grows at once and shrinks by halves, so that a partition that is fetched in bursts need not wait for every one.
    """
    length = max(LEASE_GROWTH * used, before // 2)
    return MIN_LEASE if length < MIN_LEASE else min(WINDOW, length)


class CrashWatch:
    """The guard of one partition for one ownership epoch. Owner: the loop thread.

    `commit_soon` asks for a commit of the partition. Unfinished records below `until` (0: there are none) and those in
    `suspects` are suspects. `exposed`: the broker may hold a count for a record that is not running; nothing else may
    start meanwhile, or a crash would count against the wrong record. `token` names the flight recorder in which the
    partition's records in flight are noted. `base` is where the epoch begins; `trial` says which suspects may start.
    """

    __slots__ = (
        "_awaited", "_base", "_commit_soon", "_draining", "_handed", "_in_hand", "_leaving", "_length", "_mark",
        "_narrowed", "_owner", "_passed", "_proposed", "_starts", "_token", "_working", "charged", "exposed", "known",
        "lease", "suspects", "trial", "until",
    )  # fmt: skip

    def __init__(
        self,
        found: Guard,
        commit_soon: Callable[[], None],
        *,
        first_lease: int = MIN_LEASE,
        token: str = "",
        base: int = 0,
    ) -> None:
        self._commit_soon = commit_soon
        self._token = token
        self._draining = False
        self._owner = f",t{token}" if token else ""  # as it follows the lease in the text
        self._mark = found.mark or 0
        self._in_hand = found.in_hand
        self.suspects = found.suspects
        self._starts = dict(found.starts)
        self._handed: int | None = None
        self._length = 2 * first_lease
        self.lease = 0  # as proposed last; 0: no owner is active
        self._awaited = False  # a lease was proposed, and is not confirmed yet
        self._working = False
        self._leaving = False
        self._proposed: int | None = None
        self.until = found.until or 0
        self._narrowed = found.narrowed
        self._base = base
        self._passed = base  # suspects below it came back in this search
        self.trial = self._next_trial(base)
        self.charged: int | None = None  # the suspect whose start is to be counted by the next commit
        self.known: int | None = None  # the one whose start is counted by what the broker is known to hold
        self.exposed = False

    # -- the lease

    def run_out(self) -> None:
        """The lease ends here, or soon: nothing beyond it starts before a commit moves it."""
        self._working = True
        if not self._awaited and not (self.lease and self.trial is not None and self.lease == self.trial.end):
            self._commit_soon()

    def leave(self) -> bool:
        """An orderly end: the next commit takes the lease and the count back. Whether there is anything to take."""
        self._leaving, first = True, not self._leaving
        self.charged = None
        return first and self._working

    def drain(self) -> bool:
        """The process is about to end: whatever ends it from now on is no record's doing. Whether there is a lease, so
        that a commit has to say it.
        """
        self._draining, first = True, not self._draining
        self._owner = (f",t{self._token}" if self._token else "") + ",g"
        return first and self.lease > 0

    # -- suspects

    @property
    def marked(self) -> bool:
        """Whether a process has died over records of this partition that are not finished. Any thread."""
        return bool(self._mark or self._in_hand or self.until or self.suspects)

    def is_suspect(self, offset: int) -> bool:
        return offset < self.until or (bool(self.suspects) and covers(self.suspects, offset))

    @property
    def begins_search(self) -> bool:
        """Whether there are suspects, and nothing of the partition may have started."""
        return self.trial is not None and not self.lease

    def limit_suspects(self, end: int) -> None:
        """No record from `end` on existed when this epoch began: a lease reaches far beyond the last one."""
        if self.suspects_end > end:
            self.until = min(self.until, end)
            self.suspects = common(self.suspects, ((self._base, end),)) if end > self._base else ()
            self.trial = self._next_trial(self._base)

    def runs_alone(self, offset: int) -> bool:
        """Whether the record is a suspect that starts alone, and counted: one of few, or one that was before."""
        if self.trial is None or not self.is_suspect(offset):
            return False
        return offset in self._starts or (self.trial.alone and offset >= self._passed)

    @property
    def has_alone(self) -> bool:
        """Whether some of the suspects that may start now run alone, or the broker may hold a count of one."""
        if self.exposed or self.trial is None:
            return self.exposed
        end = self.trial.end or self.suspects_end
        return self.trial.alone or any(offset < end and self.runs_alone(offset) for offset in self._starts)

    def clear_suspects(self) -> None:
        """All of them are finished, or came back from a search."""
        self.until, self.suspects, self._narrowed, self.trial = 0, (), (), None

    def is_tried(self, handed: int) -> bool:
        """Whether all suspects that may start now were handed out. `handed`: no record from there on was."""
        return self.trial is not None and self.lease > 0 and handed >= (self.trial.end or self.suspects_end)

    def pass_trial(self, handed: int) -> None:
        """Those that were tried came back, and the process is alive: have half of the others tried."""
        self._passed = handed
        self._narrowed = tuple(end for end in self._narrowed if end > handed)
        before, self.trial = self.trial, self._next_trial(handed)
        if self.trial != before:
            self._commit_soon()

    def _next_trial(self, begin: int) -> SuspectTrial | None:
        suspects = spans_of((*self.suspects, (self._base, max(self._base, self.until))))
        trial = next_trial(suspects, begin, self._narrowed, passed=self._passed > self._base)
        if trial is None and any(map(self.is_suspect, self._starts)):
            return (
                SuspectTrial()
            )  # one that was counted is still to start, or to be dead-lettered: a lane may hold it back
        return trial

    @property
    def suspects_end(self) -> int:
        """No offset from there on is a suspect."""
        return max(self.until, self.suspects[-1][1] if self.suspects else 0)

    def starts(self, offset: int) -> int:
        """How often it was started and did not come back."""
        return self._starts.get(offset, 0)

    def charge(self, offset: int) -> bool:
        """It is about to start: have that counted. Whether it is, so that it may."""
        if self.known == offset == self.charged:
            return True
        if self.charged != offset:
            self.charged = offset
            self._commit_soon()
        return False

    def came_back(self, *, finished: bool) -> None:
        """The suspect that was charged is not running any more, and the process is alive."""
        if self.charged is not None and finished:
            self._starts.pop(self.charged, None)
        self.charged = None
        if self.exposed:
            self._commit_soon()

    def take_back(self) -> None:
        """The broker holds a count for a start of an earlier owner, which killed no process."""
        self.exposed = True
        self._commit_soon()

    def count_death(self, in_hand: Spans) -> None:
        """The process is about to end because of these records, which hold it up for good: as if it had died of them.
        Before `leave`.
        """
        mark, until, starts = self._mark or None, self.until or None, self._with_charge()
        known = self._in_hand, self.suspects, self.charged
        found = Guard(in_hand[-1][1], mark, until, starts, *known, narrowed=self._narrowed)
        guard = inherited(found, 0, Fate(dead=True, in_hand=in_hand))
        self._in_hand, self.suspects, self._starts = guard.in_hand, guard.suspects, dict(guard.starts)
        self._narrowed, self.charged = guard.narrowed, None

    def carried(self, watermark: int, base: int) -> Guard:
        """What continues in a new epoch that begins at `base`, by an operator's choice, in the same process. Everything
        below `watermark` was finished, so nothing below it becomes a suspect by being read again.
        """
        in_hand, suspects = self._in_hand, self.suspects
        if self._mark > watermark:
            in_hand = spans_of((*in_hand, (watermark, self._mark)))
        if self.until > watermark:
            suspects = spans_of((*suspects, (watermark, self.until)))
        starts = {offset: count for offset, count in self._starts.items() if offset >= base}
        return Guard(
            starts=starts,
            in_hand=coarser(_from(in_hand, base), MAX_SUSPECTS),
            suspects=coarser(_from(suspects, base), MAX_SUSPECTS),
        )

    def _with_charge(self) -> dict[int, int]:
        charged = self.charged
        return self._starts if charged is None else _with(charged, self.starts(charged) + 1, self._starts)

    # -- commits

    def words(self, base: int, handed: int) -> str:
        """What a commit at `base` shall say; no record from `handed` on has been handed out. Sent at once.

        Every commit comes through here, so the usual case, without any death, is a short way.
        """
        if self._mark <= base:
            self._mark = 0
        if self._mark or self._starts or self.charged is not None or self.until or self._in_hand or self.suspects:
            return write(self.propose(base, handed), base)
        self._proposed = self.known = None
        self._extend(handed)
        return f"d{self.lease - base}{self._owner}" if self.lease else ""

    def propose(self, base: int, handed: int) -> Guard:
        """The same as a value."""
        if self.until <= base:
            self.until = 0
        self._in_hand, self.suspects = _from(self._in_hand, base), _from(self.suspects, base)
        self._starts = {offset: count for offset, count in self._starts.items() if offset >= base}
        self._proposed = self.charged
        if self.known != self._proposed:
            self.known = None  # from now on the broker may hold something else
        self.exposed = self.exposed or self.charged is not None
        self._extend(handed)
        return Guard(
            self.lease or None,
            self._mark or None,
            self.until or None,
            self._with_charge(),
            self._in_hand,
            self.suspects,
            self.charged,
            self._token if self.lease else "",
            self._draining and self.lease > 0,
            tuple(end for end in self._narrowed if end > base),
        )

    def _extend(self, handed: int) -> None:
        self.lease = 0
        if self._working and not self._leaving:
            self._length = lease_length(self._length, 0 if self._handed is None else handed - self._handed)
            end = None if self.trial is None else self.trial.end
            self.lease = handed + self._length if end is None else min(handed + self._length, end)
            self._handed = handed
            self._awaited = True

    def confirmed(self) -> tuple[int, int]:
        """The broker holds what was proposed last. Returns how far records may start now, and from where on it is time
        to ask for more: half of it is left for as long as the answer takes.
        """
        self._awaited = False
        self.known = self._proposed
        if self._proposed is None:
            self.exposed = False
        return self.lease, self.lease - self._length // 2 if self.lease else 0


def _with(offset: int, count: int, starts: Mapping[int, int]) -> dict[int, int]:
    """One more count; if that makes too many, those of the fewest starts are forgotten."""
    others = sorted((one for one in starts.items() if one[0] != offset), key=lambda one: (-one[1], one[0]))
    return {offset: min(count, MAX_STARTS), **dict(others[: MAX_COUNTED - 1])}

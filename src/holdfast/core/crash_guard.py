"""The crash guard: a record that kills its process is found and buried; those that were only beside it are not.

What it knows has to outlive the process, so it travels with the partition's commit, in the field that the completion
map leaves free for it (see `core.completion`). While a partition is at work the commit says how far: records below the
*lease* may be in flight, nothing beyond it starts before a later commit is confirmed. An orderly end takes the lease
back, so whoever finds one knows that the last owner died, and which records it may have had in hand.

The first time that only leaves a *mark*. The second time in about the same place (the committed offset lies below the
mark) those records become *suspects*: each of them runs alone in its process, and each start is counted before it
happens, in a confirmed commit. The count is taken back when the record comes back, whatever became of it, so what is
found there after a death are starts that nothing came back from; after `max_deliveries` of them it is buried.

The text is `d<lease>,m<mark>,p<until>,s<offset>:<starts>…`; what is not there is left out, and every number is counted
from the committed offset. Whatever does not parse says nothing: then a death more is needed, and no record is harmed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from holdfast.core.completion import GUARD_LIMIT, WINDOW

LEAST_LEASE = 32
"""Offsets that may be started without asking, at least: few, because after two deaths each of them runs alone."""

FIRST_LEASE_BETWEEN_INTERVALS = 2_048
"""The first lease of a consumer that commits now and then: it has no commit at hand for every few records."""

LEASE_GROWTH = 8
"""A lease is so many times what was started since the last commit: a consumer that speeds up soon has enough."""

MOST_COUNTED = 12
"""Records whose starts are remembered at the same time, so that the text keeps within its limit."""

MOST_STARTS = 1_000
"""As high as a count can get, and `max_deliveries` with it."""

_DIGITS, _COUNT_DIGITS = 19, 4


@dataclass(frozen=True, slots=True)
class Guard:
    """What a commit says about crashes. All offsets are those of the log; None: nothing to say.

    `lease`: somebody is at work, and records below it may be in flight. `mark`: records below it may have been in
    flight when a process died. `until`: unfinished records below it are suspects. `starts`: how often a suspect was
    started and did not come back.
    """

    lease: int | None = None
    mark: int | None = None
    until: int | None = None
    starts: Mapping[int, int] = field(default_factory=dict)


def write(guard: Guard, base: int) -> str:
    """The text for a commit at `base`; empty if there is nothing to say. Never longer than GUARD_LIMIT."""
    items = [
        f"{letter}{offset - base}"
        for letter, offset in (("d", guard.lease), ("m", guard.mark), ("p", guard.until))
        if offset is not None and offset > base
    ]
    items += [f"s{offset - base}:{count}" for offset, count in sorted(guard.starts.items()) if offset >= base]
    return ",".join(items)


def read(text: str, base: int) -> Guard:
    """What the text, found with a commit at `base`, says; nothing at all unless every word of it can be understood."""
    if not text or len(text) > GUARD_LIMIT:
        return Guard()
    limits: dict[str, int] = {}
    starts: dict[int, int] = {}
    for item in text.split(","):
        letter, rest = item[:1], item[1:]
        offset, colon, count = rest.partition(":")
        if not _is_number(offset, _DIGITS) or letter in limits:
            return Guard()
        if letter == "s" and _is_number(count, _COUNT_DIGITS) and len(starts) < MOST_COUNTED:
            starts[base + int(offset)] = int(count)
        elif letter in ("d", "m", "p") and not colon:
            limits[letter] = base + int(offset)
        else:
            return Guard()
    return Guard(limits.get("d"), limits.get("m"), limits.get("p"), starts)


def _is_number(text: str, digits: int) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= digits


def inherited(found: Guard, base: int) -> Guard:
    """What a new owner makes of what it finds with the commit at `base`: a lease that nobody took back is a death.

    Marks and suspects that everything has been finished below are forgotten; the others go on from owner to owner.
    """
    mark = found.mark if found.mark is not None and found.mark > base else None
    until = found.until if found.until is not None and found.until > base else None
    starts = {offset: count for offset, count in found.starts.items() if offset >= base and count > 0}
    if found.lease is None or found.lease <= base:
        return Guard(None, mark, until, starts)
    reach = max(found.lease, mark or 0)
    if mark is not None:  # the second time in about the same place
        until = max(reach, until or 0)
    return Guard(None, reach, until, starts)


def lease_length(before: int, used: int) -> int:
    """How many offsets may be started until the next commit: `used` of them were since the last one, out of `before`.

    It grows at once and shrinks by halves, so that a partition that is fetched in bursts need not wait for every one.
    """
    return min(WINDOW, max(LEAST_LEASE, LEASE_GROWTH * used, before // 2))


class Watch:
    """The guard of one partition for one ownership epoch. Owner: the loop thread.

    `press` asks for a commit of the partition as soon as possible. `until` is where its suspects end (0: there are
    none). `exposed`: the broker may hold a count for a record that is not running; nothing else may start meanwhile,
    or a death would be laid to the wrong door.
    """

    __slots__ = (
        "_awaited", "_handed", "_leaving", "_length", "_mark", "_press", "_proposed", "_starts", "_working",
        "charged", "exposed", "known", "lease", "until",
    )  # fmt: skip

    def __init__(self, found: Guard, press: Callable[[], None], *, first_lease: int = LEAST_LEASE) -> None:
        self._press = press
        self._mark = found.mark or 0
        self._starts = dict(found.starts)
        self._handed: int | None = None
        self._length = 2 * first_lease
        self.lease = 0  # as proposed last; 0: nobody is at work
        self._awaited = False  # a lease was proposed, and is not confirmed yet
        self._working = False
        self._leaving = False
        self._proposed: int | None = None
        self.until = found.until or 0
        self.charged: int | None = None  # the suspect whose start is to be counted by the next commit
        self.known: int | None = None  # the one whose start is counted by what the broker is known to hold
        self.exposed = False

    # -- the lease

    def run_out(self) -> None:
        """The lease ends here, or soon: nothing beyond it starts before a commit moves it."""
        self._working = True
        if not self._awaited:
            self._press()

    def leave(self) -> bool:
        """An orderly end: the next commit takes the lease and the count back. Whether there is anything to take."""
        self._leaving, first = True, not self._leaving
        self.charged = None
        return first and self._working

    # -- suspects

    def is_suspect(self, offset: int) -> bool:
        return offset < self.until

    def starts(self, offset: int) -> int:
        """How often it was started and did not come back."""
        return self._starts.get(offset, 0)

    def charge(self, offset: int) -> bool:
        """It is about to start: have that counted. Whether it is, so that it may."""
        if self.known == offset == self.charged:
            return True
        if self.charged != offset:
            self.charged = offset
            self._press()
        return False

    def came_back(self, *, finished: bool) -> None:
        """The suspect that was charged is not running any more, and the process is alive."""
        if self.charged is not None and finished:
            self._starts.pop(self.charged, None)
        self.charged = None
        if self.exposed:
            self._press()

    # -- commits

    def words(self, base: int, handed: int) -> str:
        """What a commit at `base` shall say; no record from `handed` on has been handed out. Sent at once.

        Every commit comes through here, so the usual case, in which nobody ever died, is a short way.
        """
        if self._mark <= base:
            self._mark = 0
        if self._mark or self._starts or self.charged is not None or self.until:
            return write(self.propose(base, handed), base)
        self._proposed = self.known = None
        self._extend(handed)
        return f"d{self.lease - base}" if self.lease else ""

    def propose(self, base: int, handed: int) -> Guard:
        """The same as a value."""
        if self.until <= base:
            self.until = 0
        self._starts = {offset: count for offset, count in self._starts.items() if offset >= base}
        self._proposed = self.charged
        if self.known != self._proposed:
            self.known = None  # from now on the broker may hold something else
        starts: Mapping[int, int] = self._starts
        if self.charged is not None:
            self.exposed = True
            starts = _with(self.charged, self.starts(self.charged) + 1, self._starts)
        self._extend(handed)
        return Guard(self.lease or None, self._mark or None, self.until or None, starts)

    def _extend(self, handed: int) -> None:
        self.lease = 0
        if self._working and not self._leaving:
            self._length = lease_length(self._length, 0 if self._handed is None else handed - self._handed)
            self.lease = handed + self._length
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
        return self.lease, max(0, self.lease - self._length // 2)


def _with(offset: int, count: int, starts: Mapping[int, int]) -> Mapping[int, int]:
    """One more count; if that makes too many, those of the fewest starts are forgotten."""
    others = sorted((one for one in starts.items() if one[0] != offset), key=lambda one: (-one[1], one[0]))
    return {offset: min(count, MOST_STARTS), **dict(others[: MOST_COUNTED - 1])}

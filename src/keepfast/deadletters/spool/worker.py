"""Takes letters in and sends them on: the work behind the port, without a thread of its own. One owner thread."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from logging import ERROR, WARNING
from typing import Any

from keepfast.core.errors import Fault, SinkError, SpoolError
from keepfast.core.ports import Clock, Keeping, Kept, Sink
from keepfast.core.records import Outgoing, Receipt
from keepfast.deadletters.spool.letters import SpooledLetter, spooled
from keepfast.deadletters.spool.store import Fill, Head, Store
from keepfast.deadletters.writing import shrunk
from keepfast.telemetry.logs import get_logger

log = get_logger("keepfast.spool")

WINDOW, WINDOW_BYTES = 32, 4 * 1024 * 1024
"""Letters on their way at the same time; a crash may send so many of them once more."""
REMEMBERED = 10_000
"""Identities of letters sent on, so that a copy of one that comes late is not sent again."""
FIRST_PAUSE_S, MAX_PAUSE_S = 1.0, 30.0
STUCK_S, PROBE_S = 600.0, 30.0
"""How long until a letter that Kafka refuses for itself (too large, damaged) is tried once more; of the letters that
are too large for a topic the smallest is tried sooner, and the others as soon as it has gone through."""
POLL_INTERVAL_S, FILL_S = 15.0, 5.0
"""How often the store is looked at when nothing happens, and counted at most."""
ROOM_S = 5.0
"""How often a store that has refused a letter is asked whether it has room again."""
AROUND_BYTES = 500
"""What a store writes around a letter, at most."""


@dataclass(slots=True)
class Keep:
    """A letter to take in; whoever gave it is answered once."""

    outgoing: Outgoing
    told: Keeping
    answered: bool = False

    def answer(self, outcome: Kept | SpoolError) -> None:
        if not self.answered:
            self.answered = True
            self.told(outcome)


@dataclass(frozen=True, slots=True)
class Nudge:
    """Try everything again now: somebody has put something right."""


@dataclass(frozen=True, slots=True)
class SpoolAnswer:
    """What the sink said about a letter that was sent on."""

    sending: SpoolSending
    outcome: Receipt | SinkError


Item = Keep | SpoolAnswer | Nudge


@dataclass(slots=True)
class SpoolSending:
    """A letter on its way; `outgoing` gets smaller when Kafka finds it too large."""

    head: Head
    letter: SpooledLetter
    outgoing: Outgoing


@dataclass(slots=True)
class Trouble:
    """A topic that does not take letters now."""

    failures: int = 0
    until: float = 0.0


@dataclass(frozen=True, slots=True)
class StuckLetter:
    """A letter that cannot be sent on for a reason of its own, such as its size."""

    ref: str
    letter: str
    why: str
    until: float
    too_large_for: str = ""
    """The topic that found it too large."""
    size: int = 0


@dataclass(frozen=True, slots=True)
class SpoolStatus:
    """For health and for people; replaced as a whole, so that any thread may read it."""

    fill: Fill = field(default_factory=lambda: Fill(0, 0))
    sent_on: int = 0
    stuck: tuple[StuckLetter, ...] = ()
    refusing: str = ""
    """Why the spool does not take letters; empty if it took the last one, or has had room for one since."""


class SpoolWorker:
    """`post` brings an `Answer` back to `take`, from any thread. `draining`: False sends nothing more on."""

    def __init__(self, store: Store, sink: Sink, clock: Clock, post: Callable[[SpoolAnswer], None]) -> None:
        self._store = store
        self._sink = sink
        self._clock = clock
        self._post = post
        self._flying: dict[str, SpoolSending] = {}
        self._flying_bytes = 0
        self._stuck: dict[str, StuckLetter] = {}
        self._acknowledged: dict[str, Head] = {}  # not yet removed
        self._troubles: dict[str, Trouble] = {}
        self._store_trouble = Trouble()
        self._remembered: dict[bytes, None] = {}
        self._look_at = 0.0
        self._refused_bytes = 0
        self._room_at = 0.0
        self._fill_at = float("-inf")
        self.draining = True
        self.status = SpoolStatus()

    def open(self) -> None:
        """Raises SpoolError."""
        self._store.open()
        fill = self._store.fill()
        self.status = replace(self.status, fill=fill)
        if fill.letters or fill.damaged:
            log.warning("spool_holds_letters", letters=fill.letters, bytes=fill.held_bytes, damaged=fill.damaged)

    def close(self) -> None:
        self._store.close()

    @property
    def knows_some(self) -> bool:
        return bool(self._remembered) or bool(self._store.identities())

    def knows(self, identity: bytes) -> bool:
        """Whether the letter is kept, or was sent on not long ago. Any thread."""
        return identity in self._store.identities() or identity in self._remembered

    def take(self, items: Sequence[Item], now: float) -> None:
        """Letters to keep, answers of the sink, and words of people."""
        self._look_at = now
        if any(isinstance(item, Nudge) for item in items):
            for topic in self._troubles:  # still in doubt: the oldest letter finds out, before the others go
                self._troubles[topic] = Trouble()
            self._stuck.clear()
            self._store_trouble = Trouble()
        self._keep([item for item in items if isinstance(item, Keep)], now)
        for item in items:
            if isinstance(item, SpoolAnswer):
                self._answered(item, now)
        self._remove(now)
        self._report(now)

    def step(self, now: float) -> float:
        """Send on what may be sent now; returns the seconds until it wants to be called again at the latest."""
        if self.draining and now >= max(self._look_at, self._store_trouble.until):
            try:
                if self._store.lead(now):
                    self._send_on(now)
                self._store_trouble.failures = 0
            except SpoolError as error:
                self._pause(self._store_trouble, now)
                log.sampled(ERROR, "spool_not_readable", now=now, error=str(error))
            self._remove(now)
            self._look_at = now + self._next_in(now)
        self._try_room(now)
        self._report(now)
        wait_s = max(0.0, self._look_at - now, self._store_trouble.until - now) if self.draining else POLL_INTERVAL_S
        return min(wait_s, max(0.0, self._room_at - now)) if self.status.refusing else wait_s

    @property
    def flying(self) -> int:
        """Letters that are on their way."""
        return len(self._flying)

    def left(self) -> bool:
        """Whether there is a letter that could be sent on, now or when a pause is over. Raises SpoolError."""
        if self._flying:
            return True
        return bool(self._store.heads(1, lambda h: h.ref not in self._stuck and h.ref not in self._acknowledged))

    # -- taking in

    def _keep(self, keeps: Sequence[Keep], now: float) -> None:
        if not keeps:
            return
        at_ms = round(self._clock.wall() * 1000)
        letters = [spooled(keep.outgoing, at_ms=at_ms) for keep in keeps]
        try:
            new = [letter for letter in letters if not self.knows(letter.identity)]
            if new:
                self._store.add(new)
        except SpoolError as error:
            if len(keeps) > 1:
                for keep in keeps:  # one of them may be all that is too much
                    self._keep([keep], now)
            else:
                self.status = replace(self.status, refusing=str(error))
                self._refused_bytes, self._room_at = _size(keeps[0].outgoing), now + ROOM_S
                keeps[0].answer(error)
            return
        self.status = replace(self.status, refusing="")
        self._fill_at = float("-inf")
        for keep in keeps:
            keep.answer(Kept())

    def _try_room(self, now: float) -> None:
        """The next letter may be long in coming: find out by ourselves whether it would be taken."""
        if not self.status.refusing or now < self._room_at:
            return
        self._room_at = now + ROOM_S
        try:
            self._store.try_room(self._refused_bytes)
        except SpoolError as error:
            self.status = replace(self.status, refusing=str(error))
            return
        self.status = replace(self.status, refusing="")
        log.info("spool_takes_letters_again")

    # -- sending on

    def _send_on(self, now: float) -> None:
        under_way = {one.head.topic for one in self._flying.values()}
        identities = {one.head.identity for one in self._flying.values()}
        room = WINDOW - len(self._flying)
        for head in self._store.heads(room, partial(self._is_wanted, now=now)) if room > 0 else ():
            if head.identity in self._remembered:
                self._acknowledged[head.ref] = head  # a copy of one that Kafka has
            elif head.identity in identities or (head.topic in self._troubles and head.topic in under_way):
                continue  # its copy is on its way; or another letter finds out whether the topic is well again
            elif self._flying_bytes + head.size > WINDOW_BYTES and self._flying:
                return
            else:
                identities.add(head.identity)
                under_way.add(head.topic)
                self._start(head, now)

    def _is_wanted(self, head: Head, *, now: float) -> bool:
        if head.ref in self._flying or head.ref in self._acknowledged:
            return False
        stuck, trouble = self._stuck.get(head.ref), self._troubles.get(head.topic)
        return (stuck is None or now >= stuck.until) and (trouble is None or now >= trouble.until)

    def _start(self, head: Head, now: float) -> None:
        try:
            letter = self._store.read(head)
        except SpoolError as error:
            self._set_aside(head, "", str(error), now + (STUCK_S if error.damaged else MAX_PAUSE_S))
            return
        sending = SpoolSending(head, letter, letter.outgoing)
        self._flying[head.ref] = sending
        self._flying_bytes += head.size
        self._send(sending)

    def _send(self, sending: SpoolSending) -> None:
        post = self._post
        self._sink.send(sending.outgoing, lambda outcome: post(SpoolAnswer(sending, outcome)))

    def _answered(self, answer: SpoolAnswer, now: float) -> None:
        sending, outcome = answer.sending, answer.outcome
        head = sending.head
        other = changed(sending.outgoing, outcome) if isinstance(outcome, SinkError) else None
        if other is not None and self.draining:
            sending.outgoing = other
            self._send(sending)
            return
        del self._flying[head.ref]
        self._flying_bytes -= head.size
        if isinstance(outcome, Receipt):
            self._troubles.pop(head.topic, None)
            self._unstick(head, now)
            self._acknowledged[head.ref] = head
            self._remember(head.identity)
            self.status = replace(self.status, sent_on=self.status.sent_on + 1)
        elif outcome.fault is Fault.TOO_LARGE:
            others = [(one.size, one.ref) for one in self._too_large(head.topic) if one.ref != head.ref]
            until = now + (PROBE_S if all((head.size, head.ref) < one for one in others) else STUCK_S)
            self._set_aside(head, sending.letter.id, str(outcome), until, too_large_for=head.topic)
        else:
            self._pause(self._troubles.setdefault(head.topic, Trouble()), now)
            fields: dict[str, Any] = {"topic": head.topic, "fault": outcome.fault, "error": str(outcome)}
            log.sampled(WARNING, "spool_waits_for_kafka", now=now, key=head.topic, **fields)

    def _set_aside(self, head: Head, letter: str, why: str, until: float, *, too_large_for: str = "") -> None:
        """This letter cannot be sent on for a reason of its own: it stays, and does not hold up the others."""
        if head.ref not in self._stuck:
            log.error("spooled_letter_stuck", ref=head.ref, letter=letter, topic=head.topic, error=why)
        self._stuck[head.ref] = StuckLetter(head.ref, letter, why, until, too_large_for, head.size)

    def _too_large(self, topic: str) -> list[StuckLetter]:
        return [one for one in self._stuck.values() if one.too_large_for == topic]

    def _unstick(self, head: Head, now: float) -> None:
        """Kafka has taken a letter. If it was too large before, the topic takes more now: the others are tried, too."""
        stuck = self._stuck.pop(head.ref, None)
        if stuck is not None and stuck.too_large_for:
            for one in self._too_large(head.topic):
                self._stuck[one.ref] = replace(one, until=now)

    def _remember(self, identity: bytes) -> None:
        self._remembered[identity] = None
        if len(self._remembered) > REMEMBERED:
            del self._remembered[next(iter(self._remembered))]

    def _remove(self, now: float) -> None:
        """Only what Kafka has acknowledged. Until it is removed, it is not sent again by this process."""
        if not self._acknowledged or now < self._store_trouble.until:
            return
        try:
            self._store.remove(list(self._acknowledged.values()))
        except SpoolError as error:
            self._pause(self._store_trouble, now)
            log.sampled(ERROR, "spool_not_cleared", now=now, error=str(error))
            return
        self._acknowledged.clear()
        self._fill_at = float("-inf")

    def _pause(self, trouble: Trouble, now: float) -> None:
        if now >= trouble.until:  # not for the others of the same window
            trouble.failures += 1
            trouble.until = now + min(MAX_PAUSE_S, FIRST_PAUSE_S * 2 ** min(trouble.failures - 1, 10))

    def _next_in(self, now: float) -> float:
        pauses = [one.until - now for one in (*self._troubles.values(), self._store_trouble) if one.until > now]
        return min([POLL_INTERVAL_S, *pauses])

    def _forget_what_is_gone(self) -> None:
        """Letters that others have removed are not stuck any more. Raises SpoolError."""
        if self._stuck:
            there = {head.ref for head in self._store.heads(len(self._stuck), lambda head: head.ref in self._stuck)}
            self._stuck = {ref: one for ref, one in self._stuck.items() if ref in there}

    def _report(self, now: float) -> None:
        before = self.status
        fill = before.fill
        if now - self._fill_at >= FILL_S:
            self._fill_at = now
            with contextlib.suppress(SpoolError):
                fill = self._store.fill()
                self._forget_what_is_gone()
        self.status = replace(before, fill=fill, stuck=tuple(self._stuck.values()))
        if before.fill.letters and not fill.letters:
            log.info("spool_empty", sent_on=before.sent_on)


def _size(outgoing: Outgoing) -> int:
    """About so much a store needs for it."""
    headers = sum(len(name) + len(value or b"") for name, value in outgoing.headers)
    return len(outgoing.value or b"") + len(outgoing.key or b"") + headers + AROUND_BYTES


def changed(outgoing: Outgoing, error: SinkError) -> Outgoing | None:
    """The same letter in another way that Kafka may take at once; None if there is none.

    Too large: one step smaller. No such partition, because the topic was made again with fewer: its key decides.
    """
    if error.fault is Fault.TOO_LARGE:
        smaller = shrunk(outgoing)
        return None if smaller == outgoing else smaller
    if error.fault is Fault.MISSING and error.code == "_UNKNOWN_PARTITION" and outgoing.partition is not None:
        return replace(outgoing, partition=None)
    return None

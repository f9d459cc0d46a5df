"""Stores letters and sends them to Kafka: the work behind the port, without a thread of its own. One owner thread."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from logging import ERROR, WARNING
from typing import Any

from keepfast.core.errors import Fault, SinkError, SpoolError
from keepfast.core.ports import Clock, Kept, OnKept, Sink
from keepfast.core.records import Outgoing, Receipt
from keepfast.deadletters.spool.letters import SpooledLetter, spooled
from keepfast.deadletters.spool.store import Fill, Head, Store
from keepfast.deadletters.writing import other_form
from keepfast.telemetry.logs import get_logger

log = get_logger("keepfast.spool")

WINDOW, WINDOW_BYTES = 32, 4 * 1024 * 1024
"""Letters in flight; after a crash, at most this many are sent once more."""
REMEMBERED = 10_000
"""Identities of sent letters, so that a late copy is not sent again."""
FIRST_PAUSE_S, MAX_PAUSE_S = 1.0, 30.0
STUCK_S, PROBE_S = 600.0, 30.0
"""Delay before a letter that Kafka refuses individually (too large, damaged) is tried again. Of the letters that are
too large for a topic the smallest is tried sooner, and the others once it was accepted."""
POLL_INTERVAL_S, FILL_S = 15.0, 5.0
"""Interval of checks of an idle store, and shortest interval of counting its letters."""
ROOM_S = 5.0
"""Interval of checks whether a store that refused a letter has room again."""
AROUND_BYTES = 500
"""Upper bound of a store's overhead per letter."""


@dataclass(slots=True)
class Keep:
    """A letter to store; `on_kept` is called once."""

    outgoing: Outgoing
    on_kept: OnKept
    answered: bool = False

    def answer(self, outcome: Kept | SpoolError) -> None:
        if not self.answered:
            self.answered = True
            self.on_kept(outcome)


@dataclass(frozen=True, slots=True)
class RetryNow:
    """Retry everything now."""


@dataclass(frozen=True, slots=True)
class SpoolAnswer:
    """The sink's answer for a letter."""

    sending: SpoolSending
    outcome: Receipt | SinkError


Item = Keep | SpoolAnswer | RetryNow


@dataclass(slots=True)
class SpoolSending:
    """A letter in flight; `outgoing` is shortened when it is too large for Kafka."""

    head: Head
    letter: SpooledLetter
    outgoing: Outgoing


@dataclass(slots=True)
class TopicOutage:
    """A topic that does not accept letters now."""

    failures: int = 0
    until: float = 0.0
    why: str = ""


@dataclass(frozen=True, slots=True)
class StuckLetter:
    """A letter that cannot be sent for a reason of its own, such as its size."""

    ref: str
    letter: str
    why: str
    until: float
    too_large_for: str = ""
    """The topic for which it is too large."""
    size: int = 0


@dataclass(frozen=True, slots=True)
class SpoolStatus:
    """For health checks and output; replaced as a whole, so that any thread may read it."""

    fill: Fill = field(default_factory=lambda: Fill(0, 0))
    sent_on: int = 0
    stuck: tuple[StuckLetter, ...] = ()
    refusing: str = ""
    """Why the spool does not accept letters; empty if it accepted the last one, or has had room since."""
    waits: str = ""
    """Why Kafka does not take the letters; empty if it takes them, or has not answered for one yet."""


class SpoolWorker:
    """`post` passes an answer back to `take`, from any thread. Of stored letters only those are sent that `sends`
    accepts.
    """

    def __init__(
        self,
        store: Store,
        sink: Sink,
        clock: Clock,
        post: Callable[[SpoolAnswer], None],
        *,
        sends: Callable[[Head], bool] = lambda _: True,
    ) -> None:
        self._store = store
        self._sends = sends
        self._sink = sink
        self._clock = clock
        self._post = post
        self._in_flight: dict[str, SpoolSending] = {}
        self._in_flight_bytes = 0
        self._stuck: dict[str, StuckLetter] = {}
        self._acknowledged: dict[str, Head] = {}  # not yet removed
        self._outages: dict[str, TopicOutage] = {}
        self._store_error = TopicOutage()  # it cannot be read
        self._remove_error = TopicOutage()  # nothing can be removed from it; letters are sent nevertheless
        self._sent: dict[bytes, None] = {}
        self._check_at = 0.0
        self._refused_bytes = 0
        self._room_at = 0.0
        self._fill_at = float("-inf")
        self._draining = True
        self.status = SpoolStatus()

    def stop_draining(self) -> None:
        """Send no more letters; they are still stored. Any thread."""
        self._draining = False

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
        return bool(self._sent) or bool(self._store.identities())

    def knows(self, identity: bytes) -> bool:
        """Whether the letter is stored, or was sent recently. Any thread."""
        return identity in self._store.identities() or identity in self._sent

    def take(self, items: Sequence[Item], now: float) -> None:
        """Letters to store, answers of the sink, and requests to retry."""
        self._check_at = now
        if any(isinstance(item, RetryNow) for item in items):
            for topic in self._outages:  # still uncertain: the oldest letter is sent as a probe, before the others
                self._outages[topic] = TopicOutage()
            self._stuck.clear()
            self._store_error, self._remove_error = TopicOutage(), TopicOutage()
        self._keep([item for item in items if isinstance(item, Keep)], now)
        for item in items:
            if isinstance(item, SpoolAnswer):
                self._answered(item, now)
        self._remove(now)
        self._report(now)

    def step(self, now: float) -> float:
        """Send letters that are due; returns the longest time in seconds until the next call."""
        if self._draining and now >= max(self._check_at, self._store_error.until):
            try:
                if self._store.lead(now):
                    self._send_on(now)
                self._store_error.failures = 0
            except SpoolError as error:
                self._pause(self._store_error, now)
                log.sampled(ERROR, "spool_not_readable", now=now, error=str(error))
            self._remove(now)
            self._check_at = now + self._next_in(now)
        self._try_room(now)
        self._report(now)
        wait_s = max(0.0, self._check_at - now, self._store_error.until - now) if self._draining else POLL_INTERVAL_S
        return min(wait_s, max(0.0, self._room_at - now)) if self.status.refusing else wait_s

    @property
    def in_flight(self) -> int:
        """Number of letters in flight."""
        return len(self._in_flight)

    def left(self) -> bool:
        """Whether there is a letter to send, now or after a pause. Raises SpoolError."""
        if self._in_flight:
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
                for keep in keeps:  # one of them may be the cause
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
        """Check whether a letter would be accepted again, without waiting for the next one."""
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
        under_way = {one.head.topic for one in self._in_flight.values()}
        identities = {one.head.identity for one in self._in_flight.values()}
        room = WINDOW - len(self._in_flight)
        for head in self._store.heads(room, partial(self._is_wanted, now=now)) if room > 0 else ():
            if head.identity in self._sent:
                self._acknowledged[head.ref] = head  # a copy of a letter that Kafka has
            elif head.identity in identities or (head.topic in self._outages and head.topic in under_way):
                continue  # its copy is in flight; or another letter is the probe of the topic
            elif self._in_flight_bytes + head.size > WINDOW_BYTES and self._in_flight:
                return
            else:
                identities.add(head.identity)
                under_way.add(head.topic)
                self._start(head, now)

    def _is_wanted(self, head: Head, *, now: float) -> bool:
        if head.ref in self._in_flight or head.ref in self._acknowledged or not self._sends(head):
            return False
        stuck, trouble = self._stuck.get(head.ref), self._outages.get(head.topic)
        return (stuck is None or now >= stuck.until) and (trouble is None or now >= trouble.until)

    def _start(self, head: Head, now: float) -> None:
        try:
            letter = self._store.read(head)
        except SpoolError as error:
            self._set_aside(head, "", str(error), now + (STUCK_S if error.damaged else MAX_PAUSE_S))
            return
        sending = SpoolSending(head, letter, letter.outgoing)
        self._in_flight[head.ref] = sending
        self._in_flight_bytes += head.size
        self._send(sending)

    def _send(self, sending: SpoolSending) -> None:
        post = self._post
        self._sink.send(sending.outgoing, lambda outcome: post(SpoolAnswer(sending, outcome)))

    def _answered(self, answer: SpoolAnswer, now: float) -> None:
        sending, outcome = answer.sending, answer.outcome
        head = sending.head
        other = other_form(sending.outgoing, outcome) if isinstance(outcome, SinkError) else None
        if other is not None and self._draining:
            sending.outgoing = other
            self._send(sending)
            return
        del self._in_flight[head.ref]
        self._in_flight_bytes -= head.size
        if isinstance(outcome, Receipt):
            self._outages.pop(head.topic, None)
            self._unstick(head, now)
            self._acknowledged[head.ref] = head
            self._note_sent(head.identity)
            self.status = replace(self.status, sent_on=self.status.sent_on + 1)
        elif outcome.fault is Fault.TOO_LARGE:
            others = [(one.size, one.ref) for one in self._too_large(head.topic) if one.ref != head.ref]
            until = now + (PROBE_S if all((head.size, head.ref) < one for one in others) else STUCK_S)
            self._set_aside(head, sending.letter.id, str(outcome), until, too_large_for=head.topic)
        else:
            outage = self._outages.setdefault(head.topic, TopicOutage())
            outage.why = str(outcome)
            self._pause(outage, now)
            fields: dict[str, Any] = {"topic": head.topic, "fault": outcome.fault, "error": str(outcome)}
            log.sampled(WARNING, "spool_waits_for_kafka", now=now, key=head.topic, **fields)

    def _set_aside(self, head: Head, letter: str, why: str, until: float, *, too_large_for: str = "") -> None:
        """This letter cannot be sent for a reason of its own: it stays, and does not block the others."""
        if head.ref not in self._stuck:
            log.error("spooled_letter_stuck", ref=head.ref, letter=letter, topic=head.topic, error=why)
        self._stuck[head.ref] = StuckLetter(head.ref, letter, why, until, too_large_for, head.size)

    def _too_large(self, topic: str) -> list[StuckLetter]:
        return [one for one in self._stuck.values() if one.too_large_for == topic]

    def _unstick(self, head: Head, now: float) -> None:
        """Kafka accepted a letter. If it was too large before, the limit of the topic was raised: the others are tried,
        too.
        """
        stuck = self._stuck.pop(head.ref, None)
        if stuck is not None and stuck.too_large_for:
            for one in self._too_large(head.topic):
                self._stuck[one.ref] = replace(one, until=now)

    def _note_sent(self, identity: bytes) -> None:
        self._sent[identity] = None
        if len(self._sent) > REMEMBERED:
            del self._sent[next(iter(self._sent))]

    def _remove(self, now: float) -> None:
        """Remove letters that Kafka acknowledged. Until then they are not sent again by this process.

        A full disk may have no room to note that a letter is gone; a file all of whose letters are gone needs none.
        So the other letters are sent meanwhile.
        """
        if not self._acknowledged or now < self._remove_error.until:
            return
        try:
            self._store.remove(list(self._acknowledged.values()))
        except SpoolError as error:
            self._pause(self._remove_error, now)
            log.sampled(ERROR, "spool_not_cleared", now=now, error=str(error))
            return
        self._remove_error.failures = 0
        self._acknowledged.clear()
        self._fill_at = float("-inf")

    def _pause(self, trouble: TopicOutage, now: float) -> None:
        if now >= trouble.until:  # not for the others of the same window
            trouble.failures += 1
            trouble.until = now + min(MAX_PAUSE_S, FIRST_PAUSE_S * 2 ** min(trouble.failures - 1, 10))

    def _next_in(self, now: float) -> float:
        troubles = (*self._outages.values(), self._store_error, self._remove_error)
        pauses = [one.until - now for one in troubles if one.until > now]
        return min([POLL_INTERVAL_S, *pauses])

    def _drop_removed(self) -> None:
        """Forget stuck letters that other processes removed. Raises SpoolError."""
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
                self._drop_removed()
        waits = next((one.why for one in self._outages.values() if one.why), "")
        self.status = replace(before, fill=fill, stuck=tuple(self._stuck.values()), waits=waits)
        if before.fill.letters and not fill.letters:
            log.info("spool_empty", sent_on=before.sent_on)


def _size(outgoing: Outgoing) -> int:
    """Estimate of the space it needs in a store."""
    headers = sum(len(name) + len(value or b"") for name, value in outgoing.headers)
    return len(outgoing.value or b"") + len(outgoing.key or b"") + headers + AROUND_BYTES

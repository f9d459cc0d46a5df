"""Rules about batches: whole lanes in order, retried whole, good ones done once, and nothing started too soon."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from keepfast.testing.fakes import acts, trace
from simulation.member import Member
from simulation.oracle.book import TIMED_OUT, Book, is_final
from simulation.oracle.epochs import Epoch, Lane
from simulation.oracle.guards import uncounted
from simulation.oracle.health import Health
from simulation.oracle.violation import Blame
from simulation.setup import Setup
from simulation.workload import Entry

EARLY_S = 1e-6

STARVED_S = 5.0
"""A member that has records to start and starts none of them for so long starves them."""


SETTLED_S = 8.0
"""After trouble with commits: back-offs take their time."""


@dataclass(slots=True)
class _Batch:
    """One batch, through all of its calls."""

    failures: int = 0
    error: str = ""
    """Its last failure."""
    due: float | None = None
    waits: dict[int, Epoch] = field(default_factory=dict)
    """The records that wait for the next attempt, and with which epoch they came."""
    finished: set[int] = field(default_factory=set)


class BatchRules:
    """Looks at every call of a handler that takes lists, and keeps the book about it."""

    def __init__(self, book: Book, blame: Blame, health: Health, setup: Setup) -> None:
        self._book = book
        self._blame = blame
        self._health = health
        self._setup = setup
        self._each = setup.commit.mode == "each"
        self._window = setup.window if setup.order != "partition" else None
        self._batches: dict[tuple[str, int], _Batch] = {}
        self._waits_in: dict[tuple[str, int], int] = {}
        self._revoking: dict[str, trace.Places] = {}
        self._last: dict[tuple[str, int], int] = {}

    def revoke_begins(self, event: trace.RevokedBegin) -> None:
        self._revoking[event.member] = event.places

    def revoke_ends(self, event: trace.RevokedEnd) -> None:
        self._revoking.pop(event.member, None)

    def together(self, member: str, one: Entry, other: Entry) -> bool:
        """Whether they were last in the same batch: then the one need not wait for the commit of the other."""
        batch = self._last.get((member, one.number))
        return batch is not None and batch == self._last.get((member, other.number))

    # -- starts

    def began(self, event: acts.BatchBegan) -> None:
        batch = self._batches.setdefault((event.member, event.batch), _Batch())
        what = f"{event.member} starts batch {event.batch}"
        if event.member in self._book.stopping:
            self._blame("P6", f"{what} although a stop was requested")
        if self._setup.batch is not None and len(event.numbers) > self._setup.batch.size:
            self._blame("batch", f"{what} with {len(event.numbers)} records; at most {self._setup.batch.size} fit")
        lanes: dict[Lane, list[Entry]] = {}
        for number in event.numbers:
            entry = self._book.entries[number]
            self._may_start(f"{what} with record {number}", event, entry)
            lane = self._book.lane(entry)
            if lane is not None:
                lanes.setdefault(lane, []).append(entry)
        for lane, entries in lanes.items():
            self._in_order(what, event, lane, entries, batch)
        self._whole(what, event, batch)
        self._note_start(event, batch)

    def _may_start(self, what: str, event: acts.BatchBegan, entry: Entry) -> None:
        epoch = self._book.epochs.get((event.member, entry.place))
        if epoch is None or (event.member, entry.place) not in self._book.held or entry.number not in epoch.given:
            self._blame("P5", f"{what} of {entry.place}, which it was not given since it owns the partition")
            return
        if entry.number in epoch.running:
            self._blame("P3", f"{what} while it is still at it")
        if entry.number in epoch.letters:
            self._blame("repeat", f"{what} again, after it was sent as a letter")
        if entry.number in epoch.finished or epoch.knows_finished(entry):
            self._blame("repeat", f"{what} again; it has finished it already")
        lowest = epoch.lowest() if self._window is not None else None
        if lowest is not None and self._window is not None and entry.offset >= lowest.offset + self._window:
            self._blame("window", f"{what}, {entry.offset - lowest.offset} offsets above the lowest unfinished one")
        other = self._waits_in.get((event.member, entry.number))
        if other is not None and other != event.batch and self._waits(event.member, other, entry):
            self._blame("retry", f"{what}, which waits for its retry in batch {other}")

    def _waits(self, member: str, batch: int, entry: Entry) -> bool:
        """Whether it still does: a new epoch starts from the beginning."""
        epoch = self._batches[member, batch].waits.get(entry.number)
        return epoch is not None and epoch is self._book.epochs.get((member, entry.place))

    def _in_order(self, what: str, event: acts.BatchBegan, lane: Lane, entries: list[Entry], batch: _Batch) -> None:
        other = self._book.busy.get((event.member, lane))
        if other is not None:
            self._blame("P3", f"{what} while record {self._book.calls[other][1].number} of lane {lane} is running")
        by_epoch: dict[Epoch, list[Entry]] = {}
        for entry in entries:
            epoch = self._book.epochs.get((event.member, entry.place))
            if epoch is not None:
                by_epoch.setdefault(epoch, []).append(entry)
        for epoch, theirs in by_epoch.items():
            own = [entry for entry in theirs if entry.number not in epoch.discarded]
            first = [entry for entry in epoch.lanes.get(lane, ()) if entry.number not in epoch.finished][: len(own)]
            if own != first:
                numbers, wanted = [entry.number for entry in own], [entry.number for entry in first]
                self._blame("P3", f"{what} with {numbers} of lane {lane}, whose next records are {wanted}")
            last = epoch.uncommitted.get(lane)
            if self._each and last is not None and last.number not in batch.finished:
                self._blame("each", f"{what} before the commit of record {last.number} of lane {lane} is stored")

    def _whole(self, what: str, event: acts.BatchBegan, batch: _Batch) -> None:
        """After a retryable failure: not before its time, and all of them again that are still ours."""
        if batch.due is None:
            return
        if event.attempt == batch.failures and uncounted(self._setup, batch.error):
            batch.failures -= 1  # a guard has taken the attempt back: when it is over, the next one begins
        elif event.at < batch.due - EARLY_S:
            self._blame("retry", f"{what} {batch.due - event.at:.3f} s before its retry is due")
        sought = [place for name, place in self._book.seeks if name == event.member]
        leaving = (*self._revoking.get(event.member, ()), *sought)
        for number, epoch in batch.waits.items():
            if number not in event.numbers and epoch.alive and epoch.place not in leaving:
                self._blame("retry", f"{what} again without record {number}")

    def _note_start(self, event: acts.BatchBegan, batch: _Batch) -> None:
        book = self._book
        batch.due = None
        batch.waits = {}
        book.began_at[event.member] = event.at
        for number, call in zip(event.numbers, event.calls, strict=True):
            entry = book.entries[number]
            epoch = book.epochs.get((event.member, entry.place))
            book.calls[call] = (epoch, entry)
            self._waits_in.pop((event.member, number), None)
            self._last[event.member, number] = event.batch
            lane = book.lane(entry)
            if lane is not None:
                book.busy.setdefault((event.member, lane), call)
            if epoch is not None:
                epoch.running.add(number)

    # -- ends

    def ended(self, event: acts.BatchEnded) -> None:
        book = self._book
        if event.calls[0] not in book.given_up:
            self._over(event)
        for call in event.calls:
            book.given_up.discard(call)
            del book.calls[call]

    def timed_out(self, event: acts.BatchTimedOut) -> None:
        """The loop continues without this call."""
        self._over(event.ended)
        self._book.given_up.update(event.calls)

    def _over(self, event: acts.BatchEnded) -> None:
        book, batch = self._book, self._batches[event.member, event.batch]
        book.active_at[event.member] = event.at
        alone = len(event.numbers) == 1
        together: list[tuple[Epoch, Entry]] = []
        for call, outcome in zip(event.calls, event.outcomes, strict=True):
            epoch, entry = book.calls[call]
            lane = book.lane(entry)
            if lane is not None and book.busy.get((event.member, lane)) == call:
                del book.busy[event.member, lane]
            ended = event.error if alone and event.error and not outcome else outcome
            self._ended(event, epoch, entry, ended, batch)
            if epoch is not None and not ended:
                together.append((epoch, entry))
        if together and not any(event.outcomes):
            self._failed_together(event, batch, together)

    def _ended(self, event: acts.BatchEnded, epoch: Epoch | None, entry: Entry, outcome: str, batch: _Batch) -> None:
        """What is known of one record: it went well, or it is to blame; nothing, if `outcome` is empty."""
        if epoch is not None:
            epoch.running.discard(entry.number)
        if outcome in ("ok", "Discard"):
            entry.terminal = entry.terminal or ("handled" if outcome == "ok" else "discarded")
        if epoch is None or not outcome:
            return
        if outcome == "ok":
            batch.finished.add(entry.number)
            self._book.finish(epoch, entry, event.at)
        elif outcome == "Discard":
            epoch.discarded.add(entry.number)
            queue = epoch.lanes.get(self._book.lane(entry), deque())
            if entry in queue:
                queue.remove(entry)
            if epoch.waiting.pop(entry.number, None) is not None:
                epoch.waiting_bytes -= entry.size
        else:  # from now on on its own, if it is; it may come back in another batch, too, if its own is broken up
            epoch.outcomes[entry.number] = outcome
            epoch.failures[entry.number] = 1
            delay_s = self._setup.retry.delay_ms(0, 0.0) / 1000
            epoch.due[entry.number] = event.at + (entry.after_s if outcome == "RetryLater" else delay_s)
            if outcome == TIMED_OUT and is_final(self._setup, outcome):
                del epoch.due[entry.number]
                epoch.timed_out[entry.number] = event.at

    def _failed_together(self, event: acts.BatchEnded, batch: _Batch, members: list[tuple[Epoch, Entry]]) -> None:
        """No record was named: if it may be retried, all of them wait for that."""
        batch.failures += 1
        batch.error = event.error
        retry = self._setup.retry
        final = is_final(self._setup, event.error) or event.error in ("Halt", "SystemExit", "Discard")
        used_up = retry.max_retries is not None and batch.failures > retry.max_retries
        if event.error == "RetryLater" and self._setup.tiers and event.after_s > retry.max_delay_ms / 1000:
            for epoch, entry in members:  # that long no lane waits: all of them are moved
                epoch.outcomes[entry.number], epoch.failures[entry.number] = event.error, 1
                epoch.asked_s[entry.number], epoch.failed_at[entry.number] = event.after_s, event.at
            return
        if final or used_up or retry.max_elapsed_s is not None:
            return
        delay_s = event.after_s if event.error == "RetryLater" else retry.delay_ms(batch.failures - 1, 0.0) / 1000
        batch.due = event.at + delay_s
        for epoch, entry in members:
            batch.waits[entry.number] = epoch
            self._waits_in[event.member, entry.number] = event.batch

    def refused(self, event: acts.LoopRefused) -> None:
        epoch = self._book.epochs.get((event.member, event.place))
        if epoch is not None and event.number not in epoch.finished:
            epoch.outcomes[event.number] = "DecodeError"
            epoch.failures[event.number] = max(1, epoch.failures.get(event.number, 0))
            epoch.due[event.number] = event.at

    # -- standstill

    def starves(self, member: Member, now: float) -> str | None:
        """What it says if the member starts nothing although it could."""
        longest_s = STARVED_S + self._setup.retry.max_delay_ms / 1000
        # A thread's call is traced as ended when it begins, and its run is out for as long as the call takes.
        began_at, active_at = self._book.began_at.get(member.name, 0.0), self._book.active_at.get(member.name, 0.0)
        if (
            member.executor.out
            or now - max(began_at, active_at, member.executor.returned_at) < longest_s
            or any(name == member.name for name, _ in self._book.letters)
        ):
            return None
        own = [place for name, place in self._book.epochs if name == member.name]
        disturbed = (self._health.partition_disturbed_at(member.name, place) for place in own)
        if max(disturbed, default=now) > now - SETTLED_S:
            return None  # it may need a commit before it starts; a partition that is held keeps lanes of others
        if any(batch.due is not None and batch.due > now - STARVED_S for batch in self._batches.values()):
            return None
        for (name, _), epoch in self._book.epochs.items():
            if name != member.name or now - epoch.begun_at < longest_s:
                continue
            for entry in epoch.waiting.values():
                if now - epoch.given[entry.number] > longest_s and entry.number not in epoch.letters and entry.open:
                    return f"{member.name} has room and has started nothing for a while; record {entry.number} waits"
        return None

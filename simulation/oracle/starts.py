"""Rules about starts: P3, P5, P6, no repeats without a cause, retries by the policy, and the window."""

from __future__ import annotations

from keepfast.testing.fakes import acts
from simulation.oracle.batches import BatchRules
from simulation.oracle.book import Book
from simulation.oracle.epochs import Epoch
from simulation.oracle.guards import uncounted
from simulation.oracle.violation import Blame
from simulation.setup import Setup
from simulation.workload import ROUNDING_S, Entry

EARLY_S = 1e-6


class StartRules:
    """Looks at every call of a handler."""

    def __init__(self, book: Book, blame: Blame, setup: Setup, batches: BatchRules) -> None:
        self._batches = batches
        self._book = book
        self._blame = blame
        self._setup = setup
        self._each = setup.commit.mode == "each"
        self._window = setup.window if setup.order != "partition" else None

    def began(self, event: acts.HandlerBegan) -> None:
        entry = self._book.entries[event.number]
        what = f"{event.member} starts record {entry.number} ({event.place} offset {event.offset})"
        epoch = self._book.epochs.get((event.member, event.place))
        if epoch is None or (event.member, event.place) not in self._book.held:
            self._blame("P5", f"{what} of a partition it does not own")
            return
        if entry.number not in epoch.given:
            self._blame("P5", f"{what}, which it was not given since it owns the partition")
            return
        if event.member in self._book.stopping:
            self._blame("P6", f"{what} although a stop was requested")
        self._no_repeat(what, epoch, entry)
        self._by_policy(what, event, epoch, entry)
        self._in_order(what, event, epoch, entry)
        self._within_window(what, epoch, entry)

    def _no_repeat(self, what: str, epoch: Epoch, entry: Entry) -> None:
        if entry.number in epoch.running:
            self._blame("P3", f"{what} while it is still at it")
        if entry.number in epoch.finished:
            self._blame("repeat", f"{what} again; it has finished it already")
        elif epoch.knows_finished(entry):
            self._blame("repeat", f"{what}; the commit it began from, {epoch.covered}, says that it is finished")
        if entry.number in epoch.timed_out and self._setup.storm_guard is None:
            self._blame("repeat", f"{what} again, after it has timed out")
        if entry.number in epoch.letters:
            self._blame("repeat", f"{what} again, after it was sent as a letter")

    def _by_policy(self, what: str, event: acts.HandlerBegan, epoch: Epoch, entry: Entry) -> None:
        failures, copied = epoch.failures.get(entry.number, 0), entry.copied
        before = copied.failures if copied is not None else 0
        if copied is not None and event.at < copied.due_at - ROUNDING_S:
            self._blame("due", f"{what} {copied.due_at - event.at:.3f} s before it is due")
        # Which attempt of a forged record this is, its headers say: it may be any.
        same = entry.forged or event.attempt == before + failures
        if failures and same and uncounted(self._setup, epoch.outcomes[entry.number]):
            self._book.take_back(epoch, entry)
            return
        most = self._setup.retry.max_retries
        # What is too large for its retry topic is tried once more where it is.
        if copied is None and most is not None and event.attempt > most + 1 + bool(self._setup.tiers):
            self._blame("retry", f"{what} as attempt {event.attempt}; the policy allows {most} retries")
        if event.attempt != before + failures + 1 and not entry.forged:
            self._blame("retry", f"{what} as attempt {event.attempt}; it failed {failures} times since it owns it")
        due = epoch.due.get(entry.number)
        if due is not None and event.at < due - EARLY_S:
            self._blame("retry", f"{what} {due - event.at:.3f} s before its retry is due")

    def _in_order(self, what: str, event: acts.HandlerBegan, epoch: Epoch, entry: Entry) -> None:
        lane = self._book.lane(entry)
        if lane is None:
            return
        other = self._book.busy.get((event.member, lane))
        if other is not None:
            beside = self._book.calls[other][1]
            self._blame("P3", f"{what} while record {beside.number} of the same lane {lane} is running")
        queue = epoch.lanes.get(lane)
        if queue and queue[0] is not entry:
            self._blame("P3", f"{what} before record {queue[0].number} at {queue[0].offset} of its lane is finished")
        last = epoch.uncommitted.get(lane)
        if self._each and last is not None and not self._batches.together(event.member, entry, last):
            self._blame("each", f"{what} before the commit of record {last.number} of its lane is stored")

    def _within_window(self, what: str, epoch: Epoch, entry: Entry) -> None:
        lowest = epoch.lowest() if self._window is not None else None
        if lowest is not None and self._window is not None and entry.offset >= lowest.offset + self._window:
            self._blame("window", f"{what}, {entry.offset - lowest.offset} offsets above the lowest unfinished one")

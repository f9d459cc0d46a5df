"""Rules about going on: nothing starves while there is room, memory is bounded (P11), and in the end all is done."""

from __future__ import annotations

from keepfast.core.commit_metadata import WINDOW
from keepfast.core.runs import Run
from keepfast.core.sizing import MAX_RUN
from keepfast.engine.commits import COMMIT_REFUSED
from keepfast.engine.loop import COMMIT
from keepfast.testing.fakes.broker import FakeBroker
from simulation.member import Member
from simulation.oracle.batches import BatchRules
from simulation.oracle.book import Book, is_final, is_outage
from simulation.oracle.cover import Cover
from simulation.oracle.epochs import Epoch, Lane
from simulation.oracle.health import Health
from simulation.oracle.violation import Blame
from simulation.setup import GROUP, Setup
from simulation.workload import MAX_RECORD, Entry

GRACE_S = 1.5
"""A record that nothing holds back starts by then."""

SETTLED_S = 8.0
"""After trouble with commits: back-offs take their time."""


class ProgressRules:
    """Looks at what is handed over, at what waits, and at the end."""

    def __init__(
        self, broker: FakeBroker, book: Book, blame: Blame, health: Health, setup: Setup, *, batches: BatchRules
    ) -> None:
        self._broker = broker
        self._book = book
        self._blame = blame
        self._health = health
        self._setup = setup
        self._batches = batches
        self._held_at: dict[str, float] = {}
        self._suspects_at: dict[str, float] = {}
        # Beside the buffer: what lanes hold back, which the window bounds, and the runs that are out.
        held = 0 if setup.order == "partition" else setup.window
        out = setup.capacity if setup.commit.mode == "each" else setup.capacity * MAX_RUN
        if setup.batch is not None:
            out = (setup.capacity + 2) * setup.batch.size
        self._most = 4 * setup.buffer.records + setup.sweep + 1 + held + out
        self._most_bytes = 2 * setup.buffer.bytes + (setup.sweep + 1) * (MAX_RECORD + setup.header_bytes)

    def given(self, epoch: Epoch) -> None:
        partition = self._book.members[epoch.member].loop.ownership.get(epoch.place)
        if partition is None or partition.closing:
            return  # before a seek nothing of it is kept
        if len(epoch.waiting) > self._most:
            self._blame("P11", f"{epoch} keeps {len(epoch.waiting)} records in memory; at most {self._most} should be")
        if epoch.waiting_bytes > self._most_bytes:
            self._blame("P11", f"{epoch} keeps {epoch.waiting_bytes} bytes; at most {self._most_bytes} should be")

    def probe(self, member: Member, now: float) -> None:
        """Is there a record that this member could start and does not?"""
        if self._is_held(member, now):
            self._held_at[member.name] = now
        if not self._is_at_ease(member, now) or self._on_probation(member, now):
            return
        if self._setup.batch is not None:
            starves = self._batches.starves(member, now)
            if starves is not None:
                self._blame("starved", starves)
            return
        if self._setup.rate is not None and now - self._book.began_at.get(member.name, 0.0) < GRACE_S:
            return  # something starts now and then, and it has to be one after another
        for (name, place), epoch in self._book.epochs.items():
            partition = member.loop.ownership.get(place)
            if name != member.name or now - epoch.begun_at < GRACE_S:
                continue
            if partition is None or partition.closing:
                continue  # it drains before a seek
            out = [run for run in member.executor.out if run.partition.place == place]
            if any(len(run.messages) > 1 for run in out) or (out and member.loop.sizer.size > 1):
                continue  # a bundle is under way: what is in it, or behind it, waits for it
            for entry in epoch.waiting.values():
                if self._could_start(member, epoch, entry, now):
                    self._blame(
                        "starved", f"{member.name} has room and does not start record {entry.number} of {epoch}"
                    )
                    return

    def _is_held(self, member: Member, now: float) -> bool:
        """Whether the member holds itself back for a reason. A partition whose commits are refused is none for the
        others, and so is the breaker for commits unless whole requests fail.
        """
        holds = set(member.loop.holds)
        disturbed_at = max(self._health.requests_disturbed_at(member.name), self._health.broker_disturbed_at())
        if disturbed_at < now - SETTLED_S:
            holds.discard(COMMIT)
        return bool(holds) or any(partition.holds - {COMMIT_REFUSED} for partition in member.loop.ownership)

    def _on_probation(self, member: Member, now: float) -> bool:
        """Whether there are, or were a moment ago, suspects in flight: they run one by one, and the others wait; also
        for one whose partition was lost while it ran, or whose handler was given up and runs on.
        """
        if any(e.has_suspects() for (name, _), e in self._book.epochs.items() if name == member.name):
            self._suspects_at[member.name] = now
        if any(not run.partition.live and _is_suspect(run) for run in member.executor.out):
            self._suspects_at[member.name] = now
        alone = [
            at for call, (name, at) in self._book.alone.items() if name == member.name and call in self._book.calls
        ]
        if any(now - at < self._setup.alone_s for at in alone):
            self._suspects_at[member.name] = now
        return self._suspects_at.get(member.name, 0.0) >= now - GRACE_S

    def _is_at_ease(self, member: Member, now: float) -> bool:
        """Also while it waits in its client: that is where a member is that starts nothing."""
        loop = member.loop
        return (
            not member.process.in_callback
            and member.name not in self._book.stopping
            and loop.halted is None
            and member.executor.places_taken < loop.sizer.workers
            and max(member.executor.full_at, member.executor.blocked_until) < now - GRACE_S
            and self._health.process_disturbed_at(member.name) < now - GRACE_S
            and self._health.broker_disturbed_at() < now - 2 * GRACE_S
            and self._held_at.get(member.name, 0.0) < now - GRACE_S
            and self._health.generation_at < now - GRACE_S
        )

    def _could_start(self, member: Member, epoch: Epoch, entry: Entry, now: float) -> bool:
        number = entry.number
        if number in epoch.running or number in epoch.letters or now - epoch.given[number] < GRACE_S:
            return False
        if number in epoch.timed_out:
            return now - epoch.timed_out[number] > GRACE_S  # its letter should be on the way
        if entry.copied is not None and now - entry.copied.open_at < GRACE_S:
            return False
        failures = epoch.failures.get(number, 0)
        if failures and not self._must_retry(epoch, entry, failures, now):
            return False
        lowest = epoch.lowest()
        if self._setup.order != "partition" and lowest and entry.offset >= lowest.offset + self._setup.window:
            return False
        if self._health.partition_disturbed_at(member.name, epoch.place) > now - SETTLED_S:
            return False  # it may need a commit before it starts: there is no telling when that is stored
        if self._setup.window != WINDOW and now - epoch.finished_at < GRACE_S:
            return False  # perhaps the window has just moved
        lane = self._book.lane(entry)
        return lane is None or self._is_next(member, epoch, entry, lane, now)

    def _is_next(self, member: Member, epoch: Epoch, entry: Entry, lane: Lane, now: float) -> bool:
        """Whether nothing of its lane is before it, and has not been for a while."""
        disturbed_at = self._health.partition_disturbed_at(member.name, epoch.place)
        if self._setup.commit.mode == "each" and disturbed_at > now - SETTLED_S:
            return False  # a commit may be stored without an answer to the member: its lane still waits
        queue = epoch.lanes.get(lane)
        if (member.name, lane) in self._book.busy or (queue and queue[0] is not entry):
            return False
        # The same key may be held by a record of another partition, or wait for its commit there.
        others = [e for (name, _), e in self._book.epochs.items() if name == member.name and e is not epoch]
        if any(other.lanes.get(lane) or lane in other.last_of_lane for other in others):
            return False
        return lane not in epoch.uncommitted and now - epoch.freed_at.get(lane, 0.0) >= GRACE_S

    def _must_retry(self, epoch: Epoch, entry: Entry, failures: int, now: float) -> bool:
        most, outcome = self._setup.retry.max_retries, epoch.outcomes[entry.number]
        if is_final(self._setup, outcome) or entry.conduct == "halt" or self._setup.retry.max_elapsed_s is not None:
            return False
        if entry.copied is not None:
            return False
        overdue_s = now - epoch.due[entry.number]
        if (
            is_outage(self._setup, outcome) and self._setup.breaker is not None
        ):  # others may be served, then it waits on its own
            return overdue_s > GRACE_S + self._setup.breaker.open_s
        return overdue_s > GRACE_S and (most is None or failures <= most)

    def unfinished(self) -> list[str]:
        """What is still to be done; empty when all is finished and committed."""
        left: list[str] = ["a commit is still on its way"] * self._broker.held_back
        for place, records in sorted(self._book.records_by_place.items()):
            stored = self._broker.stored(GROUP, place)
            cover = Cover(stored.offset, stored.metadata) if stored else None
            for entry in records.entries:
                if entry.open:
                    left.append(
                        f"record {entry.number} ({place} offset {entry.offset}, {entry.conduct}) is not finished"
                    )
                elif records.exists(entry.offset) and not (entry.excused or (cover and entry.offset in cover)):
                    left.append(f"record {entry.number} ({place} offset {entry.offset}) is finished, and not committed")
            log = self._broker.log(place)
            if cover and log is not None and cover.offset < log.end and not log.has(cover.offset):
                left.append(f"{place} is committed at {cover.offset}, and only markers lie below its end {log.end}")
        return left


def _is_suspect(run: Run) -> bool:
    watch = run.partition.watch
    return watch is not None and watch.is_suspect(run.messages[0].offset())

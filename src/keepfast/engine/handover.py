"""How partitions are let go: stop, finish what is in hand, commit, forget. Owner: the loop thread."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from keepfast.core.lanes import Lanes
from keepfast.core.partitions import Partition
from keepfast.core.ports import Clock, Source
from keepfast.core.records import TopicPartition
from keepfast.core.runs import Case
from keepfast.engine.cases import Cases
from keepfast.engine.committer import Committer
from keepfast.engine.intake import Intake
from keepfast.engine.ownership import Ownership
from keepfast.telemetry.logs import get_logger

log = get_logger("keepfast.handover")

SERVE_S = 0.1
"""Longest wait for the answer to a commit at a time, inside a callback."""

ABSENT_S = 1.0
"""How long a commit is waited for while the broker answers and holds nothing of it. It deals with what a client sends
in order, so it has refused all of it, or the client has not sent it.
"""

SENDS = 3
"""How often a commit is sent before the partition is given up without it; its records come again."""


class Handover:
    """The steps of giving partitions up; the loop decides when each is due."""

    def __init__(
        self, source: Source, ownership: Ownership, lanes: Lanes, *, cases: Cases, committer: Committer, intake: Intake
    ) -> None:
        self._source = source
        self._ownership = ownership
        self._lanes = lanes
        self._cases = cases
        self._committer = committer
        self._intake = intake
        self.orderly = True  # goes False when the loop has failed: then its end is no better than a death

    @property
    def takes_in(self) -> bool:
        """Whether records are still taken in: not any more once the consumer drains."""
        return not self._intake.closed

    def close_down(self, places: Sequence[TopicPartition]) -> list[Partition]:
        """Start nothing more of these, cut their waits short; what is being handled or buried goes on."""
        leaving = [partition for place in places if (partition := self._ownership.get(place)) is not None]
        for partition in leaving:
            partition.closing = True
            self._lanes.drop(partition)
            for run in partition.running:
                run.stop = True
            self.drop_waiting(partition)
        return leaving

    def drop_waiting(self, partition: Partition) -> None:
        """Cases that only wait for their next attempt are left to whoever owns the partition next."""
        running = {run.case for run in partition.running}
        waiting = [case for case in partition.cases if case not in running and case not in self._cases.settling]
        for case in waiting:
            self.drop(case)
        self._cases.release_dropped(len(waiting))

    def drop(self, case: Case) -> None:
        """Unfinished, and not ours to finish: whoever owns the partition next begins it anew."""
        case.dropped = True
        case.partition.cases.discard(case)
        self._lanes.release(case)

    def commit_now(self, partitions: Sequence[Partition], clock: Clock, deadline: float) -> None:
        """Inside a callback: commit what these partitions have, and wait for the answer until the deadline.

        It is sent even when time is up: that takes none, and what is finished is not thrown away. Refused partitions
        are tried last and together, so that no other partition waits for them.
        """
        self._take_stock(partitions)
        self.sign_off(partitions)
        refused = [partition for partition in partitions if self._committer.is_refused(partition)]
        self._commit([partition for partition in partitions if partition not in refused], clock, deadline)
        if any(map(self._committer.is_awaited, refused)):  # else a drain has tried them for the last time
            now = clock.monotonic()
            self._committer.push(now, refused)
            self._source.serve(max(0.0, min(SERVE_S, deadline - now)))
            self._commit([one for one in refused if not self._committer.is_refused(one)], clock, deadline)
        self._log_unconfirmed([one for one in partitions if self._committer.is_refused(one)])

    def _commit(self, partitions: Sequence[Partition], clock: Clock, deadline: float) -> None:
        """One that turns out to be refused meanwhile has been tried, and is not waited for; nor is a request of which
        the broker holds nothing: its answer comes later, when nobody waits for it.
        """
        sent, absent_s = 0, 0.0
        while owing := [one for one in partitions if self._committer.owes(one) and not self._committer.is_refused(one)]:
            now = clock.monotonic()
            if not self._committer.under_way and sent < SENDS:
                sent, absent_s = sent + 1, 0.0
                self._committer.push(now, owing)
            elif now >= deadline or not self._committer.under_way or absent_s >= ABSENT_S:
                self._log_unconfirmed(owing)
                return
            else:
                absent_s = self._source.serve(min(SERVE_S, deadline - now))

    def _log_unconfirmed(self, partitions: Sequence[Partition]) -> None:
        owing = [str(one.place) for one in partitions if self._committer.owes(one)]
        if owing:
            log.warning("revoked_before_commit_was_confirmed", partitions=owing)

    def sign_off(self, partitions: Iterable[Partition]) -> None:
        """The process is alive and lets go of these: whoever owns them next must not take it for dead."""
        for partition in partitions:
            if self.orderly and partition.watch is not None and partition.watch.leave():
                self._committer.touch(partition)

    def _take_stock(self, partitions: Sequence[Partition]) -> None:
        """What runs that are still out have done so far is finished, too: only the record in hand is not."""
        for partition in partitions:
            for run in partition.running:
                if run.case is None and run.done:
                    partition.finish(run)
                    self._committer.touch(partition)

    def forget(self, partitions: Sequence[Partition]) -> None:
        """Their epoch is over: results that still come are stale."""
        for partition in partitions:
            running = {run.case for run in partition.running}
            for case in self._cases.drop(partition):
                if case not in running:
                    self._lanes.release(case)
            self._committer.forget(partition)
            self._intake.forget(partition)
            self._ownership.end(partition)

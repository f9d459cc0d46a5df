"""Queues in the simulator: seeds without a bug are clean, and each planted bug is caught."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType

from keepfast.core.ports import Position
from keepfast.core.runs import FailedRecord, Partition, Run
from keepfast.engine import calls, queue
from keepfast.engine.failures import Failures
from keepfast.engine.queue import Acknowledger, Deliveries, Locks
from keepfast.kafka.share_source import ShareSource
from simulation.queues import QueueWorld

Plant = Callable[[pytest.MonkeyPatch], None]
PLANTS: dict[str, Plant] = {}
SEEDS = range(200) if os.environ.get("THOROUGH_TESTS") else range(10)
FAULTS = {
    "acknowledgement_applied_but_failed", "acknowledgement_lost", "crash", "poll_failed", "send_failed",
    "send_written_but_failed", "stop",
}  # fmt: skip


def plant(function: Plant) -> Plant:
    PLANTS[function.__name__] = function
    return function


@plant
def acknowledges_records_that_are_not_finished(patch: pytest.MonkeyPatch) -> None:
    def position(self: Acknowledger, partition: Partition) -> Position | None:
        found = before(self, partition)
        left = partition.ledger.unfinished_offsets()[:1]
        return found and Position(found.place, found.offset, finished=[*found.finished, *left])

    before = Acknowledger._position
    patch.setattr(Acknowledger, "_position", position)


@plant
def acknowledges_a_letter_before_it_is_published(patch: pytest.MonkeyPatch) -> None:
    def dead_letter(self: Failures, failed_record: FailedRecord, *rest: Any) -> None:
        self._finished(failed_record)
        before(self, failed_record, *rest)

    before = Failures._dead_letter
    patch.setattr(Failures, "_dead_letter", dead_letter)


@plant
def acknowledges_a_record_again_with_the_next_one(patch: pytest.MonkeyPatch) -> None:
    before = Acknowledger._position

    def position(self: Acknowledger, partition: Partition) -> Position | None:
        self._acknowledged.pop(partition, None)
        return before(self, partition)

    patch.setattr(Acknowledger, "_position", position)


@plant
def does_not_acknowledge_the_last_record_of_a_partition(patch: pytest.MonkeyPatch) -> None:
    def position(self: Acknowledger, partition: Partition) -> Position | None:
        found = before(self, partition)
        if found is None or partition.ledger.last not in found.finished:
            return found
        return Position(found.place, found.offset, finished=found.finished[:-1]) if found.finished[:-1] else None

    before = Acknowledger._position
    patch.setattr(Acknowledger, "_position", position)


@plant
def runs_a_record_whatever_its_delivery_is(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(calls, "_within_deliveries", lambda limit, message, run: message)


@plant
def does_not_see_that_locks_run_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Locks, "step", lambda self, now: None)


@plant
def ends_locks_too_early(patch: pytest.MonkeyPatch) -> None:
    before = Locks.step
    patch.setattr(Locks, "step", lambda self, now: before(self, now + 0.2))


@plant
def goes_on_with_what_it_has_released(patch: pytest.MonkeyPatch) -> None:
    def expire(self: Locks, partition: Partition, waiting: Sequence[int]) -> None:
        self._source.release([partition.place])
        self.expired += partition.ledger.unfinished()
        self._deliveries.acquired_at = float("inf")

    patch.setattr(Locks, "_expire", expire)


@plant
def releases_what_has_no_worker_yet(patch: pytest.MonkeyPatch) -> None:
    def begin(self: Deliveries, messages: list[Any]) -> None:
        before(self, messages)
        if len(self._ownership) > 1:
            last = list(self._ownership)[-1]
            self._source.release([last.place])  # type: ignore[attr-defined]

    before = Deliveries._begin
    patch.setattr(Deliveries, "_begin", begin)


@plant
def acquires_in_a_drain(patch: pytest.MonkeyPatch) -> None:
    def poll(self: Deliveries, now: float, timeout_s: float) -> bool:
        message = self._source.poll(timeout_s)
        if message is not None:
            self._take([message, *self._source.sweep(1 << 30)])
        return message is not None

    patch.setattr(Deliveries, "poll", poll)


@plant
def takes_only_the_first_of_what_it_has_acquired(patch: pytest.MonkeyPatch) -> None:
    before = Deliveries._take
    patch.setattr(Deliveries, "_take", lambda self, messages: before(self, messages[:1]))


@plant
def rejects_what_it_should_release(patch: pytest.MonkeyPatch) -> None:
    def acknowledge(self: ShareSource, place: Any, offsets: Sequence[int], how: AcknowledgeType) -> None:
        before(self, place, offsets, AcknowledgeType.REJECT if how == AcknowledgeType.RELEASE else how)

    before = ShareSource._acknowledge
    patch.setattr(ShareSource, "_acknowledge", acknowledge)


@plant
def polls_before_everything_is_acknowledged(patch: pytest.MonkeyPatch) -> None:
    def poll(self: ShareSource, timeout_s: float) -> Any:
        self._locked.clear()
        return before(self, timeout_s)

    before = ShareSource.poll
    patch.setattr(ShareSource, "poll", poll)


@plant
def runs_what_was_delivered_before_beside_others(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(queue, "PROBATION", 0.0)


@plant
def does_not_wait_for_the_acknowledgement_of_the_one_before(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Acknowledger, "has_pending", lambda self, partition: False)


@plant
def dead_letters_those_beside_a_killer_with_it(patch: pytest.MonkeyPatch) -> None:
    def within_deliveries(limit: int, message: Any, run: Run) -> Any:
        run.partition.spared = False
        return before(limit, message, run)

    before = calls._within_deliveries
    patch.setattr(calls, "_within_deliveries", within_deliveries)


@plant
def does_not_know_what_was_in_flight_at_a_death(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Deliveries, "_deaths", lambda self, suspects: None)


def test_without_a_bug_every_record_is_processed_or_dead_lettered() -> None:
    faults: Counter[str] = Counter()
    for seed in SEEDS:
        sim = QueueWorld(seed)
        sim.run()
        assert sim.problems == [], seed
        faults.update(sim.world.trace.faults)
    assert set(faults) >= FAULTS


@pytest.mark.parametrize("name", sorted(PLANTS))
def test_a_planted_bug_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    PLANTS[name](monkeypatch)
    for seed in range(10):
        sim = QueueWorld(seed)
        sim.run()
        if sim.problems:
            return
    raise AssertionError(f"{name} is not caught")

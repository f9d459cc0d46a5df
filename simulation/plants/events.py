"""Plants in what is reported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from keepfast.core import events
from keepfast.core.batches import as_batch
from keepfast.core.runs import FailedRecord, Partition, Run
from keepfast.engine import failures, timeouts
from keepfast.engine.crash_guard import Probation
from keepfast.engine.events import Events, record_fields, run_finished
from keepfast.engine.failures import Failures
from keepfast.engine.loop import Loop
from simulation.plants.plant import Patch, plant


def _instead(patch: Patch, kind: type[events.Event], make: Callable[[Any], list[events.Event]]) -> None:
    """Events of this type become these."""

    def emit(self: Events, event: events.Event) -> None:
        for one in make(event) if type(event) is kind else [event]:
            before(self, one)

    before = patch.set(Events, "emit", emit)


def _never(patch: Patch, kind: type[events.Event], when: Callable[[Any], bool] = lambda _: True) -> None:
    _instead(patch, kind, lambda event: [] if when(event) else [event])


@plant
def reports_a_dead_letter_twice(patch: Patch) -> None:
    _instead(patch, events.DeadLettered, lambda event: [event, event])


@plant
def reports_a_dead_letter_before_it_is_acknowledged(patch: Patch) -> None:
    def dead_letter(
        self: Failures, failed_record: FailedRecord, error: BaseException, verdict: Any, *args: Any
    ) -> None:
        fields = record_fields(failed_record, error)
        where: dict[str, Any] = {"letter_topic": "orders.dlq", "letter_partition": 0, "letter_offset": 0}
        self._events.emit(events.DeadLettered(*self._events.source, **(fields | where), reason=verdict.reason))
        before(self, failed_record, error, verdict, *args)

    before = patch.set(Failures, "_dead_letter", dead_letter)


@plant
def names_another_place_for_a_dead_letter(patch: Patch) -> None:
    _instead(patch, events.DeadLettered, lambda event: [replace(event, letter_offset=(event.letter_offset or 0) + 1)])


@plant
def does_not_report_a_letter_in_the_spool(patch: Patch) -> None:
    _never(patch, events.Spooled)


@plant
def names_the_place_in_the_retry_topic_instead_of_the_original_one(patch: Patch) -> None:
    def fields_of(failed_record: FailedRecord, error: BaseException | None) -> dict[str, Any]:
        message = failed_record.message
        place = {"topic": message.topic(), "partition": message.partition(), "offset": message.offset()}
        fields: dict[str, Any] = before(failed_record, error) | place
        return fields

    before = patch.set(failures, "record_fields", fields_of)


@plant
def names_the_place_in_the_retry_topic_of_a_handler_that_it_gives_up(patch: Patch) -> None:
    def record_of(run: Run, at: int) -> dict[str, Any]:
        fields: dict[str, Any] = before(run, at)
        return fields | {**run.partition.place._asdict(), "offset": run.messages[at].offset()}

    before = patch.set(timeouts, "_record_of", record_of)


@plant
def reports_a_move_as_a_dead_letter(patch: Patch) -> None:
    def dead(event: events.Moved) -> list[events.Event]:
        fields = {name: getattr(event, name) for name in events.RecordEvent.__dataclass_fields__}
        return [events.DeadLettered(**fields, reason=event.reason, letter_topic=event.moved_to)]

    _instead(patch, events.Moved, dead)


@plant
def reports_what_a_run_has_done_again_after_it_was_asked_to_stop(patch: Patch) -> None:
    def returned(self: Loop, run: Run, now: float) -> None:
        if run.taken and self.ownership.is_current(run.partition) and run.failed_record is None and not run.abandoned:
            self.events.emit(run_finished(self.events, run, 0, run.taken))
        before(self, run, now)

    before = patch.set(Loop, "_returned", returned)


@plant
def does_not_report_what_a_run_has_done_when_it_is_asked_to_stop(patch: Patch) -> None:
    patch.set(timeouts, "run_finished", lambda loop_events, *_: events.DrainStarted(*loop_events.source, in_flight=0))
    _never(patch, events.DrainStarted)


@plant
def reports_a_run_whose_partition_is_gone(patch: Patch) -> None:
    def returned(self: Loop, run: Run, now: float) -> None:
        if run.done and as_batch(run) is None and not self.ownership.is_current(run.partition):
            self.events.emit(run_finished(self.events, run, 0, run.done))
        before(self, run, now)

    before = patch.set(Loop, "_returned", returned)


@plant
def does_not_report_an_attempt_that_a_guard_takes_back(patch: Patch) -> None:
    _never(patch, events.RecordFailed, lambda event: event.verdict is None)


@plant
def reports_a_shorter_delay_than_it_waits(patch: Patch) -> None:
    _instead(patch, events.RetryScheduled, lambda event: [replace(event, delay_s=event.delay_s / 2)])


@plant
def reports_the_attempt_before(patch: Patch) -> None:
    _instead(patch, events.RecordFailed, lambda event: [replace(event, attempt=event.attempt - 1)])


@plant
def does_not_report_that_a_letter_was_sent_in_another_form(patch: Patch) -> None:
    _never(patch, events.PublishFailed, lambda event: event.next_step == "adjust")


@plant
def does_not_report_a_batch_that_is_retried(patch: Patch) -> None:
    _never(patch, events.BatchFailed)


@plant
def does_not_report_a_handler_that_it_gives_up(patch: Patch) -> None:
    _never(patch, events.HandlerTimedOut, lambda event: bool(event.given_up))


@plant
def reports_every_revoke_as_confirmed(patch: Patch) -> None:
    _instead(patch, events.Revoked, lambda event: [replace(event, unconfirmed=())])


@plant
def reports_no_revoke_as_confirmed(patch: Patch) -> None:
    _instead(patch, events.Revoked, lambda event: [replace(event, unconfirmed=event.partitions)])


@plant
def reports_lost_partitions_as_revoked(patch: Patch) -> None:
    _instead(
        patch, events.Lost, lambda event: [events.Revoked(event.consumer, event.group, partitions=event.partitions)]
    )


@plant
def does_not_report_a_position_out_of_range(patch: Patch) -> None:
    _never(patch, events.PartitionReset, lambda event: event.reason == "offset_out_of_range")


@plant
def does_not_report_that_a_topic_was_recreated(patch: Patch) -> None:
    _never(patch, events.TopicRecreated)


@plant
def does_not_report_that_the_previous_owner_crashed(patch: Patch) -> None:
    _never(patch, events.PreviousOwnerCrashed)


@plant
def does_not_report_the_end_of_a_probation_whose_partition_comes_back(patch: Patch) -> None:
    def suspect(self: Probation, partition: Partition) -> None:
        self.suspected.pop(partition.place, None)
        before(self, partition)

    before = patch.set(Probation, "_suspect", suspect)


@plant
def does_not_report_that_a_commit_failed(patch: Patch) -> None:
    _never(patch, events.CommitFailed)


@plant
def reports_commits_that_were_sent(patch: Patch) -> None:
    _instead(patch, events.Committed, lambda event: [event, event])


@plant
def does_not_report_that_a_partition_is_committed_again(patch: Patch) -> None:
    _never(patch, events.Released, lambda event: event.hold == "commit_refused")


@plant
def does_not_report_that_the_breaker_closed(patch: Patch) -> None:
    _never(patch, events.BreakerClosed)


@plant
def does_not_report_that_it_halts(patch: Patch) -> None:
    _never(patch, events.Halted)


@plant
def does_not_report_that_it_has_drained(patch: Patch) -> None:
    _never(patch, events.DrainFinished)

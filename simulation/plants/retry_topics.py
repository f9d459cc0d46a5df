"""Plants on the way through retry topics."""

from __future__ import annotations

from typing import Any

from keepfast.core import retry_topics, runs
from keepfast.core.retry_topics import Past, Tier, Tiers
from keepfast.deadletters import publisher
from keepfast.engine import retry_topics as waiting
from keepfast.engine.forwarding import ForwardedRecord, Forwarder
from keepfast.engine.plan import Plan
from keepfast.engine.retry_topics import DelayedRecords
from simulation.plants.plant import Patch, plant


@plant
def p31_counts_a_move_as_done_before_it_is_acknowledged(patch: Patch) -> None:
    def publish(self: Forwarder, record: ForwardedRecord) -> None:
        before(self, record)
        if record.kind == "move":
            self._done(record, "topic")
            record.failed_record.dropped = True

    before = patch.set(Forwarder, "_publish", publish)


@plant
def ignores_when_a_record_is_due(patch: Patch) -> None:
    patch.set(waiting, "remaining_s", lambda past, timestamp_ms, *, wall_s, delay_s: 0.0)


@plant
def lets_what_waits_in_with_the_first_one_that_is_due(patch: Patch) -> None:
    def let_in(self: DelayedRecords, partition: Any, queue: Any, now: float) -> None:
        if queue.entries and queue.entries[0][0] <= now:
            queue.entries = type(queue.entries)((0.0, record) for _, record in queue.entries)
        before(self, partition, queue, now)

    before = patch.set(DelayedRecords, "_let_in", let_in)


@plant
def waits_for_as_long_as_the_headers_say(patch: Patch) -> None:
    def remaining_s(past: Past, timestamp_ms: int | None, *, wall_s: float, delay_s: float) -> float:
        return delay_s if past.due_ms is None else max(0.0, past.due_ms / 1000 - wall_s)

    patch.set(waiting, "remaining_s", remaining_s)


@plant
def believes_the_step_that_the_headers_say(patch: Patch) -> None:
    def step(given: int | None, tier: Tier, tiers: Tiers) -> int:
        return 0 if given is None else given

    patch.set(retry_topics, "_step", step)


@plant
def begins_a_retry_topic_by_the_policy_of_its_source(patch: Patch) -> None:
    patch.set(Plan, "reset_of", lambda self, topic: self.reset)


@plant
def names_the_retry_topic_in_the_letter(patch: Patch) -> None:
    patch.set(publisher, "original", lambda message: message)


@plant
def commits_the_end_past_records_that_are_not_due(patch: Patch) -> None:
    patch.set(DelayedRecords, "keeps_end", lambda *_: False)


@plant
def resets_the_attempts_after_each_move(patch: Patch) -> None:
    def no_past(self: Any, *given: Any) -> None:
        before(self, *given)
        self.failures, self.attempts = 0, []

    before = patch.set(runs.FailedRecord, "__init__", no_past)

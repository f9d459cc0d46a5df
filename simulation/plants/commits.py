"""Plants in what is committed, and when."""

from __future__ import annotations

from typing import Any

from keepfast.core import commit_metadata
from keepfast.core.commit_metadata import CompletionMap
from keepfast.core.errors import Fault, SourceError
from keepfast.core.ledger import Ledger
from keepfast.core.ports import Position
from keepfast.core.records import TopicPartition
from keepfast.core.runs import Partition
from keepfast.engine import commits
from keepfast.engine.commits import Committer, Refusals
from keepfast.engine.forwarding import ForwardedRecord, Forwarder
from keepfast.engine.intake import Intake
from keepfast.engine.rebalance import Assignment
from keepfast.engine.renewals import Renewals
from simulation.plants.plant import Patch, plant


@plant
def p01_commits_the_highest_offset_seen(patch: Patch) -> None:
    patch.set(Ledger, "completion", lambda self: CompletionMap(self.last + 1))


@plant
def p02_skips_the_first_record_on_resume(patch: Patch) -> None:
    def resume(self: Assignment, found: Any, offset: int) -> Position:
        position: Position = before(self, found, offset)
        return Position(position.place, position.offset + 1)

    before = patch.set(Assignment, "_resume", resume)


@plant
def p03_commits_over_a_record_that_is_not_finished(patch: Patch) -> None:
    def completed(self: Ledger) -> CompletionMap:
        honest: CompletionMap = before(self)
        return CompletionMap(max(honest.base, honest.end - 8)) if honest else honest

    before = patch.set(Ledger, "completion", completed)


@plant
def p22_stops_committing_at_a_gap(patch: Patch) -> None:
    def watermark(self: Ledger) -> int:
        honest: int = before(self)
        for offset, following in zip(self._offsets, self._offsets[1:], strict=False):
            if following != offset + 1:
                return min(honest, offset + 1)
        return honest

    before = patch.set(Ledger, "watermark", watermark)


@plant
def commits_the_end_past_a_record_that_is_not_finished(patch: Patch) -> None:
    def completion(self: Ledger) -> CompletionMap:
        honest: CompletionMap = before(self)
        return CompletionMap(self._end) if self._end > max(0, self.last + 1) else honest

    before = patch.set(Ledger, "completion", completion)


@plant
def takes_the_end_for_reached_although_records_were_dropped(patch: Patch) -> None:
    def reached(self: Intake, place: TopicPartition, end: int) -> None:
        partition = self._ownership.get(place)
        if partition is not None:
            self._reach(partition, end)

    patch.set(Intake, "reached", reached)


@plant
def stops_committing_before_a_marker_at_the_end(patch: Patch) -> None:
    patch.set(Committer, "reached_end", lambda *_: None)


@plant
def p31_counts_a_letter_as_there_before_it_is_acknowledged(patch: Patch) -> None:
    def publish(self: Forwarder, record: ForwardedRecord) -> None:
        before(self, record)
        if record.kind == "dead-letter":
            self._done(record, "topic")
            record.failed_record.dropped = True

    before = patch.set(Forwarder, "_publish", publish)


@plant
def p49_cuts_the_completion_map(patch: Patch) -> None:
    def completed(self: Ledger) -> CompletionMap:
        honest: CompletionMap = before(self)
        return CompletionMap(honest.base, honest.bits[:1])

    before = patch.set(Ledger, "completion", completed)


@plant
def p49_starts_beyond_what_the_map_can_hold(patch: Patch) -> None:
    patch.set(Partition, "window_end", lambda self: self.ledger.last + 1)


@plant
def p51_counts_a_commit_as_durable_when_it_is_sent(patch: Patch) -> None:
    def send(self: Committer, now: float, partitions: Any) -> None:
        before(self, now, partitions)
        for sent in self._sent.values():
            self._release(sent.holders)
            sent.holders = []

    before = patch.set(Committer, "_send", send)


@plant
def p51_forgets_a_commit_that_failed(patch: Patch) -> None:
    def failed(self: Committer, sent: Any, outcome: Any, now: float) -> None:
        for part in sent.values():
            part.partition.committed = (part.position.offset, part.position.metadata)
            self._release(part.holders)

    patch.set(Committer, "_failed", failed)


@plant
def p52_commits_what_was_handed_out(patch: Patch) -> None:
    def position(self: Committer, partition: Partition) -> Position | None:
        honest: Position | None = before(self, partition)
        if honest is None:
            return None
        out = partition.buffer[0].offset() if partition.buffer else partition.ledger.last + 1
        return Position(honest.place, max(honest.offset, out))

    before = patch.set(Committer, "_position", position)


@plant
def p53_waits_for_the_answer_to_a_commit(patch: Patch) -> None:
    def send(self: Committer, now: float, partitions: Any) -> None:
        before(self, now, partitions)
        places = [sent.position.place for sent in self._sent.values()]
        for _ in range(10 if places else 0):
            try:
                self._source.committed(places, 5.0)
                return
            except SourceError:
                continue

    before = patch.set(Committer, "_send", send)


@plant
def p54_takes_an_illegal_generation_for_a_loss(patch: Patch) -> None:
    def failed(self: Committer, sent: Any, outcome: Any, now: float) -> None:
        before(self, sent, outcome, now)
        for position, error in outcome.failed:
            part = sent.get(position.place)
            if part is not None and error.fault is Fault.REBALANCING:
                part.partition.closing = True
                self._lanes.drop(part.partition)

    before = patch.set(Committer, "_failed", failed)


@plant
def p55_ignores_the_completion_map(patch: Patch) -> None:
    def read(metadata: str, *, offset: int, topic_id: str = "") -> tuple[CompletionMap, str]:
        return CompletionMap(offset), original(metadata, offset=offset, topic_id=topic_id)[1]

    original = patch.set(commit_metadata, "read", read)


@plant
def keeps_the_breaker_for_commits_open_with_nothing_to_commit(patch: Patch) -> None:
    """Plant the bug, and commit no position again. With that, the partitions that a member gets end the bug in seconds:
    it lasts only for a member that gets none, which hardly a seed has. A test shows it there with renewals.
    """

    def tripped(self: Committer, now: float) -> bool:
        return self._failures >= 3 or (bool(self._sent) and now - self._sent_at >= 5.0)

    patch.set(Committer, "tripped", tripped)
    patch.set(Renewals, "due", lambda *_: [])


@plant
def takes_the_refusal_of_one_partition_for_all(patch: Patch) -> None:
    """As the engine did: the breaker for commits holds the whole consumer."""
    patch.set(commits, "OF_ONE_PARTITION", frozenset())


@plant
def does_not_commit_again_after_a_commit_that_may_be_delivered_late(patch: Patch) -> None:
    patch.set(Renewals, "doubt", lambda *_: None)


@plant
def never_retries_a_refused_commit(patch: Patch) -> None:
    patch.set(Refusals, "due", lambda self, now: None)


@plant
def gives_up_over_a_commit_of_a_client_that_is_replaced(patch: Patch) -> None:
    """As it did when the answer came before the reason."""

    def fault(partition: Partition, error: SourceError | None) -> Fault:
        return Fault.FATAL if error is not None and error.code == "CLOSED" else before(partition, error)

    before = patch.set(commits, "_fault", fault)

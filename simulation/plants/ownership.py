"""Plants in what happens when partitions come and go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from keepfast.core.errors import SourceError
from keepfast.core.ports import BEGINNING
from keepfast.core.records import TopicPartition
from keepfast.core.runs import Partition
from keepfast.engine.commits import Committer
from keepfast.engine.failures import Failures
from keepfast.engine.intake import Intake
from keepfast.engine.loop import Loop
from keepfast.engine.ownership import Ownership
from keepfast.engine.plan import Plan
from keepfast.engine.rebalance import Assignment, Handover, _Start
from keepfast.engine.subscription import Subscription
from keepfast.engine.topic_ids import Identities, TopicIdsAnswer
from simulation.plants.plant import Patch, plant


@plant
def begins_a_topic_that_appears_at_its_end(patch: Patch) -> None:
    def learn(self: Subscription, ready: Plan) -> None:
        learned(self, ready)
        self._plan.appeared.difference_update(ready.topics)  # type: ignore[attr-defined] # a set of its own

    learned = patch.set(Subscription, "_learn", learn)


@plant
def p04_believes_results_of_an_earlier_epoch(patch: Patch) -> None:
    patch.set(Ownership, "is_current", lambda *_: True)


@plant
def p05_takes_records_of_a_partition_it_does_not_know_the_position_of(patch: Patch) -> None:
    def feed(self: Intake, messages: list[Any]) -> None:
        place = TopicPartition(messages[0].topic(), messages[0].partition())
        if self._ownership.get(place) is None:
            self._ownership.begin(place, start=messages[0].offset())
        original(self, messages)

    def assigned(self: Assignment, places: Sequence[TopicPartition], now: float) -> None:
        assign(self, places, now)
        self._source.resume(list(self.unpositioned))

    original = patch.set(Intake, "_feed", feed)
    assign = patch.set(Assignment, "assigned", assigned)


@plant
def p06_delivers_what_was_fetched_before_the_rebalance(patch: Patch) -> None:
    kept: dict[tuple[Any, TopicPartition], Partition] = {}

    def end(self: Ownership, partition: Partition) -> None:
        kept[self, partition.place] = partition
        buffer = list(partition.buffer)
        ended(self, partition)
        partition.buffer.extend(buffer)

    def begin(self: Ownership, place: TopicPartition, *, start: int, resumed: Any = None) -> Partition:
        partition: Partition = begun(self, place, start=start, resumed=resumed)
        old = kept.pop((self, place), None)
        if old is not None and old.buffer and old.buffer[0].offset() >= start >= 0:
            partition.feed(list(old.buffer))
        return partition

    ended = patch.set(Ownership, "end", end)
    begun = patch.set(Ownership, "begin", begin)
    patch.set(Handover, "close_down", _close_down_without_dropping)


def _close_down_without_dropping(self: Handover, places: Sequence[TopicPartition]) -> list[Partition]:
    leaving = [partition for place in places if (partition := self._ownership.get(place)) is not None]
    for partition in leaving:
        partition.closing = True
        for run in partition.running:
            run.stop = True
        self.drop_waiting(partition)
    return leaving


@plant
def p07_takes_the_buffer_it_drops_for_done(patch: Patch) -> None:
    def close_down(self: Handover, places: Sequence[TopicPartition]) -> Any:
        for place in places:
            partition = self._ownership.get(place)
            if partition is not None and partition.buffer:
                first = partition.buffered_seq
                partition.ledger.finish(range(first, first + len(partition.buffer)))
        return original(self, places)

    original = patch.set(Handover, "close_down", close_down)


@plant
def p08_commits_as_a_zombie(patch: Patch) -> None:
    patch.set(Committer, "forget", lambda *_: None)


@plant
def p11_commits_what_it_has_lost(patch: Patch) -> None:
    def on_lost(self: Loop, places: Sequence[TopicPartition]) -> None:
        self.committer.push(self._clock.monotonic(), list(self.ownership))
        original(self, places)

    original = patch.set(Loop, "on_lost", on_lost)


@plant
def p09_fences_before_it_drains(patch: Patch) -> None:
    def on_revoked(self: Loop, places: Sequence[TopicPartition]) -> None:
        self.assignment.lost(places)
        self.handover.forget(self.handover.close_down(places))
        self.committer.membership_settled(self.ownership)

    patch.set(Loop, "on_revoked", on_revoked)


@plant
def p12_stores_an_offset_after_it_has_let_go(patch: Patch) -> None:
    def on_revoked(self: Loop, places: Sequence[TopicPartition]) -> None:
        leaving = [partition for partition in self.ownership if partition.place in places]
        original(self, places)
        for partition in leaving:
            partition.committed = (BEGINNING, "")
            self.committer.mark_dirty(partition)

    original = patch.set(Loop, "on_revoked", on_revoked)


@plant
def p19_takes_an_error_for_no_offset(patch: Patch) -> None:
    def assigned(self: Assignment, places: Sequence[TopicPartition], now: float) -> None:
        try:
            self._source.committed(places, 5.0)
        except SourceError:
            self._source.start(self._begin({place: _Start(at_end=True, topic_partitions=1) for place in places}))
        else:
            original(self, places, now)

    original = patch.set(Assignment, "assigned", assigned)


@plant
def p32_sends_a_letter_after_the_revoke(patch: Patch) -> None:
    patch.set(Failures, "drop", lambda self, partition: list(partition.failed_records))


@plant
def p35_rounds_a_short_drain_to_nothing(patch: Patch) -> None:
    def on_revoked(self: Loop, places: Sequence[TopicPartition]) -> None:
        deadline = self.shutdown.deadline
        if self.plan.revoke_timeout_s < 1:
            self.shutdown.deadline = self._clock.monotonic()
        original(self, places)
        self.shutdown.deadline = deadline

    original = patch.set(Loop, "on_revoked", on_revoked)


@plant
def throws_away_what_is_finished_when_a_revoke_runs_out_of_time(patch: Patch) -> None:
    def commit_now(self: Handover, partitions: Sequence[Partition], clock: Any, deadline: float) -> None:
        if clock.monotonic() < deadline:
            original(self, partitions, clock, deadline)

    original = patch.set(Handover, "commit_now", commit_now)


@plant
def p23_never_looks_again_which_topic_a_name_stands_for(patch: Patch) -> None:
    patch.set(Identities, "step", lambda *_: None)
    patch.set(Identities, "belongs", lambda *_: True)


@plant
def starts_an_added_partition_at_its_end(patch: Patch) -> None:
    def start(self: Assignment, *arguments: Any) -> Any:
        chosen = original(self, *arguments)
        return chosen and replace(chosen, at_end=chosen.at_end or chosen.topic_partitions > 0)

    original = patch.set(Assignment, "_start", start)


@plant
def starts_at_the_end_after_a_commit_of_a_topic_that_is_gone(patch: Patch) -> None:
    def start(self: Assignment, place: TopicPartition, *arguments: Any) -> Any:
        chosen = original(self, place, *arguments)
        return chosen and replace(chosen, at_end=chosen.at_end or chosen.topic_partitions == 0)

    original = patch.set(Assignment, "_start", start)


def _begin_again_at_the_end(patch: Patch, *, when_recreated: bool) -> None:
    def begin_again(
        self: Assignment, partitions: Sequence[Partition], handover: Handover, *, recreated: bool = False
    ) -> None:
        if recreated is not when_recreated:
            original(self, partitions, handover, recreated=recreated)
            return
        for partition in partitions:
            handover.forget(handover.close_down([partition.place]))
            for position in self._begin({partition.place: _Start(at_end=True, topic_partitions=1)}):
                self._source.reset(position)
                self._source.resume([partition.place])

    original = patch.set(Assignment, "_begin_again", begin_again)


@plant
def goes_on_at_the_end_after_an_offset_out_of_range(patch: Patch) -> None:
    _begin_again_at_the_end(patch, when_recreated=False)


@plant
def continues_at_the_end_of_a_recreated_topic(patch: Patch) -> None:
    _begin_again_at_the_end(patch, when_recreated=True)


@plant
def takes_a_question_for_ids_that_failed_for_an_answer(patch: Patch) -> None:
    def answered(self: Identities, answer: TopicIdsAnswer, now: float) -> list[str]:
        return original(self, TopicIdsAnswer({**self.ids, **answer.ids}, answer.asked_at), now)  # type: ignore[no-any-return]

    original = patch.set(Identities, "answered", answered)


@plant
def lets_an_id_decide_that_was_asked_for_before(patch: Patch) -> None:
    def belongs(self: Identities, topic: str, topic_id: str, since: float) -> bool | None:
        decided: bool | None = original(self, topic, topic_id, since)
        return False if decided is None else decided

    original = patch.set(Identities, "belongs", belongs)

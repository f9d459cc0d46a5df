"""Breaks of commits, order and groups, and of how the work is shared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace as copy
from typing import Any

from profile_tests.breaking import breaks, replace, wrap

from keepfast.core import names
from keepfast.core.batches import Search
from keepfast.core.lanes import KeyLanes, PartitionLanes
from keepfast.core.ledger import Ledger
from keepfast.core.ports import CommitOutcome
from keepfast.decode import annotation
from keepfast.engine.batch_lanes import BatchLanes
from keepfast.engine.commits import Committer
from keepfast.engine.ownership import Epochs
from keepfast.engine.workers import CoroutineExecutor
from keepfast.kafka import config
from keepfast.kafka.source import KafkaSource
from keepfast.settings import client_properties, loading
from keepfast.settings import consumers as consumer_settings
from keepfast.wiring import assembly


def _consume_with(**properties: object) -> None:
    def source_properties(*facts: Any, **more: Any) -> dict[str, Any]:
        return {**before(*facts, **more), **properties}

    before = replace(config, "source_properties", source_properties)


@breaks("MANUAL")
def the_client_commits_by_itself() -> None:
    _consume_with(**{"enable.auto.commit": True})


@breaks("MANUAL")
def the_client_stores_offsets_by_itself() -> None:
    _consume_with(**{"enable.auto.offset.store": True})


def _allow(name: str) -> None:
    forbidden: Mapping[str, str] = client_properties.FORBIDDEN
    replace(client_properties, "FORBIDDEN", {key: why for key, why in forbidden.items() if key != name})


@breaks("MANUAL")
def a_user_may_let_the_client_commit() -> None:
    _allow("enable.auto.commit")


@breaks("MANUAL")
def a_user_may_let_the_client_store_offsets() -> None:
    _allow("enable.auto.offset.store")


@breaks("NOT_LOST")
def the_watermark_passes_what_is_unfinished() -> None:
    def watermark(self: Ledger) -> int:
        finished = self._state.rfind(1)
        return self._offsets[finished] + 1 if finished >= 0 else int(before(self))

    before = replace(Ledger, "watermark", watermark)


@breaks("COMMITTED_AFTER")
def what_is_received_counts_as_finished() -> None:
    def receive(self: Ledger, offsets: Sequence[int]) -> Any:
        first = before(self, offsets)
        self.finish(range(first, first + len(offsets)))
        return first

    before = replace(Ledger, "receive", receive)


@breaks("CONFIRMED")
def lanes_go_on_before_the_commit_is_confirmed() -> None:
    def finished(self: Committer, partition: Any, holder: Any, records: int) -> None:
        self._finished += records
        self.mark_dirty(partition)
        self._lanes.release(holder)

    replace(Committer, "finished", finished)


@breaks("COMMITTED_EACH")
def commits_are_always_gathered() -> None:
    def init(self: Committer, *facts: Any, **more: Any) -> None:
        before(self, *facts, **more)
        self.each = False

    before = replace(Committer, "__init__", init)


@breaks("COMMITS_RETRIED")
def a_commit_that_failed_is_forgotten() -> None:
    def failed(self: Committer, sent: Any, outcome: CommitOutcome, now: float) -> None:
        before(self, sent, outcome, now)
        self._dirty.clear()

    before = replace(Committer, "_failed", failed)


@breaks("COMMITS_RETRIED")
def records_start_although_commits_keep_failing() -> None:
    replace(Committer, "tripped", lambda self, now: False)


@breaks("FENCED")
def any_epoch_of_an_own_partition_is_current() -> None:
    replace(Epochs, "is_current", lambda self, place, epoch: place in self._current)


@breaks("FENCED")
def an_epoch_never_ends() -> None:
    replace(Epochs, "end", lambda self, place: None)


@breaks("PARTITION_ORDER")
def a_partition_may_have_two_runs_out() -> None:
    def take(self: PartitionLanes, limit: int, size: int) -> Any:
        self._busy.clear()
        return before(self, limit, size)

    before = replace(PartitionLanes, "take", take)


@breaks("KEY_ORDER")
def keys_are_ignored() -> None:
    wrap(KeyLanes, "__init__", lambda before: lambda self, *, keyed: before(self, keyed=False))


@breaks("OWN_GROUP")
def consumers_may_share_a_group() -> None:
    replace(loading, "_shared_groups", lambda built: [])


@breaks("GROUP_NAMES")
def groups_are_joined_by_a_hyphen() -> None:
    replace(names, "default_group", lambda app, consumer: f"{app}-{consumer}")


@breaks("TOPIC_NAMES")
def entities_are_joined_by_a_hyphen() -> None:
    def topic_parts(topic: str, *, app: str) -> Any:
        found = before(topic, app=app)
        return found._replace(entity=found.entity.replace("_", "-"))

    before = replace(names, "topic_parts", topic_parts)


@breaks("ENV_NAMES")
def every_environment_is_local() -> None:
    def expand(self: Any, path: str, pattern: str, origin: Any, values: Mapping[str, str]) -> Any:
        return before(self, path, pattern, origin, {**values, "env": "local"})

    before = replace(consumer_settings.ConsumerBuilder, "_expand", expand)


@breaks("COOPERATIVE")
def everything_is_given_up_for_some() -> None:
    def let_go(self: KafkaSource, places: Any) -> None:
        before(self, list(self._started))

    before = replace(KafkaSource, "_release", let_go)


@breaks("COOPERATIVE")
def partitions_are_assigned_eagerly() -> None:
    def source_properties(to: Any, consuming: Any) -> Any:
        return before(to, copy(consuming, assignor="range"))

    before = replace(config, "source_properties", source_properties)


@breaks("FAN_OUT")
def only_the_first_consumer_runs() -> None:
    def assemble(specs: Sequence[Any], *facts: Any, **more: Any) -> Any:
        return before(specs[:1], *facts, **more)

    before = replace(assembly, "assemble", assemble)


@breaks("DECLARED")
def batches_need_not_be_idempotent() -> None:
    def value(self: Any, name: str) -> Any:
        return True if name == "idempotent" else before(self, name)

    before = replace(consumer_settings.ConsumerBuilder, "_value", value)


@breaks("DECODED")
def every_handler_gets_bytes() -> None:
    replace(annotation, "_decoder", lambda parse, on_null, wanted, names: annotation._bytes_decoder(on_null))


@breaks("BATCHED")
def two_suspects_are_both_bad() -> None:
    wrap(Search, "failed", lambda before: lambda self, count: before(self, count) if count > 2 else None)


@breaks("BATCHED")
def a_batch_is_one_record() -> None:
    def fill(self: BatchLanes) -> Any:
        singly, self._singly = self._singly, True
        room = before(self)
        self._singly = singly
        return room

    before = replace(BatchLanes, "_fill", fill)


@breaks("SIDE_BY_SIDE")
def there_is_one_coroutine() -> None:
    def init(self: CoroutineExecutor, *facts: Any, **more: Any) -> None:
        before(self, *facts, **{**more, "capacity": 1})

    before = replace(CoroutineExecutor, "__init__", init)

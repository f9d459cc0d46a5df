"""What a handler sees of a record that came back from a retry topic."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from keepfast.core.batches import Batch
from keepfast.core.errors import Discard
from keepfast.core.records import Headers, Message, TopicPartition
from keepfast.core.retry_topics import GROUP, OWN_HEADERS, Returned, Tier, Tiers, moved
from keepfast.core.runs import FailedRecord, Partition, Run
from keepfast.decode.signature import inspect_handler, inspect_provider
from keepfast.engine.calls import Handler
from keepfast.engine.context import BatchContext, Context
from keepfast.engine.middleware import Around
from keepfast.telemetry.metrics import Tally
from keepfast.testing.fakes.log import FakeMessage
from tests.support.fakes import FakeSink

TOPIC = "orders.g.retry.5s"
TIERS = Tiers(group="g", delays_s=(5,), topics={TOPIC: Tier(TOPIC, "orders", 5, 4)})
PLAIN = FakeMessage(TopicPartition("orders", 2), 7, key=b"k", value=b"v", headers=[("a", b"1")])

Seen = tuple[str, int, int, int]


def returned(headers: Headers | None = None) -> Returned:
    out = moved(PLAIN, tiers=TIERS, step=1, wall_s=0.0, failures=4, attempts=())
    message = FakeMessage(
        TopicPartition(TOPIC, 2), 99, key=b"k", value=b"v", headers=out.headers if headers is None else headers
    )
    return Returned(message, TIERS.topics[TOPIC], TIERS)


def run_of(message: Message, failed_record: FailedRecord | None = None) -> Run:
    partition = Partition(TopicPartition(TOPIC, 2), epoch=1, start=0)
    return Run(partition, [message], [0], {}, failed_record)


def handler_of(function: Any) -> Handler:
    shape = inspect_handler(function, context_type=Context, batch_context_type=BatchContext)
    return Handler(function, shape, order="none", tombstones="dead-letter", group="g")


def seen_by(run: Run, *, is_async: bool = False) -> Seen:
    """What a handler with a context sees; raises what the run has failed with."""
    found: list[Seen] = []

    def handle(value: bytes, ctx: Context) -> None:
        found.append((ctx.topic, ctx.partition, ctx.offset, ctx.attempt))

    async def handle_async(value: bytes, ctx: Context) -> None:
        handle(value, ctx)

    if is_async:
        asyncio.run(handler_of(handle_async).call_async(FakeSink(), retry_topics=True).walk(run, Tally(), lambda: 0.0))
    else:
        handler_of(handle).call(FakeSink(), retry_topics=True).walk(run, Tally(), lambda: 0.0)
    if run.failure is not None:
        raise run.failure
    return found[0]


@pytest.mark.parametrize("is_async", [False, True], ids=["def", "async def"])
def test_it_sees_the_original_and_the_count_goes_on(is_async: bool) -> None:
    message = returned()
    assert seen_by(run_of(message), is_async=is_async) == ("orders", 2, 7, 5)


@pytest.mark.parametrize("is_async", [False, True], ids=["def", "async def"])
def test_other_records_are_handed_on_as_they_are(is_async: bool) -> None:
    assert seen_by(run_of(PLAIN), is_async=is_async) == ("orders", 2, 7, 1)


def test_middleware_sees_the_original_as_well() -> None:
    found: list[Seen] = []

    def middleware(ctx: Context) -> Iterator[None]:
        found.append((ctx.topic, ctx.partition, ctx.offset, ctx.attempt))
        yield

    def handle(value: bytes) -> None: ...

    around = Around([inspect_provider(middleware, "middleware")])
    shape = inspect_handler(handle, context_type=Context)
    handler = Handler(handle, shape, order="none", tombstones="dead-letter", group="g", around=around)
    handler.call(FakeSink(), retry_topics=True).walk(run_of(returned()), Tally(), lambda: 0.0)
    assert found == [("orders", 2, 7, 5)]


def test_a_case_counts_by_itself() -> None:
    message = returned()
    failed_record = FailedRecord(Partition(TopicPartition(TOPIC, 2), epoch=1, start=0), 0, message, (), 0.0)
    assert failed_record.failures == 4
    failed_record.failures = 6
    assert seen_by(run_of(message, failed_record))[-1] == 7


def test_a_record_of_another_group_never_reaches_the_handler() -> None:
    foreign = returned([(GROUP, b"another"), (OWN_HEADERS, b"0")])
    with pytest.raises(Discard, match="another group"):
        seen_by(run_of(foreign))


def batch_seen(*messages: Message) -> tuple[Batch, list[list[Seen]]]:
    found: list[list[Seen]] = []

    def handle(values: list[bytes], contexts: BatchContext) -> None:
        found.append([(ctx.topic, ctx.partition, ctx.offset, ctx.attempt) for ctx in contexts])

    partition = Partition(TopicPartition(TOPIC, 2), epoch=1, start=0)
    batch = Batch([Run(partition, list(messages), range(len(messages)), {})])
    batch.muster(0.0)
    handler_of(handle).call(FakeSink(), retry_topics=True).walk(batch, Tally(), lambda: 0.0)
    return batch, found


def test_records_of_a_batch_are_seen_as_the_originals_and_share_its_attempt() -> None:
    _, found = batch_seen(returned(), PLAIN)
    assert found == [[("orders", 2, 7, 1), ("orders", 2, 7, 1)]]


def test_the_only_record_of_a_batch_has_its_own_attempt() -> None:
    _, found = batch_seen(returned())
    assert found == [[("orders", 2, 7, 5)]]


def test_a_record_of_another_group_is_left_out_of_a_batch() -> None:
    batch, found = batch_seen(PLAIN, returned([(GROUP, b"another"), (OWN_HEADERS, b"0")]))
    assert (found, batch.given) == ([[("orders", 2, 7, 1)]], [0])
    assert isinstance(batch.bad[1], Discard)

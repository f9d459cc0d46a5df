"""Decoders that see the record, or are the user's own, on every kind of call."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from keepfast import App, BatchContext, Context
from keepfast.core.batches import Batch
from keepfast.core.errors import DecodeError
from keepfast.core.records import Message, TopicPartition
from keepfast.core.runs import Partition, Run
from keepfast.decode.choice import Decoding
from keepfast.decode.signature import inspect_handler
from keepfast.engine.calls import Handler
from keepfast.redact.sensitive import CardNumbers, SensitiveData
from keepfast.telemetry.metrics import Tally
from keepfast.testing.harness import harness
from tests.support.fakes import FakeSink
from tests.support.messages import message


@dataclass
class A:
    id: int


@dataclass
class B:
    name: str


TWO = Decoding(models={"a.v1": A, "b.v1": B})
A_RECORD = message(0, b"k", place=TopicPartition("a.v1", 0), value=b'{"id":1}', headers=[("h", b"1")])
B_RECORD = message(5, b"k", place=TopicPartition("b.v1", 2), value=b'{"name":"x"}')
POISON = message(6, b"k", place=TopicPartition("b.v1", 2), value=b'{"id":1}')


def walked(function: Any, run: Run, **options: Any) -> Run:
    shape = inspect_handler(function, context_type=Context, batch_context_type=BatchContext)
    handler = Handler(function, shape, **{"order": "none", "tombstones": "dead-letter", "group": "g"} | options)
    if shape.is_async:
        asyncio.run(handler.call_async(FakeSink()).walk(run, Tally(), lambda: 0.0))
    else:
        handler.call(FakeSink()).walk(run, Tally(), lambda: 0.0)
    return run


def run_of(*messages: Message) -> Run:
    place = TopicPartition(messages[0].topic(), messages[0].partition())
    return Run(Partition(place, epoch=1, start=0), list(messages), range(len(messages)), {})


def test_each_kind_of_call_decodes_by_topic_and_keeps_the_context() -> None:
    seen: list[Any] = []

    def plain(value: A | B) -> None:
        seen.append(value)

    def with_context(value: A | B, ctx: Context) -> None:
        seen.append((value, ctx.topic, ctx.offset, ctx.key, ctx.raw))

    async def awaited(value: A | B) -> None:
        seen.append(value)

    async def awaited_with_context(ctx: Context, value: A | B) -> None:
        seen.append((value, ctx.topic, ctx.offset, ctx.key, ctx.raw))

    for function in (plain, with_context, awaited, awaited_with_context):
        for one in (A_RECORD, B_RECORD):
            run = walked(function, run_of(one), decoding=TWO)
            assert (run.done, run.failure) == (1, None)
    told = [(A(1), "a.v1", 0, b"k", b'{"id":1}'), (B("x"), "b.v1", 5, b"k", b'{"name":"x"}')]
    assert seen == [A(1), B("x"), *told, A(1), B("x"), *told]


def test_a_poison_record_of_one_topic_is_undecodable_by_its_own_type() -> None:
    def handle(value: A | B) -> None:
        raise AssertionError("it is no B")

    run = walked(handle, run_of(POISON), decoding=TWO)
    assert isinstance(run.failure, DecodeError)
    assert "does not match B" in str(run.failure)


def test_a_batch_decodes_each_record_by_its_topic_and_leaves_out_the_poison() -> None:
    seen: list[Any] = []

    def handle(values: list[A | B], ctx: BatchContext) -> None:
        seen.append((values, [one.topic for one in ctx]))

    batch = Batch([run_of(A_RECORD), run_of(B_RECORD, POISON)])
    batch.muster(0.0)
    walked(handle, batch, decoding=TWO)
    assert seen == [([A(1), B("x")], ["a.v1", "b.v1"])]
    assert list(batch.bad) == [2]
    assert isinstance(batch.bad[2], DecodeError)


def test_a_handler_of_bytes_gets_what_the_users_function_made_of_them() -> None:
    seen: list[bytes] = []

    def handle(value: bytes) -> None:
        seen.append(value)

    for decoding in (Decoding(decoder=bytes.upper), Decoding(registered={bytes: bytes.upper})):
        walked(handle, run_of(A_RECORD), decoding=decoding)
    assert seen == [b'{"ID":1}'] * 2


def test_a_batch_is_decoded_by_a_function_of_the_users() -> None:
    seen: list[Any] = []

    def handle(values: list[bytes]) -> None:
        seen.extend(values)

    batch = Batch([run_of(A_RECORD, message(1, place=TopicPartition("a.v1", 0), value=None))])
    batch.muster(0.0)
    walked(handle, batch, decoding=Decoding(decoder=bytes.upper))
    assert seen == [b'{"ID":1}']
    assert isinstance(batch.bad[1], DecodeError)


@pytest.mark.parametrize("decoding", [Decoding(decoder=bytes.upper), Decoding(decoder={"*": bytes.upper})])
def test_a_record_is_scanned_before_a_decoder_of_the_users_sees_it(decoding: Decoding) -> None:
    def handle(value: bytes) -> None:
        raise AssertionError("it has a card number")

    card = message(0, value=b'{"card": "4111 1111 1111 1111"}')
    run = walked(handle, run_of(card), decoding=decoding, sensitive=CardNumbers())
    assert isinstance(run.failure, SensitiveData)


def test_middleware_is_around_a_decoder_that_sees_the_record() -> None:
    app, seen = App("shop"), list[Any]()

    @app.middleware
    def around(ctx: Context) -> Iterator[None]:
        seen.append(("before", ctx.topic))
        yield
        seen.append(("after", ctx.topic))

    @app.consumer({"a.v1": A, "b.v1": B})
    def work(value: A | B, ctx: Context) -> None:
        seen.append((value, ctx.topic))

    async def story() -> None:
        async with harness(app) as h:
            await h.send("a.v1", {"id": 1})
            await h.send("b.v1", {"name": "x"})
            await h.send("b.v1", {"id": 1})
            assert [letter.topic for letter in h.dead] == ["b.v1"]

    asyncio.run(story())
    assert seen[:6] == [
        ("before", "a.v1"), (A(1), "a.v1"), ("after", "a.v1"),
        ("before", "b.v1"), (B("x"), "b.v1"), ("after", "b.v1"),
    ]  # fmt: skip

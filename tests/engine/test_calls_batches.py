"""What a worker does with a batch: select its records, and call the user's function once with all of them."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel

from keepfast import App, BatchContext, Context, Discard
from keepfast.core.batches import Batch
from keepfast.core.errors import BatchError, ConfigError, DecodeError, Fault, Halt, SinkError
from keepfast.core.records import Message, Outgoing, Receipt, TopicPartition
from keepfast.core.runs import FailedRecord, Partition, Run
from keepfast.decode.signature import inspect_handler
from keepfast.engine.calls import Handler
from keepfast.redact.sensitive import CardNumbers, SensitiveData
from keepfast.telemetry.metrics import Tally
from tests.support.fakes import FakeSink, hold, refuse
from tests.support.messages import message
from tests.support.waiting import DEADLINE_S, wait_until

CARD = b'{"card": "4111 1111 1111 1111"}'


class Model(BaseModel):
    n: int


class Struct(msgspec.Struct):
    n: int


@dataclass
class Plain:
    n: int


RECEIPT = Receipt("out", 0, 0)


def batch_of(*values: bytes | None, keys: str = "") -> Batch:
    partition = Partition(TopicPartition("t", 0), epoch=1, start=0)
    named: list[bytes | None] = [key.encode() for key in keys] or [None] * len(values)
    messages: list[Message] = [
        message(at, key, value=value) for at, (value, key) in enumerate(zip(values, named, strict=True))
    ]
    partition.feed(messages)
    batch = Batch([Run(partition, list(messages), range(len(messages)), {})])
    batch.muster(0.0)
    return batch


def handler_of(function: Any, **options: Any) -> Handler:
    shape = inspect_handler(function, context_type=Context, batch_context_type=BatchContext)
    return Handler(function, shape, **{"order": "none", "tombstones": "dead-letter", "group": "g"} | options)


def done(function: Any, batch: Batch, sink: Any = None, **options: Any) -> Batch:
    handler = handler_of(function, **options)
    sink = sink or FakeSink()
    if handler.shape.is_async:
        asyncio.run(handler.call_async(sink).walk(batch, Tally(), lambda: 0.0))
    else:
        handler.call(sink).walk(batch, Tally(), lambda: 0.0)
    return batch


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (list[bytes], [b'{"n":1}', b'{"n":2}']),
        (list[str], ['{"n":1}', '{"n":2}']),
        (list[dict[str, Any]], [{"n": 1}, {"n": 2}]),
        (list[Model], [Model(n=1), Model(n=2)]),
        (list[Struct], [Struct(1), Struct(2)]),
        (list[Plain], [Plain(1), Plain(2)]),
    ],
)
def test_the_annotation_decides_what_the_list_holds(annotation: Any, expected: list[Any]) -> None:
    seen: list[Any] = []

    def handle(values: Any) -> None:
        seen.append(values)

    async def handle_async(values: Any) -> None:
        seen.append(values)

    for function in (handle, handle_async):
        function.__annotations__["values"] = annotation
        batch = done(function, batch_of(b'{"n":1}', b'{"n":2}'))
        assert (batch.done, batch.failure) == (2, None)
    assert seen == [expected, expected]


def test_tombstones_are_handed_over_only_if_the_annotation_takes_them() -> None:
    def wants(values: list[bytes | None]) -> None:
        seen.append(values)

    def does_not(values: list[bytes]) -> None:
        seen.append(values)

    seen: list[Any] = []
    assert done(wants, batch_of(b"x", None)).bad == {}
    refused = done(does_not, batch_of(b"x", None))
    dropped = done(does_not, batch_of(b"x", None), tombstones="discard")
    assert seen == [[b"x", None], [b"x"], [b"x"]]
    assert isinstance(refused.bad[1], DecodeError)
    assert isinstance(dropped.bad[1], Discard)
    assert refused.given == dropped.given == [0]


def test_records_with_card_numbers_are_left_out() -> None:
    def handle(values: list[bytes]) -> None:
        seen.append(values)

    seen: list[Any] = []
    batch = done(handle, batch_of(b"x", CARD, b"y"), sensitive=CardNumbers())
    assert seen == [[b"x", b"y"]]
    assert isinstance(batch.bad[1], SensitiveData)


def test_nothing_is_called_if_nothing_can_be_handed_over() -> None:
    def handle(values: list[Model]) -> None:
        raise AssertionError("called")

    batch = done(handle, batch_of(b"x", b"y"))
    assert (batch.failure, batch.done, batch.given, len(batch.bad)) == (None, 0, [], 2)


def test_what_is_behind_a_record_that_cannot_be_decoded_in_its_lane_is_left_out_too() -> None:
    def handle(values: list[Model]) -> None:
        seen.append([value.n for value in values])

    seen: list[list[int]] = []
    batch = done(handle, batch_of(b'{"n":0}', b"?", b'{"n":2}', b'{"n":3}', keys="aaba"), order="key")
    assert seen == [[0, 2]]
    assert (batch.given, list(batch.bad)) == ([0, 2], [1])


def test_a_record_on_its_own_is_a_list_of_one() -> None:
    def handle(values: list[bytes]) -> None:
        seen.append(values)

    seen: list[Any] = []
    partition = Partition(TopicPartition("t", 0), epoch=1, start=0)
    run = Run.again(FailedRecord(partition, 0, message(0, value=b"x"), (), 0.0))
    handler_of(handle).call(FakeSink(hold)).walk(run, Tally(), lambda: 0.0)
    assert (seen, run.done) == ([[b"x"]], 1)


def test_a_batch_that_was_asked_to_stop_does_not_begin() -> None:
    def handle(values: list[bytes]) -> None:
        raise AssertionError("called")

    batch = batch_of(b"x")
    batch.parts[0].stop = True
    assert (done(handle, batch).done, batch.failure) == (0, None)


def test_the_context_is_a_sequence_with_a_context_for_each_record() -> None:
    def handle(values: list[bytes], ctx: BatchContext) -> None:
        seen.append((len(ctx), [one.offset for one in ctx], ctx[-1].key, [one.raw for one in ctx[1:]], ctx.attempt))

    seen: list[Any] = []
    batch = batch_of(b"x", b"y", keys="ab")
    batch.failures = 2
    batch.muster(0.0)
    done(handle, batch)
    assert seen == [(2, [0, 1], b"b", [b"y"], 3)]


def test_the_context_tells_only_of_records_that_were_handed_over() -> None:
    def handle(values: list[Model], ctx: BatchContext) -> None:
        seen.append([one.offset for one in ctx])

    seen: list[Any] = []
    done(handle, batch_of(b"?", b'{"n":1}'))
    done(handle, batch_of(b'{"n":1}', b"?", b'{"n":1}'))
    assert seen == [[1], [0, 2]]


@pytest.mark.parametrize("by_record", [True, False])
def test_no_record_is_finished_before_what_was_sent_is_acknowledged(by_record: bool) -> None:
    def handle(values: list[bytes], ctx: BatchContext) -> None:
        (ctx[1] if by_record else ctx).send("out", {"n": 1}, key="k")
        ctx.send("out", None)

    sink, batch, over = FakeSink(hold), batch_of(b"x", b"y"), threading.Event()

    def work() -> None:
        done(handle, batch, sink)
        over.set()

    threading.Thread(target=work, daemon=True).start()
    wait_until(lambda: len(sink.sent) == 2, "both are sent")
    assert not over.wait(0.05)
    assert batch.done == 0
    assert sink.sent[0] == Outgoing("out", b'{"n":1}', b"k", ())
    sink.answer()
    assert over.wait(DEADLINE_S)
    assert batch.done == 2


@pytest.mark.parametrize("raised", [None, Discard("done by sending"), ValueError(), BatchError({0: ValueError()})])
def test_a_send_that_is_not_acknowledged_fails_the_attempt(raised: BaseException | None) -> None:
    def handle(values: list[bytes], ctx: BatchContext) -> None:
        ctx.send("out", b"x")
        if raised is not None:
            raise raised

    async def handle_async(values: list[bytes], ctx: BatchContext) -> None:
        handle(values, ctx)

    refusing = FakeSink(refuse(Fault.RETRY))
    for function in (handle, handle_async):
        batch = done(function, batch_of(b"x", b"y"), refusing)
        assert isinstance(batch.failure, SinkError)
        assert batch.failure.raised is raised
        assert batch.done == 0


def test_a_plain_function_that_returns_a_coroutine_does_not_count_as_done() -> None:
    async def real(values: list[bytes]) -> None: ...

    def wrapped(values: list[bytes]) -> Any:
        return real(values)

    assert isinstance(done(wrapped, batch_of(b"x")).failure, Halt)


def test_the_time_of_a_call_is_shared_by_its_records() -> None:
    def handle(values: list[bytes]) -> None: ...

    tally, times = Tally(), iter([0.0, 4.0])
    batch = batch_of(b"x", b"y")
    handler_of(handle).call(FakeSink(hold)).walk(batch, tally, lambda: next(times))
    assert (sum(tally.counts), tally.total_s, batch.elapsed_s) == (2, 4.0, 4.0)
    assert tally.counts[15] == 2, "2 s each"


# -- what is refused at start


def test_a_list_must_say_of_what() -> None:
    def handle(values: list) -> None: ...  # type: ignore[type-arg]

    with pytest.raises(ConfigError, match=r"`list` has no element type"):
        handler_of(handle)


def test_a_list_of_what_cannot_be_decoded_is_refused() -> None:
    def handle(values: list[object]) -> None: ...

    with pytest.raises(ConfigError, match="cannot decode a record into object"):
        handler_of(handle)


def test_the_context_of_a_batch_is_a_batch_context_and_of_a_record_a_context() -> None:
    def batch(values: list[bytes], ctx: Context) -> None: ...

    def single(value: bytes, ctx: BatchContext) -> None: ...

    for function, wanted in ((batch, "BatchContext"), (single, "Context")):
        with pytest.raises(ConfigError, match=f"annotate ctx with {wanted}"):
            App("a").consumer("t")(function)


def problems_of(function: Any, **options: Any) -> list[str]:
    app = App("a")
    app.consumer("t", **options)(function)
    try:
        app.settings(environ={})
    except ConfigError as error:
        return list(error.problems)
    return []


def batch_handler(values: list[bytes]) -> None: ...
def single_handler(value: bytes) -> None: ...


def test_batches_need_idempotency() -> None:
    [problem] = problems_of(batch_handler)
    assert "takes a batch" in problem
    assert "idempotent=True" in problem
    assert problems_of(batch_handler, idempotent=True) == []


def test_what_is_about_batches_is_refused_for_one_record() -> None:
    from keepfast import BatchPolicy

    [problem] = problems_of(single_handler, batch=BatchPolicy(size=5), atomic=True)
    assert "batch.size, batch.wait_s, atomic" in problem
    assert problems_of(batch_handler, batch=BatchPolicy(size=5), atomic=True, idempotent=True) == []


def test_settings_of_batches_come_from_the_environment_too() -> None:
    app = App("a")
    app.consumer("t", idempotent=True, atomic=True)(batch_handler)
    app.consumer("t")(single_handler)
    environ = {"KEEPFAST_BATCH_SIZE": "7", "KEEPFAST_CONSUMERS_BATCH_HANDLER_BATCH_WAIT_S": "0.5"}
    consumers = app.settings(environ=environ).consumers
    own = consumers["batch_handler"]
    assert own.batch is not None
    assert (own.batch.size, own.batch.wait_s, own.atomic) == (7, 0.5, True)
    assert consumers["single_handler"].batch is None


@pytest.mark.parametrize("name", ["SIZE", "WAIT_S"])
def test_a_wrong_value_is_a_problem_with_its_origin(name: str) -> None:
    app = App("a")
    app.consumer("t", idempotent=True)(batch_handler)
    with pytest.raises(ConfigError, match=f"KEEPFAST_BATCH_{name}"):
        app.settings(environ={f"KEEPFAST_BATCH_{name}": "-1"})

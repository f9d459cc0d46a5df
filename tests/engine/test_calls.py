"""What a worker does with a record: decode it, call the user's function, and wait for what it sent."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from typing import Any

import pytest

from keepfast.classify.classification import classify
from keepfast.core import verdicts
from keepfast.core.batches import Batch
from keepfast.core.errors import ConfigError, DecodeError, Discard, Fault, Halt, Reject, RetryLater, SinkError
from keepfast.core.judge import judge
from keepfast.core.policies import RetryPolicy
from keepfast.core.records import Outgoing, Receipt, TopicPartition
from keepfast.core.runs import Partition, Run
from keepfast.decode.signature import inspect_handler
from keepfast.engine.calls import WALKS, Handler
from keepfast.engine.context import BatchContext, Context, to_bytes
from keepfast.redact.sensitive import CardNumbers, SensitiveData
from keepfast.telemetry.metrics import Tally
from tests.support.fakes import FakeSink, hold, refuse
from tests.support.messages import message
from tests.support.waiting import DEADLINE_S, wait_until

RECEIPT = Receipt("out", 0, 0)


def handler_of(function: Any) -> Handler:
    shape = inspect_handler(function, context_type=Context, batch_context_type=BatchContext)
    return Handler(function, shape, order="partition", tombstones="dead-letter", group="g")


def run_for(one: Any) -> Run:
    return Run(Partition(TopicPartition("t", 0), epoch=1, start=0), [one], (0,), {})


def test_the_annotation_decides_what_the_handler_gets() -> None:
    seen: list[object] = []

    def as_dict(value: dict[str, Any]) -> None:
        seen.append(value)

    def as_bytes(value: bytes) -> None:
        seen.append(value)

    one = message(offset=0, value=b'{"a":1}')
    for function in (as_dict, as_bytes):
        handler_of(function).call(FakeSink(hold)).handle(one, run_for(one))
    assert seen == [{"a": 1}, b'{"a":1}']


@pytest.mark.parametrize("annotation", [bytes, str, dict])
def test_a_tombstone_is_refused_unless_the_annotation_takes_it(annotation: type) -> None:
    def handle(value: Any) -> None: ...

    handle.__annotations__["value"] = annotation
    one = message(offset=0, value=None)
    with pytest.raises(DecodeError) as caught:
        handler_of(handle).call(FakeSink(hold)).handle(one, run_for(one))
    assert caught.value.code == "TOMBSTONE"


def test_a_plain_function_that_returns_a_coroutine_does_not_count_as_done() -> None:
    async def real(value: bytes) -> None: ...

    def wrapped(value: bytes) -> Any:
        return real(value)

    one = message(offset=0, value=b"x")
    with pytest.raises(Halt, match="async def"):
        handler_of(wrapped).call(FakeSink(hold)).handle(one, run_for(one))


def test_a_record_is_not_finished_before_what_it_sent_is_acknowledged() -> None:
    sink, done = FakeSink(hold), threading.Event()

    def handle(value: bytes, ctx: Context) -> None:
        ctx.send("out", {"n": 1}, key="k", headers={"h": "v"})
        ctx.send("out", None, key=b"k")

    one = message(offset=0, value=b"x")
    handle_one = handler_of(handle).call(sink).handle

    def work() -> None:
        handle_one(one, run_for(one))
        done.set()

    threading.Thread(target=work, daemon=True).start()
    wait_until(lambda: len(sink.sent) == 2, "both are sent")
    assert not done.wait(0.05)
    assert sink.sent[0] == Outgoing("out", b'{"n":1}', b"k", (("h", b"v"),))
    sink.answer()
    assert done.wait(DEADLINE_S)


def test_a_send_that_is_not_acknowledged_fails_the_attempt() -> None:
    def handle(value: bytes, ctx: Context) -> None:
        ctx.send("out", b"1")

    async def handle_async(value: bytes, ctx: Context) -> None:
        ctx.send("out", b"1")

    one = message(offset=0, value=b"x")
    with pytest.raises(SinkError):
        handler_of(handle).call(FakeSink(refuse(Fault.RETRY))).handle(one, run_for(one))
    with pytest.raises(SinkError):
        asyncio.run(_await(handler_of(handle_async), FakeSink(refuse(Fault.RETRY)), one))


class Special(BaseException):
    """What no rule knows."""


RAISED = [Reject("no"), Discard("no"), RetryLater(after_s=1), Halt("no"), ValueError(), asyncio.CancelledError(),
          SystemExit(), Special()]  # fmt: skip


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("fails", [False, True])
def test_whatever_a_handler_raises_what_it_sent_is_answered_first(
    error: BaseException, is_async: bool, fails: bool
) -> None:
    sink, ended = FakeSink(hold), list[BaseException]()

    def handle(value: bytes, ctx: Context) -> None:
        ctx.send("out", b"1")
        raise error

    async def handle_async(value: bytes, ctx: Context) -> None:
        handle(value, ctx)

    one = message(offset=0, value=b"x")
    run = run_for(one)
    handler = handler_of(handle_async if is_async else handle)

    def work() -> None:
        if is_async:
            loop = asyncio.new_event_loop()
            loop.run_until_complete(handler.call_async(sink).walk(run, Tally(), time.perf_counter))
            loop.close()
        else:
            handler.call(sink).walk(run, Tally(), time.perf_counter)
        assert run.failure is not None
        ended.append(run.failure)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    wait_until(lambda: sink.sent, "it is sent")
    thread.join(0.05)
    assert ended == []
    failure = SinkError("no", fault=Fault.RETRY)
    sink.answer(lambda _: failure if fails else RECEIPT)
    thread.join(DEADLINE_S)
    assert ended == ([failure] if fails else [error])
    assert failure.raised is (error if fails else None)
    assert not run.sending


def test_a_cancellation_while_sends_are_awaited_does_not_end_the_wait() -> None:
    sink = FakeSink(hold)

    async def handle(value: bytes, ctx: Context) -> None:
        ctx.send("out", b"1")

    async def main() -> None:
        one = message(offset=0, value=b"x")
        task = asyncio.create_task(_await(handler_of(handle), sink, one))
        for _ in range(3):
            await asyncio.sleep(0.01)
            task.cancel()
        await asyncio.sleep(0.01)
        assert not task.done()
        sink.answer()
        await asyncio.wait([task])
        assert task.cancelled(), "it is a failure all the same"

    asyncio.run(main())


def test_what_a_handler_sends_from_threads_of_its_own_is_awaited_too() -> None:
    sink, threads = FakeSink(hold), 8
    together = threading.Barrier(threads)

    def handle(value: bytes, ctx: Context) -> None:
        def send() -> None:
            together.wait(DEADLINE_S)
            ctx.send("out", b"1")

        senders = [threading.Thread(target=send) for _ in range(threads)]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
        for _, delivered in sink.held[1:]:
            delivered(RECEIPT)

    one, done = message(offset=0, value=b"x"), threading.Event()
    handle_one = handler_of(handle).call(sink).handle

    def work() -> None:
        handle_one(one, run_for(one))
        done.set()

    threading.Thread(target=work, daemon=True).start()
    wait_until(lambda: len(sink.sent) == threads, "all are sent")
    assert not done.wait(0.1), "one is not answered"
    sink.held[0][1](RECEIPT)
    assert done.wait(DEADLINE_S)


async def _await(handler: Handler, sink: FakeSink, one: Any) -> None:
    await handler.call_async(sink).handle(one, run_for(one))


def test_an_async_record_waits_for_its_sends_without_blocking_the_event_loop() -> None:
    sink = FakeSink(hold)

    async def handle(value: bytes, ctx: Context) -> None:
        ctx.send("out", b"1")

    async def main() -> None:
        one = message(offset=0, value=b"x")
        task = asyncio.create_task(_await(handler_of(handle), sink, one))
        await asyncio.sleep(0.02)
        assert not task.done()
        threading.Thread(target=sink.answer).start()
        await asyncio.wait_for(task, DEADLINE_S)

    asyncio.run(main())


def test_the_context_tells_where_the_record_comes_from() -> None:
    found: list[Context] = []

    def handle(ctx: Context, value: bytes) -> None:
        found.append(ctx)

    one = message(offset=7, key=b"k", value=b"x", headers=[("a", b"1"), ("a", b"2"), ("b", None)])
    run = run_for(one)
    run.attempt = 3
    handler_of(handle).call(FakeSink(hold)).handle(one, run)
    [ctx] = found
    assert (ctx.offset, ctx.key, ctx.raw, ctx.attempt) == (7, b"k", b"x", 3)
    assert ctx.header("a") == b"2"
    assert ctx.header("none") is None
    assert list(ctx.headers) == [("a", b"1"), ("a", b"2"), ("b", None)]


REPLAYED = [("a", b"1"), ("keepfast-letter-id", b"g/t/0/1"), ("b", None), ("keepfast-replay", b"g/t/0/1;r;2")]


def test_a_handler_never_sees_headers_of_keepfast_but_how_often_its_record_was_replayed() -> None:
    found: list[Context] = []

    def handle(value: bytes, ctx: Context) -> None:
        found.append(ctx)

    for one in (message(offset=0, value=b"x", headers=REPLAYED), message(offset=1, value=b"x", headers=[("a", b"1")])):
        handler_of(handle).call(FakeSink(hold)).handle(one, run_for(one))
    replayed, plain = found
    assert list(replayed.headers) == [("a", b"1"), ("b", None)]
    assert replayed.header("keepfast-replay") is None
    assert (replayed.replays, plain.replays) == (2, 0)


@pytest.mark.parametrize("headers", [{"a": "1", "keepfast-x": "1"}, [("keepfast-replay", b"9")]])
def test_a_header_of_keepfast_is_refused_in_ctx_send_and_nothing_is_sent(headers: Any) -> None:
    sink = FakeSink(hold)

    def handle(value: bytes, ctx: Context) -> None:
        ctx.send("elsewhere", value, headers=headers)

    one = message(offset=0, value=b"x")
    with pytest.raises(ValueError, match="is reserved: names must not begin with 'keepfast-'"):
        handler_of(handle).call(sink).handle(one, run_for(one))
    assert sink.sent == []


def test_values_are_sent_as_one_would_expect() -> None:
    assert [to_bytes(value) for value in (None, b"x", "ü", {"a": [1]}, bytearray(b"y"))] == [
        None,
        b"x",
        "ü".encode(),
        b'{"a":[1]}',
        b"y",
    ]


def test_an_annotation_that_cannot_be_decoded_is_refused_before_anything_starts() -> None:
    def handle(value: object) -> None: ...

    with pytest.raises(ConfigError):
        handler_of(handle)


def test_a_record_with_a_card_number_is_discarded_before_the_handler_sees_it() -> None:
    seen: list[bytes] = []

    def handle(value: bytes) -> None:
        seen.append(value)

    handler = Handler(
        handle,
        inspect_handler(handle, context_type=Context),
        order="partition",
        tombstones="dead-letter",
        group="g",
        sensitive=CardNumbers(),
    )
    handle_one = handler.call(FakeSink(hold)).handle
    card, plain = message(offset=0, value=b'{"pan":"4111 1111 1111 1111"}'), message(offset=1, value=b'{"id":7}')
    with pytest.raises(SensitiveData) as caught:
        handle_one(card, run_for(card))
    handle_one(plain, run_for(plain))
    assert seen == [b'{"id":7}']
    assert "1111" not in str(caught.value)
    assert judge(
        caught.value, classify(caught.value), attempt=1, elapsed_s=0, policy=RetryPolicy(), jitter=0
    ) == verdicts.DiscardRecord("a card number (Visa, 16 digits) in the value at $.pan")


# -- how a call is composed


def frames_below_walk() -> list[str]:
    """Called by a handler: the functions on the stack between it and `walk`, the innermost first."""
    frame, found = sys._getframe(2), list[str]()
    while frame.f_code not in WALKS:
        found.append(frame.f_code.co_name)
        assert frame.f_back is not None
        frame = frame.f_back
    return found


def walked(function: Any, run: Run, **stages: Any) -> Run:
    handler = handler_of(function)
    if handler.shape.is_async:
        asyncio.run(handler.call_async(FakeSink(), **stages).walk(run, Tally(), time.perf_counter))
    else:
        handler.call(FakeSink(), **stages).walk(run, Tally(), time.perf_counter)
    return run


class Spans:
    """In place of `Tracing`: notes which record an attempt began with, and what became of it."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def sink(self, sink: Any) -> Any:
        return sink

    def begin(self, one: Any, run: Run, group: str) -> str:
        self.seen.append((one.offset(), run.attempt, group))
        return "state"

    def end(self, state: str, error: BaseException | None) -> None:
        self.seen.append((state, error))


ONE = message(offset=0, value=b"x")


def test_without_stages_there_is_one_frame_between_the_walk_and_the_handler() -> None:
    found: list[list[str]] = []

    def plain(value: bytes) -> None:
        found.append(frames_below_walk())

    def decoded(value: str) -> None:
        found.append(frames_below_walk())

    def with_context(value: bytes, ctx: Context) -> None:
        found.append(frames_below_walk())

    def of_a_batch(values: list[bytes]) -> None:
        found.append(frames_below_walk())

    for function in (plain, decoded, with_context):
        assert walked(function, run_for(ONE)).done == 1
    batch = Batch([run_for(ONE)])
    batch.muster(0.0)
    assert walked(of_a_batch, batch).done == 1
    assert found == [["handle_bytes"], ["handle_direct"], ["handle_with_context"], ["handle_direct"]]


def test_a_coroutine_is_awaited_by_the_walk_itself() -> None:
    found: list[list[str]] = []

    async def handle(value: bytes) -> None:
        found.append(frames_below_walk())

    assert walked(handle, run_for(ONE)).done == 1
    assert found == [[]]


def test_stages_are_around_the_handler_in_their_order() -> None:
    found: list[list[str]] = []

    def handle(value: bytes) -> None:
        found.append(frames_below_walk())

    spans = Spans()
    assert walked(handle, run_for(ONE), tracing=spans, retry_topics=True).done == 1
    assert found == [["handle_bytes", "handle_within", "handle_prepared"]]
    assert spans.seen == [(0, 1, "g"), ("state", None)]


def test_a_stage_around_a_call_gets_what_it_raised() -> None:
    def handle(value: bytes) -> None:
        raise ValueError

    async def handle_async(value: bytes) -> None:
        raise ValueError

    for function in (handle, handle_async):
        spans = Spans()
        run = walked(function, run_for(ONE), tracing=spans)
        assert isinstance(run.failure, ValueError)
        assert spans.seen == [(0, 1, "g"), ("state", run.failure)]

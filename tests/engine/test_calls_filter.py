"""What a worker does with records that the consumer's filter drops: they are done, and nothing of the user's runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from keepfast import App, BatchContext, Context, RawRecord
from keepfast.core.batches import Batch
from keepfast.core.errors import ConfigError, Discard, Halt
from keepfast.core.records import TopicPartition
from keepfast.core.retry_topics import Past, RetryOrigin, Returned, Tier, Tiers, encode
from keepfast.core.runs import Partition, Run
from keepfast.decode.signature import inspect_handler
from keepfast.engine.calls import Handler
from keepfast.redact.sensitive import CardNumbers, SensitiveData
from keepfast.telemetry.metrics import Tally
from tests.support.fakes import FakeSink
from tests.support.messages import message

CARD = b'{"card": "4111 1111 1111 1111"}'


def run_of(*values: bytes | None) -> Run:
    messages = [message(offset, value=value) for offset, value in enumerate(values)]
    partition = Partition(TopicPartition("orders", 0), epoch=1, start=0)
    partition.feed(messages)
    return Run(partition, messages, range(len(messages)), {})


def walked(function: Any, run: Run, passes: Callable[[RawRecord], object], **options: Any) -> tuple[Run, Tally]:
    shape = inspect_handler(function, context_type=Context, batch_context_type=BatchContext)
    handler = Handler(function, shape, order="partition", tombstones="dead-letter", group="g", passes=passes, **options)
    tally, ticks = Tally(), iter(range(1000))
    if shape.is_async:
        asyncio.run(handler.call_async(FakeSink()).walk(run, tally, lambda: float(next(ticks))))
    else:
        handler.call(FakeSink()).walk(run, tally, lambda: float(next(ticks)))
    return run, tally


@pytest.fixture(params=["def", "async def"])
def handler(request: pytest.FixtureRequest) -> tuple[Any, list[bytes]]:
    seen: list[bytes] = []

    def handle(value: bytes) -> None:
        seen.append(value)

    async def handle_async(value: bytes) -> None:
        seen.append(value)

    return (handle if request.param == "def" else handle_async), seen


def test_what_does_not_pass_is_done_without_a_call_and_takes_no_time_of_the_handler(
    handler: tuple[Any, list[bytes]],
) -> None:
    function, seen = handler
    run, tally = walked(function, run_of(b"0", b"1", b"2", b"3", b"4"), lambda record: record.offset in (1, 4))
    assert seen == [b"1", b"4"]
    assert (run.done, run.handled, list(run.filtered), run.failure) == (5, 2, [0, 2, 3], None)
    assert sum(tally.counts) == 2
    assert tally.total_s == 2.0, "each step of the clock is a second, and two calls were made"
    assert run.elapsed_s == 5.0, "the loop must know how long a run takes, filter included"


def test_the_filter_sees_the_record_as_it_came() -> None:
    one = message(7, b"k", value=b"v", headers=[("type", b"a"), ("type", b"b"), ("keepfast-replay", b"g/t/0/1;r;1")])
    record = RawRecord(one)
    assert (record.topic, record.partition, record.offset, record.key, record.value) == ("orders", 0, 7, b"k", b"v")
    assert record.header("type") == b"b"
    assert list(record.headers) == [("type", b"a"), ("type", b"b")]
    assert (record.replays, record.header("none")) == (1, None)


def test_a_filter_that_raises_fails_its_record_like_the_handler(handler: tuple[Any, list[bytes]]) -> None:
    def passes(record: RawRecord) -> bool:
        if record.value == b"2":
            raise KeyError("type")
        return record.value != b"0"

    run, _ = walked(handler[0], run_of(b"0", b"1", b"2", b"3"), passes)
    assert isinstance(run.failure, KeyError)
    assert (run.done, list(run.filtered)) == (2, [0])


def test_a_signal_of_a_filter_chooses_the_outcome(handler: tuple[Any, list[bytes]]) -> None:
    def passes(record: RawRecord) -> bool:
        raise Discard("too old")

    run, _ = walked(handler[0], run_of(b"0"), passes)
    assert isinstance(run.failure, Discard)


def test_a_record_is_scanned_before_the_filter_sees_it(handler: tuple[Any, list[bytes]]) -> None:
    asked: list[bytes | None] = []
    run, _ = walked(handler[0], run_of(b"x", CARD), lambda record: asked.append(record.value), sensitive=CardNumbers())
    assert isinstance(run.failure, SensitiveData)
    assert asked == [b"x"]


def test_a_run_that_is_asked_to_stop_stops_at_the_next_record_whatever_the_filter_says() -> None:
    run = run_of(b"0", b"1", b"2")

    def passes(record: RawRecord) -> bool:
        run.stop = record.offset == 1
        return False

    def handle(value: bytes) -> None: ...

    walked(handle, run, passes)
    assert (run.done, list(run.filtered)) == (2, [0, 1])


def test_a_record_from_a_retry_topic_is_filtered_as_it_was_in_its_own() -> None:
    origin = RetryOrigin("orders", 3, 17, 1, 5)
    past = Past(step=1, failures=2, due_ms=0, origin=origin, attempts=(), headers=(("type", b"login"),))
    tier = Tier("orders.g.retry.5s", "orders", 5, 1)
    moved = message(0, b"k", place=TopicPartition(tier.topic, 0), headers=encode(past, group="g"))
    returned = Returned(moved, tier, Tiers(group="g", delays_s=(5,), topics={tier.topic: tier}))
    seen: list[tuple[str, int, int, bytes | None]] = []

    def passes(record: RawRecord) -> bool:
        seen.append((record.topic, record.partition, record.offset, record.header("type")))
        return False

    def handle(value: bytes) -> None:
        raise AssertionError("it did not pass")

    shape = inspect_handler(handle, context_type=Context)
    call = Handler(handle, shape, order="none", tombstones="dead-letter", group="g", passes=passes)
    run = Run(Partition(TopicPartition("orders.g.retry.5s", 0), epoch=1, start=0), [returned], (0,), {})
    call.call(FakeSink(), retry_topics=True).walk(run, Tally(), lambda: 0.0)
    assert seen == [("orders", 3, 17, b"login")]
    assert (run.done, run.failure, list(run.filtered)) == (1, None, [0])


def test_a_filter_that_is_no_plain_function_is_refused_at_once() -> None:
    async def passes(record: RawRecord) -> bool:
        return True

    app = App("shop")
    with pytest.raises(ConfigError, match=r"filter .* must be a plain function"):
        app.consumer("orders", filter=passes)
    with pytest.raises(ConfigError, match=r"filter .* must be a plain function"):
        app.consumer("orders", filter="type")  # type: ignore[arg-type]

    class Passes:
        async def __call__(self, record: RawRecord) -> bool:
            return True

    with pytest.raises(ConfigError, match=r"filter .* must be a plain function"):
        app.consumer("orders", filter=Passes())


def test_a_filter_that_returns_a_coroutine_halts_the_consumer(handler: tuple[Any, list[bytes]]) -> None:
    async def passes(record: RawRecord) -> bool:
        return False

    function, seen = handler
    run, _ = walked(function, run_of(b"0"), lambda record: passes(record))  # noqa: PLW0108 - a plain function
    assert isinstance(run.failure, Halt)
    assert str(run.failure).startswith("the filter is a plain function that returned an awaitable")
    assert (run.done, seen) == (0, [])


def test_what_is_true_passes_whatever_it_is(handler: tuple[Any, list[bytes]]) -> None:
    function, seen = handler
    run, _ = walked(function, run_of(b"0", b"1"), lambda record: record.value if record.offset else "")
    assert (run.done, seen) == (2, [b"1"])


def test_a_batch_asks_the_filter_once_about_each_record() -> None:
    asked: list[int] = []
    got: list[list[bytes]] = []

    def handle(values: list[bytes]) -> None:
        got.append(values)

    def passes(record: RawRecord) -> bool:
        asked.append(record.offset)
        return record.offset not in (1, 3)

    batch = Batch([run_of(b"0", b"1", b"2", b"3", b"4")])
    batch.muster(0.0)
    walked(handle, batch, passes)
    assert asked == [0, 1, 2, 3, 4]
    assert got == [[b"0", b"2", b"4"]]
    assert list(batch.filtered) == [1, 3]


def test_the_stand_in_of_a_run_that_timed_out_knows_what_was_filtered_before() -> None:
    run = run_of(b"0", b"1", b"2", b"3")
    run.filtered = [0, 2]
    other = run.stand_in(2, TimeoutError(), 1.0)
    assert (other.done, other.handled, list(other.filtered)) == (2, 1, [0])

"""What is around a handler: the order of a call, what each function gets, and that nothing is finished before all of it
has ended.

Annotations are evaluated here when a function is defined, because they name what is local to a test.
"""

import asyncio
import contextlib
import functools
import gc
import inspect
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

import pytest

from keepfast import App, BatchContext, Context, Discard, Halt, Provide
from keepfast.classify.classification import classify
from keepfast.core.batches import Batch
from keepfast.core.errors import Abandoned, ConfigError, DecodeError, Fault, MiddlewareError, SinkError
from keepfast.core.records import TopicPartition
from keepfast.core.runs import Partition, Run
from keepfast.decode.signature import inspect_handler, inspect_provider
from keepfast.engine.calls import Handler
from keepfast.engine.middleware import Around, resource_of, resources_in
from keepfast.telemetry.metrics import Tally
from tests.support.fakes import FakeSink, hold, refuse
from tests.support.messages import message
from tests.support.waiting import DEADLINE_S, wait_until

T = TypeVar("T")


def handler_of(
    function: Callable[..., Any],
    *middleware: Callable[..., Any],
    resources: object = None,
    overrides: Mapping[Any, Any] | None = None,
) -> Handler:
    shape = inspect_handler(function, context_type=Context, batch_context_type=BatchContext)
    around = Around([inspect_provider(one, "middleware") for one in middleware], resources, overrides or {})
    return Handler(function, shape, order="none", tombstones="dead-letter", group="g", around=around)


def problems_of(function: Callable[..., Any], *middleware: Callable[..., Any], **more: Any) -> str:
    with pytest.raises(ConfigError) as refused:
        handler_of(function, *middleware, **more)
    return "\n".join(refused.value.problems)


def run_of(*values: bytes) -> Run:
    messages = [message(offset, b"k", value=value) for offset, value in enumerate(values)]
    return Run(Partition(TopicPartition("t", 0), epoch=1, start=0), messages, range(len(messages)), {})


def walked(handler: Handler, run: Run | None = None, sink: FakeSink | None = None) -> Run:
    """As a worker does it."""
    run, sink = run or run_of(b"1"), sink or FakeSink()
    if handler.shape.is_async:
        asyncio.run(handler.call_async(sink).walk(run, Tally(), lambda: 0.0))
    else:
        handler.call(sink).walk(run, Tally(), lambda: 0.0)
    return run


def no_op(value: bytes) -> None: ...


class Journal(list[str]):
    """What happened, in order; and the functions that note it."""

    def around(self, name: str) -> Callable[[], Iterator[None]]:
        def middleware() -> Iterator[None]:
            self.append(f"{name} in")
            try:
                yield
            except BaseException as error:
                self.append(f"{name} {type(error).__name__}")
                raise
            self.append(f"{name} out")

        return middleware

    def around_async(self, name: str) -> Callable[[], AsyncIterator[None]]:
        async def middleware() -> AsyncIterator[None]:
            await asyncio.sleep(0)
            self.append(f"{name} in")
            try:
                yield
            except BaseException as error:
                self.append(f"{name} {type(error).__name__}")
                raise
            await asyncio.sleep(0)
            self.append(f"{name} out")

        return middleware

    def provider(self, name: str) -> Callable[[], Iterator[str]]:
        def provider() -> Iterator[str]:
            self.append(f"{name} in")
            try:
                yield name
            except BaseException as error:
                self.append(f"{name} {type(error).__name__}")
                raise
            self.append(f"{name} out")

        return provider

    def handler(self, *providers: Callable[..., Any], is_async: bool, raises: BaseException | None = None) -> Any:
        """A handler that takes what the first two of these provide."""
        first, second = (*providers, lambda: None, lambda: None)[:2]

        def handle(value: bytes, a: Annotated[Any, Provide(first)], b: Annotated[Any, Provide(second)]) -> None:
            self.append(f"handler {value.decode()}")
            if raises is not None:
                raise raises

        async def handle_async(
            value: bytes, a: Annotated[Any, Provide(first)], b: Annotated[Any, Provide(second)]
        ) -> None:
            await asyncio.sleep(0)
            handle(value, a, b)

        return handle_async if is_async else handle


# -- the order of a call


@pytest.mark.parametrize("is_async", [False, True])
def test_the_first_middleware_is_the_outermost_and_providers_are_inside(is_async: bool) -> None:
    journal = Journal()
    a, b = journal.provider("a"), journal.provider("b")
    handler = handler_of(journal.handler(a, b, is_async=is_async), journal.around("first"), journal.around("second"))
    run = walked(handler, run_of(b"1", b"2"))
    each = ["first in", "second in", "a in", "b in", "handler", "b out", "a out", "second out", "first out"]
    expected = [f"handler {n}" if step == "handler" else step for n in (1, 2) for step in each]
    assert list(journal) == expected
    assert (run.done, run.failure) == (2, None)


@pytest.mark.parametrize("is_async", [False, True])
def test_the_error_of_the_handler_is_raised_at_every_yield_and_fails_the_attempt_as_it_is(is_async: bool) -> None:
    journal, error = Journal(), ValueError("no")
    function = journal.handler(journal.provider("a"), is_async=is_async, raises=error)
    run = walked(handler_of(function, journal.around("m")))
    assert list(journal) == ["m in", "a in", "handler 1", "a ValueError", "m ValueError"]
    assert run.failure is error
    assert run.done == 0


def test_async_middleware_and_providers_are_awaited() -> None:
    journal = Journal()

    async def rate() -> str:
        await asyncio.sleep(0)
        return "rate"

    async def session() -> AsyncIterator[str]:
        await asyncio.sleep(0)
        journal.append("session in")
        yield "session"
        await asyncio.sleep(0)
        journal.append("session out")

    async def handle(value: bytes, r: Annotated[str, Provide(rate)], s: Annotated[str, Provide(session)]) -> None:
        journal.append(f"{r} {s}")

    run = walked(handler_of(handle, journal.around_async("m")))
    assert list(journal) == ["m in", "session in", "rate session", "session out", "m out"]
    assert run.done == 1


def test_middleware_is_around_decoding_and_providers_are_not() -> None:
    journal = Journal()
    provider = journal.provider("p")

    def handle(value: dict[str, Any], p: Annotated[str, Provide(provider)]) -> None: ...

    run = walked(handler_of(handle, journal.around("m")), run_of(b"no JSON"))
    assert list(journal) == ["m in", "m DecodeError"]
    assert isinstance(run.failure, DecodeError)


def test_a_provider_is_called_once_in_a_call_for_all_that_take_it() -> None:
    calls: list[int] = []

    def number() -> int:
        calls.append(len(calls))
        return calls[-1]

    def double(n: Annotated[int, Provide(number)]) -> int:
        return n * 2

    seen: list[tuple[int, int, int]] = []

    def middleware(n: Annotated[int, Provide(number)]) -> Iterator[None]:
        seen.append((n, n, n))
        yield

    def handle(
        value: bytes,
        n: Annotated[int, Provide(number)],
        d: Annotated[int, Provide(double)],
        *,
        again: Annotated[int, Provide(number)],
    ) -> None:
        seen.append((n, d, again))

    run = walked(handler_of(handle, middleware), run_of(b"1", b"2"))
    assert run.done == 2
    assert calls == [0, 1]
    assert seen == [(0, 0, 0), (0, 0, 0), (1, 1, 1), (1, 2, 1)]


# -- finished after the exits


@pytest.mark.parametrize("is_async", [False, True])
def test_an_exit_that_fails_fails_the_attempt(is_async: bool) -> None:
    """A session whose COMMIT fails on exit: the record is not done, and what is outside sees the error."""
    journal = Journal()

    def session() -> Iterator[str]:
        yield "session"
        journal.append("commit")
        raise ConnectionError("the database is gone")

    handler = handler_of(journal.handler(session, is_async=is_async), journal.around("m"))
    run = walked(handler, run_of(b"1", b"2"))
    assert list(journal) == ["m in", "handler 1", "commit", "m ConnectionError"]
    assert run.done == 0
    assert isinstance(run.failure, ConnectionError)


@pytest.mark.parametrize("is_async", [False, True])
def test_an_entrance_that_fails_fails_the_attempt_and_what_was_entered_is_left(is_async: bool) -> None:
    journal = Journal()

    def broken() -> str:
        raise ConnectionError("the pool is empty")

    function = journal.handler(journal.provider("a"), broken, is_async=is_async)
    run = walked(handler_of(function, journal.around("m")))
    assert list(journal) == ["m in", "a in", "a ConnectionError", "m ConnectionError"]
    assert isinstance(run.failure, ConnectionError)


def test_the_record_is_not_finished_while_an_exit_runs() -> None:
    left, leave = threading.Event(), threading.Event()

    def slow() -> Iterator[None]:
        yield
        left.set()
        assert leave.wait(DEADLINE_S)

    run = run_of(b"1", b"2")
    thread = threading.Thread(target=walked, args=(handler_of(no_op, slow), run), daemon=True)
    thread.start()
    assert left.wait(DEADLINE_S)
    assert run.done == 0
    leave.set()
    thread.join(DEADLINE_S)
    assert run.done == 2


def test_a_middleware_may_replace_the_error() -> None:
    def translate() -> Iterator[None]:
        try:
            yield
        except KeyError as error:
            raise Discard("not ours") from error

    run = walked(handler_of(Journal().handler(is_async=False, raises=KeyError("k")), translate))
    assert isinstance(run.failure, Discard)


# -- yield exactly once


def swallows() -> Iterator[None]:
    with suppress(BaseException):
        yield


async def swallows_async() -> AsyncIterator[None]:
    with suppress(BaseException):
        yield


def never_yields() -> Iterator[None]:
    if swallows is None:
        yield


async def never_yields_async() -> AsyncIterator[None]:
    if swallows is None:
        yield


def yields_twice() -> Iterator[None]:
    try:
        yield
    finally:
        yield


async def yields_twice_async() -> AsyncIterator[None]:
    try:
        yield
    finally:
        yield


BROKEN = [
    (swallows, ValueError("no"), "middleware swallows() suppressed ValueError"),
    (swallows_async, ValueError("no"), "middleware swallows_async() suppressed ValueError"),
    (never_yields, None, "middleware never_yields() did not yield"),
    (never_yields_async, None, "middleware never_yields_async() did not yield"),
    (yields_twice, None, "middleware yields_twice() yielded twice"),
    (yields_twice_async, None, "middleware yields_twice_async() yielded twice"),
    (yields_twice, ValueError("no"), "middleware yields_twice() yielded twice"),
    (yields_twice_async, ValueError("no"), "middleware yields_twice_async() yielded twice"),
]


@pytest.mark.parametrize(("middleware", "raises", "says"), BROKEN, ids=range(len(BROKEN)))
@pytest.mark.parametrize("is_async", [False, True])
def test_a_middleware_that_does_not_yield_exactly_once_or_swallows_fails_the_attempt(
    middleware: Callable[..., Any], raises: BaseException | None, says: str, is_async: bool
) -> None:
    if inspect.isasyncgenfunction(middleware) and not is_async:
        return
    journal = Journal()
    run = walked(handler_of(journal.handler(is_async=is_async, raises=raises), journal.around("m"), middleware))
    assert run.done == 0
    assert isinstance(run.failure, MiddlewareError)
    assert says in str(run.failure)
    assert run.failure.__cause__ is raises
    found = classify(run.failure)
    assert (found.code, found.kind) == ("MIDDLEWARE", "non-retryable")
    assert journal[-1] == "m MiddlewareError"


@pytest.mark.parametrize("error", [Halt("stop"), SystemExit(1), KeyboardInterrupt(), asyncio.CancelledError()])
def test_what_stops_the_app_or_the_task_cannot_be_swallowed(error: BaseException) -> None:
    run = walked(handler_of(Journal().handler(is_async=False, raises=error), swallows))
    assert run.failure is error


def test_a_stop_iteration_of_the_handler_is_its_failure() -> None:
    error, journal = StopIteration("no more"), Journal()
    run = walked(handler_of(journal.handler(is_async=False, raises=error), journal.around("m")))
    assert run.failure is error
    assert run.done == 0
    assert journal[-1] == "m StopIteration"


def test_a_provider_that_swallows_is_refused_in_the_same_way() -> None:
    def lenient() -> Iterator[str]:
        with suppress(ValueError):
            yield "x"

    run = walked(handler_of(Journal().handler(lenient, is_async=False, raises=ValueError("no"))))
    assert isinstance(run.failure, MiddlewareError)
    assert "provider lenient() suppressed ValueError" in str(run.failure)


# -- what was sent


@pytest.mark.parametrize("is_async", [False, True])
def test_what_the_handler_sent_is_acknowledged_before_any_exit(is_async: bool) -> None:
    """Otherwise a transaction that is committed on exit would say "done", and a failed send would never be repeated."""
    journal, sink = Journal(), FakeSink(hold)

    def session(ctx: Context) -> Iterator[str]:
        yield from journal.provider("session")()

    def send(value: bytes, s: Annotated[str, Provide(session)], ctx: Context) -> None:
        ctx.send("out", b"1")

    async def send_async(value: bytes, s: Annotated[str, Provide(session)], ctx: Context) -> None:
        ctx.send("out", b"1")

    run = run_of(b"1")
    thread = threading.Thread(
        target=walked, args=(handler_of(send_async if is_async else send), run, sink), daemon=True
    )
    thread.start()
    wait_until(lambda: bool(sink.held) and run.sending, "it waits for the answer")
    assert list(journal) == ["session in"]
    sink.answer(refuse(Fault.RETRY))
    thread.join(DEADLINE_S)
    assert list(journal) == ["session in", "session SinkError"]
    assert isinstance(run.failure, SinkError)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("fails", [False, True])
def test_what_an_exit_sends_is_acknowledged_before_the_next_one_and_the_end(is_async: bool, fails: bool) -> None:
    journal, sink = Journal(), FakeSink(hold)

    def audit(ctx: Context) -> Iterator[None]:
        try:
            yield
        finally:
            ctx.send("audit", b"1")

    error = ValueError("no") if fails else None
    run = run_of(b"1")
    handler = handler_of(journal.handler(is_async=is_async, raises=error), journal.around("outer"), audit)
    thread = threading.Thread(target=walked, args=(handler, run, sink), daemon=True)
    thread.start()
    wait_until(lambda: bool(sink.held) and run.sending, "it waits for the answer")
    assert list(journal) == ["outer in", "handler 1"]
    sink.answer(refuse(Fault.RETRY))
    thread.join(DEADLINE_S)
    assert list(journal) == ["outer in", "handler 1", "outer SinkError"]
    assert isinstance(run.failure, SinkError)
    assert run.failure.raised is error


@pytest.mark.parametrize("is_async", [False, True])
def test_what_the_last_exit_sends_is_acknowledged_before_the_record_is_finished(is_async: bool) -> None:
    def audit(ctx: Context) -> Iterator[None]:
        yield
        ctx.send("audit", b"1")

    run = walked(handler_of(Journal().handler(is_async=is_async), audit), sink=FakeSink(refuse(Fault.RETRY)))
    assert isinstance(run.failure, SinkError)
    assert run.done == 0


def test_a_send_that_failed_cannot_be_made_undone_by_middleware() -> None:
    def translate(ctx: Context) -> Iterator[None]:
        try:
            yield
        except SinkError:
            raise Discard("never mind") from None

    def handle(value: bytes, ctx: Context) -> None:
        ctx.send("out", b"1")

    run = walked(handler_of(handle, translate), sink=FakeSink(refuse(Fault.RETRY)))
    assert isinstance(run.failure, SinkError)
    assert isinstance(run.failure.raised, Discard)


# -- contexts


def test_all_get_the_same_context_of_the_attempt() -> None:
    seen: list[Context] = []

    def middleware(ctx: Context) -> Iterator[None]:
        seen.append(ctx)
        yield

    def provider(ctx: Context | BatchContext) -> int:
        seen.append(ctx)  # type: ignore[arg-type] # this handler takes single records
        return ctx.attempt

    def handle(value: bytes, n: Annotated[int, Provide(provider)], ctx: Context) -> None:
        seen.append(ctx)
        assert (n, ctx.offset, ctx.key) == (1, 0, b"k")

    assert walked(handler_of(handle, middleware)).done == 1
    assert len(seen) == 3
    assert len(set(map(id, seen))) == 1


def test_a_batch_is_one_call_with_a_batch_context() -> None:
    seen: list[object] = []

    def middleware(ctx: Context | BatchContext) -> Iterator[None]:
        assert isinstance(ctx, BatchContext)
        seen.append([one.offset for one in ctx])
        yield
        seen.append("out")

    def size(ctx: BatchContext) -> int:
        return len(ctx)

    def handle(values: list[dict[str, int]], n: Annotated[int, Provide(size)]) -> None:
        seen.append((values, n))

    partition = Partition(TopicPartition("t", 0), epoch=1, start=0)
    parts = []
    for offset, value in enumerate((b'{"n":1}', b"no JSON", b'{"n":2}')):
        parts.append(Run(partition, [message(offset, value=value)], (offset,), {}))
    batch = Batch(parts)
    batch.muster(0.0)
    run = walked(handler_of(handle, middleware), batch)
    assert seen == [[0, 2], ([{"n": 1}, {"n": 2}], 2), "out"]
    assert run.failure is None
    assert run.done == 2


def test_a_middleware_that_raises_fails_the_batch() -> None:
    def commit_fails() -> Iterator[None]:
        yield
        raise ConnectionError

    def handle(values: list[bytes]) -> None: ...

    run = walked(handler_of(handle, commit_fails), run_of(b"1"))
    assert isinstance(run.failure, ConnectionError)
    assert run.done == 0


# -- timeouts and cancellation


def test_after_a_timeout_exits_get_an_error_so_that_nothing_is_committed() -> None:
    journal = Journal()
    run = run_of(b"1")

    def handle(value: bytes) -> None:
        run.abandoned = True  # as the loop does, while the handler runs

    walked(handler_of(handle, journal.around("session")), run)
    assert list(journal) == ["session in", "session Abandoned"]
    assert isinstance(run.failure, Abandoned)


def test_a_cancelled_handler_is_left_by_its_exits_which_may_await() -> None:
    journal = Journal()

    async def session() -> AsyncIterator[None]:
        try:
            yield
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            journal.append("rolled back")
            raise

    async def handle(value: bytes) -> None:
        await asyncio.Event().wait()

    async def story() -> Run:
        run = run_of(b"1")
        handler = handler_of(handle, journal.around("outer"), session)
        task = asyncio.create_task(handler.call_async(FakeSink()).walk(run, Tally(), lambda: 0.0))
        while run.current < 0 or "outer in" not in journal:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        await task
        return run

    run = asyncio.run(story())
    assert list(journal) == ["outer in", "rolled back", "outer CancelledError"]
    assert isinstance(run.failure, asyncio.CancelledError)


def test_a_second_cancellation_while_an_exit_waits_does_not_skip_the_others() -> None:
    journal = Journal()

    async def slow_exit() -> AsyncIterator[None]:
        try:
            yield
        finally:
            journal.append("waits")
            await asyncio.Event().wait()

    async def handle(value: bytes) -> None:
        await asyncio.Event().wait()

    async def story() -> Run:
        run = run_of(b"1")
        handler = handler_of(handle, journal.around("outer"), slow_exit)
        task = asyncio.create_task(handler.call_async(FakeSink()).walk(run, Tally(), lambda: 0.0))
        while "outer in" not in journal:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        while "waits" not in journal:
            await asyncio.sleep(0)
        task.cancel()
        await task
        return run

    run = asyncio.run(story())
    assert list(journal) == ["outer in", "waits", "outer CancelledError"]
    assert isinstance(run.failure, asyncio.CancelledError)


def test_a_coroutine_that_is_closed_leaves_its_generators() -> None:
    """The event loop is gone: as Python does with `with` blocks."""
    journal = Journal()

    async def handle(value: bytes) -> None:
        await asyncio.Event().wait()

    async def begin() -> Any:
        call = handler_of(handle, journal.around("m")).call_async(FakeSink()).handle
        one = run_of(b"1")
        coroutine = call(one.messages[0], one)
        coroutine.send(None)
        return coroutine

    asyncio.run(begin()).close()
    assert list(journal) == ["m in", "m GeneratorExit"]


def test_a_failure_keeps_no_cycle_alive() -> None:
    class Payload:
        """Something large."""

    kept: list[weakref.ref[Payload]] = []

    def handle(value: bytes) -> None:
        payload = Payload()
        kept.append(weakref.ref(payload))
        raise ValueError

    def failing() -> Iterator[None]:
        payload = Payload()
        kept.append(weakref.ref(payload))
        yield
        raise ConnectionError

    gc.disable()
    try:
        walked(handler_of(handle, Journal().around("m"))).failure = None  # as the loop does
        walked(handler_of(no_op, Journal().around("m"), failing)).failure = None
        assert [one() for one in kept] == [None, None]
    finally:
        gc.enable()


# -- parameters


class Pool:
    """A resource."""


class FakePool(Pool):
    """In a test."""


class Client(Generic[T]):
    """A generic resource."""


@dataclass
class Resources:
    pool: Pool
    client: Client[int]
    name: str = "shop"


def test_resources_are_found_by_their_declared_type_or_their_class() -> None:
    yielded = Resources(FakePool(), Client())
    found = resources_in(yielded)

    def values_of(annotation: Any) -> list[object]:
        return [one.value for one in resource_of(annotation, found)]

    assert values_of(Resources) == [yielded]
    assert values_of(Pool) == values_of(FakePool) == [yielded.pool]
    assert values_of(Client[int]) == values_of(Client) == values_of(Client[str]) == [yielded.client]
    assert values_of(str) == ["shop"]
    assert values_of(int) == values_of(object) == []


def test_a_mapping_gives_its_values_by_their_class_or_the_type_that_is_their_key() -> None:
    pool, client, fake = Pool(), Client[int](), FakePool()
    found = resources_in({"pool": pool, "client": client})
    assert [one.value for one in resource_of(Pool, found)] == [pool]
    assert [one.value for one in resource_of(Client[int], found)] == [client]
    assert [one.value for one in resource_of(dict[str, Any], found)] == [{"pool": pool, "client": client}]
    assert [one.value for one in resource_of(Pool, resources_in({Pool: fake}))] == [fake]


def test_handlers_providers_and_middleware_take_resources() -> None:
    resources, seen = Resources(FakePool(), Client()), list[object]()

    def middleware(pool: Pool) -> Iterator[None]:
        seen.append(pool)
        yield

    def connection(pool: Pool) -> tuple[Pool]:
        return (pool,)

    def handle(
        value: bytes, client: Client[int], c: Annotated[tuple[Pool], Provide(connection)], all_: Resources
    ) -> None:
        seen.extend([client, *c, all_])

    assert walked(handler_of(handle, middleware, resources=resources)).done == 1
    assert seen == [resources.pool, resources.client, resources.pool, resources]


def test_what_cannot_be_had_is_refused_with_what_can() -> None:
    def handle(value: bytes, gateway: Client[int], other: object, *, plain: int = 3) -> None: ...
    def unannotated(value: bytes, other) -> None: ...  # type: ignore[no-untyped-def]
    def many(values: list[bytes], gateway: Pool) -> None: ...
    def provider(pool: Pool) -> None: ...
    def provided(value: bytes, n: Annotated[int, Provide(provider)]) -> None: ...

    printed = problems_of(handle, resources={"pool": Pool()})
    assert "handler handle(), parameter 'gateway': nothing provides" in printed
    assert "there are Context, dict (dict), Pool (['pool'])" in printed
    assert "Provide(function)" in printed
    assert "keyword-only with a default" in printed
    assert "handler handle(), parameter 'other': nothing provides object" in printed
    assert "parameter 'other': it has no annotation" in problems_of(unannotated)
    assert "there is BatchContext, and the app has no resources" in problems_of(many)
    assert "provider provider(), parameter 'pool': nothing provides Pool" in problems_of(provided)


def test_a_type_of_several_resources_is_refused_with_what_to_do() -> None:
    @dataclass
    class Pools:
        read: Pool
        write: Pool

    def handle(value: bytes, pool: Pool) -> None: ...

    printed = problems_of(handle, resources=Pools(Pool(), Pool()))
    assert "several resources are of type Pool (Pools.read, Pools.write)" in printed
    assert "take Pools instead" in printed
    one = Pool()
    handler_of(handle, resources=Pools(one, one))


def test_a_declared_type_goes_before_a_class() -> None:
    @dataclass
    class Pools:
        any_: Pool
        fake: FakePool

    pools = Pools(FakePool(), FakePool())
    assert [one.value for one in resource_of(FakePool, resources_in(pools))] == [pools.fake]


async def async_value() -> int:
    return 1


@pytest.mark.parametrize(
    ("around", "says"),
    [
        (swallows_async, "middleware swallows_async() is an async generator, but handler handle() is a plain function"),
        (None, "provider async_value() is async, but handler handle() is a plain function"),
    ],
)
def test_what_is_async_needs_an_async_handler(around: Any, says: str) -> None:
    def handle(value: bytes, n: Annotated[int, Provide(async_value)]) -> None: ...
    def plain(value: bytes) -> None: ...

    assert says in (problems_of(handle) if around is None else problems_of(_named(plain, "handle"), around))


def _named(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    function.__name__ = name
    return function


@pytest.mark.parametrize("is_async", [False, True])
def test_a_plain_provider_that_returns_a_coroutine_halts_the_consumer(is_async: bool) -> None:
    async def rates() -> int:
        return 1

    run = walked(handler_of(Journal().handler(lambda: rates(), is_async=is_async)))  # noqa: PLW0108 - a plain function
    assert isinstance(run.failure, Halt)
    assert "returned an awaitable" in str(run.failure)
    assert "make it async def" in str(run.failure)


def test_a_context_of_the_wrong_kind_is_refused_with_what_fits_both() -> None:
    def middleware(ctx: Context) -> Iterator[None]:
        yield

    def handle(values: list[bytes]) -> None: ...

    printed = problems_of(handle, middleware)
    assert "middleware middleware(), parameter 'ctx': handler handle() takes a batch" in printed
    assert "Context | BatchContext" in printed


def first(n: Annotated[None, Provide(lambda: second)]) -> None: ...
def second(n: Annotated[None, Provide(first)]) -> None: ...


def test_providers_that_need_each_other_are_refused() -> None:
    first.__annotations__["n"] = Annotated[None, Provide(second)]

    def handle(value: bytes, n: Annotated[int, Provide(first)]) -> None: ...

    assert "first → second → first" in problems_of(handle)


def test_the_value_is_the_first_parameter_that_nothing_else_fills() -> None:
    seen: list[object] = []

    def one() -> int:
        return 1

    def handle(n: Annotated[int, Provide(one)], ctx: Context, value: bytes, pool: Pool) -> None:
        seen.extend([n, ctx.offset, value, type(pool)])

    assert walked(handler_of(handle, resources={"pool": Pool()})).done == 1
    assert seen == [1, 0, b"1", Pool]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_decorator_with_functools_wraps_works(is_async: bool) -> None:
    seen: list[object] = []

    def timed(function: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def wrapper(*args: Any, **kwargs: Any) -> Any:
                return await function(*args, **kwargs)
        else:

            @functools.wraps(function)
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                return function(*args, **kwargs)

        return wrapper

    @timed
    def session() -> Iterator[str]:
        yield "session"
        seen.append("closed")

    @timed
    def middleware(ctx: Context) -> Iterator[None]:
        yield
        seen.append(ctx.offset)

    @timed
    def handle(value: dict[str, int], s: Annotated[str, Provide(session)], *, ctx: Context, pool: Pool) -> None:
        seen.extend([value, s, ctx.offset, type(pool)])

    @timed
    async def handle_async(
        value: dict[str, int], s: Annotated[str, Provide(session)], *, ctx: Context, pool: Pool
    ) -> None:
        seen.extend([value, s, ctx.offset, type(pool)])

    handler = handler_of(handle_async if is_async else handle, middleware, resources={"pool": Pool()})
    assert walked(handler, run_of(b'{"n":1}')).done == 1
    assert seen == [{"n": 1}, "session", 0, Pool, "closed", 0]


def test_a_plain_function_inside_a_coroutine_function_is_awaited() -> None:
    seen: list[object] = []

    def limited(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            await asyncio.sleep(0)
            return function(*args, **kwargs)

        return wrapper

    @limited
    def handle(value: bytes, ctx: Context) -> None:
        seen.append((value, ctx.offset))

    assert walked(handler_of(handle)).done == 1
    assert seen == [(b"1", 0)]


def wrapped(function: Callable[..., Any], call: Callable[[Any], Any] = lambda result: result) -> Callable[..., Any]:
    """By a plain function, as a decorator for plain functions does it."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return call(function(*args, **kwargs))

    return wrapper


def test_a_coroutine_function_inside_a_plain_decorator_is_awaited() -> None:
    seen: list[object] = []

    def middleware() -> Iterator[None]:
        yield
        seen.append("left")

    async def alone(value: bytes) -> None:
        await asyncio.sleep(0)
        seen.append(value)

    async def with_context(value: bytes, ctx: Context) -> None:
        await asyncio.sleep(0)
        seen.append((value, ctx.offset))

    def skipped(result: Any) -> None:
        result.close()

    assert walked(handler_of(wrapped(alone))).done == 1
    assert walked(handler_of(wrapped(with_context))).done == 1
    assert walked(handler_of(wrapped(alone), middleware)).done == 1
    assert seen == [b"1", (b"1", 0), b"1", "left"]
    assert walked(handler_of(wrapped(alone, skipped))).done == 1


def test_a_decorator_that_leaves_the_handler_undone_halts_the_consumer() -> None:
    async def alone(value: bytes) -> None: ...
    def lazy(value: bytes) -> Iterator[None]:
        yield

    def run(result: Any) -> None:
        with contextlib.closing(result):  # it is never awaited, which would be warned of
            asyncio.run(result)

    for handler, says in [
        (wrapped(alone, run), "alone() runs an event loop of its own"),
        (wrapped(lazy), "the handler returned a generator, so nothing ran"),
    ]:
        failure = walked(handler_of(handler)).failure
        assert isinstance(failure, Halt)
        assert says in str(failure)


def test_context_managers_and_classes_are_providers_and_middleware() -> None:
    seen: list[object] = []

    @contextmanager
    def session() -> Iterator[str]:
        yield "session"
        seen.append("closed")

    @asynccontextmanager
    async def connection() -> AsyncIterator[str]:
        yield "connection"
        seen.append("released")

    @contextmanager
    def middleware() -> Iterator[None]:
        yield
        seen.append("out")

    class Repository:
        def __init__(self, name: Annotated[str, Provide(session)]) -> None:
            self.name = name

    async def handle(
        value: bytes, r: Annotated[Repository, Provide(Repository)], c: Annotated[str, Provide(connection)]
    ) -> None:
        seen.extend([r.name, c])

    assert walked(handler_of(handle, middleware)).done == 1
    assert seen == ["session", "connection", "released", "closed", "out"]


def test_what_is_no_generator_is_no_middleware() -> None:
    app = App("shop")
    for wrong, says in ((lambda: None, "no `yield`"), (async_value, "no `yield`"), (5, "not callable")):
        with pytest.raises(ConfigError, match=says):
            app.middleware(wrong)  # type: ignore[type-var]


def test_overrides_replace_providers_at_every_depth() -> None:
    def url() -> str:
        raise AssertionError

    def client(at: Annotated[str, Provide(url)]) -> str:
        return f"client of {at}"

    def fake(pool: Pool) -> str:
        return f"fake {type(pool).__name__}"

    seen: list[str] = []

    def handle(value: bytes, c: Annotated[str, Provide(client)]) -> None:
        seen.append(c)

    run = walked(handler_of(handle, resources={"pool": Pool()}, overrides={url: fake}))
    assert run.failure is None
    assert seen == ["client of fake Pool"]


# -- what it costs those who do not use it


def test_without_anything_around_the_call_is_what_it_was() -> None:
    def handle(value: bytes) -> None: ...
    def with_context(value: bytes, ctx: Context) -> None: ...

    names = [handler_of(one).call(FakeSink()).handle.__name__ for one in (handle, with_context)]
    assert names == ["handle_bytes", "handle_with_context"]
    assert handler_of(handle, swallows).call(FakeSink()).handle.__name__ == "handle_at_once"


def test_an_exception_of_a_failed_attempt_does_not_show_the_way_through_generators() -> None:
    error = ValueError("no")
    walked(handler_of(Journal().handler(is_async=False, raises=error), Journal().around("m")))
    trace, names = error.__traceback__, list[str]()
    while trace is not None:
        names.append(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    assert "middleware" not in names
    assert names[-1] == "handle"

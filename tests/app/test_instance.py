"""What is checked before anything is opened, and a start that is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass

import pytest

from keepfast import App, ConfigError, DrainTimeout, StartError
from keepfast.app import instance as instance_module
from keepfast.app.instance import AppInstance


class Pool: ...


@dataclass
class Resources:
    pool: Pool


def test_what_is_wrong_in_the_code_is_reported_before_the_lifespan_is_entered() -> None:
    entered: list[bool] = []

    @contextmanager
    def lifespan(app: App) -> Iterator[Resources]:
        entered.append(True)
        yield Resources(Pool())

    app = App("shop", lifespan=lifespan)

    @app.consumer("shop.order.v1")
    def charge(order: dict[str, str], pool: Pool, unknown) -> None: ...  # type: ignore[no-untyped-def]

    with pytest.raises(ConfigError, match="parameter 'unknown': it has no annotation") as caught:
        app.start()
    assert len(caught.value.problems) == 1, "the pool may come from the lifespan"
    assert entered == []


def test_what_the_lifespan_does_not_yield_is_reported_before_brokers_are_looked_for() -> None:
    left: list[bool] = []

    @contextmanager
    def lifespan(app: App) -> Iterator[Resources]:
        yield Resources(Pool())
        left.append(True)

    app = App("shop", lifespan=lifespan, kafka={"brokers": "127.0.0.1:1"})

    @app.consumer("shop.order.v1")
    def charge(order: dict[str, str], wanted: Iterator[int]) -> None: ...

    with pytest.raises(ConfigError, match="parameter 'wanted': nothing provides"):
        app.start()
    assert left == [True]


def test_a_start_that_is_cancelled_in_the_lifespan_looks_for_no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[bool] = []
    connected: list[bool] = []

    @asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[None]:
        starts[0].cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        yield
        left.append(True)

    def connects(*_: object, **__: object) -> None:
        connected.append(True)
        raise StartError("no broker")

    async def program() -> None:
        starts.append(asyncio.ensure_future(app.start_async(consume=False)))
        await starts[0]

    starts: list[asyncio.Future[None]] = []
    monkeypatch.setattr(instance_module, "assemble_app", connects)
    app = App("shop", lifespan=lifespan, kafka={"brokers": "127.0.0.1:1"})
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(program())
    assert (connected, left) == ([], [True])


def test_a_cancellation_goes_before_what_undoing_the_start_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def begins(self: AppInstance) -> None:
        self.started = True
        begun.set_result(None)
        cancelled.result(10)

    def ends(self: AppInstance) -> None:
        raise DrainTimeout("it took too long", unfinished=1)

    async def program() -> None:
        start = asyncio.ensure_future(App("shop").start_async(consume=False))
        await asyncio.wrap_future(begun)
        start.cancel()
        await start

    begun: Future[None] = Future()
    cancelled: Future[None] = Future()
    monkeypatch.setattr(AppInstance, "start", begins)
    monkeypatch.setattr(AppInstance, "abort", lambda self: cancelled.set_result(None))
    monkeypatch.setattr(AppInstance, "stop", ends)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(program())

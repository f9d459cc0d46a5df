"""What is checked before anything is opened, and a start that is cancelled."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from keepfast import App, ConfigError, DrainTimeout, LifecycleError, StartError
from keepfast.app import instance as instance_module
from keepfast.app.instance import AppInstance
from keepfast.core.errors import SourceError
from keepfast.http.local_app import AppServer
from keepfast.kafka import KafkaAdmin


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


class FakeAssembly:
    """An assembly without consumers, of which one step fails."""

    def __init__(self, fails: str) -> None:
        self._fails = fails
        self.calls: list[str] = []
        self.sink = None
        self.audit_connection = None
        self.clients = SimpleNamespace(sink=None)
        self.threads: list[Any] = []
        self.lifecycle = SimpleNamespace(left_s=lambda: 1.0)

    def __getattr__(self, name: str) -> Any:
        def call(*_: object) -> int:
            self.calls.append(name)
            if name == self._fails:
                raise RuntimeError(f"{name} failed")
            return 0

        return call


def started_with(monkeypatch: pytest.MonkeyPatch, fails: str) -> tuple[App, FakeAssembly]:
    assembly = FakeAssembly(fails)
    monkeypatch.setattr(instance_module, "assemble_app", lambda *_, **__: assembly)
    monkeypatch.setattr(AppServer, "attach", lambda *_: None)
    return App("shop"), assembly


def test_a_start_that_fails_at_its_last_step_undoes_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    app, assembly = started_with(monkeypatch, fails="start")
    with pytest.raises(RuntimeError, match="start failed"):
        app.start(consume=False)
    assert assembly.calls == ["start", "end_handlers", "close"]
    with pytest.raises(LifecycleError, match="is not started"):
        app.stop()


def test_stop_does_not_wait_for_a_wait_that_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    app, assembly = started_with(monkeypatch, fails="wait")
    app.start(consume=False)
    with pytest.raises(RuntimeError, match="wait failed"):
        app.stop()
    assert assembly.calls[-2:] == ["end_handlers", "close"], "the rest is ended nevertheless"


def test_a_start_that_is_cancelled_gives_up_the_attempt_to_connect() -> None:
    """Well before the 5 s after which a waiting start says so in the log."""
    admin, asked = KafkaAdmin({"bootstrap.servers": "127.0.0.1:1"}), iter([False, True])
    with pytest.raises(SourceError):
        admin.check(10_000.0, lambda: next(asked))
    assert list(asked) == []


PROGRAM = """
import threading
from keepfast import App, DeadLettered
from keepfast.testing import EmbeddedBroker

with EmbeddedBroker() as broker:
    broker.create_topic("shop.order.v1")
    broker.create_topic("shop.order.dlq")
    app, done = App("shop", kafka={"brokers": broker.bootstrap}), threading.Event()

    @app.consumer("shop.order.v1")
    def charge(order: dict[str, str]) -> None:
        raise ValueError("no stock")

    @app.on(DeadLettered)
    def report(event: DeadLettered) -> None:
        done.set()

    with app:
        app.send("shop.order.v1", {"id": "a"}).result(60)
        assert done.wait(60)
"""


def test_a_program_without_logging_of_its_own_prints_what_was_dead_lettered() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=120)
    [line] = done.stderr.splitlines()
    assert line.startswith("dead_lettering ")
    assert 'error_message="no stock" at=' in line

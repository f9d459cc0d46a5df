"""The app: a name and its consumers."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, overload

from keepfast.app.lifespan import LifespanFunction, check_lifespan
from keepfast.app.options import Consumer, Middleware
from keepfast.app.router import Router
from keepfast.app.sends import SendFuture
from keepfast.core.errors import ConfigError, LifecycleError
from keepfast.core.inbox import retention_days
from keepfast.core.records import Headers, TopicPartition
from keepfast.core.schemas import AnySchema, DeclaredSchemas, Schema
from keepfast.decode.annotation import type_name
from keepfast.decode.choice import ValueDecoder
from keepfast.decode.signature import ProviderShape, inspect_provider, is_plain
from keepfast.engine.context import Encoded, outgoing_of, to_bytes
from keepfast.engine.hooks import Hook, check_event_types, hook_of
from keepfast.telemetry.logs import get_logger

if TYPE_CHECKING:
    from keepfast.app.instance import AppInstance, StartOptions
    from keepfast.core.events import Event, Observer
    from keepfast.http.local_app import LocalApp
    from keepfast.http.pages import AsgiApp, Pages
    from keepfast.inbox.outbox import Outbox
    from keepfast.settings import Settings
    from keepfast.telemetry.state import HealthReport, SeekResult

F = TypeVar("F", bound=Callable[..., Any])
M = TypeVar("M", bound=Middleware)
D = TypeVar("D", bound=ValueDecoder)


class App(Router):
    """A set of consumers that start, run and stop together, and a producer.

    `lifespan` is a function of the app that returns a context manager, sync or async: it is entered before the first
    consumer starts, left after the last handler, and what it yields is `app.resources`. An async one is entered on the
    event loop of the async handlers. Of `shutdown.timeout_s`, 5 s are reserved for its exit.

    `settings` are app-wide sections in code, such as `kafka={"brokers": "…"}` or, where a section has one main setting,
    that alone: `spool="file:///var/spool/payments"`. Environment and files go before them.

    Nothing happens until it is started, in one of three ways: `app.run()` in a process of its own; `async with app:`
    inside a program on asyncio, whose event loop runs the async handlers; `with app:` inside any other. The last two
    leave signals, ports and the process alone.
    """

    def __init__(
        self, name: str, *, lifespan: LifespanFunction | None = None, **settings: Mapping[str, Any] | str
    ) -> None:
        if not isinstance(name, str):  # mypy cannot see those who do not use it
            raise ConfigError(
                f'App takes a name, which groups and topics begin with, as in App("payments"); got {name!r}.'
            )
        if lifespan is not None:
            check_lifespan(lifespan)
        super().__init__()
        self.name = name
        self.hooks: list[Hook] = []
        self.lifespan = lifespan
        self._settings = settings
        self._middleware: list[ProviderShape] = []
        self._decoders: dict[type[Any], ValueDecoder] = {}
        self.schemas = DeclaredSchemas()
        self._lock = threading.Lock()  # guards the field below
        self._instance: AppInstance | None = None

    def middleware(self, function: M = None) -> M:  # type: ignore[assignment] # without one: an error that says so
        """Run this generator around each call of each consumer's handler; the first that is registered is the
        outermost. A batch is one call.

        It yields once. What the handler raises is raised there, and must continue or be replaced by another exception.
        It may take the context (`Context | BatchContext` in an app with handlers of both kinds), resources and
        providers. A plain generator works around handlers of both kinds, an async one around `async def` handlers only.
        The record is finished after it has ended, and an exception from it fails the attempt as one of the handler
        does. Raises ConfigError for a function that does not yield.
        """
        if not callable(function):
            given = "there is no function in them" if function is None else f"{function!r} is not callable"
            raise ConfigError(
                f"@app.middleware is written without brackets, above a generator that yields once; {given}."
            )
        self._middleware.append(inspect_provider(function, "middleware"))
        return function

    def include(self, router: Router) -> None:
        """Add the consumers of a router to this app, also those that it gets later. Their groups are `<app>.<name>`,
        the app's middleware is around them, and its settings and decoders hold for them. Raises ConfigError for a name
        that the app has already.
        """
        if isinstance(router, App):
            raise ConfigError(f"app.include takes a Router; App {router.name!r} is an app of its own.")
        if not isinstance(router, Router):
            raise ConfigError(f"app.include takes a Router, as in router = Router(); got {router!r}.")
        router.hand_over(self._add)

    @overload
    def decoder(self, kind: type[Any], function: ValueDecoder) -> ValueDecoder: ...
    @overload
    def decoder(self, kind: type[Any]) -> Callable[[D], D]: ...
    def decoder(self, kind: type[Any], function: ValueDecoder | None = None) -> Any:
        """Decode values by this function, from bytes, wherever a handler takes this very type: as its annotation, in
        its list, or as the type of a topic or of a type header. Also as a decorator: `@app.decoder(Invoice)`.

        It is never called with a null value. What it raises makes the record undecodable, which is final; RetryLater,
        Reject, Discard and Halt are what they are in a handler. A consumer's own `decoder=` goes before it. Raises
        ConfigError for a function that is no plain one, and for a second one of a type.
        """

        def register(function: D) -> D:
            if not is_plain(function):
                raise ConfigError(f"app.decoder({type_name(kind)}): {function!r} must be a plain function of the bytes")
            if kind in self._decoders:
                raise ConfigError(f"App {self.name!r} has two decoders of {type_name(kind)}; keep one of them.")
            self._decoders[kind] = function
            return function

        return register if function is None else register(function)

    def schema(self, topic: str, schema: AnySchema | None = None, *, key: Schema | None = None) -> None:
        """Declare what the values of a topic are: `app.schema("billing.invoice.v1", Avro("invoice.avsc"))`. Consumers
        of the app read them so, unless they have a `schema` of their own, and what is sent to the topic is encoded.

        `key` is the schema of its keys: handlers find them in `ctx.decoded_key`, and keys that are sent are encoded.

        The start fails if a schema that is sent is not registered; `registry.register = true` registers it. Raises
        ConfigError for a second schema of a topic.
        """
        values, keys = self.schemas.values, self.schemas.keys
        if topic in values or topic in keys:
            raise ConfigError(f"App {self.name!r} has two schemas of the topic {topic}; keep one of them.")
        if schema is None and key is None:
            raise ConfigError(f"app.schema({topic!r}): give it a schema of its values, or key=Avro() for its keys")
        values |= {} if schema is None else {topic: schema}
        keys |= {} if key is None else {topic: key}

    def _title(self) -> str:
        return f"App {self.name!r}"

    def on(self, *events: type[Event]) -> Callable[[F], F]:
        """Call the function below with each event of these types, of every consumer of the app.

        A hook learns what happened and changes nothing: `def` hooks run one after another on a thread of their own,
        `async def` hooks on the event loop of the handlers, and what they raise is logged. Up to 10,000 events wait for
        each kind; further ones are counted and dropped. At the end of the app hooks have 2 s for the last events. A
        base class (`RecordEvent`, `Event`) stands for all its events but `RunFinished` and `Committed`, which have to
        be named. Raises ConfigError for what is no type of event, and for a function that does not take one.
        """
        check_event_types(events)

        def register(function: F) -> F:
            self.hooks.append(hook_of(function, events))
            return function

        return register

    def settings(
        self, *, environ: Mapping[str, str] | None = None, cwd: Path | None = None, for_tests: bool = False
    ) -> Settings:
        """The settings that hold for this app here and now. `for_tests`: without `.env`, and without what
        `keepfast.toml` says about brokers and the host. Raises ConfigError with every problem.
        """
        self.chosen()
        return self._load(os.environ if environ is None else environ, cwd or Path.cwd(), for_tests=for_tests)

    def _load(self, environ: Mapping[str, str], cwd: Path, *, for_tests: bool = False) -> Settings:
        from keepfast.settings import AppSpec, load  # a third of what importing App would cost

        consumers = {consumer.name: {**consumer.options, **consumer.sources} for consumer in self.consumers.values()}
        batches = [consumer.name for consumer in self.consumers.values() if consumer.shape.batch]
        inboxes = {
            consumer.name: retention_days(consumer.inbox)
            for consumer in self.consumers.values()
            if consumer.inbox is not None
        }
        spec = AppSpec(name=self.name, settings=self._settings, consumers=consumers, batches=batches, inboxes=inboxes)
        return load(spec, environ=environ, cwd=cwd, for_tests=for_tests)

    def chosen(self, only: Sequence[str] = ()) -> list[Consumer]:
        """All consumers, or those named, with the app's middleware and decoders. Raises ConfigError for unknown names,
        or if there are none at all.
        """
        if not self.consumers:
            raise ConfigError(f'App {self.name!r} has no consumers; decorate a function with @app.consumer("topic").')
        unknown = [name for name in only if name not in self.consumers]
        if unknown:
            names, known = ", ".join(map(repr, unknown)), ", ".join(self.consumers)
            raise ConfigError(f"App {self.name!r} has no consumer named {names}; it has {known}.")
        return [
            replace(
                consumer,
                middleware=(*self._middleware, *consumer.middleware),
                decoding=consumer.decoding.within(registered=self._decoders, schemas=self.schemas),
            )
            for name, consumer in self.consumers.items()
            if not only or name in only
        ]

    # -- life cycle

    def run(
        self,
        *,
        only: Sequence[str] = (),
        settings: Settings | None = None,
        wait: bool = False,
        supervisor_stops: Callable[[], bool] = lambda: False,
        observers: Sequence[Observer] = (),
    ) -> int:
        """Run until a signal, a verdict or a failure ends it; returns the exit code.

        Raises ConfigError or StartError before anything has started. `wait`: forever, not 30 s, for a broker that is
        away. `supervisor_stops`: whether a signal came because the whole of `--processes` is stopped. `observers`: for
        keepfast's own commands.
        """
        from keepfast.app.instance import StartOptions

        _refuse_event_loop("app.run()", "async with app:")
        consumers = self.chosen(only)
        options = StartOptions(embedded=False, wait=wait, supervisor_stops=supervisor_stops, observers=observers)
        with self.held_by(self._instance_of(settings or self.settings(), consumers, options)) as instance:
            return instance.run()

    def start(self, *, consume: bool = True, wait: bool = False) -> None:
        """Start in this process: handlers run on threads, async ones on an event loop of their own. Blocks until the
        brokers are reached and the consumers begin. `with app:` starts and stops it.

        `consume=False`: the producer alone, for processes that only send. `wait`: without end, not 30 s, for a broker
        that is down. Raises ConfigError or StartError, and LifecycleError if it is started already.
        """
        from keepfast.app.instance import StartOptions

        _refuse_event_loop("app.start()", "await app.start_async()")
        with self.held_by(self._embedded(StartOptions(wait=wait), consume=consume), keep=True) as instance:
            instance.start()

    async def start_async(self, *, consume: bool = True, wait: bool = False) -> None:
        """As `start`, with async handlers on the running event loop, which is never blocked meanwhile. If this is
        cancelled, the start is undone.
        """
        from keepfast.app.instance import StartOptions
        from keepfast.engine.workers import GivenEventLoop

        options = StartOptions(events=GivenEventLoop(), wait=wait)
        with self.held_by(self._embedded(options, consume=consume), keep=True) as instance:
            try:
                await _on_a_thread(instance.start, cancelled=instance.abort)
            except asyncio.CancelledError as cancelled:
                if instance.started:
                    await _undo(instance, cancelled)
                raise

    def stop(self) -> None:
        """Drain, leave the lifespan and send what is left, for at most `shutdown.timeout_s`. Then it can be started
        again. If it runs in `app.run()`, this returns at once, and `app.run()` drains and returns: a handler may call
        it, too.

        Raises ConsumerFailed if a consumer had failed, DrainTimeout if the time was not enough, and what the lifespan
        raises at its end; LifecycleError if it is not started.
        """
        if self._ends_run():
            return
        _refuse_event_loop("app.stop()", "await app.stop_async()")
        instance = self._to_be_stopped()
        try:
            instance.stop()
        finally:
            self._release(instance)

    async def stop_async(self) -> None:
        """As `stop`, without blocking the event loop. A cancellation takes effect when all is over."""
        if self._ends_run():
            return
        instance = self._to_be_stopped()
        try:
            await _on_a_thread(instance.stop)
        finally:
            self._release(instance)

    async def wait(self) -> None:
        """Until its consumers have ended: because the app is stopped, or because one of them has failed. Raises
        ConsumerFailed or DrainTimeout.
        """
        instance = self._started("waited for")
        instance.raise_for(await asyncio.wrap_future(instance.ended))

    def join(self, timeout_s: float | None = None) -> None:
        """As `wait`, on a thread that may block. Raises TimeoutError after `timeout_s`."""
        instance = self._started("waited for")
        instance.raise_for(instance.ended.result(timeout_s))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop()
        except Exception as failure:  # noqa: BLE001 - raised again, or logged where another error is raised
            _yield_to(error, failure)

    async def __aenter__(self) -> Self:
        await self.start_async()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.stop_async()
        except Exception as failure:  # noqa: BLE001 - raised again, or logged where another error is raised
            _yield_to(error, failure)

    # -- while it is started

    @property
    def resources(self) -> Any:
        """What `lifespan` has yielded; None without one. Raises LifecycleError if the app is not started."""
        return self._started("asked for its resources").resources

    def send(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        headers: Mapping[str, bytes | str | None] | Sequence[tuple[str, bytes | None]] = (),
        *,
        partition: int | None = None,
    ) -> SendFuture:
        """Produce a record, from anywhere in the process while the app is started. Returns at once: `await` what it
        returns, or call `.result()` on it, to know that all in-sync replicas have the record. What a handler sends for
        its record is sent with `ctx.send`.

        `value` may be bytes, str, None, or anything that can be JSON (pydantic models, dataclasses and structs too). A
        topic with a schema (`app.schema`) gets it in that, and the same holds for `key`. What is not acknowledged when
        the app stops is sent within its `shutdown.timeout_s`, or fails. At most 10,000 records and 64 MiB may be
        unacknowledged: beyond that, SinkError (code QUEUE_FULL) is raised at once. Raises LifecycleError if the app is
        not started, ValueError for headers that begin with `keepfast-` and for a value that does not fit its schema.
        """
        encode = self._instance.schemas.encode if self._instance is not None else None
        outgoing = outgoing_of(encode, topic, value, key, headers, partition=partition)
        sends = self._started("used to send").sends
        if sends is None:
            raise LifecycleError(f"App {self.name!r} is being started: its producer is not connected yet.")
        return sends.send(outgoing)

    @cached_property
    def outbox(self) -> Outbox:
        """Events that are one fact with what else a database transaction writes: `app.outbox.send(connection, …)`.
        Raises ConfigError if no consumer of the app has `inbox=PostgresInbox(outbox=True)`, whose relay sends them.
        """
        from keepfast.app.inboxes import has_outbox
        from keepfast.inbox.outbox import Outbox

        if not any(map(has_outbox, self.consumers.values())):
            raise ConfigError(
                f"App {self.name!r} has no outbox, so nothing would send the event: give one of its consumers"
                " inbox=PostgresInbox(outbox=True), or use app.send."
            )
        return Outbox(self.name, self._encode_for_outbox)

    def _encode_for_outbox(self, topic: str, value: Any, key: Any, headers: Headers) -> Encoded:
        """In the schemas of the topic, which are read when the app starts; others need no started app."""
        if self._instance is not None:
            return self._instance.schemas.encode(topic, value, key, headers)
        if self.schemas.values or self.schemas.keys:
            self._started("used to send in schemas")
        return to_bytes(value), to_bytes(key), headers

    # -- control: each waits for the reply of the consumer's loop, a tenth of a second as a rule

    def pause(self, consumer: str, topic: str | None = None, partition: int | None = None) -> None:
        """Start no more records of this consumer, or of some of its partitions, until `resume`. Records in flight
        finish, and the consumer stays in its group. A paused partition stays paused when it comes back after a
        rebalance; a restart ends the pause. It is in the log and the audit of the desk.

        Raises ControlRefused if this process has no such consumer or partition, or if its loop does not reply;
        LifecycleError if the app is not started.
        """
        self._started("controlled").served.pause(consumer, topic, partition)

    def resume(self, consumer: str, topic: str | None = None, partition: int | None = None) -> None:
        """End a pause of this consumer, or of some of its partitions. Raises as `pause` does."""
        self._started("controlled").served.resume(consumer, topic, partition)

    def seek(
        self, consumer: str, topic: str, partition: int, *, to: int | Literal["beginning", "end"] | datetime
    ) -> SeekResult:
        """Move a partition to another offset: an earlier one repeats records, a later one skips them. A time means the
        first record that is not older.

        Records in flight finish first (`revoke_timeout_s` at most; what takes longer does not count any more and is
        repeated or skipped, too). Then the partition is read from there, and the position is committed at once: it
        holds after a crash, too, unless the result says that it is not `committed`. Records in retry topics stay there.
        Not for handlers of the same consumer: it would wait for them. In a coroutine: `await asyncio.to_thread(…)`.

        Raises ControlRefused if another process of the group has the partition (and says which), if the offset is
        outside the log, or if the partition is revoked meanwhile; LifecycleError if the app is not started, or on the
        thread of an event loop.
        """
        _refuse_event_loop("app.seek()", "await asyncio.to_thread(app.seek, …)")
        return self._started("controlled").served.seek_by_code(consumer, topic, partition, to)

    def position(self, consumer: str) -> dict[TopicPartition, int]:
        """The position in each partition that this process has: everything below it is finished. Raises as `pause`
        does.
        """
        found = self._started("controlled").served.positions(consumer)
        return {TopicPartition(one.topic, one.partition): one.position for one in found}

    def lag(self, consumer: str) -> dict[TopicPartition, int | None]:
        """How far the position in each partition that this process has is behind the end of the log; None before the
        first fetch. Raises as `pause` does.
        """
        found = self._started("controlled").served.positions(consumer)
        return {TopicPartition(one.topic, one.partition): one.lag for one in found}

    # -- for others to look at

    @cached_property
    def asgi(self) -> AsgiApp:
        """Health, metrics and the control API as an ASGI application, to be mounted in a service. It also answers while
        the app is not started: that it is not ready.
        """
        from keepfast.http.pages import AsgiApp

        return AsgiApp(self._pages)

    def health(self) -> HealthReport:
        """What `/health` shows. Of an app that is not started, that it is not ready."""
        return self._served().health()

    def _served(self) -> LocalApp:
        from keepfast.http.local_app import LocalApp

        instance = self._instance
        return LocalApp(self.name, waits_for="It is not started.") if instance is None else instance.served

    def _pages(self) -> Pages:
        from keepfast.http.pages import Pages

        instance = self._instance
        return Pages(self._served()) if instance is None else instance.pages

    # -- one instance at a time

    def _embedded(self, options: StartOptions, *, consume: bool) -> AppInstance:
        consumers = self.chosen() if consume else []
        return self._instance_of(self._load(os.environ, Path.cwd()), consumers, options)

    def _instance_of(self, settings: Settings, consumers: list[Consumer], options: StartOptions) -> AppInstance:
        from keepfast.app.inboxes import has_outbox
        from keepfast.app.instance import AppInstance

        lifespan = None if self.lifespan is None else partial(self.lifespan, self)
        senders = [consumer for consumer in self.consumers.values() if has_outbox(consumer)]
        return AppInstance(
            settings,
            consumers,
            schemas=self.schemas,
            lifespan=lifespan,
            hooks=self.hooks,
            options=options,
            senders=senders,
        )

    @contextmanager
    def held_by(self, instance: AppInstance, *, keep: bool = False) -> Iterator[AppInstance]:
        """The app is started as this instance until the block ends; if it ends well and `keep`, until it is released.
        For keepfast itself. Raises LifecycleError if the app is started already.
        """
        with self._lock:
            if self._instance is not None:
                raise LifecycleError(
                    f"App {self.name!r} is started already; stop it first, or make another App for a second one."
                )
            self._instance = instance
        try:
            yield instance
        except BaseException:
            self._release(instance)
            raise
        if not keep:
            self._release(instance)

    def _started(self, verb: str) -> AppInstance:
        instance = self._instance
        if instance is None:
            raise LifecycleError(
                f"App {self.name!r} is not started, so it cannot be {verb}: start it with `async with app:`,"
                " `with app:`, `await app.start_async()` or `app.start()`; with consume=False the last two start the"
                " producer alone."
            )
        return instance

    def _to_be_stopped(self) -> AppInstance:
        """It is stopped once, by the caller that started it. Raises LifecycleError."""
        with self._lock:
            instance = self._started("stopped")
            if not instance.started:
                raise LifecycleError(
                    f"App {self.name!r} is being started or stopped, or it runs in a test harness, which stops it"
                    " itself."
                )
            instance.started = False
            return instance

    def _ends_run(self) -> bool:
        """Whether it runs in `app.run()`: then that ends."""
        instance = self._instance
        if instance is None or not instance.runs:
            return False
        instance.end_run()
        return True

    def _release(self, instance: AppInstance) -> None:
        with self._lock:
            if self._instance is instance:
                self._instance = None


def _refuse_event_loop(call: str, instead: str) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise LifecycleError(f"{call} would block the event loop that runs here; use `{instead}`.")


def _yield_to(error: BaseException | None, failure: Exception) -> None:
    """The error that ends a block goes before the one that stopping the app raises, which is logged."""
    if error is None:
        raise failure
    get_logger("keepfast.lifecycle").error("stop_failed", exc=failure)


async def _undo(instance: AppInstance, cancelled: asyncio.CancelledError) -> None:
    """Stop what was started when the cancellation came, which goes before what stopping raises."""
    try:
        await _on_a_thread(instance.stop)
    except Exception as failure:  # noqa: BLE001 - logged
        _yield_to(cancelled, failure)


async def _on_a_thread(function: Callable[[], None], *, cancelled: Callable[[], None] = lambda: None) -> None:
    """Call it on a thread of its own, since those of the event loop's executor may all be taken, and wait until it is
    over, also if this task is cancelled meanwhile: `cancelled` may hasten it.
    """
    done: concurrent.futures.Future[None] = concurrent.futures.Future()
    done.set_running_or_notify_cancel()

    def call() -> None:
        try:
            function()
        except BaseException as error:  # noqa: BLE001 - the thread's edge: raised in the task
            done.set_exception(error)
        else:
            done.set_result(None)

    threading.Thread(target=call, name="keepfast-lifecycle", daemon=True).start()
    waiter, cancellation = asyncio.wrap_future(done), None
    while not waiter.done():
        try:
            await asyncio.wait([waiter])
        except asyncio.CancelledError as error:
            cancellation = error
            cancelled()
    if cancellation is not None:
        waiter.exception()  # it counts as seen
        raise cancellation
    waiter.result()

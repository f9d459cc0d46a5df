"""What lives as long as an app: the user's context manager, and what it yields."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Any

from keepfast.core.errors import ConfigError, DrainTimeout, KeepfastError, LifecycleError, StartError
from keepfast.telemetry.clean import clean_error
from keepfast.telemetry.logs import get_logger

if TYPE_CHECKING:
    from keepfast.engine.workers import HandlerLoop

log = get_logger("keepfast.lifecycle")

AnyContextManager = AbstractContextManager[Any] | AbstractAsyncContextManager[Any]
LifespanFunction = Callable[[Any], AnyContextManager]
"""A function of the app."""

RESERVED_S = 5.0
"""For the exit, of `shutdown_timeout_s`; half of it where that is less than twice as long."""

CANCEL_S = 0.5
"""How long it may take to be cancelled, while it is entered or after its exit has taken too long."""


def check_lifespan(function: Any) -> None:
    """Raises ConfigError for what cannot be one."""
    if isinstance(function, AbstractContextManager | AbstractAsyncContextManager):
        raise ConfigError("lifespan=… is a context manager already; pass the function that returns it, without ().")
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        decorator = "asynccontextmanager" if inspect.isasyncgenfunction(function) else "contextmanager"
        raise ConfigError(f"lifespan={_named(function)} is a generator function; decorate it with @{decorator}.")
    if not callable(function) or inspect.iscoroutinefunction(function):
        raise ConfigError(
            "lifespan=… takes a function of the app that returns a context manager: an `async def` that yields once,"
            " decorated with @asynccontextmanager."
        )
    try:
        inspect.signature(function).bind("the app")
    except TypeError:
        raise ConfigError(f"lifespan={_named(function)} must take one argument, the app.") from None
    except ValueError:
        pass  # it has no signature that could be read


def _named(function: object) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


class Lifespan:
    """The context manager of one start of an app, which `make` returns. It is entered and left in one task of the
    handlers' event loop if it is async, else in a thread of its own.

    `enter` and `exit` block: any thread but the event loop's. `ended` is called, on any thread, if it ends before
    `exit`.
    """

    def __init__(
        self, make: Callable[[], AnyContextManager], app: str, events: HandlerLoop, *, ended: Callable[[], None]
    ) -> None:
        self._make = make
        self._app = app
        self._events = events
        self._ended = ended
        self._entered: concurrent.futures.Future[Any] = concurrent.futures.Future()
        self._over: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._cancel: Callable[[], object] = lambda: None
        self._aborted = False
        self._leave: Callable[[], object] | None = None
        self._resources: Any = None

    @property
    def resources(self) -> Any:
        """What it has yielded. Raises LifecycleError before."""
        if not self._entered.done():
            raise LifecycleError(f"App {self._app!r} is being started: its lifespan has not yielded yet.")
        return self._resources

    def enter(self) -> None:
        """Raises StartError if it fails before it yields; errors of ours, and what is no Exception, as they are."""
        manager = self._manager()
        if isinstance(manager, AbstractAsyncContextManager):
            loop = self._events.start(lambda _: None)
            self._cancel = asyncio.run_coroutine_threadsafe(self._hold_async(manager, loop), loop).cancel
            if self._aborted:  # before there was anything to cancel
                self._cancel()
        else:
            threading.Thread(target=self._hold, args=(manager,), name="keepfast-lifespan", daemon=True).start()
        try:
            self._resources = self._entered.result()
        except KeepfastError:
            raise
        except Exception as error:
            raise StartError(
                f"The lifespan of app {self._app!r} failed before it yielded: {clean_error(error)}."
                " No consumer was started."
            ) from error

    def abort(self) -> None:
        """Cancel it if it is being entered; a sync one continues. Returns at once; any thread."""
        self._aborted = True
        if not self._entered.done():
            self._cancel()

    def exit(self, timeout_s: float) -> None:
        """Leave it, and wait until that is done. Raises what it raises, or DrainTimeout. Nothing happens if it was not
        entered, or has been left.
        """
        leave, self._leave = self._leave, None
        if leave is None:
            self.abort()
            concurrent.futures.wait([self._entered], CANCEL_S)
            return
        leave()
        if concurrent.futures.wait([self._over], timeout_s).not_done:
            self._cancel()
            concurrent.futures.wait([self._over], CANCEL_S)
            raise DrainTimeout(f"The lifespan of app {self._app!r} was not left within {timeout_s:.1f} s.")
        self._over.result()

    def _manager(self) -> AnyContextManager:
        try:
            manager = self._make()
        except Exception as error:
            raise StartError(f"The lifespan of app {self._app!r} failed: {clean_error(error)}.") from error
        if isinstance(manager, AbstractContextManager | AbstractAsyncContextManager):
            return manager
        raise ConfigError(
            f"The lifespan of app {self._app!r} returned {type(manager).__name__}, no context manager; decorate it"
            " with @asynccontextmanager or @contextmanager."
        )

    async def _hold_async(self, manager: AbstractAsyncContextManager[Any], loop: asyncio.AbstractEventLoop) -> None:
        leave = asyncio.Event()
        try:
            async with manager as resources:
                self._yielded(resources, lambda: loop.call_soon_threadsafe(leave.set))
                await leave.wait()
        except BaseException as error:  # noqa: BLE001 - the task's edge: `enter` or `exit` raises it
            self._end(error)
        else:
            self._end(None)

    def _hold(self, manager: AbstractContextManager[Any]) -> None:
        leave = threading.Event()
        try:
            with manager as resources:
                self._yielded(resources, leave.set)
                leave.wait()
        except BaseException as error:  # noqa: BLE001 - the thread's edge: `enter` or `exit` raises it
            self._end(error)
        else:
            self._end(None)

    def _yielded(self, resources: Any, leave: Callable[[], object]) -> None:
        self._leave = leave
        self._entered.set_result(resources)

    def _end(self, error: BaseException | None) -> None:
        if isinstance(error, asyncio.CancelledError):
            error = RuntimeError("its task was cancelled")
        early = self._leave is not None
        outcome = self._over if self._entered.done() else self._entered
        outcome.set_exception(error) if error is not None else outcome.set_result(None)
        if early:
            log.error("lifespan_ended_early", app=self._app, exc=error, consequence="the app stops")
            self._ended()

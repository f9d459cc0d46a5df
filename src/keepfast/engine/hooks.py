"""Users' hooks: functions that are called with events, away from the loops' threads."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from logging import ERROR, WARNING
from typing import TYPE_CHECKING, Any

from keepfast.core.errors import ConfigError
from keepfast.core.events import (
    EVENT_TYPES,
    Committed,
    DeadLettered,
    Event,
    Moved,
    PublishFailed,
    RunFinished,
    Spooled,
)
from keepfast.decode.annotation import members_of
from keepfast.telemetry.logs import get_logger

if TYPE_CHECKING:
    from keepfast.engine.workers import HandlerLoop  # with settings and tracing: not for `from keepfast import App`

log = get_logger("keepfast.hooks")

CAPACITY = 10_000
"""Events that wait for `def` hooks, and as many for `async def` hooks."""

NAMED_ONLY = frozenset({RunFinished, Committed})
"""Events of the hot path: a base class does not stand for them."""

PUBLISHED = frozenset({DeadLettered, Spooled, Moved, PublishFailed})
"""Events that have an error only where an observer keeps it."""


@dataclass(frozen=True, slots=True)
class Hook:
    """A function of the user's, and the types of the events that it is called with."""

    function: Callable[[Any], Any]
    wants: frozenset[type[Event]]
    is_async: bool
    name: str


def hook_of(function: Callable[..., Any], types: Sequence[type[Event]]) -> Hook:
    """Raises ConfigError for a function that cannot be called with one event."""
    name = getattr(function, "__qualname__", type(function).__qualname__)
    forms = (function, type(function).__call__)  # an instance may be a hook, too
    if any(inspect.isgeneratorfunction(one) or inspect.isasyncgenfunction(one) for one in forms):
        raise ConfigError(f"The hook {name} has a yield: a hook is an ordinary function. @app.middleware may yield.")
    try:
        inspect.signature(function).bind(None)
    except TypeError as error:
        short = name.rpartition(".")[2]
        raise ConfigError(
            f"The hook {short} cannot be called with one event ({error}); write def {short}(event)."
        ) from None
    _check_annotation(function, name, types)
    wants = frozenset(one for base in types for one in _expanded(base))
    return Hook(function, wants, any(map(inspect.iscoroutinefunction, forms)), name)


def _check_annotation(function: Callable[..., Any], name: str, types: Sequence[type[Event]]) -> None:
    """Raises ConfigError if the event is annotated with other types than it is called with."""
    try:
        event = next(iter(inspect.signature(function, eval_str=True).parameters.values()))
    except (NameError, TypeError, AttributeError):
        return  # names that are there for type checkers only
    takes = members_of(event.annotation)
    if not all(isinstance(one, type) and issubclass(one, Event) for one in takes):
        return
    for base in types:
        if not any(issubclass(one, tuple(takes)) for one in _expanded(base)):
            short, taken = name.rpartition(".")[2], " | ".join(one.__name__ for one in takes)
            raise ConfigError(
                f"The hook {short} takes {taken}, and is called with {base.__name__}; annotate {event.name} with"
                f" {base.__name__}, or write @app.on({taken.replace(' | ', ', ')})."
            )


def check_event_types(types: Sequence[object]) -> None:
    """Raises ConfigError for arguments of `@app.on` that are no types of events."""
    wrong = [one for one in types if not (isinstance(one, type) and issubclass(one, Event))]
    if wrong or not types:
        given = f"; got {wrong[0]!r}" if wrong else ""
        raise ConfigError(
            f"@app.on takes types of events, such as @app.on(DeadLettered, Halted){given}."
            " They are imported from keepfast."
        )


def _expanded(base: type[Event]) -> Iterable[type[Event]]:
    """The type; or all that a base class stands for."""
    if base in EVENT_TYPES:
        return [base]
    return [one for one in EVENT_TYPES if issubclass(one, base) and one not in NAMED_ONLY]


def report_failure(hook: Hook, event: Event, error: BaseException) -> None:
    """One line in 10 s for each hook."""
    log.sampled(
        ERROR,
        "hook_failed",
        now=time.monotonic(),
        key=hook.name,
        hook=hook.name,
        of=type(event).__name__,
        consumer=event.consumer,
        exc=error,
    )


@dataclass(slots=True)
class HookCounts:
    """Since the start. `dropped`: events that found their queue full, or were left when the app had stopped."""

    failed: int = 0
    dropped: int = 0


class _Queue:
    """Events for hooks of one kind. The loops put; one worker takes, and calls hooks in the order of the events."""

    def __init__(self, hooks: Sequence[Hook], capacity: int) -> None:
        self._hooks: dict[type[Event], list[Hook]] = {}
        for hook in hooks:
            for wanted in hook.wants:
                self._hooks.setdefault(wanted, []).append(hook)
        self._capacity = capacity
        self._changed = threading.Condition()
        self._waiting: deque[Event] = deque()
        self._in_hand = False
        self._has_worker = False
        self._stopped = False
        self.counts = HookCounts()

    def put(self, event: Event) -> None:
        """Any thread; returns at once."""
        if type(event) not in self._hooks:
            return
        with self._changed:
            full = self._stopped or len(self._waiting) >= self._capacity
            if full:
                self.counts.dropped += 1
            else:
                self._waiting.append(event)
                self._changed.notify_all()
            wake = not full and not self._has_worker
            self._has_worker = self._has_worker or wake
        if full:
            self._report_full()
        elif wake:
            self._wake()

    def stop(self, until: float) -> None:
        """Returns when every event was handled, or at `until`, by the monotonic clock. Nothing is taken any more."""
        with self._changed:
            self._changed.wait_for(lambda: self.idle, max(0.0, until - time.monotonic()))
            self._stopped = True
            left = len(self._waiting) + self._in_hand
            self.counts.dropped += left
            self._waiting.clear()
            self._changed.notify_all()
        if left:
            log.warning("hooks_unfinished", events=left, consequence="these events are not reported to their hooks")

    @property
    def idle(self) -> bool:
        return not self._waiting and not self._in_hand

    def _next(self, *, wait: bool = False) -> Event | None:
        """The worker's next event, which is waited for until the end if it may; None: the worker ends."""
        with self._changed:
            self._in_hand = False
            self._changed.notify_all()
            if wait:
                self._changed.wait_for(lambda: self._waiting or self._stopped)
            self._in_hand = self._has_worker = bool(self._waiting)
            return self._waiting.popleft() if self._waiting else None

    def _report_full(self) -> None:
        log.sampled(
            WARNING,
            "hook_events_dropped",
            now=time.monotonic(),
            dropped=self.counts.dropped,
            capacity=self._capacity,
            what_to_do="a hook is too slow for its events: do less in it, or name fewer types of events",
        )

    def _failed(self, hook: Hook, event: Event, error: BaseException) -> None:
        self.counts.failed += 1
        report_failure(hook, event, error)

    def _wake(self) -> None:
        """Start a worker."""
        raise NotImplementedError


class _ThreadQueue(_Queue):
    """For `def` hooks: one daemon thread, started by the first event."""

    def _wake(self) -> None:
        threading.Thread(target=self._work, name="keepfast-hooks", daemon=True).start()

    def _work(self) -> None:
        while (event := self._next(wait=True)) is not None:
            for hook in self._hooks[type(event)]:
                try:
                    hook.function(event)
                except BaseException as error:  # noqa: BLE001 - whatever a hook does, the app continues
                    self._failed(hook, event, error)


class _TaskQueue(_Queue):
    """For `async def` hooks: one task on the event loop of the handlers, which ends when no event waits."""

    def __init__(self, hooks: Sequence[Hook], capacity: int, events: HandlerLoop) -> None:
        super().__init__(hooks, capacity)
        self._events = events

    def _wake(self) -> None:
        try:
            self._events.start(_ignore).call_soon_threadsafe(self._spawn)
        except RuntimeError:  # an event loop of the user's that is closed: the next event tries again
            with self._changed:
                self._has_worker = False

    def _spawn(self) -> None:
        self._events.spawn(self._work()).add_done_callback(self._over)

    async def _work(self) -> None:
        while (event := self._next()) is not None:
            for hook in self._hooks[type(event)]:
                try:
                    await hook.function(event)
                except BaseException as error:
                    self._failed(hook, event, error)
                    task = asyncio.current_task()
                    if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                        raise

    def _over(self, task: asyncio.Task[None]) -> None:
        """Anything in the process may cancel a task: what waits gets another one."""
        if not task.cancelled():
            return
        with self._changed:
            self._in_hand = False
            self._has_worker = bool(self._waiting) and not self._stopped and not self._events.stopping
            self._changed.notify_all()
            again = self._has_worker
        if again:
            self._spawn()


def _ignore(error: BaseException) -> None:
    """What a hook raises never leaves its task."""


class EventHooks:
    """Implements `core.events.Observer`: calls users' hooks, `def` ones on a thread of their own, `async def` ones on
    the handlers' event loop; of each kind one at a time, in the order of the events of a consumer.

    A queue of each kind holds up to `capacity` events; what finds it full is counted and not reported to hooks.
    """

    def __init__(self, hooks: Sequence[Hook], events: HandlerLoop, *, capacity: int = CAPACITY) -> None:
        self.wants: frozenset[type[Event]] = frozenset().union(*(hook.wants for hook in hooks))
        self.keeps_errors = bool(self.wants & PUBLISHED)
        self._queues = (
            _ThreadQueue([hook for hook in hooks if not hook.is_async], capacity),
            _TaskQueue([hook for hook in hooks if hook.is_async], capacity, events),
        )

    def on_event(self, event: Event) -> None:
        for queue in self._queues:
            queue.put(event)

    @property
    def idle(self) -> bool:
        """Whether every event so far was handled. Any thread."""
        return all(queue.idle for queue in self._queues)

    @property
    def counts(self) -> HookCounts:
        """Of all hooks together. Any thread."""
        each = [queue.counts for queue in self._queues]
        return HookCounts(sum(one.failed for one in each), sum(one.dropped for one in each))

    def stop(self, timeout_s: float) -> None:
        """No more events come: wait for the hooks, together for at most so long. Blocks: not on the event loop."""
        until = time.monotonic() + timeout_s
        for queue in self._queues:
            queue.stop(until)

"""One start of an app in this process, to its end: lifespan, clients, consumers, and what serves its health."""

from __future__ import annotations

import concurrent.futures
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from keepfast.app.assembly import assemble_app, decoding_of, specs_of
from keepfast.app.inboxes import STOP_S as INBOX_STOP_S
from keepfast.app.inboxes import AppInboxes
from keepfast.app.lifespan import RESERVED_S, AnyContextManager, Lifespan
from keepfast.app.options import Consumer
from keepfast.app.schemas import AppSchemas
from keepfast.app.sends import AppSends
from keepfast.core.errors import ConsumerFailed, DrainTimeout, StartError
from keepfast.core.events import Observer
from keepfast.core.exit_codes import EXIT_DEADLINE, EXIT_UNEXPECTED
from keepfast.core.schemas import DeclaredSchemas
from keepfast.engine.hooks import Hook
from keepfast.engine.lifecycle import LoopThread
from keepfast.engine.middleware import LATER
from keepfast.engine.workers import HandlerLoop
from keepfast.http.local_app import AppServer, LocalApp
from keepfast.http.pages import Pages
from keepfast.http.server import without_server
from keepfast.settings import Settings
from keepfast.telemetry.logs import get_logger, show_warnings
from keepfast.wiring.assembly import Assembly, event_loop_thread
from keepfast.wiring.consumers import ConsumerSpec

if TYPE_CHECKING:
    from keepfast.desk import ControlAudit, UnresolvedCounter

log = get_logger("keepfast.lifecycle")

COUNTER_STOP_S = 1.0

FAILURES = {
    "halted": "A handler has to be looked at before it makes sense to start again",
    "fenced": "Another member uses its group_instance_id: each process needs its own",
    "failed": "The log has the details",
}
"""Kinds of endings that are no ordinary stop, and what to do about each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartOptions:
    """How an app is started. `events`: the event loop of its async handlers; without it, they get one of their own.
    `embedded`: in a process of the user's, where it listens on no port and never ends the process. `wait`: without end
    for a broker that is down. The others: see `Lifecycle` and `assemble`.
    """

    events: HandlerLoop | None = None
    embedded: bool = True
    wait: bool = False
    supervisor_stops: Callable[[], bool] = lambda: False
    observers: Sequence[Observer] = ()


class AppInstance:
    """An app from its start to its end. Its methods block: any thread but the event loop's.

    `senders` are consumers of the app, started or not, whose outbox is sent from here, too.
    `run` does everything, with signals; `start` and `stop` are for an app that is embedded. `abort` ends a start that
    is under way on another thread, `end_run` a run. `started`: it is embedded, its consumers have started, and it was
    not stopped. `runs`: `run` was called.
    """

    def __init__(
        self,
        settings: Settings,
        consumers: list[Consumer],
        *,
        schemas: DeclaredSchemas,
        lifespan: Callable[[], AnyContextManager] | None,
        hooks: Sequence[Hook],
        options: StartOptions,
        senders: Sequence[Consumer] = (),
    ) -> None:
        self._name = settings.app.name
        self._hooks = hooks
        self._settings = settings
        self._consumers = consumers
        self.schemas = AppSchemas(settings, schemas, [decoding_of(consumer, settings) for consumer in consumers])
        self._options = options
        self._senders = senders
        self._events = options.events or event_loop_thread()
        self.inboxes = AppInboxes(settings, self._events)
        self._lifespan = (
            None if lifespan is None else Lifespan(lifespan, self._name, self._events, ended=self._lifespan_ended)
        )
        self._reserved_s = 0.0 if lifespan is None else min(RESERVED_S, settings.shutdown.timeout_s / 2)
        self._server = AppServer(without_server(settings) if options.embedded else settings)
        self._assembly: Assembly | None = None
        self._counter: UnresolvedCounter | None = None
        self._audit: ControlAudit | None = None
        self.started = self.runs = False
        self._aborted = False
        self._code: concurrent.futures.Future[int] = concurrent.futures.Future()
        self._code.set_running_or_notify_cancel()  # who waits for it and is cancelled must not cancel it
        self._close_failure: Exception | None = None
        self.sends: AppSends | None = None

    @property
    def pages(self) -> Pages:
        return self._server.pages

    @property
    def served(self) -> LocalApp:
        """Its health, its state and its metrics."""
        return self._server.app

    @property
    def resources(self) -> Any:
        """What its lifespan has yielded; None without one."""
        return None if self._lifespan is None else self._lifespan.resources

    @property
    def ended(self) -> concurrent.futures.Future[int]:
        """Done, with the exit code, when all consumers have ended, for whatever reason."""
        return self._code

    # -- a process of its own

    def run(self) -> int:
        """Until a signal, a verdict or a failure ends it; returns the exit code. Raises ConfigError or StartError, and
        then no consumer has started.
        """
        self.runs = True
        self._check()
        with self._server:
            assembly = self._open()
            try:
                code = assembly.lifecycle.run(self._close)
            except BaseException:
                self._close(self._reserved_s)
                raise
        if self._close_failure is None:
            return code
        return code or (EXIT_DEADLINE if isinstance(self._close_failure, DrainTimeout) else EXIT_UNEXPECTED)

    def end_run(self) -> None:
        """Let `run` drain and return; a run that is still connecting raises StartError. Returns at once; any thread."""
        if self._assembly is None:
            self.abort()
        if self._assembly is not None:  # it may have come meanwhile
            self._assembly.stop()

    def _leave(self, code: int) -> None:
        """The deadline has passed, or a second signal came: the process ends now."""
        if self._options.embedded:
            return
        if code < 128:
            self._leave_lifespan(self._reserved_s)
        os._exit(code)

    # -- embedded

    def start(self) -> None:
        """Until its consumers have begun. Raises ConfigError or StartError, and nothing of it is left then."""
        self._check()
        with ExitStack() as undo:
            undo.enter_context(self._server)
            assembly = self._open()
            undo.callback(self._close, self._settings.shutdown.timeout_s)
            assembly.start()
            undo.callback(self._end_loops, assembly)
            threading.Thread(target=self._wait, args=(assembly,), name="keepfast-lifecycle", daemon=True).start()
            undo.pop_all()
        self.started = True

    def abort(self) -> None:
        """Give up a start that is under way: it raises StartError as soon as it can. Any thread."""
        self._aborted = True
        if self._lifespan is not None:
            self._lifespan.abort()

    def stop(self) -> None:
        """Drain, leave the lifespan, send what is left. Raises ConsumerFailed or DrainTimeout, or what the lifespan
        raises, when all of that is over.
        """
        assembly = self._assembled
        try:
            assembly.stop()
            code = self._code.result()
        finally:
            self._close(assembly.lifecycle.left_s())
            self._server.__exit__(None, None, None)
        self.raise_for(code)
        if self._close_failure is not None:
            raise self._close_failure

    def raise_for(self, code: int) -> None:
        """What an exit code is to those who embed an app: ConsumerFailed, DrainTimeout, or nothing."""
        threads = self._assembled.threads
        for thread in threads:
            if (kind := _failure_of(thread)) is not None:
                raise _consumer_failed(self._name, thread, kind) from thread.failure
        if code == EXIT_DEADLINE:
            unfinished = sum(thread.ending.unfinished for thread in threads if thread.ending is not None)
            raise DrainTimeout(
                f"App {self._name!r} did not stop within shutdown.timeout_s: {unfinished} records or commits were"
                f" not finished after {self._settings.shutdown.timeout_s - self._reserved_s:g} s; they come again.",
                unfinished=unfinished,
            )

    def _wait(self, assembly: Assembly) -> None:
        try:
            code = assembly.wait()
        except BaseException as error:  # noqa: BLE001 - the thread's edge: raised where the end is waited for
            self._code.set_exception(error)
        else:
            self._code.set_result(code)

    @staticmethod
    def _end_loops(assembly: Assembly) -> None:
        assembly.stop()
        assembly.wait()

    # -- the one place where all parts are started and ended

    def _check(self) -> None:
        """What is wrong in the code is reported before anything is served, opened or connected. Raises ConfigError."""
        resources = None if self._lifespan is None else LATER
        specs_of(self._consumers, self._settings, resources, inboxes=self.inboxes, schemas=self.schemas)
        show_warnings()

    def _open(self) -> Assembly:
        """From nothing to an assembly that can be started. If that fails or is given up, nothing of it is left."""
        with ExitStack() as undo:
            specs = self._prepare(undo)
            assembly = assemble_app(
                specs,
                self._settings,
                wait=self._options.wait,
                events=self._events,
                reserved_s=self._reserved_s,
                abandoned=lambda: self._aborted,
                leave=self._leave,
                supervisor_stops=self._options.supervisor_stops,
                observers=self._options.observers,
                hooks=self._hooks,
            )
            undo.callback(assembly.close, 1.0)
            from keepfast.desk import ControlAudit, UnresolvedCounter

            if (connection := assembly.letters_connection) is not None:
                self._counter = UnresolvedCounter.of(assembly.threads, connection, self._settings)
            more = list if self._counter is None else self._counter.families
            self._audit = ControlAudit.of(assembly.audit_connection, self._settings)
            audit = self._audit.note if self._audit is not None else None
            self._server.attach(assembly, self.inboxes.service, more, audit)
            self.sends = AppSends(assembly.sink)
            self._assembly = assembly
            self._refuse_aborted()
            self.inboxes.start(assembly.clients.sink)
            if self._counter is not None:
                self._counter.start()
            undo.pop_all()
        return assembly

    def _prepare(self, undo: ExitStack) -> list[ConsumerSpec]:
        """Schemas, lifespan and inboxes, opened; what `undo` does leaves them."""
        undo.callback(self._events.stop, 1.0)
        undo.callback(self.schemas.close)
        self.schemas.open(wait=self._options.wait, abandoned=lambda: self._aborted)
        if self._lifespan is not None:
            undo.callback(self._leave_lifespan, RESERVED_S)
            self._lifespan.enter()
        self._refuse_aborted()
        specs = specs_of(self._consumers, self._settings, self.resources, inboxes=self.inboxes, schemas=self.schemas)
        for consumer in self._senders:
            self.inboxes.of(consumer, "", self.resources)
        undo.callback(self.inboxes.close)
        self.inboxes.open()
        return specs

    def _refuse_aborted(self) -> None:
        if self._aborted:
            raise StartError(f"The start of app {self._name!r} was given up before its consumers began.")

    def _close(self, left_s: float) -> None:
        """All consumers have ended: end everything else, within this time. Never raises."""
        until = time.monotonic() + min(left_s, self._settings.shutdown.timeout_s)
        assembly = self._assembled
        if self._counter is not None:
            self._counter.stop(min(COUNTER_STOP_S, left_s / 4))
        if self._audit is not None:
            self._audit.stop(min(COUNTER_STOP_S, left_s / 4))
        assembly.end_handlers(max(0.5, left_s - self._reserved_s))
        self.inboxes.stop(max(0.1, min(INBOX_STOP_S, until - time.monotonic())))
        self.inboxes.close()
        self._leave_lifespan(max(0.1, until - time.monotonic()))
        assembly.close(max(0.1, until - time.monotonic()))
        self.schemas.close()

    def _leave_lifespan(self, timeout_s: float) -> None:
        if self._lifespan is None:
            return
        try:
            self._lifespan.exit(timeout_s)
        except Exception as error:  # noqa: BLE001 - it becomes the exit code, or `stop` raises it
            log.error("lifespan_failed", app=self._name, exc=error)  # noqa: TRY400 - our logger shows where
            self._close_failure = error

    def _lifespan_ended(self) -> None:
        """Its resources are gone, so no handler may continue."""
        self._aborted = True
        if self._assembly is not None:
            self._assembly.stop()

    @property
    def _assembled(self) -> Assembly:
        if self._assembly is None:
            raise RuntimeError("the app is not assembled")
        return self._assembly


def _failure_of(thread: LoopThread) -> str | None:
    """How a consumer has failed; it may have halted and not have ended in time."""
    if thread.ending is not None and thread.ending.kind in FAILURES:
        return thread.ending.kind
    return "halted" if thread.loop.halted else None


def _consumer_failed(app: str, thread: LoopThread, kind: str) -> ConsumerFailed:
    name, why = thread.loop.plan.name, thread.loop.halted or (thread.ending.reason if thread.ending else "")
    verb = "was fenced" if kind == "fenced" else f"has {kind}"
    text = f"Consumer {name!r} of app {app!r} {verb}{f': {why}' if why else ''}. {FAILURES[kind]}"
    return ConsumerFailed(f"{text}; what was not finished comes again after a start.", consumer=name, kind=kind)

"""An app that runs inside the test's own process, for scenarios in which no process has to die.

Handlers are closures of the test; the log is a list of entries.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from keepfast.app import App
from keepfast.app.assembly import assemble_app, specs_of
from keepfast.deadletters.spool.service import SpoolService
from keepfast.engine.hooks import EventHooks
from keepfast.engine.loop import Loop
from keepfast.http.local_app import LocalApp
from keepfast.telemetry.state import HealthReport
from keepfast.testing.topics import TopicAdmin
from keepfast.wiring.assembly import Assembly
from tests.support.log_capture import LogCapture
from tests.support.waiting import wait_until


def app_for(broker: TopicAdmin, *, shutdown_s: float = 10.0, name: str = "scenario", **kafka: Any) -> App:
    """An app that knows its broker. Its dead-letter topics are named `<topic's segments>.dlq`."""
    return App(name, kafka={"brokers": broker.bootstrap} | kafka, shutdown={"timeout_s": shutdown_s})


class DeadlinePassed(Exception):
    """The process would have ended here, hard, with that exit code."""


class RunningApp:
    """The app in a thread, from entering to leaving. Leaving drains it and demands exit code `code`."""

    def __init__(self, app: App, *, code: int = 0) -> None:
        self.app = app
        self.log = LogCapture()
        self.code: int | None = None
        self._wanted = code
        self._assembled: Assembly | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._failure: BaseException | None = None

    def assemble(self) -> Assembly:
        """Look at the cluster and build everything, as a process does before it joins its group."""
        if self._assembled is None:
            settings = self.app.settings(environ={}, cwd=Path("/nonexistent"))
            specs = specs_of(self.app.chosen(), settings)
            self._assembled = assemble_app(specs, settings, wait=False, leave=self._would_exit, hooks=self.app.hooks)
        return self._assembled

    def __enter__(self) -> Self:
        self.log.attach()
        self.assemble()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self.log.detach()
        if kind is None:
            assert self._failure is None, self._failure
            assert self.code == self._wanted

    @property
    def loop(self) -> Loop:
        """Of the only consumer. Look, but touch nothing: it belongs to its thread."""
        assert self._assembled is not None
        return self._assembled.threads[0].loop

    @property
    def health(self) -> HealthReport:
        """As `/health` shows it."""
        return self.local.health()

    @property
    def local(self) -> LocalApp:
        """What an operator can see and do."""
        assert self._assembled is not None
        return LocalApp("scenario", parts=self._assembled)

    def in_event_loop(self, action: Callable[[], object]) -> None:
        """Call it where the async handlers run, and continue."""
        assert self._assembled is not None
        self._assembled.events.start(lambda _: None).call_soon_threadsafe(action)

    @property
    def spool(self) -> SpoolService:
        assert self._assembled is not None
        assert self._assembled.spool is not None
        return self._assembled.spool

    @property
    def hooks(self) -> EventHooks:
        assert self._assembled is not None
        assert self._assembled.hooks is not None
        return self._assembled.hooks

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Drain, as SIGTERM would, and wait for the end."""
        assert self._assembled is not None
        self._assembled.stop()
        self._thread.join(60)
        assert self.ended, "the app did not end"

    def release(self, hold: str) -> None:
        """As a person does it."""
        assert self._assembled is not None
        self._assembled.threads[0].release(hold)

    def wait_assigned(self, partitions: int = 1) -> None:
        wait_until(lambda: len(self.loop.ownership) == partitions, f"{partitions} partitions assigned")

    def _run(self) -> None:
        assert self._assembled is not None
        try:
            self.code = self._assembled.run()
        except DeadlinePassed as passed:
            (self.code,) = passed.args
        except BaseException as error:  # noqa: BLE001 - the thread's edge
            self._failure = error

    @staticmethod
    def _would_exit(code: int) -> None:
        raise DeadlinePassed(code)

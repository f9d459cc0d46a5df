"""From start to exit code: loops in threads, the main thread waiting for signals and deadlines.

The garbage collector while loops run: buffered records are young objects that it would visit over and over.

Signal handlers that a forked child does not inherit.

`multiprocessing` forks by default on Linux up to Python 3.13, also when a user's handler calls it. A child with our
signal handlers would ignore the SIGTERM of `Process.terminate()` or of a pool that ends: it has no loop to drain.

Shutdowns that took longer than they may: noted by the process that ends, counted by the next one that starts.
"""

from __future__ import annotations

import gc
import os
import re
import signal
import threading
import time
import uuid
from _thread import allocate_lock, start_new_thread
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType

from keepfast.core.exit_codes import EXIT_DEADLINE, EXIT_FENCED, EXIT_HALTED, EXIT_OK, EXIT_UNEXPECTED
from keepfast.core.ports import Mailbox
from keepfast.engine.flight_recorder import StateDirectory
from keepfast.engine.loop import Loop
from keepfast.engine.mailbox import Ending, Release, Stop
from keepfast.engine.workers import Inline, Superseded
from keepfast.telemetry.logs import get_logger, report_suppressed
from keepfast.telemetry.metrics import Tallies
from keepfast.telemetry.state import ConsumerState

DEFAULTS = ((700, 10, 10), (2000, 10, 10), (2000, 10, 0))
"""What the interpreters start with; anything else was set by the user."""

OBJECTS = 50_000
"""New objects before a collection: more than the buffers hold, so a steady stream of records causes none."""


@contextmanager
def collecting_seldom() -> Iterator[None]:
    """Within it, what exists already is never visited and young objects seldom. What the user has set stays."""
    before = gc.get_threshold()
    if before not in DEFAULTS:
        yield
        return
    gc.freeze()
    gc.set_threshold(OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


SignalHandler = signal.Handlers | Callable[[int, FrameType | None], object] | int | None

_replaced: dict[int, SignalHandler] = {}
"""What was in place before the first handler of ours. Owner: the main thread, the only one that may set handlers."""


def install(numbers: Iterable[int], handler: Callable[[int, FrameType | None], object]) -> dict[int, SignalHandler]:
    """Set the handler in this process only; returns the handlers before it, for `restore`. Main thread only."""
    previous: dict[int, SignalHandler] = {number: signal.signal(number, handler) for number in numbers}
    for number, before in previous.items():
        _replaced.setdefault(number, before)
    return previous


def restore(previous: Mapping[int, SignalHandler]) -> None:
    """Undo an `install`. Main thread only."""
    for number, before in previous.items():
        signal.signal(number, before)
        if _replaced.get(number) == before:
            del _replaced[number]


def _restore_in_child() -> None:
    restore(dict(_replaced))


os.register_at_fork(after_in_child=_restore_in_child)


COMES_AGAIN = "what was not finished comes again"
DELIVERED_AGAIN = "records in flight are not committed and will be delivered again"

log = get_logger("keepfast.lifecycle")

FINISH_MARGIN_S = 1.0
"""Loops aim at this much before the deadline, so that the last commit and the leaving of the group fit in."""

TICK_S = 0.05
REPORT_S = 0.5
"""How long the line about a second signal may delay the end: only a log that nothing reads takes so long."""


class LoopThread:
    """One consumer's loop in a thread of its own: one at a time, though not always the same.

    When it is over, for whatever reason, `ending` is how and `over` is set. `failure`: the error that it failed with.
    """

    def __init__(
        self,
        loop: Loop,
        mailbox: Mailbox,
        inline: Inline | None = None,
        *,
        tallies: Callable[[], Sequence[Tallies]] = tuple,
    ) -> None:
        self.loop = loop
        self._tallies = tallies
        self.mailbox = mailbox
        self.begun = False
        self.ending: Ending | None = None
        self.failure: BaseException | None = None
        self.over = threading.Event()
        self._inline = inline

    @property
    def tallies(self) -> Sequence[Tallies]:
        """What its workers have counted so far. Any thread."""
        return self._tallies()

    @property
    def state(self) -> ConsumerState:
        """As the loop saw itself last; what has ended does not look any more, and has nothing. Any thread."""
        state, ending = self.loop.status.state, self.ending
        if ending is None:
            return state
        return ConsumerState(
            name=state.name,
            group=state.group,
            topics=state.topics,
            pattern=state.pattern,
            order=state.order,
            commit=state.commit,
            handler=state.handler,
            phase="ended",
            why=ending.reason,
            guards=state.guards,  # they count
            abandoned=state.abandoned,  # and their threads are still there
        )

    def release(self, hold: str) -> None:
        """An operator releases this hold ("breaker", "storm"). Any thread; the loop does it in a moment."""
        self.mailbox.post(Release(hold))

    def start(self) -> None:
        """Begin; returns at once."""
        loop = self.loop
        if self._inline is not None:
            self._inline.start(lambda: self._run(loop.taken_over))
        threading.Thread(target=self._run, args=(loop.start,), name=f"{loop.plan.name}-loop", daemon=True).start()
        self.begun = True

    def _run(self, begin: Callable[[], None]) -> None:
        """Drive the loop until it is over, or until another thread does."""
        loop, mine = self.loop, True
        try:
            begin()
            while (ending := loop.ending) is None:
                loop.step(time.monotonic())
            self.ending = ending
        except Superseded:
            mine = False
        except BaseException as error:  # noqa: BLE001 - the thread's edge: the app ends, uncommitted work comes again
            self.failure = error
            self.ending = Ending("failed", f"{type(error).__name__}: {error}", crashed=True)
            loop.abandon(error)
        finally:
            if mine:
                self.over.set()


class Lifecycle:
    """The loops of an app from start to end. When one of them fails or halts, all are drained.

    `start`, then `wait` on one thread; any thread may ask for the end with `stop`. `run` does both on the main thread,
    with signals: the first SIGTERM or SIGINT drains, a second one ends the process at once. A drain has
    `shutdown_timeout_s`, less `reserved_s` for what comes after it. When that has passed, or at the second signal,
    `leave` is called with the exit code. It ends the process; one that returns leaves what still runs to itself.

    `supervisor_stops`: whether the process is stopped because its supervisor is; then members with names that the
    supervisor gave them leave their groups. `missed` is called when a shutdown has passed its
    deadline.
    """

    def __init__(
        self,
        threads: Sequence[LoopThread],
        *,
        shutdown_timeout_s: float,
        reserved_s: float = 0.0,
        leave: Callable[[int], None] = os._exit,
        supervisor_stops: Callable[[], bool] = lambda: False,
        missed: Callable[[], None] = lambda: None,
    ) -> None:
        self._threads = threads
        self._timeout_s = shutdown_timeout_s - reserved_s
        self._reserved_s = reserved_s
        self._leave = leave
        self._supervisor_stops = supervisor_stops
        self._missed = missed
        self._deadline: float | None = None
        self.draining_since: float | None = None
        self._signals: list[int] = []  # received ones only: `stop` is none, so the next signal is the first
        self._stop_asked = False
        # No Event: a handler that sets one hangs if the signal comes while this very thread is about to wait for it.
        self._asked: SimpleQueue[None] = SimpleQueue()

    def start(self) -> None:
        """Begin; returns at once. If one of the loops cannot, those that have begun are drained first, and then its
        error is raised.
        """
        try:
            for thread in self._threads:
                thread.start()
        except BaseException:
            for thread in self._threads:
                if not thread.begun:
                    thread.over.set()
            self.stop()
            self.wait()
            raise

    def wait(self) -> int:
        """Blocks until every loop has ended, or until the deadline has passed; returns the exit code. Without loops,
        until the end is asked for.
        """
        while not self._over():
            with suppress(Empty):
                self._asked.get(timeout=TICK_S)
            if self._watch():
                return self._code(late=True)
        code = self._code()
        if code == EXIT_DEADLINE:
            unfinished = sum(thread.ending.unfinished for thread in self._threads if thread.ending is not None)
            log.error("deadline_passed", timeout_s=self._timeout_s, unfinished=unfinished, consequence=COMES_AGAIN)
            self._missed()
        return code

    def run(self, clean_up: Callable[[float], None]) -> int:
        """Start, and block until everything has ended; returns the exit code. Signals are handled meanwhile, if this is
        the main thread.

        `clean_up` gets the number of seconds that are left for it; a signal during it counts like any other.
        """
        previous = self._listen()
        try:
            with collecting_seldom():
                self.start()
                code = self.wait()
            clean_up(self.left_s())
            return code
        finally:
            restore(previous)

    def left_s(self) -> float:
        """Until all must be over, `reserved_s` included; infinite while nothing is to end."""
        if self._deadline is None:
            return float("inf")
        return max(0.0, self._deadline + self._reserved_s - time.monotonic())

    def stop(self) -> None:
        """Ask for a drain, from any thread. It counts as no signal: the first one after it only drains, too."""
        self._stop_asked = True
        self._asked.put(None)

    def _over(self) -> bool:
        if not self._threads:
            return self._deadline is not None
        return all(thread.over.is_set() for thread in self._threads)

    def _listen(self) -> Mapping[int, SignalHandler]:
        if threading.current_thread() is not threading.main_thread():
            return {}
        return install((signal.SIGTERM, signal.SIGINT), self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the signal module's shape
        if self._signals:
            self._report_end(number)
            self._leave(128 + number)
        self._signals.append(number)
        self._asked.put(None)

    def _report_end(self, number: int) -> None:
        """Log what a second signal leaves unfinished; gives up after REPORT_S.

        In a thread, because this one may hold a lock of the log; by `_thread`, because `Thread.start` takes one, too.
        """
        written = allocate_lock()
        written.acquire()

        def report() -> None:
            with suppress(Exception):
                in_flight = sum(thread.state.in_flight for thread in self._threads)
                name = signal.Signals(number).name
                log.warning("ended_at_once", signal=name, in_flight=in_flight, consequence=DELIVERED_AGAIN)
            written.release()

        start_new_thread(report, ())
        written.acquire(timeout=REPORT_S)

    def _watch(self) -> bool:
        """Begin a drain that is due. Whether the deadline has passed, and `leave` returned if something was left."""
        now = time.monotonic()
        if self._deadline is None:
            if self._signals or self._stop_asked:
                by = {"signal": signal.Signals(self._signals[0]).name} if self._signals else {"by": "stop"}
                log.info("stopping", **by, timeout_s=self._timeout_s)
                self._drain(now)
            elif any(thread.ending or thread.loop.ending or thread.loop.halted for thread in self._threads):
                self._drain(now)
        elif now >= self._deadline and self._drained():
            log.warning(
                "group_not_left", timeout_s=self._timeout_s, consequence="others wait for the end of the session"
            )
            return True
        elif now >= self._deadline:
            log.error("deadline_passed", timeout_s=self._timeout_s, consequence=COMES_AGAIN)
            report_suppressed()
            self._missed()
            self._leave(self._code(late=True))
            return True
        return False

    def _drain(self, now: float) -> None:
        self._deadline = now + self._timeout_s
        self.draining_since = now
        margin_s = min(FINISH_MARGIN_S, self._timeout_s / 4)
        halted, supervisor_stops = self._halted(), self._supervisor_stops()
        for thread in self._threads:
            leave = halted or (supervisor_stops and thread.loop.plan.named_by_supervisor)
            thread.mailbox.post(Stop(self._deadline - margin_s, leave=leave))

    def _drained(self) -> bool:
        """Whether all is finished and committed, and only a client is still closing."""
        return all(
            ending is not None and ending.complete for ending in (thread.loop.ending for thread in self._threads)
        )

    def _halted(self) -> bool:
        """An operator has to look at it before it makes sense to start again."""
        halted = any(thread.ending is not None and thread.ending.kind == "halted" for thread in self._threads)
        return halted or any(thread.loop.halted for thread in self._threads)

    def _code(self, *, late: bool = False) -> int:
        endings = [thread.ending for thread in self._threads if thread.ending is not None]
        kinds = {ending.kind for ending in endings}
        if "fenced" in kinds:
            return EXIT_FENCED
        if self._halted():
            return EXIT_HALTED
        if "failed" in kinds:
            return EXIT_UNEXPECTED
        if (late and not self._drained()) or any(ending.unfinished for ending in endings):
            return EXIT_DEADLINE
        return EXIT_OK


MAX_NOTED_BYTES = 1_000_000


class MissedDeadlines:
    """Those of one app on this host. A process that has passed its deadline ends at once and is not scraped again, so
    it leaves a line in a file of the state directory, which the next process of the app takes. Where that directory
    does not outlive the process, nothing is counted. Never raises.
    """

    def __init__(self, configured: str | None, app: str) -> None:
        self._configured = configured
        self._name = f"{re.sub(r'[^A-Za-z0-9_.-]', '_', app)[:100]}.missed-deadlines"

    def note(self) -> None:
        """The deadline of this process has passed. Any thread."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with suppress(OSError):
            fd = os.open(self._path(), flags, 0o600)
            try:
                os.write(fd, b"%d\n" % time.time())
            finally:
                os.close(fd)

    def take(self) -> int:
        """How many there were since the last process took them; of several that start at once, one gets them."""
        with suppress(OSError):
            path = self._path()
            taken = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
            path.rename(taken)
            try:
                with taken.open("rb") as file:
                    count = file.read(MAX_NOTED_BYTES).count(b"\n")
            finally:
                taken.unlink()
            if count:
                log.warning(
                    "previous_shutdown_timed_out",
                    times=count,
                    consequence="what was not finished then is delivered again",
                    what_to_do="give handlers a timeout_s, or raise shutdown.timeout_s and the platform's grace period",
                )
            return count
        return 0

    def _path(self) -> Path:
        return StateDirectory.open(self._configured).path / self._name

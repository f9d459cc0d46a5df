"""A simulated operating-system process: what can be killed, stopped and continued, and how it waits."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from keepfast.testing.fakes.clock import HOLD_UP_S, Action, SimClock, Timer
from keepfast.testing.fakes.trace import Continued, ProcessCrashed, ProcessStopped, Trace

CALL_COST_S = 5e-6
"""What one call of a port takes."""


class ProcessDied(BaseException):
    """Unwinds the code of a simulated process that was killed. Not an Exception: nothing may handle a kill -9."""


class SimulationError(Exception):
    """The code under simulation violated a contract of the ports, or the simulator was misused."""


def _never() -> bool:
    """What a process waits for that does not wait."""
    return False


class Process:
    """One process. Every port call of it begins with `enter`, every wait of it is `wait`, and whatever its background
    threads would do goes through `later`: so a killed process does nothing more, and a stopped one does it afterwards.
    """

    def __init__(self, name: str, clock: SimClock, trace: Trace) -> None:
        self.name = name
        self.clock = clock
        self.trace = trace
        self.alive = True
        self.stopped = False
        self._continues: Timer | None = None
        self._backlog: list[Action] = []
        self._calls_left: int | None = None
        self._bottom: int | None = None
        self._until = inf
        self._ready: Callable[[], object] = _never
        self.in_callback = False
        self.at_end: list[Action] = []
        """Callbacks when the process ends in any way."""
        self._held_up_at = -inf

    def enter(self) -> None:
        """The process runs a port call. Raises ProcessDied when it is dead or dies here; waits while it is stopped.

        A call costs a little time, so that code which spins until a moment has come gets there.
        """
        if self._calls_left is not None and self.alive:
            self._calls_left -= 1
            if self._calls_left < 0:
                self.crash()
        self._check()
        if self.stopped or not self.clock.skip(CALL_COST_S):
            self.wait(CALL_COST_S, lambda: False)

    def wait(self, timeout_s: float, ready: Callable[[], object], *, yields: bool = False) -> bool:
        """Let simulated time pass until `ready()` or the time-out; a stopped process waits on. Raises ProcessDied.

        `yields`: the wait may end early so that another process, whose wait is over, continues; never inside a
        callback, where the same would be asked for again at once.
        """
        clock = self.clock
        deadline, held_up_s, ready_before = clock.monotonic() + timeout_s, clock.held_up_s, self._ready
        outermost, self._bottom = self._bottom, len(clock.waits) if self._bottom is None else self._bottom
        self._until, self._ready = deadline, ready
        clock.waits.append((deadline, self, ready))
        yields = yields and not self.in_callback
        try:
            while True:
                self._check()
                if self.stopped:
                    clock.run_next(inf)  # only a continue or a kill ends this, both of which are events of the clock
                elif ready():
                    return True
                elif yields and clock.another_is_over():
                    return False
                else:
                    if clock.monotonic() <= deadline:
                        held_up_s = clock.held_up_s  # no wait above it has cost it anything until now
                    if not clock.run_next(deadline) and not self.stopped:
                        return bool(ready())
        finally:
            clock.waits.pop()
            self._bottom, self._until, self._ready = outermost, inf, ready_before
            late = clock.monotonic() - deadline > HOLD_UP_S or ready()
            if late and clock.held_up_s > held_up_s:
                self._held_up_at = clock.monotonic()

    @property
    def held_up_at(self) -> float:
        """When another process's wait, above it on the stack, last kept it from going on; now, if one does."""
        is_over = self._until < self.clock.monotonic() or (self._until < inf and self._ready())
        return self.clock.monotonic() if is_over else self._held_up_at

    @property
    def on_top(self) -> bool:
        """Whether its code is on the stack above another process's, so that stopping it now would stop that, too."""
        return self._bottom is not None and self._bottom > 0

    def later(self, delay_s: float, action: Action) -> Timer:
        """A background thread of this process does something after a while, if the process still runs then."""
        return self.clock.after(delay_s, lambda: self.background(action))

    def background(self, action: Action) -> None:
        if not self.alive:
            return
        if self.stopped:
            self._backlog.append(action)
        else:
            action()

    def crash(self) -> None:
        """kill -9, now. Code of this process that is on the stack ends at its next port call or wait."""
        if self.alive:
            self._end()
            self.trace.add(ProcessCrashed(self.clock.monotonic(), self.name))
            self.trace.fault("crash")

    def exit(self) -> None:
        """The process ends in order: no trace of a crash, but nothing of it runs any more."""
        self._end()

    def _end(self) -> None:
        if self.alive:
            for action in self.at_end:
                action()
        self.alive = False
        self._backlog.clear()

    def crash_after(self, calls: int) -> None:
        """kill -9 at the port call after `calls` more of them: between any two effects of a step."""
        self._calls_left = calls

    def stop(self, duration_s: float) -> None:
        """SIGSTOP, with a SIGCONT after `duration_s`. A second stop while stopped only moves the continue."""
        if not self.alive:
            return
        if self._continues is not None:
            self._continues.cancel()
        if not self.stopped:
            self.trace.add(ProcessStopped(self.clock.monotonic(), self.name))
            self.trace.fault("stop")
        self.stopped = True
        self._continues = self.clock.after(duration_s, self._continue)

    def _continue(self) -> None:
        self._continues = None
        self.stopped = False
        if not self.alive:
            return
        self.trace.add(Continued(self.clock.monotonic(), self.name))
        backlog, self._backlog = self._backlog, []
        for action in backlog:
            self.background(action)

    def _check(self) -> None:
        if not self.alive:
            raise ProcessDied(self.name)

"""What may start now, and where it runs: on workers, or on the thread that drives the loop."""

from __future__ import annotations

from collections.abc import Callable

from keepfast.core.lanes import Lanes
from keepfast.core.ports import Clock, Executor
from keepfast.core.runs import Run
from keepfast.core.sizing import Sizer
from keepfast.engine.cases import Cases
from keepfast.engine.guards import Guards
from keepfast.engine.inline import Inline
from keepfast.engine.plan import Plan
from keepfast.engine.probation import Probation


class Starter:
    """Owner: the loop thread. `in_flight` is every run that was started and has not come back, wherever it is."""

    def __init__(
        self,
        plan: Plan,
        lanes: Lanes,
        cases: Cases,
        guards: Guards,
        executor: Executor,
        *,
        probation: Probation,
        clock: Clock,
        inline: Inline | None,
    ) -> None:
        self._lanes = lanes
        self._cases = cases
        self._guards = guards
        self._probation = probation
        self._executor = executor
        self._clock = clock
        self._inline = inline
        self._kept: list[Run] = []  # for this very thread, last one first
        self.sizer = Sizer(
            capacity=plan.capacity,
            consecutive=plan.order == "partition",
            one_by_one=plan.one_by_one,
            may_inline=inline is not None,
        )
        self.in_flight = guards.in_flight

    def start(self, now: float, *, keep: bool) -> None:
        """Start what may start. With `keep`, runs of a fast handler are kept for `walk_kept`."""
        sizer, in_flight, suspects = self.sizer, self.in_flight, self._probation.suspected
        size = sizer.size
        if size > 1 and not suspects:
            self._lanes.grow(size)
        room = sizer.workers - len(in_flight)
        if room <= 0:
            return
        runs = self._probation.take(room, now) if suspects else self._guards.take(self._cases, room, size, now)
        if not runs:
            return
        for run in runs:
            run.begun_at = now
            run.enter()
            in_flight.add(run)
        if keep and sizer.inline:
            self._kept = runs[::-1]
        else:
            self._executor.submit(runs, len(in_flight))

    def walk_kept(self, returned: Callable[[Run, float], None]) -> bool:
        """Walk what was kept and hand it back. Whether there was anything. Raises Superseded."""
        if self._inline is None or not self._kept:
            return False
        while self._kept:
            run = self._kept.pop()
            self._inline.walk(run)
            returned(run, self._clock.monotonic())
        return True

    def taken_over(self) -> None:
        """Another thread drives from now on: what the last one kept and did not begin goes to workers."""
        if self._kept:
            kept, self._kept = self._kept, []
            self._executor.submit(kept, len(self.in_flight))

    def back(self, run: Run) -> None:
        """It is not in flight any more."""
        self.in_flight.discard(run)
        run.leave()
        self.sizer.observe(run.elapsed_s, run.done)

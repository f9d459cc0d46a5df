"""Breaks of the loop and its end."""

from __future__ import annotations

import signal
import time
from typing import Any

from profile_tests.breaking import breaks, replace, wrap

from keepfast.core.errors import Fault, SourceError
from keepfast.core.runs import Partition
from keepfast.engine import lifecycle, loop, shutdown
from keepfast.engine.intake import Intake
from keepfast.engine.loop import Loop
from keepfast.engine.shutdown import Shutdown
from keepfast.kafka.source import KafkaSource


@breaks("FETCHED_AGAIN")
def a_fetch_that_fails_is_not_logged() -> None:
    replace(loop, "log_client_error", lambda consumer, error, now: None)


@breaks("FETCHED_AGAIN")
def a_fetch_that_fails_ends_the_loop() -> None:
    def on_error(self: Loop, error: SourceError, place: Any) -> None:
        before(self, SourceError(str(error), fault=Fault.FATAL, code=error.code), place)

    before = replace(Loop, "on_error", on_error)


@breaks("NOT_EVICTED")
def nothing_is_polled_while_a_handler_runs() -> None:
    def poll(self: Loop, now: float) -> None:
        if not self.in_flight:
            before(self, now)

    before = replace(Loop, "_poll", poll)


@breaks("BOUNDED")
def one_record_fills_a_partition() -> None:
    def is_full(self: Intake, partition: Partition) -> bool:
        return bool(partition.buffer) or before(self, partition)

    before = replace(Intake, "_is_full", is_full)


@breaks("BOUNDED")
def no_partition_is_ever_full() -> None:
    replace(Intake, "_is_full", lambda self, partition: False)


@breaks("FORGOTTEN")
def a_closed_partition_keeps_its_records() -> None:
    def close(self: Partition) -> None:
        self.live = False

    replace(Partition, "close", close)


@breaks("QUICK")
def an_idle_loop_sleeps_for_50_ms() -> None:
    def idle_s(self: Loop, now: float) -> float:
        time.sleep(0.05)
        return 0.0

    replace(Loop, "_idle_s", idle_s)


@breaks("TUNED")
def a_sweep_takes_ten_times_as_many() -> None:
    wrap(KafkaSource, "sweep", lambda before: lambda self, limit: before(self, limit * 10))


@breaks("DRAINED")
def a_drain_does_not_wait_for_what_runs() -> None:
    def over(self: Shutdown, now: float) -> Any:
        deadline, self.deadline = self.deadline, now
        waiting = before(self, now)
        self.deadline = deadline
        return waiting

    before = replace(Shutdown, "over", over)


@breaks("DRAINED")
def a_drain_is_over_at_once() -> None:
    def begin(self: Shutdown, stop: Any, now: float) -> None:
        before(self, stop, now)
        self.deadline = now

    before = replace(Shutdown, "begin", begin)


@breaks("SIGNALS")
def sigterm_is_not_listened_for() -> None:
    def install(numbers: Any, handler: Any) -> Any:
        return before([number for number in numbers if number != signal.SIGTERM], handler)

    before = replace(lifecycle, "install", install)


@breaks("INTAKE_CLOSED")
def partitions_are_read_on_while_it_drains() -> None:
    def close(self: Intake) -> None:
        self.closed = True
        self._full.clear()

    replace(Intake, "close", close)


@breaks("CUT_SHORT")
def a_drain_takes_its_whole_time() -> None:
    def over(self: Shutdown, now: float) -> Any:
        return None if now < self.deadline else before(self, now)

    before = replace(Shutdown, "over", over)


@breaks("DRAIN_REPORTED")
def its_progress_is_logged_after_50_s() -> None:
    replace(shutdown, "REPORT_S", 50.0)


@breaks("DRAIN_REPORTED")
def its_progress_is_not_logged() -> None:
    replace(Shutdown, "_report", lambda self, now, **counts: None)


@breaks("DEADLINE")
def a_drain_waits_past_its_deadline() -> None:
    def over(self: Shutdown, now: float) -> Any:
        parts = self._parts
        return None if len(parts.in_flight) + len(parts.failures.settling) else before(self, now)

    before = replace(Shutdown, "over", over)

"""Keeps a number of child processes running until a signal, or until one of them exits for good.

Children are static members of their groups: a restarted child gets its partitions back at once.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from keepfast.settings import Settings
from keepfast.supervisor.liveness import ChildWatch, Liveness
from keepfast.supervisor.parent_link import Report
from keepfast.supervisor.policy import RestartPolicy, ShutdownPolicy, exit_code, is_final
from keepfast.supervisor.process import ChildProcess, Command, describe_exit
from keepfast.supervisor.signals import Signals
from keepfast.telemetry.logs import get_logger

log = get_logger("keepfast.supervisor")

_TICK_S = 1.0
"""The longest interval between two checks; signals and reports trigger one at once."""


@dataclass(slots=True)
class _Slot:
    """The slot of one child and its history."""

    index: int
    child: ChildProcess | None = None
    due_at: float | None = None
    """When the next child starts; None: not planned."""
    deaths: int = 0
    """Consecutive deaths without a healthy run in between."""
    started: bool = False
    ending: str = ""
    """How the last child ended."""
    ended_at: float = 0.0
    silence_logged: bool = False
    restart: _Restart | None = None
    """The child is being ended, because it is not live."""


@dataclass(slots=True)
class _Restart:
    """A child that is not live has got SIGTERM."""

    asked_at: float
    kill_at: float
    """Its own deadline, if it answers meanwhile; if it does not, it has less."""
    killed: bool = False


@dataclass(frozen=True, slots=True)
class ChildStatus:
    """A child as its supervisor sees it. Times are those of the monotonic clock."""

    index: int
    pid: int | None
    """None: it does not run."""
    since: float
    """When it was started, or when the last one ended."""
    ending: str = ""
    """How the last one ended; empty if there was none."""
    due_at: float | None = None
    """When the next one starts."""
    end_by: float | None = None
    """It was not live and is being ended by the supervisor, at the latest then."""
    liveness: Liveness = field(default_factory=Liveness)


@dataclass(slots=True)
class _Stopping:
    """The state of a shutdown."""

    kill_at: float
    cause: int | None
    """The final exit code of the child that caused it; None for a signal."""
    codes: list[int] = field(default_factory=list)
    killed: bool = False


@dataclass(frozen=True, slots=True)
class ChildStarted:
    """A child runs."""

    index: int
    pid: int
    restarted: bool


@dataclass(frozen=True, slots=True)
class ChildExited:
    """A child has ended: by an exit code or a signal. `stopping`: because all were asked to."""

    index: int
    pid: int
    ending: str
    stopping: bool


class Supervisor:
    """Runs `processes` children of `command`. Owner: the main thread.

    The first child starts alone; the others start when it has reported valid settings, so that an error common to all
    is reported once. With `watch`, a child that is not live is ended and restarted.

    The first SIGTERM or SIGINT is forwarded and all children drain; a second one is forwarded too
    and ends them at once. No child outlives `run`. `on_child` is called when a child was started or has ended; children
    inherit `pass_fds`.
    """

    def __init__(
        self,
        command: Command,
        *,
        processes: int,
        restart: RestartPolicy | None = None,
        shutdown: ShutdownPolicy | None = None,
        on_report: Callable[[Report], None] = lambda _: None,
        on_child: Callable[[ChildStarted | ChildExited], object] = lambda _: None,
        pass_fds: Sequence[int] = (),
        watch: ChildWatch | None = None,
    ) -> None:
        self._watch = watch
        self._statuses: tuple[ChildStatus, ...] = ()
        self._command = command
        self._on_child = on_child
        self._pass_fds = pass_fds
        self._slots = [_Slot(index) for index in range(processes)]
        self._restart = restart or RestartPolicy()
        self._shutdown = shutdown or ShutdownPolicy()
        self._on_report = on_report
        self._stop_signals: list[int] = []
        self._stopping: _Stopping | None = None

    def run(self) -> int:
        """Block until all children have ended; returns the exit code."""
        with Signals() as signals:
            try:
                self._slots[0].due_at = time.monotonic()
                while (code := self._step(time.monotonic())) is None:
                    links = [child.parent_link for child in self._living() if child.listening]
                    for number in signals.wait(self._until_next(time.monotonic()), links):
                        self._on_signal(number, time.monotonic())
                return code
            finally:
                for child in self._living():
                    child.kill_and_wait()

    def statuses(self) -> tuple[ChildStatus, ...]:
        """Of all children, as of the last check. Any thread may call it."""
        watch = self._watch
        if watch is None:
            return self._statuses
        return tuple(replace(one, liveness=watch.of(one.index)) for one in self._statuses)

    def _step(self, now: float) -> int | None:
        """Check every slot; returns the exit code once all children have ended."""
        code = self._check_all(now)
        self._statuses = tuple(_status_of(slot, now) for slot in self._slots)
        return code

    def _check_all(self, now: float) -> int | None:
        for slot in self._slots:
            self._check(slot, now)
            if self._stopping is None and slot.child is not None and self._watch is not None:
                self._check_live(slot, slot.child, self._watch, now)
        if self._stopping is not None:
            return self._finish(self._stopping, now)
        for slot in self._slots:
            if slot.due_at is not None and now >= slot.due_at:
                self._start(slot, now)
        return None

    def _check(self, slot: _Slot, now: float) -> None:
        child = slot.child
        if child is None:
            return
        report = child.listen()
        if report is not None:
            self._on_report(report)
            for other in self._slots:
                if not other.started and self._stopping is None:
                    other.due_at = now
        code = child.ended()
        if code is None:
            return
        slot.child, slot.restart = None, None
        slot.ending, slot.ended_at = describe_exit(code), now
        if self._watch is not None:
            self._watch.ended(slot.index)
        self._on_child(ChildExited(slot.index, child.pid, describe_exit(code), stopping=self._stopping is not None))
        if self._stopping is not None:
            self._stopping.codes.append(code)
        elif is_final(code):
            log.error("child_ended_for_good", process=slot.index, pid=child.pid, ending=describe_exit(code))
            self._stop(signal.SIGTERM, now, cause=code)
        else:
            self._plan_restart(slot, child, code, now)

    def _check_live(self, slot: _Slot, child: ChildProcess, watch: ChildWatch, now: float) -> None:
        """End a child that has not been live for too long; its exit is handled as any other, so it is restarted."""
        known, policy = watch.of(slot.index), watch.policy
        if slot.restart is not None:
            self._check_restart(slot.restart, slot, child, known, now)
        elif known.restart_due(policy):
            timeout_s = child.report.shutdown_timeout_s if child.report else None
            own_s = self._shutdown.unknown_timeout_s if timeout_s is None else timeout_s
            slot.restart = _Restart(now, now + own_s + self._shutdown.margin_s)
            log.error(
                "child_not_live",
                process=slot.index,
                pid=child.pid,
                why="it does not answer" if known.silent else ", ".join(known.reasons),
                for_s=round(known.failing_s, 1),
                partitions=list(known.partitions),
                signal=signal.Signals.SIGTERM.name,
                kill_in_s=policy.grace_s if known.silent else round(slot.restart.kill_at - now, 1),
            )
            child.send(signal.SIGTERM)  # the child alone: it is restarted, so it stays in its groups
        elif known.silent and known.failures >= policy.failures and not slot.silence_logged:
            slot.silence_logged = True
            log.warning(
                "child_silent",
                process=slot.index,
                pid=child.pid,
                for_s=round(known.failing_s, 1),
                partitions=list(known.partitions),
                restart_in_s=round(max(0.0, policy.restart_after_s - known.failing_s), 1),
            )
        elif slot.silence_logged and not known.silent:
            slot.silence_logged = False
            log.info("child_answers_again", process=slot.index, pid=child.pid)

    def _check_restart(self, restart: _Restart, slot: _Slot, child: ChildProcess, known: Liveness, now: float) -> None:
        grace_s = self._watch.policy.grace_s if self._watch is not None else 0.0
        silent = known.silent and known.failing_s >= grace_s and now >= restart.asked_at + grace_s
        if not restart.killed and (silent or now >= restart.kill_at):
            restart.killed = True
            why = "it does not answer and did not end" if silent else "it did not end in time"
            log.error("child_killed", process=slot.index, pid=child.pid, why=why)
            child.kill()

    def _plan_restart(self, slot: _Slot, child: ChildProcess, code: int, now: float) -> None:
        lived_s = now - child.started_at
        slot.deaths = 1 if lived_s >= self._restart.healthy_s else slot.deaths + 1
        delay_s = self._restart.delay_s(slot.deaths)
        slot.due_at = now + delay_s
        log.warning(
            "child_ended",
            process=slot.index,
            pid=child.pid,
            ending=describe_exit(code),
            lived_s=round(lived_s, 1),
            restart_in_s=delay_s,
        )

    def _start(self, slot: _Slot, now: float) -> None:
        slot.due_at = None
        try:
            slot.child = ChildProcess.start(
                self._command, index=slot.index, now=now, restarted=slot.started, pass_fds=self._pass_fds
            )
        except OSError as error:  # out of memory or processes: possibly temporary
            slot.deaths += 1
            delay_s = self._restart.delay_s(slot.deaths)
            slot.due_at = now + delay_s
            log.error("child_not_started", process=slot.index, exc=error, restart_in_s=delay_s)  # noqa: TRY400 - it logs `exc`
            return
        log.info("child_started", process=slot.index, pid=slot.child.pid, again=slot.started)
        slot.silence_logged = False
        if self._watch is not None:
            self._watch.started(slot.index, slot.child.pid)
        self._on_child(ChildStarted(slot.index, slot.child.pid, restarted=slot.started))
        slot.started = True

    def _on_signal(self, number: int, now: float) -> None:
        self._stop_signals.append(number)
        if self._stopping is None:
            self._stop(number, now, cause=None)
        elif len(self._stop_signals) > 1:  # the first signal changes nothing if the children drain already
            log.warning("stopping_now", signal=signal.Signals(number).name)
            self._send_all(number)
            self._stopping.kill_at = min(self._stopping.kill_at, now + self._shutdown.second_signal_timeout_s)

    def _stop(self, number: int, now: float, *, cause: int | None) -> None:
        living = self._living()
        for child in living:
            child.listen()  # its report may have arrived together with the signal
        reported = [child.report.shutdown_timeout_s if child.report else None for child in living]
        timeout_s = max((self._shutdown.unknown_timeout_s if own is None else own for own in reported), default=0.0)
        self._stopping = _Stopping(now + timeout_s + self._shutdown.margin_s, cause)
        for slot in self._slots:
            slot.due_at = None
        log.info("stopping", signal=signal.Signals(number).name, children=len(living), timeout_s=timeout_s)
        for slot in self._slots:
            if slot.child is not None:
                # A child that drains already because it was not live would take it for a second signal.
                slot.child.end(number if slot.restart is None else None)

    def _finish(self, stopping: _Stopping, now: float) -> int | None:
        living = self._living()
        if not living:
            second = self._stop_signals[1] if len(self._stop_signals) > 1 else None
            return exit_code(stopping.codes, second_signal=second, cause=stopping.cause, killed=stopping.killed)
        if now >= stopping.kill_at and not stopping.killed:
            stopping.killed = True
            for child in living:
                log.error("child_killed", process=child.index, pid=child.pid, why="it did not end in time")
                child.kill()
        return None

    def _send_all(self, number: int) -> None:
        for child in self._living():
            child.end(number)

    def _living(self) -> list[ChildProcess]:
        return [slot.child for slot in self._slots if slot.child is not None]

    def _until_next(self, now: float) -> float:
        times = [slot.due_at for slot in self._slots if slot.due_at is not None]
        if self._stopping is not None and not self._stopping.killed:
            times.append(self._stopping.kill_at)
        return min([_TICK_S, *(at - now for at in times)])


def _status_of(slot: _Slot, now: float) -> ChildStatus:
    child, restart = slot.child, slot.restart
    return ChildStatus(
        slot.index,
        pid=None if child is None else child.pid,
        since=(slot.ended_at if slot.ending else now) if child is None else child.started_at,
        ending=slot.ending,
        due_at=slot.due_at,
        end_by=None if restart is None else restart.kill_at,
    )


_MAX_ID_LENGTH = 249
"""Kafka's limit."""
_INVALID_IN_ID = re.compile(r"[^A-Za-z0-9._-]")


def with_static_members(settings: Settings, *, index: int, host: str, supervisor: int = 0) -> Settings:
    """The settings with a `group_instance_id` for each consumer that is the same after every restart of this child.

    It is `<app>-<host>-<index>`, of a further supervisor on this host `<app>-<host>-s<number>-<index>`. The index is
    also appended to a configured one, because two members of a group must not share it.
    """
    default = f"{settings.app.name}-{host}" + (f"-s{supervisor}" if supervisor else "")
    consumers = {
        name: own
        if own.order == "queue"  # a share group has no static members
        else replace(
            own,
            group_instance_id=instance_id(own.group_instance_id or default, index),
            named_by_supervisor=own.group_instance_id is None,
            group_protocol="classic" if own.group_protocol == "auto" else own.group_protocol,
        )
        for name, own in settings.consumers.items()
    }
    return replace(settings, consumers=MappingProxyType(consumers))


def instance_id(stem: str, index: int) -> str:
    """`<stem>-<index>`, limited to the characters and the length that Kafka accepts."""
    tail = f"-{index}"
    return _INVALID_IN_ID.sub("_", stem)[: _MAX_ID_LENGTH - len(tail)] + tail

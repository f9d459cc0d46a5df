"""`keepfast run`: runs an app's consumers in this process, in several processes, or with reload on code changes."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeVar

import click

from keepfast.cli.errors import report_errors
from keepfast.engine import lifecycle

if TYPE_CHECKING:
    from keepfast.cli.dev_environment import DevEnvironment
    from keepfast.settings import Settings
    from keepfast.supervisor import ChildSpec, ParentLink, Report

F = TypeVar("F", bound=Callable[..., Any])

MAX_PROCESSES = 256
EXIT_GRACE_S: Final = 3.0
"""How long the process may take to exit: time for exit hooks, such as exporters that flush."""
LogFormat = Literal["auto", "console", "json", "app"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of the command line."""

    target: str
    consumers: tuple[str, ...]
    wait: bool
    log_level: str | None
    log_format: LogFormat | None
    debug: bool
    brokers: str | None = None
    configure: bool = False

    def command(self, *more: str, wait: bool = False) -> list[str]:
        """The command line of a child process that runs the same app."""
        # -P: the user's folder must not shadow the standard library while we import; loading the app adds it later.
        found_in_cwd = Path(__file__).resolve().parents[2] == Path.cwd()
        safely = [] if found_in_cwd else ["-P"]
        words = [sys.executable, *safely, "-m", "keepfast", "run", self.target, *more]
        for name in self.consumers:
            words += ["--consumer", name]
        if self.brokers is not None:
            words += ["--brokers", self.brokers]
        if self.log_level:
            words += ["--log-level", self.log_level]
        if self.log_format:
            words += ["--log-format", self.log_format]
        words += ["--configure"] * self.configure
        return words + ["--wait"] * (self.wait or wait) + ["--debug"] * self.debug


@dataclass(frozen=True, slots=True)
class ChildOptions:
    """What a parent process tells this one by hidden options; None or 0 without a parent."""

    index: int | None
    supervisor: int
    """The number of the supervisor, of those of this app on this host."""
    parent_fd: int | None
    health_socket: Path | None
    events_fd: int | None


def consumer_options(command: F) -> F:
    """Add the options --consumer, --log-level, --log-format and --debug."""
    levels = click.Choice(["debug", "info", "warning", "error", "critical"], case_sensitive=False)
    formats = click.Choice(["auto", "console", "json", "app"])
    for option in (
        click.option("--debug", is_flag=True, help="Show tracebacks."),
        click.option(
            "--log-format",
            type=formats,
            help="auto: console on a terminal, otherwise json. app: as the app has set up logging.",
        ),
        click.option("--log-level", type=levels, help="The lowest level to log."),
        click.option(
            "--consumer", "consumers", metavar="NAME", multiple=True, help="Run only this consumer. Repeatable."
        ),
    ):
        command = option(command)
    return command


@click.command(short_help="Run the consumers of an app until a signal stops them.")
@click.argument("target", metavar="MODULE:APP")
@click.option(
    "--processes",
    type=click.IntRange(1, MAX_PROCESSES),
    help="Run this many processes under a supervisor that restarts those that die. Default: this process only.",
)
@click.option("--reload", is_flag=True, help="For development: restart when a .py file below this folder changes.")
@click.option(
    "--brokers",
    "--bootstrap",
    "brokers",
    metavar="HOST:PORT,…",
    help="Overrides KAFKA_BROKERS and the app's brokers.",
)
@click.option(
    "--configure", is_flag=True, help="Set the configuration of the share groups of queues: lock, start, isolation."
)
@click.option("--wait", is_flag=True, help="Wait for an unreachable broker without limit instead of 30 s.")
@consumer_options
@click.option("--child", type=int, hidden=True, help="The number of this process under its supervisor.")
@click.option("--supervisor", type=int, default=0, hidden=True, help="The number of its supervisor on this host.")
@click.option(
    "--parent-fd", type=int, hidden=True, help="The file descriptor that connects this process to its parent."
)
@click.option(
    "--health-socket",
    type=click.Path(path_type=Path),
    hidden=True,
    help="The Unix socket on which this process serves health to its parent.",
)
@click.option("--events-fd", type=int, hidden=True, help="The file descriptor to which events are written as JSON.")
@click.option("--dev-at", hidden=True, help="The address of the broker that `keepfast dev` started for this app.")
@click.option("--dev-embedded", is_flag=True, hidden=True, help="That broker is the embedded one.")
@click.option(
    "--dev-partitions", type=int, default=4, hidden=True, help="The partition count of the topics created there."
)
@click.option("--dev-health-port", type=int, default=0, hidden=True, help="The port of its health server.")
def run(
    target: str,
    consumers: tuple[str, ...],
    processes: int | None,
    *,
    reload: bool,
    debug: bool,
    child: int | None,
    supervisor: int,
    parent_fd: int | None,
    health_socket: Path | None,
    events_fd: int | None,
    dev_at: str | None,
    dev_embedded: bool,
    dev_partitions: int,
    dev_health_port: int,
    **more: Any,
) -> None:
    """Run the consumers of an app until Ctrl-C or SIGTERM.

    MODULE:APP names the App object: `orders.main:app`, or `path/to/file.py:app`. `app` may be omitted. Modules are
    imported from this folder first.

    \b
    In app.py:
      from keepfast import App
      app = App("payments")
    \b
      @app.consumer("orders.payment.v1")
      def charge(payment: dict) -> None:
          print(payment)
    \b
    Then:
      keepfast run app:app
      keepfast run app:app --reload
      keepfast run app:app --processes 4 --consumer charge
    \b
    The first signal drains: running handlers finish. A second signal exits at once.
    Exit codes: 0 clean, 1 unexpected, 2 usage or configuration, 3 broker or topic missing
    at startup, 4 halted by a handler, 5 not drained in time, 6 replaced by another
    member, 130 or 143 after a second signal.
    """
    options = RunOptions(target=target, consumers=consumers, debug=debug, **more)
    if reload and processes:
        raise click.UsageError("--reload runs one process: omit --processes.")
    with report_errors(debug=debug):
        if processes:
            code = _supervise(options, processes)
        elif reload:
            code = _reload(options)
        else:
            dev_env = _dev_environment(
                dev_at, embedded=dev_embedded, partitions=dev_partitions, health_port=dev_health_port
            )
            here = ChildOptions(child, supervisor, parent_fd, health_socket, events_fd)
            code = _run_here(options, here, dev_env)
    exit_process(code)


def exit_process(code: int) -> NoReturn:
    """Exit with this code, after EXIT_GRACE_S at the latest.

    Python waits at exit for every non-daemon thread. A cancelled handler may have left one that never ends:
    `asyncio.to_thread` and executors create such threads, and the function that they run cannot be cancelled.
    """
    from keepfast.telemetry.logs import get_logger

    left = [thread.name for thread in threading.enumerate() if not thread.daemon and thread.name != "MainThread"]
    if left:
        log = get_logger("keepfast.lifecycle")
        log.warning("threads_left_behind", threads=left[:10], ends_in_s=EXIT_GRACE_S)
    threading.Thread(target=_exit_after_grace, args=(code,), name="keepfast-exit", daemon=True).start()
    sys.exit(code)


def _exit_after_grace(code: int) -> None:
    time.sleep(EXIT_GRACE_S)
    os._exit(code)


def _dev_environment(
    address: str | None, *, embedded: bool, partitions: int, health_port: int
) -> DevEnvironment | None:
    if address is None:
        return None
    from keepfast.cli.dev_environment import DevEnvironment

    return DevEnvironment(address=address, embedded=embedded, partitions=partitions, health_port=health_port)


def _run_here(options: RunOptions, here: ChildOptions, dev_env: DevEnvironment | None) -> int:
    stop_before_start = _StopBeforeStart()
    stop_before_start.listen()
    parent_link = _open_parent_link(here.parent_fd)
    try:
        return _load_and_run(options, here, parent_link, dev_env)
    except _Stopped:
        click.echo("Stopped before startup finished.", err=True)
        return 0


def _load_and_run(
    options: RunOptions, here: ChildOptions, parent_link: ParentLink | None, dev_env: DevEnvironment | None
) -> int:
    from keepfast.cli.app_loader import load_app
    from keepfast.http.server import on_unix_socket, server_required
    from keepfast.supervisor import Report, with_static_members
    from keepfast.telemetry.event_log import EventWriter
    from keepfast.telemetry.logs import get_logger

    app = load_app(options.target, cwd=Path.cwd())
    app.chosen(options.consumers)  # report an unknown consumer name before anything else
    settings = _with_brokers(app.settings(), options.brokers)
    if options.configure or dev_env is not None:
        settings = _configuring_groups(settings)
    level = options.log_level or settings.log.level
    log_format = options.log_format or settings.log.format
    _configure_logs(
        level,
        log_format,
        max_lines=settings.log.max_lines,
        process=here.index,
        tracebacks=options.debug or dev_env is not None,
    )
    for warning in settings.warnings:
        get_logger("keepfast.settings").warning("settings_warning", text=warning)
    if here.index is not None:
        settings = with_static_members(
            settings, index=here.index, host=socket.gethostname(), supervisor=here.supervisor
        )
    if parent_link is not None:
        health = settings.health
        parent_link.report(
            Report(
                shutdown_timeout_s=settings.shutdown.timeout_s,
                log_level=level,
                log_format=log_format,
                app=settings.app.name,
                health=(health.host, health.port) if health.enabled and here.health_socket else None,
                health_required=server_required(settings),
                restart_after_s=health.restart_after_s,
            )
        )
    if here.health_socket is not None:
        settings = on_unix_socket(settings, here.health_socket)
    if dev_env is not None:
        settings = dev_env.adapt(settings)
        dev_env.create_topics(settings)
        dev_env.print_summary(settings, app.chosen(options.consumers))
    stops = parent_link.supervisor_stops if parent_link is not None else lambda: False
    observers = () if here.events_fd is None else (EventWriter(here.events_fd),)
    return app.run(
        only=options.consumers, settings=settings, wait=options.wait, supervisor_stops=stops, observers=observers
    )


def _with_brokers(settings: Settings, brokers: str | None) -> Settings:
    """The settings with the addresses of --brokers, if it is given. Raises ConfigError if it names none."""
    if brokers is None:
        return settings
    from keepfast.cli.connection import addresses_of

    origins = MappingProxyType({**settings.origins, "kafka.brokers": "--brokers"})
    return replace(settings, kafka=replace(settings.kafka, brokers=addresses_of(brokers)), origins=origins)


def _configuring_groups(settings: Settings) -> Settings:
    """As if `configure_group` were set for every queue."""
    consumers = {
        name: replace(own, configure_group=True) if own.order == "queue" else own
        for name, own in settings.consumers.items()
    }
    return replace(settings, consumers=MappingProxyType(consumers))


def _supervise(options: RunOptions, processes: int) -> int:
    from keepfast.supervisor import ChildWatch, Supervisor, SupervisorNumber
    from keepfast.supervisor.shared_health import SharedHealthServer

    own = SupervisorNumber(
        options.target, options.consumers, state_dir=os.environ.get("KEEPFAST_STATE_DIR"), cwd=Path.cwd()
    )
    number = own.acquire()  # held until this process ends
    with SharedHealthServer(processes) as server:
        watch = ChildWatch(server.addresses())

        def command(spec: ChildSpec) -> Sequence[str]:
            # A restarted child has reached the broker before, so an outage is likely to end: wait for it.
            mine = [
                "--child",
                str(spec.index),
                "--supervisor",
                str(number),
                "--parent-fd",
                str(spec.parent_fd),
                "--health-socket",
                str(server.health_socket(spec)),
            ]
            return options.command(*mine, wait=spec.restarted)

        def on_report(report: Report) -> None:
            # Only the children know the settings, because they load the app.
            # What an app sets up for its logs is set up in the children only.
            own = report.log_format if report.log_format != "app" else None
            _configure_logs(report.log_level or "info", own or "auto")
            if report.restart_after_s is not None:
                watch.restart_after(report.restart_after_s)
            server.start(report, supervisor.statuses, watch.policy.restart_after_s)

        _configure_logs(options.log_level or "info", "auto" if options.log_format == "app" else options.log_format)
        supervisor = Supervisor(command, processes=processes, on_report=on_report, watch=watch)
        watch.start()
        try:
            return supervisor.run()
        finally:
            watch.stop()
            own.release()


def _reload(options: RunOptions) -> int:
    from keepfast.cli.reload import Reloader, require_watchfiles

    require_watchfiles()

    def command(spec: ChildSpec) -> Sequence[str]:
        return options.command("--parent-fd", str(spec.parent_fd))

    return Reloader(command, root=Path.cwd()).run()


def _configure_logs(level: str, log_format: str | None, **more: Any) -> None:
    from keepfast.telemetry import logs

    known: dict[str | None, LogFormat] = {"console": "console", "json": "json", "app": "app"}
    logs.configure(level=level, format=known.get(log_format, "auto"), **more)


def _open_parent_link(parent_fd: int | None) -> ParentLink | None:
    if parent_fd is None:
        return None
    from keepfast.supervisor import ParentLink

    parent_link = ParentLink(parent_fd)
    parent_link.watch()
    return parent_link


class _Stopped(BaseException):
    """A signal arrived before startup finished. Not an Exception, so that no handler treats it as a failure."""


class _StopBeforeStart:
    """Handles signals until the app does: the first one ends the startup, a second one exits at once."""

    def __init__(self, exit_now: Callable[[int], None] = os._exit) -> None:
        self._signalled = False
        self._exit_now = exit_now

    def listen(self) -> None:
        lifecycle.install((signal.SIGTERM, signal.SIGINT), self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the signature of signal handlers
        if self._signalled:
            self._exit_now(128 + number)
        self._signalled = True
        raise _Stopped

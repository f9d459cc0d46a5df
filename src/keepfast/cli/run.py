"""`keepfast run`: an app's consumers here, in several processes, or started anew whenever the code changes."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from keepfast.cli.errors import said_plainly
from keepfast.engine import lifecycle

if TYPE_CHECKING:
    from keepfast.cli.dev_child import Bench
    from keepfast.supervisor import ChildPlace, Report, Tether

F = TypeVar("F", bound=Callable[..., Any])

MAX_PROCESSES = 256
LogFormat = Literal["auto", "console", "json"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What was said on the command line."""

    target: str
    consumers: tuple[str, ...]
    wait: bool
    log_level: str | None
    log_format: LogFormat | None
    debug: bool

    def command(self, *more: str, wait: bool = False) -> list[str]:
        """The command line that runs the same app in a child."""
        # -P: the user's folder must not go before the standard library while we load; the app's loading adds it.
        found_in_cwd = Path(__file__).resolve().parents[2] == Path.cwd()
        safely = [] if found_in_cwd else ["-P"]
        words = [sys.executable, *safely, "-m", "keepfast", "run", self.target, *more]
        for name in self.consumers:
            words += ["--consumer", name]
        if self.log_level:
            words += ["--log-level", self.log_level]
        if self.log_format:
            words += ["--log-format", self.log_format]
        return words + ["--wait"] * (self.wait or wait) + ["--debug"] * self.debug


def consumer_options(command: F) -> F:
    """--consumer, --log-level, --log-format, --debug."""
    levels = click.Choice(["debug", "info", "warning", "error", "critical"], case_sensitive=False)
    formats = click.Choice(["auto", "console", "json"])
    for option in (
        click.option("--debug", is_flag=True, help="Show tracebacks."),
        click.option("--log-format", type=formats, help="auto: console on a terminal, else json."),
        click.option("--log-level", type=levels, help="The lowest level that is written."),
        click.option(
            "--consumer", "consumers", metavar="NAME", multiple=True, help="Run only this one; may be repeated."
        ),
    ):
        command = option(command)
    return command


@click.command(short_help="Run the consumers of an app until a signal ends them.")
@click.argument("target", metavar="MODULE:APP")
@click.option(
    "--processes",
    type=click.IntRange(1, MAX_PROCESSES),
    help="So many processes under a supervisor, which restarts those that die. Without it: this process alone.",
)
@click.option(
    "--reload", is_flag=True, help="For development: start anew whenever a .py file below this folder changes."
)
@click.option("--wait", is_flag=True, help="Wait for a broker that is away as long as it takes, instead of 30 s.")
@consumer_options
@click.option("--child", type=int, hidden=True, help="The number of this process under its supervisor.")
@click.option("--tether", type=int, hidden=True, help="The file descriptor that ties this process to its parent.")
@click.option("--door", type=click.Path(path_type=Path), hidden=True, help="Where the parent asks for health.")
@click.option("--dev-at", hidden=True, help="The address of the broker that `keepfast dev` has started for this app.")
@click.option("--dev-embedded", is_flag=True, hidden=True, help="It is the embedded one.")
@click.option("--dev-partitions", type=int, default=4, hidden=True, help="Of the topics that are made there.")
def run(
    target: str,
    consumers: tuple[str, ...],
    processes: int | None,
    *,
    reload: bool,
    wait: bool,
    log_level: str | None,
    log_format: LogFormat | None,
    debug: bool,
    child: int | None,
    tether: int | None,
    door: Path | None,
    dev_at: str | None,
    dev_embedded: bool,
    dev_partitions: int,
) -> None:
    """Run the consumers of an app until Ctrl-C or SIGTERM.

    MODULE:APP is where the App object is: `orders.main:app`, or `path/to/file.py:app`. `app` may be left out. Modules
    are looked for in this folder first.

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
    The first signal lets running handlers finish; a second one ends everything now.
    Exit codes: 0 clean, 1 unexpected, 2 usage or configuration, 3 broker or topic missing
    at the start, 4 halted by a handler, 5 not finished in time, 6 replaced by another
    member, 130 or 143 after a second signal.
    """
    options = RunOptions(
        target=target, consumers=consumers, wait=wait, log_level=log_level, log_format=log_format, debug=debug
    )
    if reload and processes:
        raise click.UsageError("--reload runs one process: leave out --processes.")
    with said_plainly(debug=debug):
        if processes:
            code = _supervise(options, processes)
        elif reload:
            code = _reload(options)
        else:
            bench = _bench(dev_at, embedded=dev_embedded, partitions=dev_partitions)
            code = _run_here(options, index=child, tether_fd=tether, door=door, bench=bench)
    from keepfast.cli.ending import end

    end(code)


def _bench(address: str | None, *, embedded: bool, partitions: int) -> Bench | None:
    if address is None:
        return None
    from keepfast.cli.dev_child import Bench

    return Bench(address=address, embedded=embedded, partitions=partitions)


def _run_here(
    options: RunOptions, *, index: int | None, tether_fd: int | None, door: Path | None, bench: Bench | None
) -> int:
    stop_before_start = _StopBeforeStart()
    stop_before_start.listen()
    tether = _hold_on(tether_fd)
    try:
        return _load_and_run(options, index, tether, door=door, bench=bench)
    except _Stopped:
        click.echo("Stopped before it had started.", err=True)
        return 0


def _load_and_run(
    options: RunOptions, index: int | None, tether: Tether | None, *, door: Path | None, bench: Bench | None
) -> int:
    from keepfast.cli.loading import load_app
    from keepfast.http.serving import behind_door, is_required
    from keepfast.supervisor import Report, with_static_members
    from keepfast.telemetry.logs import get_logger

    app = load_app(options.target, cwd=Path.cwd())
    app.chosen(options.consumers)  # a wrong name is the nearest mistake, so it is said first
    settings = app.settings()
    level = options.log_level or settings.log.level
    log_format = options.log_format or settings.log.format
    _configure_logs(level, log_format, most_lines=settings.log.most_lines)
    for warning in settings.warnings:
        get_logger("keepfast.settings").warning("settings_warning", text=warning)
    if index is not None:
        settings = with_static_members(settings, index=index, host=socket.gethostname())
    if tether is not None:
        health = settings.health
        tether.report(
            Report(
                shutdown_timeout_s=settings.shutdown.timeout_s,
                log_level=level,
                log_format=log_format,
                app=settings.app.name,
                health=(health.host, health.port) if health.enabled and door else None,
                health_required=is_required(settings),
            )
        )
    if door is not None:
        settings = behind_door(settings, door)
    if bench is not None:
        settings = bench.prepared(settings)
        bench.make_topics(settings)
        bench.say(settings, app.chosen(options.consumers))
    stops = tether.supervisor_stops if tether is not None else lambda: False
    return app.run(only=options.consumers, settings=settings, wait=options.wait, supervisor_stops=stops)


def _supervise(options: RunOptions, processes: int) -> int:
    from keepfast.supervisor import Supervisor
    from keepfast.supervisor.children import SharedHealthServer

    with SharedHealthServer(processes) as server:

        def command(place: ChildPlace) -> Sequence[str]:
            # Whoever is started again saw the broker before: if it is away now, that will pass.
            mine = ["--child", str(place.index), "--tether", str(place.tether_fd), "--door", str(server.door(place))]
            return options.command(*mine, wait=place.again)

        def on_report(report: Report) -> None:
            # What the settings say is known to the children alone: they have the app.
            _configure_logs(report.log_level or "info", report.log_format or "auto")
            server.begin(report)

        _configure_logs(options.log_level or "info", options.log_format or "auto")
        return Supervisor(command, processes=processes, on_report=on_report).run()


def _reload(options: RunOptions) -> int:
    from keepfast.cli.reload import Reloader

    def command(place: ChildPlace) -> Sequence[str]:
        return options.command("--tether", str(place.tether_fd))

    return Reloader(command, root=Path.cwd()).run()


def _configure_logs(level: str, log_format: str, *, most_lines: int | None = None) -> None:
    from keepfast.telemetry import logs

    known: dict[str, LogFormat] = {"console": "console", "json": "json"}
    logs.configure(level=level, format=known.get(log_format, "auto"), most_lines=most_lines)


def _hold_on(tether_fd: int | None) -> Tether | None:
    if tether_fd is None:
        return None
    from keepfast.supervisor import Tether

    tether = Tether(tether_fd)
    tether.hold()
    return tether


class _Stopped(BaseException):
    """A signal came before there was anything to drain. No Exception, so that nobody takes it for a failure."""


class _StopBeforeStart:
    """Until the app listens to signals itself: the first one ends the start, in peace; a second one ends it now."""

    def __init__(self, exit_now: Callable[[int], None] = os._exit) -> None:
        self._came = False
        self._exit_now = exit_now

    def listen(self) -> None:
        lifecycle.install((signal.SIGTERM, signal.SIGINT), self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the signal module's shape
        if self._came:
            self._exit_now(128 + number)
        self._came = True
        raise _Stopped

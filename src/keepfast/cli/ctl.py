"""`keepfast ctl`: inspect and control a running app."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
import msgspec

from keepfast.cli.connection import exit_on_interrupt
from keepfast.cli.control_client import ControlClient, control_options
from keepfast.cli.errors import report_errors
from keepfast.cli.terminal import console
from keepfast.telemetry.clean import clean_text
from keepfast.telemetry.state import AppState, CommandDone, ConsumerDetail, HealthReport

if TYPE_CHECKING:
    from rich.console import RenderableType

LEVELS = ("debug", "info", "warning", "error", "critical")
COLOURS = {"ok": "green", "degraded": "yellow", "failing": "red"}

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def ctl() -> None:
    """Inspect and control an app that runs on this host.

    Commands that change something need KEEPFAST_CONTROL_TOKEN, set to the token that the app was started with. The app
    is the one on HEALTH_CHECK_PORT (8080), or the one of --app or --url.

    \b
    Examples:
      keepfast ctl state
      keepfast ctl pause charge
      keepfast ctl pause charge --topic orders.payment.v1 --partition 3
      keepfast ctl resume charge
      keepfast ctl release charge storm
      keepfast ctl log-level debug
    """


@ctl.command(short_help="Show consumers, partitions, lanes and holds.")
@click.argument("consumer", required=False)
@json_option
@control_options
def state(consumer: str | None, *, as_json: bool, **options: Any) -> None:
    """Show the whole app, or one CONSUMER with its records in flight, oldest first.

    With several processes the consumer of each is shown (as JSON, one per line); CONSUMER@1 is that of process 1.
    """
    with report_errors(debug=options["debug"]), exit_on_interrupt():
        from keepfast.cli.live_view import detail_of, view_of

        control = _control(options)
        if consumer is None:
            app = control.get(AppState, "state")
            _print(app, view_of(app), as_json=as_json)
            return
        each = [name for name in control.get(AppState, "state").consumers if name.rpartition("@")[0] == consumer]
        for name in each or [consumer]:
            detail = control.get(ConsumerDetail, "consumers", name)
            _print(detail, detail_of(name, detail), as_json=as_json)


@ctl.command(short_help="Show what is wrong, with reasons.")
@json_option
@control_options
def health(*, as_json: bool, **options: Any) -> None:
    """Show whether the app is live and ready, and each reason why it is not. Exit code 1 if it is failing."""
    with report_errors(debug=options["debug"]), exit_on_interrupt():
        report = _control(options).get(HealthReport, "health")
        states = [state for state in ("live", "ready", "started") if getattr(report, state)]
        lines = [
            f"{click.style(report.status, fg=COLOURS[report.status])}: {', '.join(states) or 'neither live nor ready'}"
        ]
        lines += [
            f"  {click.style(one.code, fg=COLOURS[one.level])}  {clean_text(one.consumer)}  {clean_text(one.text, 500)}"
            for one in report.reasons
        ]
        _print(report, "\n".join(lines), as_json=as_json)
    if report.status == "failing":
        raise click.exceptions.Exit(1)


def _partition_options(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option("--partition", type=click.IntRange(0), help="Only this partition of --topic."),
        click.option("--topic", help="Only the partitions of this topic."),
    ):
        command = option(command)
    return command


@ctl.command(short_help="Stop starting records.")
@click.argument("consumer")
@_partition_options
@json_option
@control_options
def pause(consumer: str, *, topic: str | None, partition: int | None, as_json: bool, **options: Any) -> None:
    """Stop starting records of CONSUMER, or of some of its partitions.

    The consumer stays in its group and records in flight finish. A restart ends the pause.
    """
    _send("pause", consumer, options, as_json=as_json, topic=topic, partition=partition)


@ctl.command(short_help="Continue after a pause.")
@click.argument("consumer")
@_partition_options
@json_option
@control_options
def resume(consumer: str, *, topic: str | None, partition: int | None, as_json: bool, **options: Any) -> None:
    """Continue CONSUMER, or some of its partitions, after a pause."""
    _send("resume", consumer, options, as_json=as_json, topic=topic, partition=partition)


@ctl.command(short_help="Release a tripped storm guard or an open breaker.")
@click.argument("consumer")
@click.argument("hold", type=click.Choice(("storm", "breaker")), default="storm")
@json_option
@control_options
def release(consumer: str, hold: str, *, as_json: bool, **options: Any) -> None:
    """Release the tripped storm guard of CONSUMER, or close its open breaker.

    Remove the cause first; otherwise it may trip again.
    """
    _send("release", consumer, options, as_json=as_json, hold=hold)


@ctl.command("log-level", short_help="Change the log level until the process ends.")
@click.argument("level", type=click.Choice(LEVELS, case_sensitive=False))
@json_option
@control_options
def log_level(level: str, *, as_json: bool, **options: Any) -> None:
    """Set the log level to LEVEL until the process ends."""
    with report_errors(debug=options["debug"]), exit_on_interrupt():
        _print_result(_control(options).post("log-level", level=level), as_json=as_json)


def _send(verb: str, consumer: str, options: dict[str, Any], *, as_json: bool, **body: object) -> None:
    if body.get("partition") is not None and body.get("topic") is None:
        raise click.UsageError("--partition needs --topic.")
    with report_errors(debug=options["debug"]), exit_on_interrupt():
        _print_result(_control(options).post("consumers", consumer, verb, **body), as_json=as_json)


def _control(options: dict[str, Any]) -> ControlClient:
    return ControlClient.of(options["target"], options["url"])


def _print_result(done: CommandDone, *, as_json: bool) -> None:
    _print(done, clean_text(done.text, 500), as_json=as_json)


def _print(result: object, view: RenderableType, *, as_json: bool) -> None:
    """Tables are drawn by rich; a text does not need it."""
    if as_json:
        click.echo(msgspec.json.encode(result).decode())
    elif isinstance(view, str):
        click.echo(view)
    else:
        console().print(view)

"""`keepfast ctl`: look at a running app, and tell it something."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
import msgspec

from keepfast.cli.controlling import Control, control_options
from keepfast.cli.errors import said_plainly
from keepfast.cli.live_view import detail_lines, view_lines
from keepfast.cli.where import interrupted_quietly
from keepfast.telemetry.clean import clean_text
from keepfast.telemetry.shapes import AppState, CommandDone, ConsumerDetail, HealthReport

LEVELS = ("debug", "info", "warning", "error", "critical")
COLOURS = {"ok": "green", "degraded": "yellow", "failing": "red"}

json_option = click.option("--json", "as_json", is_flag=True, help="The answer as JSON.")


@click.group()
def ctl() -> None:
    """Look at an app that runs on this host, and tell it something.

    To change something, set KEEPFAST_CONTROL_TOKEN to the token that the app was started with. The app is the one on
    HEALTH_CHECK_PORT (8080), or that of --app or --url.

    \b
    Examples:
      keepfast ctl state
      keepfast ctl pause charge
      keepfast ctl pause charge --topic orders.payment.v1 --partition 3
      keepfast ctl resume charge
      keepfast ctl release charge storm
      keepfast ctl log-level debug
    """


@ctl.command(short_help="Consumers, partitions, lanes, holds.")
@click.argument("consumer", required=False)
@json_option
@control_options
def state(consumer: str | None, *, as_json: bool, **options: Any) -> None:
    """The whole app; or one CONSUMER, with the work it has in hand, oldest first. With several processes, that of each
    (as JSON, one a line); CONSUMER@1 is that of process 1.
    """
    with said_plainly(debug=options["debug"]), interrupted_quietly():
        control = _control(options)
        if consumer is None:
            app = control.look(AppState, "state")
            _say(app, view_lines(app), as_json=as_json)
            return
        each = [name for name in control.look(AppState, "state").consumers if name.rpartition("@")[0] == consumer]
        for name in each or [consumer]:
            detail = control.look(ConsumerDetail, "consumers", name)
            _say(detail, detail_lines(name, detail), as_json=as_json)


@ctl.command(short_help="What is wrong, with reasons.")
@json_option
@control_options
def health(*, as_json: bool, **options: Any) -> None:
    """Whether it is live and ready, and every reason why it is not as it should be. Exit code 1 if it is failing."""
    with said_plainly(debug=options["debug"]), interrupted_quietly():
        report = _control(options).look(HealthReport, "health")
        words = [word for word in ("live", "ready", "started") if getattr(report, word)]
        lines = [
            f"{click.style(report.status, fg=COLOURS[report.status])}: {', '.join(words) or 'neither live nor ready'}"
        ]
        lines += [
            f"  {click.style(one.code, fg=COLOURS[one.level])}  {clean_text(one.consumer)}  {clean_text(one.text, 500)}"
            for one in report.reasons
        ]
        _say(report, lines, as_json=as_json)
    if report.status == "failing":
        raise click.exceptions.Exit(1)


def _where(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option("--partition", type=click.IntRange(0), help="This partition of --topic alone."),
        click.option("--topic", help="What of this topic is here alone."),
    ):
        command = option(command)
    return command


@ctl.command(short_help="Let nothing new start.")
@click.argument("consumer")
@_where
@json_option
@control_options
def pause(consumer: str, *, topic: str | None, partition: int | None, as_json: bool, **options: Any) -> None:
    """Let nothing new of CONSUMER start: all of it, or some partitions. It stays in its group, what runs finishes its
    record, and a restart forgets it.
    """
    _order("pause", consumer, options, as_json=as_json, topic=topic, partition=partition)


@ctl.command(short_help="Go on after a pause.")
@click.argument("consumer")
@_where
@json_option
@control_options
def resume(consumer: str, *, topic: str | None, partition: int | None, as_json: bool, **options: Any) -> None:
    """Let CONSUMER go on after a pause: all of it, or some partitions."""
    _order("resume", consumer, options, as_json=as_json, topic=topic, partition=partition)


@ctl.command(short_help="Release a storm guard that tripped, or an open breaker.")
@click.argument("consumer")
@click.argument("hold", type=click.Choice(("storm", "breaker")), default="storm")
@json_option
@control_options
def release(consumer: str, hold: str, *, as_json: bool, **options: Any) -> None:
    """Release the storm guard of CONSUMER, which tripped, or close its breaker. Remove the cause first: it may trip
    again.
    """
    _order("release", consumer, options, as_json=as_json, hold=hold)


@ctl.command("log-level", short_help="Log more or less, until the process ends.")
@click.argument("level", type=click.Choice(LEVELS, case_sensitive=False))
@json_option
@control_options
def log_level(level: str, *, as_json: bool, **options: Any) -> None:
    """Log from LEVEL on, until the process ends."""
    with said_plainly(debug=options["debug"]), interrupted_quietly():
        _done(_control(options).tell("log-level", level=level), as_json=as_json)


def _order(verb: str, consumer: str, options: dict[str, Any], *, as_json: bool, **body: object) -> None:
    if body.get("partition") is not None and body.get("topic") is None:
        raise click.UsageError("--partition needs --topic.")
    with said_plainly(debug=options["debug"]), interrupted_quietly():
        _done(_control(options).tell("consumers", consumer, verb, **body), as_json=as_json)


def _control(options: dict[str, Any]) -> Control:
    return Control.of(options["target"], options["url"])


def _done(done: CommandDone, *, as_json: bool) -> None:
    _say(done, [clean_text(done.text, 500)], as_json=as_json)


def _say(told: object, lines: list[str], *, as_json: bool) -> None:
    click.echo(msgspec.json.encode(told).decode() if as_json else "\n".join(lines))

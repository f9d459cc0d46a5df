"""`keepfast ctl`: inspect and control a running app."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, assert_never

import click
import msgspec

from keepfast.cli.connection import acting_user, exit_on_interrupt
from keepfast.cli.control_client import ControlClient, control_options
from keepfast.cli.errors import report_errors
from keepfast.cli.terminal import confirmed, console, table
from keepfast.core.errors import ControlRefused
from keepfast.telemetry.clean import clean_text
from keepfast.telemetry.state import AppState, CommandDone, ConsumerDetail, HealthReport, Positions, SeekResult

if TYPE_CHECKING:
    from rich.console import RenderableType

    from keepfast.engine.seeks import SeekTarget

LEVELS = ("debug", "info", "warning", "error", "critical")
COLUMN_NAMES = {"lag_s": "SECONDS", "finished_above": "FINISHED"}
COLOURS = {"ok": "green", "degraded": "yellow", "failing": "red"}

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
why_option = click.option("--why", default="", help="The reason, for the audit.")


@click.group()
def ctl() -> None:
    """Inspect and control an app that runs on this host.

    Commands that change something, and seek --dry-run, whose plan the running consumer makes, need
    KEEPFAST_CONTROL_TOKEN, set to the token that the app was started with. The app is the one on HEALTH_CHECK_PORT
    (8080), or the one of --app or --url. A `keepfast dev` of this folder is found without any of these.

    \b
    Examples:
      keepfast ctl state
      keepfast ctl pause charge
      keepfast ctl pause charge --topic orders.payment.v1 --partition 3
      keepfast ctl resume charge
      keepfast ctl seek charge orders.payment.v1 3 --to=-100
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
@why_option
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
@why_option
@json_option
@control_options
def resume(consumer: str, *, topic: str | None, partition: int | None, as_json: bool, **options: Any) -> None:
    """Continue CONSUMER, or some of its partitions, after a pause."""
    _send("resume", consumer, options, as_json=as_json, topic=topic, partition=partition)


@ctl.command(short_help="Show positions and committed offsets.")
@click.argument("consumer")
@json_option
@control_options
def position(consumer: str, *, as_json: bool, **options: Any) -> None:
    """Show the position of CONSUMER in each of its partitions: everything below it is finished.

    With several processes, the partitions of all of them.
    """
    _show_positions(consumer, options, as_json=as_json)


@ctl.command(short_help="Show the lag of a running consumer.")
@click.argument("consumer")
@json_option
@control_options
def lag(consumer: str, *, as_json: bool, **options: Any) -> None:
    """Show the lag of CONSUMER in each of its partitions, in records and seconds, and their sum.

    With several processes, the partitions of all of them. For a whole group, running or not: keepfast lag.
    """
    _show_positions(consumer, options, as_json=as_json, columns=("end", "lag", "behind", "finished_above", "lag_s"))


@ctl.command(short_help="Move a partition to another offset.")
@click.argument("consumer")
@click.argument("topic")
@click.argument("partition", type=click.IntRange(0))
@click.option(
    "--to",
    "where",
    required=True,
    help="beginning, end, an offset, +N, -N, a time (2024-01-31T12:00, UTC), or how long ago (2h).",
)
@click.option("--dry-run", is_flag=True, help="Print the plan and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@why_option
@json_option
@control_options
def seek(
    consumer: str,
    topic: str,
    partition: int,
    *,
    where: str,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Move PARTITION of TOPIC to another offset while CONSUMER runs. Prints a plan and asks before it changes anything.

    Records in flight finish first. Then the partition is read from there, and the offset is committed at once. With
    several processes, the one that has the partition does it. Retry topics are topics of their own: records that wait
    there stay. A consumer with an inbox skips what it has processed: `keepfast replay-from … --reprocess` does not. For
    a stopped group: keepfast offsets reset.

    \b
    Examples:
      keepfast ctl seek charge orders.payment.v1 3 --to 1200
      keepfast ctl seek charge orders.payment.v1 3 --to=-100 --dry-run
      keepfast ctl seek charge orders.payment.v1 3 --to 2h --yes
    """
    with report_errors(debug=options["debug"]), exit_on_interrupt():
        control = _control(options)
        to = _seek_target(control, consumer, topic, partition, where)
        plan = control.seek(consumer, topic, partition, to, plan=True)
        if not as_json:
            click.echo(_seek_plan(plan))
            if plan.inbox and plan.repeats:
                click.echo(_inbox_note(consumer, plan, options["target"]))
        if dry_run:
            _print(plan, "Dry run: nothing was changed.", as_json=as_json)
            return
        if not yes and not confirmed(f"Move {plan.topic}[{plan.partition}] of {clean_text(consumer)} to {plan.to:,}?"):
            click.echo("Nothing was changed.", err=True)
            raise click.exceptions.Exit(1)
        done = control.seek(consumer, topic, partition, plan.to, plan=False, **_who(options))
        text = f"Done: it was at {done.position:,} and reads from {done.to:,}."
        if not done.committed:
            text += " The broker has not confirmed the commit yet: a crash before that would undo the seek."
        _print(done, text, as_json=as_json)


def _seek_target(control: ControlClient, consumer: str, topic: str, partition: int, where: str) -> SeekTarget:
    """Raises UsageError, and ControlRefused for a shift of a partition that no process has."""
    from keepfast.cli.offsets import WhereTo
    from keepfast.groups.offsets import ShiftBy, ToEdge, ToOffset, ToTime

    match WhereTo().convert(where, None, None):
        case ToEdge(latest=latest):
            return "end" if latest else "beginning"
        case ToOffset(offset=offset):
            return offset
        case ToTime(at_ms=at_ms):
            return datetime.fromtimestamp(at_ms / 1000, UTC)
        case ShiftBy(count=count):
            found = control.get(Positions, "consumers", consumer, "position").partitions
            own = next((one for one in found if (one.topic, one.partition) == (topic, partition)), None)
            if own is None:
                raise ControlRefused(f"No process here has {topic}[{partition}]: a shift needs its position.")
            return max(0, own.position + count)
        case other:
            assert_never(other)


def _seek_plan(plan: SeekResult) -> str:
    what = [f"{plan.repeats:,} offsets are {'read' if plan.inbox else 'processed'} again"] if plan.repeats else []
    if plan.skips:
        what.append(click.style(f"{plan.skips:,} are skipped and never processed", fg="red"))
    place = f"{clean_text(plan.topic)}[{plan.partition}]"
    edges = f"the log has {plan.first:,} to {plan.end:,}"
    return f"{place}: from {plan.position:,} to {plan.to:,} ({edges}): {', '.join(what) or 'nothing changes'}."


def _inbox_note(consumer: str, plan: SeekResult, target: str | None) -> str:
    from keepfast.desk.case_filter import Offsets

    text = "Its inbox skips the records that it has processed."
    if plan.to >= plan.position:
        return text
    words = [
        *("keepfast", "replay-from", target or "MODULE:APP", consumer.partition("@")[0], "--topic", plan.topic),
        *("--offsets", str(Offsets(plan.partition, plan.to, plan.position)), "--reprocess"),
    ]
    return f"{text} To process them again, without a seek: {clean_text(shlex.join(words), 1_000)}"


def _show_positions(
    consumer: str,
    options: dict[str, Any],
    *,
    as_json: bool,
    columns: Sequence[str] = ("position", "committed", "end", "lag"),
) -> None:
    with report_errors(debug=options["debug"]), exit_on_interrupt():
        found = _control(options).get(Positions, "consumers", consumer, "position")
        rows = [
            (clean_text(one.topic), str(one.partition), *(_number(getattr(one, name)) for name in columns))
            for one in found.partitions
        ]
        heads = ("TOPIC", "PARTITION", *(COLUMN_NAMES.get(name, name.upper()) for name in columns))
        _print(found, table(heads, rows, right=range(1, len(heads))), as_json=as_json)
        if not as_json:
            split = f", of which {found.behind:,} are not finished" if found.behind != found.lag else ""
            click.echo(f"Lag: {found.lag:,}{split}")


def _number(value: Any) -> str:
    return "-" if value is None or value < 0 else f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"


@ctl.command(short_help="Release a tripped storm guard or an open breaker.")
@click.argument("consumer")
@click.argument("hold", type=click.Choice(("storm", "breaker")), default="storm")
@why_option
@json_option
@control_options
def release(consumer: str, hold: str, *, as_json: bool, **options: Any) -> None:
    """Release the tripped storm guard of CONSUMER, or close its open breaker.

    Remove the cause first; otherwise it may trip again.
    """
    _send("release", consumer, options, as_json=as_json, hold=hold)


@ctl.command("dead-letter", short_help="Dead-letter a record that is in flight.")
@click.argument("consumer")
@click.argument("topic")
@click.argument("partition", type=click.IntRange(0))
@click.argument("offset", type=click.IntRange(0))
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@why_option
@json_option
@control_options
def dead_letter(
    consumer: str, topic: str, partition: int, offset: int, *, yes: bool, as_json: bool, **options: Any
) -> None:
    """Dead-letter one record that CONSUMER has in flight: its handler runs, or it waits for its next attempt.

    A handler that runs is abandoned as by a timeout: what it has done stays, and a plain `def` runs on until it
    returns. Records behind it continue. `keepfast ctl state CONSUMER` shows what is in flight. The desk's page only
    takes a record that waits, or whose handler is stuck; this command takes any.

    \b
    Example:
      keepfast ctl dead-letter charge orders.payment.v1 3 1200
    """
    place = f"{clean_text(topic)}[{partition}] offset {offset:,}"
    if not yes and not confirmed(f"Dead-letter {place} of {clean_text(consumer)}?"):
        click.echo("Nothing was changed.", err=True)
        raise click.exceptions.Exit(1)
    body = {"topic": topic, "partition": partition, "offset": offset}
    _send("dead-letter", consumer, options, as_json=as_json, **body)


@ctl.command("log-level", short_help="Change the log level until the process ends.")
@click.argument("level", type=click.Choice(LEVELS, case_sensitive=False))
@why_option
@json_option
@control_options
def log_level(level: str, *, as_json: bool, **options: Any) -> None:
    """Set the log level to LEVEL until the process ends."""
    with report_errors(debug=options["debug"]), exit_on_interrupt():
        _print_result(_control(options).post("log-level", level=level, **_who(options)), as_json=as_json)


def _send(verb: str, consumer: str, options: dict[str, Any], *, as_json: bool, **body: object) -> None:
    if body.get("partition") is not None and body.get("topic") is None:
        raise click.UsageError("--partition needs --topic.")
    with report_errors(debug=options["debug"]), exit_on_interrupt():
        _print_result(_control(options).post("consumers", consumer, verb, **body, **_who(options)), as_json=as_json)


def _who(options: dict[str, Any]) -> dict[str, str]:
    """Who gives an order and why, for the audit."""
    return {"by": acting_user(), "why": options["why"]}


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

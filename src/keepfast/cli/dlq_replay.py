"""`keepfast dlq replay`, `edit`, `resume`, `pause` and `cancel`: plan, confirm, send, report."""

from __future__ import annotations

import importlib
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, Literal, cast

import click

from keepfast.cli import dlq_view as view
from keepfast.cli.connection import connection_options, exit_on_interrupt, reach_options
from keepfast.cli.dlq_options import (
    filter_options,
    letter_argument,
    open_desk,
    print_empty,
    refuse_unknown_causes,
    selection_of,
    topics_argument,
)
from keepfast.cli.errors import report_errors
from keepfast.cli.terminal import Progress, confirmed
from keepfast.core.errors import ConfigError, KeepfastError
from keepfast.core.records import RecordPlace
from keepfast.desk import CaseFilter, CaseState, Desk, ReplayPlan, ReplayPolicy, RunFact, RunProgress, Transform
from keepfast.desk.case_filter import Offsets
from keepfast.desk.cases import DEFAULT_REPLAY_LIMIT
from keepfast.desk.changes import changed_lines
from keepfast.desk.run import TransformError, record_of
from keepfast.telemetry.clean import clean_text, escaped

EXIT_PARTIAL, EXIT_STOPPED = 1, 130
MAX_SHOWN = 20


class Rate(click.ParamType[float]):
    """N or N/s."""

    name = "N/s"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return float(str(value).removesuffix("/s"))
        except ValueError:
            self.fail(f"{value!r} is not a rate; write 100/s", param, ctx)


def _policy_options(command: Any) -> Any:
    for option in (
        click.option("--why", default="", help="The reason, for the audit."),
        click.option(
            "--inexact", is_flag=True, help="Include foreign JSON letters that do not contain the exact original bytes."
        ),
        click.option(
            "--keep-timestamp",
            is_flag=True,
            help="Keep the original timestamps; the topic's retention applies to them.",
        ),
        click.option("--again", is_flag=True, help="Include cases that are being replayed, or are resolved."),
        click.option(
            "--max-replays",
            type=click.IntRange(1),
            help=f"Leave out cases that were replayed this often; {DEFAULT_REPLAY_LIMIT} unless set otherwise.",
        ),
        click.option("--topic", "other", metavar="OTHER", help="Send to this topic, partitioned by key."),
        click.option(
            "--to",
            type=click.Choice(["topic", "group"]),
            help="Who gets the records: every group that reads the topic, or only the case's group, through"
            " <topic>.<group>.replay. Must be chosen if other groups read the topic.",
        ),
    ):
        command = option(command)
    return command


@click.command(short_help="Send records back, in order and once.")
@topics_argument
@connection_options
@filter_options
@click.option("--all", "everything", is_flag=True, help="All open cases.")
@_policy_options
@click.option("--rate", type=Rate(), help="Limit, such as 100/s.")
@click.option(
    "--canary", type=click.IntRange(0), default=0, help="Send so many first; the rest if all of them succeed."
)
@click.option("--stop-if-failing", type=float, metavar="PERCENT", help="Stop when more than so many fail again.")
@click.option("--transform", metavar="MODULE:FUNCTION", default="", help="Change each record before it is sent.")
@click.option("--reveal", is_flag=True, help="With --transform: show the difference with values.")
@click.option("--wait", is_flag=True, help="Wait until every record is processed, and say what became of them.")
@click.option("--dry-run", is_flag=True, help="Show what would be sent; send nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: the plan, or the run.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def replay(
    topics: tuple[str, ...],
    target: str | None,
    brokers: str | None,
    *,
    debug: bool,
    everything: bool,
    to: Literal["topic", "group"] | None,
    other: str | None,
    max_replays: int | None,
    again: bool,
    keep_timestamp: bool,
    inexact: bool,
    why: str,
    rate: float | None,
    canary: int,
    stop_if_failing: float | None,
    transform: str,
    reveal: bool,
    wait: bool,
    dry_run: bool,
    as_json: bool,
    yes: bool,
    **filters: Any,
) -> None:
    """Send records back: the original key, value and headers, byte for byte, to the original topic and partition.

    The selection is frozen: letters that arrive later do not join. Records of one key keep their order. Each record and
    the note that it was sent are one Kafka transaction, so a run that was killed can be resumed without a duplicate.
    The header keepfast-replay is added; the consumer reports by it what became of the record, so that its case is
    resolved, or open again with a new letter.

    \b
      keepfast dlq replay orders.payment.dlq --error-type TimeoutError --dry-run
      keepfast dlq replay orders.payment.dlq --cause 5f2a --canary 10 --stop-if-failing 5
      keepfast dlq replay orders.payment.dlq --all --transform repair:add_currency --dry-run

    \b
    Exit codes: 0 all planned records are sent (with --wait: and processed), 1 not all (the output says what is left),
    2 usage, 3 broker or topic missing, 130 stopped by a signal (the output says how to continue).
    """
    where = selection_of(filters, everything=everything)
    with report_errors(debug=debug), open_desk(topics, target, brokers) as desk:
        policy = ReplayPolicy(
            to=to,
            topic=other,
            limit=max_replays or desk.options.replay_limit,
            again=again,
            keep_timestamp=keep_timestamp,
            inexact=inexact,
            rate_per_s=rate,
            canary=canary,
            stop_if_failing=stop_if_failing,
            transform=transform,
        )
        function = load_transform(transform) if transform else None
        code = _replay(
            desk, where, policy, function, why, reveal=reveal, wait=wait, dry_run=dry_run, json_=as_json, yes=yes
        )
    sys.exit(code)


def _replay(
    desk: Desk,
    where: CaseFilter,
    policy: ReplayPolicy,
    transform: Transform | None,
    why: str,
    *,
    reveal: bool,
    wait: bool,
    dry_run: bool,
    json_: bool,
    yes: bool,
) -> int:
    refuse_unknown_causes(desk, where)
    plan = desk.plan(where, policy)
    if json_ and dry_run:
        click.echo(json.dumps(plan_fields(plan)))
        return 0
    if not json_:
        print_plan(plan)
    if transform is not None and not json_:
        _print_changes(desk, plan, transform, reveal=reveal)
    if not plan.items:
        click.echo("Nothing to replay.", err=json_)
        if not plan.left_out and not json_:
            print_empty(desk, where)
        return EXIT_PARTIAL if plan.left_out else 0
    if dry_run:
        click.echo("Dry run: nothing was sent.")
        return 0
    plan = _chosen(desk, plan, where)
    if not yes and not confirmed(f"Send {_records(plan.records)}?"):
        click.echo("Nothing was sent.", err=True)
        return EXIT_PARTIAL
    return _run(desk, desk.start(plan, why=why), transform, wait=wait, json_=json_)


def _chosen(desk: Desk, plan: ReplayPlan, where: CaseFilter) -> ReplayPlan:
    """Ask who gets the records, if other groups read them. Raises UsageError without a terminal."""
    if not plan.must_choose:
        return plan
    if not sys.stdin.isatty():
        raise click.UsageError(plan.choice)
    click.echo(plan.choice)
    to = click.prompt("Send to", type=click.Choice(["topic", "group"]))
    return desk.plan(where, replace(plan.policy, to="group" if to == "group" else "topic"))


def _run(desk: Desk, fact: RunFact, transform: Transform | None, *, wait: bool, json_: bool) -> int:
    progress = Progress(fact.total, done="sent")
    reported: set[str] = set()

    def report(now: RunProgress) -> None:
        progress(now.run.sent)
        if now.waiting and now.waiting not in reported:
            click.echo(_WAITING[now.waiting], err=True)
            reported.add(now.waiting)

    run = desk.replayer(fact, transform=transform, progress=report)
    with on_signals(run.stop):
        try:
            fact = run.execute()
        except KeepfastError:
            progress.end(run.fact.sent)
            click.echo(f"To continue, without a duplicate: {_resume_command(fact)}", err=True)
            raise
        progress.end(fact.sent)
        if wait and fact.status == "done":
            _wait_for_results(desk, fact, lambda: run.stopped)
    return _print_result(desk, fact, run.errors, wait=wait, json_=json_)


_WAITING = {
    "paused": "Paused; `keepfast dlq resume RUN` continues.",
    "canary": "Waiting until the first records are processed.",
    "consumers": "The desk's topic is new: waiting until running consumers have noticed it (40 s at most, once).",
}


def _wait_for_results(desk: Desk, fact: RunFact, stopped: Callable[[], bool]) -> None:
    """Until no case of the run is being replayed."""
    progress = Progress(fact.sent, done="processed")
    while not stopped():
        desk.refresh()
        desk.infer_outcomes()
        states = desk.index.results(fact.run)
        left = states.get(CaseState.REPLAYING, 0)
        progress(sum(states.values()) - left)
        if not left:
            break
        time.sleep(0.5)
    progress.end(fact.sent)


def _print_result(desk: Desk, fact: RunFact, errors: list[str], *, wait: bool, json_: bool) -> int:
    desk.refresh()
    states, failed = desk.index.results(fact.run), desk.index.failed_again(fact.run)
    # Groups of other programs report nothing, and ours nothing before they have noticed the desk's topic.
    succeeded = max(desk.index.succeeded(fact.run), states.get(CaseState.RESOLVED, 0))
    waiting = states.get(CaseState.REPLAYING, 0)
    failed = max(0, min(failed, sum(states.values()) - succeeded - waiting))  # without what another run got through
    if json_:
        click.echo(json.dumps(view.run_fields(fact, succeeded, failed)))
    elif fact.status == "done":
        click.echo(f"Replayed {_records(fact.sent)}; all are confirmed. Run {fact.run}.")
        click.echo(f"So far {succeeded:,} processed, {failed:,} failed again, {waiting:,} under way.")
        if waiting and not wait:
            click.echo(f"To follow them: keepfast dlq runs {fact.topic}{reach_options()}", err=True)
    else:
        click.echo(f"{fact.status.capitalize()}: {fact.sent:,} of {fact.total:,} records are sent.", err=True)
        click.echo(f"Reason: {clean_text(fact.why)}", err=True)
        if fact.status != "cancelled":
            click.echo(f"To continue, without a duplicate: {_resume_command(fact)}", err=True)
    if fact.skipped:
        click.echo(f"{fact.skipped:,} left out:", err=True)
    for text in errors:
        click.echo(f"  {clean_text(text)}", err=True)
    if fact.skipped > len(errors):
        click.echo(f"  and {fact.skipped - len(errors):,} more", err=True)
    if fact.status == "stopped" and "signal" in fact.why:
        return EXIT_STOPPED
    return 0 if fact.status == "done" and not fact.skipped and not (wait and failed) else EXIT_PARTIAL


def _resume_command(fact: RunFact) -> str:
    return f"keepfast dlq resume {fact.run} {fact.topic}{reach_options()}"


def plan_fields(plan: ReplayPlan) -> dict[str, Any]:
    """The plan for --json."""
    return {
        "topic": plan.dlq,
        "records": plan.records,
        "cases": plan.cases,
        "destinations": dict(plan.destinations),
        "excluded": dict(plan.excluded),
        "groups": sorted(plan.groups),
        "other_readers": {topic: list(groups) for topic, groups in plan.other_readers.items()},
        "must_choose": plan.must_choose,
        "later_records_of_the_same_key": plan.later,
        "later_partial": plan.later_partial,
        "duration_s": plan.duration_s(),
    }


def print_plan(plan: ReplayPlan) -> None:
    if plan.records:
        took_s = plan.duration_s()
        how_long = "" if took_s is None else f", about {took_s:,.0f} s at {plan.policy.rate_per_s:g}/s"
        click.echo(f"{_records(plan.records)} of {plan.dlq} to send{how_long}:")
    for name, count in sorted(plan.destinations.items(), key=lambda pair: -pair[1])[:MAX_SHOWN]:
        click.echo(f"  {count:,} to {name}, {_destination(plan.policy)}")
    if plan.cases > plan.records:
        click.echo(f"They are {plan.cases:,} cases of {len(plan.groups)} groups; each record is sent once.")
    if plan.left_out:
        click.echo(f"{plan.left_out:,} left out:")
    for reason, count in sorted(plan.excluded.items(), key=lambda pair: -pair[1])[:MAX_SHOWN]:
        click.echo(f"  {count:,}: {clean_text(reason)}")
    if plan.later:
        partial = " at least" if plan.later_partial else ""
        click.echo(
            f"Warning:{partial} {plan.later:,} have a later record of the same key: older state is applied.", err=True
        )
    if not plan.readers_known:
        click.echo("Warning: cannot determine which groups read these topics.", err=True)
    for topic, groups in plan.other_readers.items():
        names = ", ".join(clean_text(name, 100) for name in groups[:MAX_SHOWN])
        click.echo(f"Warning: {topic} is also read by {names}: they get these records again with --to topic.", err=True)
    if plan.unreported:
        click.echo(
            f"Warning: {plan.unreported:,} letters do not name a group: what becomes of them is not reported.", err=True
        )


def _destination(policy: ReplayPolicy) -> str:
    if policy.to_group:
        return "read only by their group"
    return "partitioned by key" if policy.topic else "to their original partitions"


def _records(count: int) -> str:
    return f"{count:,} record{'s' * (count != 1)}"


def load_transform(name: str) -> Transform:
    """`module:function`, imported from the current directory too. Raises ConfigError."""
    module, _, function = name.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(importlib.import_module(module), function, None)
    except ImportError as error:
        raise ConfigError(f"The transform {name} cannot be imported: {error}.") from error
    if not callable(found):
        raise ConfigError(f"The transform {name} is no function; write MODULE:FUNCTION.")
    return cast("Transform", found)


def _print_changes(desk: Desk, plan: ReplayPlan, transform: Transform, *, reveal: bool) -> None:
    try:
        changes = desk.preview(plan, transform)
    except TransformError:
        click.echo("Nothing was sent.", err=True)
        raise
    for before, after in changes:
        click.echo(f"--- {before.topic} {before.partition}:{before.offset}")
        for line in changed_lines(before, after, reveal=reveal):
            click.echo(f"  {escaped(line, 500)}")


@click.command(short_help="Send one record with another value.")
@click.argument("topic")
@letter_argument
@connection_options
@_policy_options
@click.option(
    "--value-file", type=click.Path(exists=True, dir_okay=False), help="The value to send; else an editor opens."
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def edit(
    topic: str,
    letter: Offsets,
    target: str | None,
    brokers: str | None,
    *,
    debug: bool,
    value_file: str | None,
    yes: bool,
    why: str,
    other: str | None,
    max_replays: int | None,
    **policy: Any,
) -> None:
    """Send one record with another value, as a replay of its case: key and headers stay. It is audited.

    \b
      keepfast dlq edit orders.payment.dlq 3:17 --value-file repaired.json --why "currency was missing"
    """
    with report_errors(debug=debug), exit_on_interrupt(), open_desk((topic,), target, brokers) as desk:
        place = RecordPlace(topic, letter.partition, letter.start)
        # An editor shows the value, which is audited on its own.
        stored, history = desk.letter(place) if value_file else desk.reveal(place), desk.case_at(place)
        if stored is None or history is None:
            raise KeepfastError(f"There is no letter at {place.name} in {topic}.")
        before = record_of(stored.letter)
        value = Path(value_file).read_bytes() if value_file else _edited(before.value)
        if value is None or value == before.value:
            click.echo("Nothing was changed, and nothing sent.")
            return
        limit = max_replays or desk.options.replay_limit
        if not yes and not confirmed(
            f"Send 1 record with {len(value):,} bytes instead of {len(before.value or b''):,}?"
        ):
            return
        made = ReplayPolicy(topic=other, limit=limit, **policy)
        fact = desk.edit_and_send(history.case.id, replace(before, value=value), made, why=why)
        code = _print_result(desk, fact, [], wait=False, json_=False)
    sys.exit(code)


def _edited(value: bytes | None) -> bytes | None:
    changed = click.edit((value or b"").decode("utf-8"), extension=".json")
    return None if changed is None else changed.rstrip("\n").encode()


def _run_options(command: Any) -> Any:
    for option in (connection_options, click.argument("topic", required=False), click.argument("run")):
        command = option(command)
    return command


@click.command(short_help="Continue a replay run.")
@_run_options
@click.option("--transform", metavar="MODULE:FUNCTION", default="", help="As it was given when the run was started.")
@click.option("--wait", is_flag=True, help="Wait until every record is processed.")
def resume(
    run: str, topic: str | None, target: str | None, brokers: str | None, *, debug: bool, transform: str, wait: bool
) -> None:
    """Continue a run that was stopped, paused or killed. What it has sent is not sent again.

    Cases that were marked, resolved or sent by another run since it was planned are left out. A canary whose records
    failed again is repeated with the next records.
    """
    with report_errors(debug=debug), open_desk((topic or _topic_of(run, target, brokers),), target, brokers) as desk:
        known = desk.index.run(run)
        if known is not None and known.status == "paused":
            desk.order(run, "resume")
            if desk.is_alive(run):
                click.echo(f"The run {run} continues where it was started.")
                return
        fact = desk.resume(run)
        name = transform or str(fact.policy.get("transform", ""))
        code = _run(desk, fact, load_transform(name) if name else None, wait=wait, json_=False)
    sys.exit(code)


@click.command(short_help="Pause a replay run.")
@_run_options
def pause(run: str, topic: str | None, target: str | None, brokers: str | None, *, debug: bool) -> None:
    """Pause a run, wherever it is. `keepfast dlq resume` continues it."""
    _order(run, topic, target, brokers, "pause", debug=debug)


@click.command(short_help="Cancel a replay run.")
@_run_options
def cancel(run: str, topic: str | None, target: str | None, brokers: str | None, *, debug: bool) -> None:
    """Cancel a run, wherever it is. What is sent stays sent; the other cases are as before."""
    _order(run, topic, target, brokers, "cancel", debug=debug)


def _order(
    run: str,
    topic: str | None,
    target: str | None,
    brokers: str | None,
    kind: Literal["pause", "cancel"],
    *,
    debug: bool,
) -> None:
    with report_errors(debug=debug), exit_on_interrupt():
        topic = topic or _topic_of(run, target, brokers)
        with open_desk((topic,), target, brokers, refresh=False) as desk:
            desk.order(run, kind)
            click.echo(f"Asked the run {run} to {kind}.")


def _topic_of(run: str, target: str | None, brokers: str | None) -> str:
    """The dead-letter topic of a run, from the desk's topic."""
    with open_desk(("",), target, brokers, refresh=False) as desk:
        desk.refresh_facts()
        fact = desk.index.run(run)
    if fact is None:
        raise ConfigError(f"There is no run {run}. `keepfast dlq runs TOPIC` lists them.")
    return fact.topic


@contextmanager
def on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """The first SIGINT or SIGTERM calls `stop`; a second one ends the process at once."""

    def on_signal(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of signal handlers
        signal.signal(number, signal.SIG_DFL)
        stop()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

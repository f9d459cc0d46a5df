"""The course of `keepfast dlq replay`: plan, ask, send, and say what became of it."""

from __future__ import annotations

import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

import click

from keepfast.cli.dlq_options import Office, words_of
from keepfast.cli.progress import Progress
from keepfast.core.errors import SourceError
from keepfast.desk.planning import DEFAULT_MAX_REPLAYS, ReplayPlan, ReplayPolicy, Router, plan
from keepfast.desk.replay import Replay, Replayed
from keepfast.desk.selection import Offsets, Selection
from keepfast.desk.shelf import LetterTopic, ReadStopped
from keepfast.kafka.config import Producing, admin_properties, sink_properties
from keepfast.kafka.groups import KafkaGroups
from keepfast.kafka.sink import KafkaSink
from keepfast.telemetry.clean import clean_text

EXIT_PARTIAL, EXIT_STOPPED = 1, 130
GROUPS_S = 10.0
MAX_SHOWN = 20


class Rate(click.ParamType[float]):
    """N or N/s."""

    name = "N/s"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return float(str(value).removesuffix("/s"))
        except ValueError:
            self.fail(f"{value!r} is no rate; write 100/s", param, ctx)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOrder:
    """What was asked for."""

    selection: Selection
    policy: ReplayPolicy
    target: str | None
    brokers: str | None
    dry_run: bool
    yes: bool

    def command(self, topic: str, offsets: tuple[Offsets, ...]) -> str:
        """The command that replays these offsets in the same way."""
        policy = self.policy
        words = ["keepfast", "dlq", "replay", topic]
        for option, value in (("--app", self.target), ("--brokers", self.brokers), ("--topic", policy.topic)):
            words += [option, shlex.quote(value)] if value is not None else []
        words += words_of(self.selection, offsets)
        words += [f"--rate {policy.rate_per_s:g}/s"] if policy.rate_per_s is not None else []
        words += [f"--max-replays {policy.max_replays}"] if policy.max_replays != DEFAULT_MAX_REPLAYS else []
        words += ["--to group"] if policy.to == "group" else []
        words += ["--keep-timestamp"] * policy.keep_timestamp + ["--inexact"] * policy.inexact
        return " ".join(words)


def replay_letters(office: Office, order: ReplayOrder) -> int:
    """Returns the exit code. Raises ConfigError, StartError, or SourceError before anything was sent."""
    with office.browser() as browser:
        with office.looking_into(office.topic):
            shelf = LetterTopic(browser, office.topic, order.selection)
        stop = threading.Event()
        router = _router(office, order)
        try:
            with _on_signals(stop.set):
                made = plan(shelf, router, stop.is_set)
        except ReadStopped:
            click.echo("Stopped before anything was sent.", err=True)
            return EXIT_STOPPED
        _say_plan(made, shelf, order)
        if not made.records:
            click.echo("There is nothing to replay.")
            if not (made.left_out or shelf.selection.is_everything):
                click.echo(f"No letter fits; causes and codes: keepfast dlq list {office.topic}", err=True)
            return EXIT_PARTIAL if made.left_out else 0
        _warn_of_readers(office, made)
        if order.dry_run:
            click.echo("A dry run: nothing was sent.")
            return 0
        if not order.yes and not _confirmed(made):
            click.echo("Nothing was sent.", err=True)
            return EXIT_PARTIAL
        return _send(shelf, router.again(), office, order, made)


def _router(office: Office, order: ReplayOrder) -> Router:
    return Router(
        order.policy,
        partitions_of=office.partitions_of,
        letters_in=office.topic,
        retry_topics_of=office.retry_topics_of,
    )


def _say_plan(made: ReplayPlan, shelf: LetterTopic, order: ReplayOrder) -> None:
    if made.records:
        took_s = made.duration_s(order.policy.rate_per_s)
        how_long = "" if took_s is None else f", about {took_s:,.0f} s at {order.policy.rate_per_s:g}/s"
        click.echo(f"{_records(made.records)} of {shelf.topic} to send ({made.bytes:,} bytes{how_long}):")
    for name, count in made.destinations.most_common(MAX_SHOWN):
        click.echo(f"  {count:,} to {name}, {_where(order.policy)}")
    if len(made.destinations) > MAX_SHOWN:
        click.echo(f"  and to {len(made.destinations) - MAX_SHOWN:,} more topics")
    if made.copies:
        click.echo(f"{made.copies:,} more letters tell of the same records; each record is sent once.")
    if made.left_out:
        click.echo(f"{made.left_out:,} left out:")
    for reason, count in made.excluded.most_common(MAX_SHOWN):
        click.echo(f"  {count:,}: {clean_text(reason)}")


def _where(policy: ReplayPolicy) -> str:
    if policy.to == "group":
        return "which only their group reads"
    return "their keys decide about the partition" if policy.topic else "to their original partitions"


def _warn_of_readers(office: Office, made: ReplayPlan) -> None:
    """All groups that read a topic get what is replayed into it."""
    try:
        readers = KafkaGroups(admin_properties(office.connection)).reading(set(made.destinations), GROUPS_S)
    except SourceError as error:
        click.echo(f"Warning: it cannot be told who else reads these topics. {clean_text(str(error))}", err=True)
        return
    for topic, groups in readers.items():
        others = sorted(groups - made.groups)
        if others:
            names = ", ".join(clean_text(name, 100) for name in others[:MAX_SHOWN])
            more = f" and {len(others) - MAX_SHOWN} more" if len(others) > MAX_SHOWN else ""
            click.echo(f"Warning: {topic} is also read by {names}{more}: they get these records once more.", err=True)


def _records(count: int) -> str:
    return f"{count:,} record{'s' * (count != 1)}"


def _confirmed(made: ReplayPlan) -> bool:
    if not sys.stdin.isatty():
        raise click.UsageError("There is nobody to ask here: say --yes to send, or --dry-run to only look.")
    try:
        return click.confirm(f"Send {_records(made.records)}?")
    except click.Abort:
        click.echo(err=True)
        return False


def _send(shelf: LetterTopic, router: Router, office: Office, order: ReplayOrder, made: ReplayPlan) -> int:
    sink = KafkaSink(sink_properties(office.connection, Producing(linger_ms=5)))
    sink.open()
    run = Replay(shelf, router, sink, order.policy)
    progress = Progress(made.records)
    try:
        with _on_signals(run.stop):
            outcome = run.run(progress)
    except SourceError as error:
        outcome = run.outcome
        outcome.broken = outcome.broken or str(error)
    finally:
        progress.end(run.outcome.confirmed)
        sink.close(1.0)
    return _say_outcome(outcome, shelf, order, made)


def _say_outcome(outcome: Replayed, shelf: LetterTopic, order: ReplayOrder, made: ReplayPlan) -> int:
    if outcome.complete(made.records):
        them = "it is" if outcome.confirmed == 1 else "all are"
        click.echo(f"Replayed {_records(outcome.confirmed)}; {them} confirmed.")
        return 0
    ended = "Stopped" if outcome.stopped else "Not everything was replayed"
    click.echo(f"{ended}: {outcome.confirmed:,} of {made.records:,} records are confirmed.", err=True)
    if outcome.broken:
        click.echo(f"It ended because: {clean_text(outcome.broken)}", err=True)
    for name, why in outcome.failures:
        click.echo(f"  {name}: {clean_text(why)}", err=True)
    if outcome.failed > len(outcome.failures):
        click.echo(f"  and {outcome.failed - len(outcome.failures):,} more that failed", err=True)
    if outcome.left:
        click.echo("To go on where it ended (a few records may be sent twice, none is missed):", err=True)
        click.echo(f"  {order.command(shelf.topic, outcome.left)}", err=True)
    return EXIT_STOPPED if outcome.stopped else EXIT_PARTIAL


@contextmanager
def _on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """The first SIGINT or SIGTERM calls `stop`; a second one ends the process at once."""

    def came(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signal module's shape
        signal.signal(number, signal.SIG_DFL)
        stop()

    before = {number: signal.signal(number, came) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

"""The steps of `keepfast dlq replay`: plan, confirm, send, report."""

from __future__ import annotations

import shlex
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

import click

from keepfast.cli.dlq_options import DlqCluster, option_words
from keepfast.cli.terminal import Progress, confirmed
from keepfast.core.errors import SourceError
from keepfast.desk.letter_topic import LetterTopic, ReadStopped
from keepfast.desk.planning import DEFAULT_MAX_REPLAYS, ReplayPlan, ReplayPolicy, ReplayRouter, plan
from keepfast.desk.replay import Replay, Replayed
from keepfast.desk.selection import Offsets, Selection
from keepfast.kafka.config import Producing, admin_properties, sink_properties
from keepfast.kafka.groups import KafkaGroups
from keepfast.kafka.sink import KafkaSink
from keepfast.telemetry.clean import clean_text

EXIT_PARTIAL, EXIT_STOPPED = 1, 130
GROUPS_TIMEOUT_S = 10.0
MAX_SHOWN = 20


class Rate(click.ParamType[float]):
    """N or N/s."""

    name = "N/s"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return float(str(value).removesuffix("/s"))
        except ValueError:
            self.fail(f"{value!r} is not a rate; write 100/s", param, ctx)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """The selection, policy and options of a replay."""

    selection: Selection
    policy: ReplayPolicy
    target: str | None
    brokers: str | None
    dry_run: bool
    yes: bool

    def command(self, topic: str, offsets: tuple[Offsets, ...]) -> str:
        """The command that replays these offsets with the same options."""
        policy = self.policy
        words = ["keepfast", "dlq", "replay", topic]
        for option, value in (("--app", self.target), ("--brokers", self.brokers), ("--topic", policy.topic)):
            words += [option, shlex.quote(value)] if value is not None else []
        words += option_words(self.selection, offsets)
        words += [f"--rate {policy.rate_per_s:g}/s"] if policy.rate_per_s is not None else []
        words += [f"--max-replays {policy.max_replays}"] if policy.max_replays != DEFAULT_MAX_REPLAYS else []
        words += ["--to group"] if policy.to == "group" else []
        words += ["--keep-timestamp"] * policy.keep_timestamp + ["--inexact"] * policy.inexact
        return " ".join(words)


def replay_letters(cluster: DlqCluster, request: ReplayRequest) -> int:
    """Replay and return the exit code. Raises ConfigError, StartError or SourceError before anything is sent."""
    with cluster.browser() as browser:
        with cluster.reading(cluster.topic):
            source = LetterTopic(browser, cluster.topic, request.selection)
        stop = threading.Event()
        router = _router(cluster, request)
        try:
            with _on_signals(stop.set):
                replay_plan = plan(source, router, stop.is_set)
        except ReadStopped:
            click.echo("Stopped before anything was sent.", err=True)
            return EXIT_STOPPED
        _print_plan(replay_plan, source, request)
        if not replay_plan.records:
            click.echo("Nothing to replay.")
            if not (replay_plan.left_out or source.selection.is_everything):
                click.echo(f"No letter matches; for causes and codes: keepfast dlq list {cluster.topic}", err=True)
            return EXIT_PARTIAL if replay_plan.left_out else 0
        _warn_about_readers(cluster, replay_plan)
        if request.dry_run:
            click.echo("Dry run: nothing was sent.")
            return 0
        if not request.yes and not confirmed(f"Send {_records(replay_plan.records)}?"):
            click.echo("Nothing was sent.", err=True)
            return EXIT_PARTIAL
        return _send(source, router.again(), cluster, request, replay_plan)


def _router(cluster: DlqCluster, request: ReplayRequest) -> ReplayRouter:
    return ReplayRouter(
        request.policy,
        partitions_of=cluster.partitions_of,
        letters_in=cluster.topic,
        retry_topics_of=cluster.retry_topics_of,
    )


def _print_plan(replay_plan: ReplayPlan, source: LetterTopic, request: ReplayRequest) -> None:
    if replay_plan.records:
        took_s = replay_plan.duration_s(request.policy.rate_per_s)
        how_long = "" if took_s is None else f", about {took_s:,.0f} s at {request.policy.rate_per_s:g}/s"
        click.echo(
            f"{_records(replay_plan.records)} of {source.topic} to send ({replay_plan.bytes:,} bytes{how_long}):"
        )
    for name, count in replay_plan.destinations.most_common(MAX_SHOWN):
        click.echo(f"  {count:,} to {name}, {_destination(request.policy)}")
    if len(replay_plan.destinations) > MAX_SHOWN:
        click.echo(f"  and to {len(replay_plan.destinations) - MAX_SHOWN:,} more topics")
    if replay_plan.copies:
        click.echo(f"{replay_plan.copies:,} more letters contain the same records; each record is sent once.")
    if replay_plan.left_out:
        click.echo(f"{replay_plan.left_out:,} skipped:")
    for reason, count in replay_plan.excluded.most_common(MAX_SHOWN):
        click.echo(f"  {count:,}: {clean_text(reason)}")


def _destination(policy: ReplayPolicy) -> str:
    if policy.to == "group":
        return "read only by their group"
    return "partitioned by key" if policy.topic else "to their original partitions"


def _warn_about_readers(cluster: DlqCluster, replay_plan: ReplayPlan) -> None:
    """Warn if other groups read the destination topics, because they get the records too."""
    try:
        readers = KafkaGroups(admin_properties(cluster.connection)).reading(
            set(replay_plan.destinations), GROUPS_TIMEOUT_S
        )
    except SourceError as error:
        click.echo(f"Warning: cannot determine which groups read these topics. {clean_text(str(error))}", err=True)
        return
    for topic, groups in readers.items():
        others = sorted(groups - replay_plan.groups)
        if others:
            names = ", ".join(clean_text(name, 100) for name in others[:MAX_SHOWN])
            more = f" and {len(others) - MAX_SHOWN} more" if len(others) > MAX_SHOWN else ""
            click.echo(f"Warning: {topic} is also read by {names}{more}: they get these records again.", err=True)


def _records(count: int) -> str:
    return f"{count:,} record{'s' * (count != 1)}"


def _send(
    source: LetterTopic, router: ReplayRouter, cluster: DlqCluster, request: ReplayRequest, replay_plan: ReplayPlan
) -> int:
    sink = KafkaSink(sink_properties(cluster.connection, Producing(linger_ms=5)))
    sink.open()
    run = Replay(source, router, sink, request.policy)
    progress = Progress(replay_plan.records)
    try:
        with _on_signals(run.stop):
            outcome = run.run(progress)
    except SourceError as error:
        outcome = run.outcome
        outcome.broken = outcome.broken or str(error)
    finally:
        progress.end(run.outcome.confirmed)
        sink.close(1.0)
    return _print_outcome(outcome, source, request, replay_plan)


def _print_outcome(outcome: Replayed, source: LetterTopic, request: ReplayRequest, replay_plan: ReplayPlan) -> int:
    if outcome.complete(replay_plan.records):
        them = "it is" if outcome.confirmed == 1 else "all are"
        click.echo(f"Replayed {_records(outcome.confirmed)}; {them} confirmed.")
        return 0
    ended = "Stopped" if outcome.stopped else "Not everything was replayed"
    click.echo(f"{ended}: {outcome.confirmed:,} of {replay_plan.records:,} records are confirmed.", err=True)
    if outcome.broken:
        click.echo(f"Cause: {clean_text(outcome.broken)}", err=True)
    for name, why in outcome.failures:
        click.echo(f"  {name}: {clean_text(why)}", err=True)
    if outcome.failed > len(outcome.failures):
        click.echo(f"  and {outcome.failed - len(outcome.failures):,} more that failed", err=True)
    if outcome.left:
        click.echo("To continue (a few records may be sent twice, none is missed):", err=True)
        click.echo(f"  {request.command(source.topic, outcome.left)}", err=True)
    return EXIT_STOPPED if outcome.stopped else EXIT_PARTIAL


@contextmanager
def _on_signals(stop: Callable[[], None]) -> Iterator[None]:
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

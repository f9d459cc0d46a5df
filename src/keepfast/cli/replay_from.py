"""`keepfast replay-from`: a range of records through a consumer again, with a group of its own."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from keepfast.cli.connection import as_start_error, brokers_option, connection_for
from keepfast.cli.dlq_options import Moment, OffsetsOption, desk_on
from keepfast.cli.dlq_replay import on_signals
from keepfast.cli.errors import report_errors
from keepfast.cli.terminal import Progress, confirmed, console, table
from keepfast.core.errors import ConfigError, SourceError
from keepfast.core.ports import Position
from keepfast.core.records import TopicPartition
from keepfast.desk import AuditedAction, Desk
from keepfast.desk.case_filter import Offsets
from keepfast.groups.ranges import OffsetRange, by_offsets, by_time, without_gap
from keepfast.kafka.config import admin_properties
from keepfast.kafka.groups import KafkaGroups
from keepfast.telemetry import logs
from keepfast.telemetry.clean import clean_text

if TYPE_CHECKING:
    from keepfast.app import App
    from keepfast.app.options import Consumer
    from keepfast.app.time_travel import TravelCounts
    from keepfast.settings import Settings

EXIT_PARTIAL, EXIT_STOPPED = 1, 130
TIMEOUT_S, POLL_INTERVAL_S = 15.0, 0.3
FIRST_LOOK = 16
"""Offsets at the end of a range that are searched for its last record; then sixteen times as many, and so on."""
COLUMNS = ("TOPIC", "PARTITION", "FROM", "TO", "RECORDS")


@click.command(name="replay-from", short_help="Process a range of records again.")
@click.argument("target", metavar="MODULE:APP")
@click.argument("consumer")
@click.option("--since", type=Moment(), help="From the first record of this time: 2h, 7d, 2024-01-31T12:00.")
@click.option("--until", type=Moment(), help="To before the first record of this time.  [default: now]")
@click.option(
    "--offsets", type=OffsetsOption(), multiple=True, help="Instead of times: 3:100-200, 3:100 or 3:100-; repeatable."
)
@click.option("--topic", metavar="NAME", help="Of a consumer of several topics: only this one.")
@click.option("--group", metavar="NAME", help="Continue as this side group, with the --offsets that it was given.")
@click.option("--reprocess", is_flag=True, help="Also records that the consumer's inbox has: their effects repeat.")
@click.option("--why", default="", help="The reason, for the audit.")
@click.option("--dry-run", is_flag=True, help="Show what would be processed; process nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: the plan, or the result.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@brokers_option
@click.option("--debug", is_flag=True, help="Show tracebacks.")
def replay_from(
    target: str,
    consumer: str,
    *,
    brokers: str | None,
    debug: bool,
    reprocess: bool,
    why: str,
    dry_run: bool,
    as_json: bool,
    yes: bool,
    **chosen: Any,
) -> None:
    """Process a range of records again, in this process, with the code as it is now: time travel.

    A side group reads the range from its first to its last record and ends. The consumer's own group keeps running
    undisturbed: its offsets and members are not touched. What fails is retried and then dead-lettered as always, as a
    case of the consumer's own group. The handler must bear records that it has seen: an upsert, or an inbox, which
    skips what it has processed unless --reprocess. Older records are processed beside newer ones.

    \b
      keepfast replay-from app:app charge --since 2h --dry-run
      keepfast replay-from app:app charge --since 2024-01-31T12:00 --until 2024-01-31T13:00 --why "INC-2041"
      keepfast replay-from app:app charge --offsets 3:1200-1900

    To move the consumer's own group instead, stop it and use `keepfast offsets reset`.

    \b
    Exit codes: 0 all are processed, 1 some were dead-lettered or are left, 2 usage, 3 broker or topic missing,
    130 stopped by a signal (the output says how to continue).
    """
    if (chosen["since"] is None) == (not chosen["offsets"]):
        raise click.UsageError("Choose the range with --since, or with --offsets.")
    with report_errors(debug=debug):
        connection, settings = connection_for(target, brokers)
        settings = replace(settings, kafka=replace(settings.kafka, brokers=tuple(connection.brokers)))
        with desk_on(connection, settings, ("",), has_app=True, refresh=False) as desk, as_start_error():
            plan = TravelPlanner(desk, settings, consumer).plan(reprocess=reprocess, **chosen)
            code = _execute(desk, target, settings, plan, why, dry_run=dry_run, as_json=as_json, yes=yes)
    sys.exit(code)


@dataclass(frozen=True, slots=True, kw_only=True)
class TravelPlan:
    """Which records go through which consumer, as a member of which group."""

    consumer: str
    group: str
    ranges: tuple[OffsetRange, ...]
    side_group: str
    elsewhere: Mapping[TopicPartition, int]
    """Partitions of these topics that are not read, with their ends."""
    continued: bool
    reprocess: bool
    has_inbox: bool = False

    @property
    def count(self) -> int:
        return sum(one.count for one in self.ranges)

    def fields(self) -> dict[str, Any]:
        rows = [(one.place.topic, one.place.partition, one.start, one.end) for one in self.ranges]
        names = ("topic", "partition", "from", "end")
        ranges = [dict(zip(names, row, strict=True)) for row in rows]
        return {"consumer": self.consumer, "group": self.group, "side_group": self.side_group, "ranges": ranges}


class TravelPlanner:
    """Finds the records. Raises ConfigError and SourceError."""

    def __init__(self, desk: Desk, settings: Settings, consumer: str) -> None:
        own = settings.consumers.get(consumer)
        if own is None:
            raise ConfigError(f"The app has no consumer {consumer!r}; it has {', '.join(settings.consumers)}.")
        if own.order == "queue":
            raise ConfigError(f'{consumer} is a queue (order="queue"): a share group has no offsets to begin from.')
        self._own = own
        self._cluster = desk.cluster
        self._groups = KafkaGroups(admin_properties(desk.cluster.connection))

    def plan(
        self,
        *,
        since: int | None,
        until: int | None,
        offsets: Sequence[Offsets],
        topic: str | None,
        group: str | None,
        reprocess: bool,
    ) -> TravelPlan:
        topics = self._topics(topic)
        spans = {
            TopicPartition(name, number): span for name in topics for number, span in self._cluster.spans(name).items()
        }
        if since is not None:
            ends = None if until is None else self._groups.at_time(list(spans), until, TIMEOUT_S)
            found = by_time(spans, self._groups.at_time(list(spans), since, TIMEOUT_S), ends)
        else:
            if len(topics) > 1:
                raise ConfigError(f"--offsets are of one topic; name it with --topic: {', '.join(topics)}.")
            found = by_offsets(
                spans, [(TopicPartition(topics[0], one.partition), one.start, one.end) for one in offsets]
            )
        ranges = tuple(without_gap(found, self._last_record))
        named = {one.place for one in ranges}
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        return TravelPlan(
            consumer=self._own.name,
            group=self._own.group,
            ranges=ranges,
            side_group=group or f"{self._own.group}.replay-from.{stamp}",
            elsewhere={place: end for place, (_, end) in spans.items() if place not in named},
            continued=group is not None,
            reprocess=reprocess,
        )

    def _topics(self, topic: str | None) -> Sequence[str]:
        known = self._own.topics
        if topic is not None and topic not in known:
            raise ConfigError(f"The consumer {self._own.name} does not read {topic}; it reads {', '.join(known)}.")
        return (topic,) if topic is not None else known

    def _last_record(self, place: TopicPartition, start: int, end: int) -> int | None:
        width = FIRST_LOOK
        while True:
            first = max(start, end - width)
            found = [one.offset for one in self._cluster.read(place.topic, {place.partition: (first, end)})]
            if found or first == start:
                return max(found, default=None)
            width *= FIRST_LOOK


def _execute(
    desk: Desk, target: str, settings: Settings, plan: TravelPlan, why: str, *, dry_run: bool, as_json: bool, yes: bool
) -> int:
    from pathlib import Path

    from keepfast.cli.app_loader import load_app

    app = load_app(target, cwd=Path.cwd())
    [consumer] = app.chosen([plan.consumer])
    plan = replace(plan, has_inbox=consumer.inbox is not None)
    _configure_logs(settings)
    if as_json and dry_run:
        click.echo(json.dumps(plan.fields()))
        return 0
    if not as_json:
        _print_plan(plan)
    if dry_run or not plan.ranges:
        click.echo(
            "Dry run: nothing was processed." if plan.ranges else "There is no record in this range.", err=as_json
        )
        return 0
    if not yes and not confirmed(f"Process up to {_records(plan.count)} again with {plan.consumer}?"):
        click.echo("Nothing was processed.", err=True)
        return EXIT_PARTIAL
    return _Journey(desk, app, consumer, settings, plan).travel(target, why, as_json=as_json)


def _configure_logs(settings: Settings) -> None:
    """In the format of `keepfast run`; only warnings and errors, between the lines of this command."""
    level = max(logs.LEVELS[settings.log.level.lower()], logs.LEVELS["warning"])
    logs.configure(level=level, format=settings.log.format, max_lines=settings.log.max_lines)


def _print_plan(plan: TravelPlan) -> None:
    if not plan.ranges:
        return
    rows = [
        (one.place.topic, str(one.place.partition), str(one.start), str(one.end - 1), f"{one.count:,}")
        for one in plan.ranges
    ]
    console().print(table(COLUMNS, rows, right=range(1, 5)))
    click.echo(f"Up to {_records(plan.count)} through {plan.consumer}, as the group {clean_text(plan.side_group)}.")
    click.echo(
        f"The group {clean_text(plan.group)} is not touched and keeps running; older records run beside newer ones."
    )
    if plan.has_inbox and not plan.reprocess:
        click.echo("Its inbox skips the records that it has processed; --reprocess does not.")
    elif not plan.has_inbox:
        click.echo("It has no inbox: what its handler does is done again.")


class _Journey:
    """One run of a plan, on this thread; audited once, with its result."""

    def __init__(self, desk: Desk, app: App, consumer: Consumer, settings: Settings, plan: TravelPlan) -> None:
        from keepfast.app.time_travel import TimeTravel

        self._desk = desk
        self._app = app
        self._plan = plan
        self._groups = KafkaGroups(admin_properties(desk.cluster.connection))
        self._travel = TimeTravel(
            app, consumer, settings, side_group=plan.side_group, ranges=plan.ranges, reprocess=plan.reprocess
        )
        self._stopped = False

    def travel(self, target: str, why: str, *, as_json: bool) -> int:
        with self._audited(why) as audited:
            self._begin_at_the_start()
            with self._app.held_by(self._travel), on_signals(self._stop):
                done = self._run()
            counts = self._travel.counter.counts
            result = "done" if done else "stopped"
            audited.result = f"{result}: {counts.processed:,} processed, {counts.dead_lettered:,} dead-lettered"
        if done:
            self._groups.delete(self._plan.side_group, TIMEOUT_S)
        if as_json:
            click.echo(json.dumps({**self._plan.fields(), "done": done, **asdict(counts)}))
        else:
            self._print(target, counts, done=done)
        if self._stopped and not done:
            return EXIT_STOPPED
        return 0 if done and not counts.dead_lettered else EXIT_PARTIAL

    def _audited(self, why: str) -> AbstractContextManager[AuditedAction]:
        plan = self._plan
        ranges = ", ".join(f"{one.place.topic} {one}" for one in plan.ranges[:10])
        more = f" and {len(plan.ranges) - 10} more" if len(plan.ranges) > 10 else ""
        return self._desk.audited(
            "replay-from",
            topic=", ".join(sorted({one.place.topic for one in plan.ranges})),
            count=plan.count,
            why=why,
            what=f"{plan.consumer} as {plan.side_group}: {ranges}{more}",
            details={"reprocess": plan.reprocess},
        )

    def _begin_at_the_start(self) -> None:
        plan = self._plan
        if plan.continued:
            return
        starts = {**plan.elsewhere, **{one.place: one.start for one in plan.ranges}}
        self._groups.reset(plan.side_group, [Position(place, offset) for place, offset in starts.items()])

    def _stop(self) -> None:
        self._stopped = True

    def _run(self) -> bool:
        """Whether all of it was finished. Raises ConsumerFailed and the like."""
        travel, progress = self._travel, Progress(self._plan.count, done="finished")
        travel.start()
        try:
            while not (done := self._is_done()) and not self._stopped and not travel.ended.done():
                progress(travel.counter.counts.finished)
                time.sleep(POLL_INTERVAL_S)
        finally:
            travel.stop()
        progress.end(travel.counter.counts.finished)
        return done or self._is_done()

    def _is_done(self) -> bool:
        ends = {one.place: one.end for one in self._plan.ranges}
        try:
            found = self._groups.committed(self._plan.side_group, list(ends), TIMEOUT_S) or {}
        except SourceError:
            return False
        return all((found.get(place) or 0) >= end for place, end in ends.items())

    def _print(self, target: str, counts: TravelCounts, *, done: bool) -> None:
        parts = [f"{counts.processed:,} processed"]
        parts += [f"{counts.skipped:,} processed before"] if counts.skipped else []
        parts += [f"{counts.filtered:,} filtered out"] if counts.filtered else []
        parts += [f"{counts.discarded:,} discarded"] if counts.discarded else []
        parts += [f"{counts.dead_lettered:,} dead-lettered"] if counts.dead_lettered else []
        click.echo(f"{'Done' if done else 'Stopped'}: {', '.join(parts)}.")
        if not done:
            plan = self._plan
            words = " ".join(f"--offsets {one}" for one in plan.ranges)
            again = f"keepfast replay-from {target} {plan.consumer} --group {plan.side_group} {words}"
            click.echo(f"To continue: {again}{' --reprocess' if plan.reprocess else ''}", err=True)


def _records(count: int) -> str:
    return f"{count:,} record{'s' * (count != 1)}"

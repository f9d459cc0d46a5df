"""`keepfast offsets`: show what a group has committed, and move a stopped group to other offsets."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from keepfast.cli.app_loader import load_app
from keepfast.cli.connection import (
    acting_user,
    as_start_error,
    brokers_option,
    connect,
    connection_for,
    exit_on_interrupt,
)
from keepfast.cli.database import database
from keepfast.cli.dlq_options import Moment
from keepfast.cli.errors import report_errors
from keepfast.cli.lag import is_app
from keepfast.cli.terminal import confirmed, console, table
from keepfast.core.commit_metadata import CompletionMap, decode, encode, origin_of
from keepfast.core.errors import ConfigError, StartError
from keepfast.core.inbox import RecordIdentity
from keepfast.core.ports import CommittedOffset, Position
from keepfast.core.records import TopicPartition
from keepfast.desk import AuditedAction, Desk, DeskOptions
from keepfast.groups.offsets import PlannedOffset, ShiftBy, Span, Target, ToEdge, ToOffset, ToTime, plan_reset, totals
from keepfast.kafka.admin import KafkaAdmin
from keepfast.kafka.browser import KafkaBrowser, browser_properties
from keepfast.kafka.config import Connection, admin_properties
from keepfast.kafka.groups import KafkaGroups
from keepfast.settings import ConsumerSettings, Settings
from keepfast.telemetry.clean import clean_text
from keepfast.wiring.topic_discovery import with_matched_topics

REPLY_TIMEOUT_S = 15.0
MAX_NAMED = 10
SHOW_COLUMNS = ("TOPIC", "PARTITION", "START", "COMMITTED", "DONE ABOVE", "END", "LAG")
PLAN_COLUMNS = ("TOPIC", "PARTITION", "COMMITTED", "NEW", "AGAIN", "SKIPPED")
EXIT_NOT_CONFIRMED = 1
MAX_OUTSIDE = 10
"""Number of partitions that are named because the wanted offset is outside of their log."""


class WhereTo(click.ParamType[Target]):
    """`earliest` or `beginning`, `latest` or `end`, an offset, `+N`, `-N`, `2h` (ago) or ISO 8601."""

    name = "WHERE"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Target:
        text = str(value)
        if text in ("earliest", "beginning", "latest", "end"):
            return ToEdge(latest=text in ("latest", "end"))
        if re.fullmatch(r"\d{1,19}", text, re.ASCII):
            return ToOffset(int(text))
        if re.fullmatch(r"[+-]\d{1,19}", text, re.ASCII):
            return ShiftBy(int(text))
        return ToTime(Moment().convert(text, param, ctx))


KEYED = "Its inbox knows events by a key of their own (key=…), not by offsets: it skips those that it knows, uncounted."
ROWS = "consumer_group is the group, source is `key:` and the key"


@dataclass(frozen=True, slots=True)
class OffsetsOfGroup:
    """A group, what its topics hold and what it has committed."""

    group: str
    groups: KafkaGroups
    admin: KafkaAdmin
    spans: dict[TopicPartition, Span]
    stored: dict[TopicPartition, CommittedOffset]
    connection: Connection
    settings: Settings
    inbox: Any = None
    """Of the consumer; None without one, and where only the group is known."""

    @property
    def has_keys(self) -> bool:
        """Whether its inbox knows events by business keys."""
        return getattr(self.inbox, "key", None) is not None

    @property
    def committed(self) -> dict[TopicPartition, int | None]:
        return {place: one.offset for place, one in self.stored.items()}

    def recorded_partitions(self, topic: str) -> int | None:
        """The partition count that the group's commits record: partitions from there on were added later, and with
        `auto_offset_reset=latest` only these start at their beginning.
        """
        counts = [
            origin_of(one.metadata, offset=one.offset).partitions
            for place, one in self.stored.items()
            if place.topic == topic and one.offset is not None
        ]
        return min((count for count in counts if count is not None), default=None)


@click.group()
def offsets() -> None:
    """Show and reset the committed offsets of a consumer group."""


def _options(command: Any) -> Any:
    for option in (
        click.option("--debug", is_flag=True, help="Show tracebacks."),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
        brokers_option,
        click.option(
            "--partition", "partitions", type=click.IntRange(0), multiple=True, help="Only this partition; repeatable."
        ),
        click.option("--topic", "topics", metavar="NAME", multiple=True, help="Only this topic; repeatable."),
        click.option("--consumer", metavar="NAME", help="Of an app with several consumers: this one."),
        click.argument("target", metavar="MODULE:APP | GROUP"),
    ):
        command = option(command)
    return command


@offsets.command(short_help="Show the committed offsets of a group.")
@_options
def show(
    target: str,
    consumer: str | None,
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    brokers: str | None,
    *,
    as_json: bool,
    debug: bool,
) -> None:
    """Show what a group has committed of each partition. Changes nothing and joins no group.

    DONE ABOVE counts finished records behind an unfinished one: they are not repeated after a restart.

    \b
    Examples:
      keepfast offsets show app:app --consumer charge
      keepfast offsets show payments.charge --topic orders.payment.v1 --json
    """
    with report_errors(debug=debug), exit_on_interrupt():
        found = _read(target, consumer, topics, partitions, brokers)
        if as_json:
            click.echo(json.dumps({"group": found.group, "partitions": [_fields(found, one) for one in found.spans]}))
            return
        rows = [tuple(map(_cell, _fields(found, place).values())) for place in found.spans]
        click.echo(f"Group {clean_text(found.group)}")
        console().print(table(SHOW_COLUMNS, rows, right=range(1, 7)))


@offsets.command(short_help="Move a stopped group to other offsets.")
@_options
@click.option(
    "--to",
    "where",
    type=WhereTo(),
    required=True,
    help="earliest, latest, an offset, +N, -N, a time (2024-01-31T12:00, UTC), or how long ago (2h).",
)
@click.option(
    "--reprocess",
    is_flag=True,
    help="Let the inbox forget the records from there on, so that they are processed again. Noted in the audit.",
)
@click.option(
    "--dsn",
    metavar="URL",
    help="The database of the inbox; overrides POSTGRES_URL, POSTGRES_HOST, … and the app's settings.",
)
@click.option("--dry-run", is_flag=True, help="Print the plan and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--why", default="", help="The reason, for the audit.")
def reset(
    target: str,
    consumer: str | None,
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    brokers: str | None,
    *,
    where: Target,
    reprocess: bool,
    dsn: str | None,
    dry_run: bool,
    yes: bool,
    why: str,
    as_json: bool,
    debug: bool,
) -> None:
    """Move the committed offsets of a group that has no members. Prints a plan and asks before it changes anything.

    Records between an earlier offset and the committed one are processed again (AGAIN). Records that are jumped over
    are never processed (SKIPPED). Where the offset changes, finished records above it are processed again, too.
    Stop all members first: the broker refuses the reset otherwise. Offsets outside of a partition become its first
    offset or its end; the plan names them.

    A consumer with an inbox skips records that it has processed, however often it reads them. The plan says how many;
    --reprocess removes them from the inbox first. An inbox with key=… does not know offsets: there it is refused.

    \b
    Examples:
      keepfast offsets reset app:app --consumer charge --to 2h --dry-run
      keepfast offsets reset app:app --consumer charge --to 2h --reprocess
      keepfast offsets reset payments.charge --topic orders.payment.v1 --partition 3 --to 1200
      keepfast offsets reset payments.charge --to=-100
    """
    with report_errors(debug=debug), exit_on_interrupt():
        found = _read(target, consumer, topics, partitions, brokers)
        _refuse_members(found)
        plan = _plan(found, where)
        ids = _topic_ids(found, plan)
        known = _known(found, plan, ids, dsn, required=reprocess)
        if not as_json:
            _print_plan(found.group, plan)
            _print_known(found, known, reprocess=reprocess)
        done = False
        if not dry_run and (any(one.changed for one in plan) or (reprocess and known)):
            if not yes and not _confirmed(found.group, plan):
                click.echo("Nothing was changed.", err=True)
                raise click.exceptions.Exit(EXIT_NOT_CONFIRMED)
            with _audited(found, plan, why) as audited:
                if reprocess:
                    forgotten = _forget(found, plan, ids, dsn)
                    audited.result = f"done; the inbox forgot {forgotten:,} records"
                _commit(found, plan)
            done = True
        if as_json:
            click.echo(json.dumps(_plan_fields(found.group, plan, done=done) | {"known_to_inbox": known}))
        elif done:
            click.echo("Done. The group starts at these offsets.")
        else:
            click.echo("Dry run: nothing was changed." if dry_run else "Nothing to change.")


def _read(
    target: str, consumer: str | None, topics: Sequence[str], partitions: Sequence[int], brokers: str | None
) -> OffsetsOfGroup:
    connection, settings = connection_for(target if is_app(target) else None, brokers)
    admin = connect(connection)
    groups = KafkaGroups(admin_properties(connection))
    if is_app(target):
        with as_start_error():
            settings = with_matched_topics(settings, lambda: admin.names(REPLY_TIMEOUT_S))
        chosen = _of_app(settings, consumer)
        group, known = chosen.group, list(chosen.topics)
        inbox = _inbox_of(target, chosen.name) if chosen.inbox_days is not None else None
    else:
        group, inbox = target, None
        with as_start_error():
            known = sorted(groups.read_by(group, REPLY_TIMEOUT_S))
    if not (topics or known):
        raise ConfigError(f"The group {clean_text(group)!r} has committed nothing; name what to look at with --topic.")
    spans = {
        place: span
        for place, span in _spans(connection, topics or known).items()
        if not partitions or place.partition in partitions
    }
    if not spans:
        raise ConfigError(f"No such partition in {', '.join(topics or known)}.")
    with as_start_error():
        stored = {one.place: one for one in groups.stored(group, list(spans), REPLY_TIMEOUT_S)}
    return OffsetsOfGroup(group, groups, admin, spans, stored, connection, settings, inbox)


def _of_app(settings: Settings, consumer: str | None) -> ConsumerSettings:
    names = list(settings.consumers)
    if consumer is None and len(names) > 1:
        raise ConfigError(f"The app has several consumers; name one with --consumer: {', '.join(names)}.")
    chosen = settings.consumers.get(consumer or names[0])
    if chosen is None:
        raise ConfigError(f"The app has no consumer named {consumer!r}; it has {', '.join(names)}.")
    return chosen


def _spans(connection: Connection, topics: Sequence[str]) -> dict[TopicPartition, Span]:
    browser = KafkaBrowser(browser_properties(connection))
    try:
        with as_start_error():
            found = {topic: browser.spans(topic, REPLY_TIMEOUT_S) for topic in topics}
    finally:
        browser.close()
    return {TopicPartition(topic, number): span for topic, spans in found.items() for number, span in spans.items()}


def _refuse_members(found: OffsetsOfGroup) -> None:
    with as_start_error():
        members = found.groups.members(found.group, REPLY_TIMEOUT_S)
    if members:
        names = ", ".join(clean_text(one, 100) for one in members[:5])
        more = f" and {len(members) - 5} more" if len(members) > 5 else ""
        raise StartError(
            f"The group {clean_text(found.group)} has {len(members)} member{'s' * (len(members) != 1)}: {names}{more}."
            " Stop them first; members that were killed leave when their session ends."
        )


def _fields(found: OffsetsOfGroup, place: TopicPartition) -> dict[str, Any]:
    (start, end), one = found.spans[place], found.stored[place]
    above = 0
    if one.offset is not None:
        above = decode(one.metadata, offset=one.offset).to_int().bit_count()
    position = start if one.offset is None else one.offset
    return {
        "topic": place.topic,
        "partition": place.partition,
        "start": start,
        "committed": one.offset,
        "done_above": above,
        "end": end,
        "lag": max(0, end - max(position, start)),
    }


def _cell(value: object) -> str:
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def _print_plan(group: str, plan: Sequence[PlannedOffset]) -> None:
    rows = [
        tuple(map(_cell, (*one.place, one.committed, one.offset, one.again or None, one.skipped or None)))
        for one in plan
        if one.changed
    ]
    click.echo(f"Group {clean_text(group)}: {_partitions(len(rows))} to change, {len(plan) - len(rows)} unchanged.")
    if rows:
        console().print(table(PLAN_COLUMNS, rows, right=range(1, 6)))
    outside = [one for one in plan if one.wanted != one.offset]
    for one in outside[:MAX_OUTSIDE]:
        log = f"{one.place}, which has {one.start:,} to {one.end:,}"
        click.echo(f"Offset {one.wanted:,} is outside the log of {log}: it becomes {one.offset:,}.")
    if len(outside) > MAX_OUTSIDE:
        click.echo(f"So it is in {len(outside) - MAX_OUTSIDE:,} more partitions.")


def _partitions(count: int) -> str:
    return f"{count:,} partition{'s' * (count != 1)}"


def _summary(plan: Sequence[PlannedOffset]) -> str:
    again, skipped = totals(plan)
    text = f"{again:,} offsets are processed again"
    return text + click.style(f", {skipped:,} are skipped and never processed", fg="red") if skipped else text


def _confirmed(group: str, plan: Sequence[PlannedOffset]) -> bool:
    changed = sum(one.changed for one in plan)
    return confirmed(f"{_summary(plan)}. Reset {_partitions(changed)} of {clean_text(group)}?")


def _plan(found: OffsetsOfGroup, where: Target) -> list[PlannedOffset]:
    by_time: Mapping[TopicPartition, int] = {}
    if isinstance(where, ToTime):
        with as_start_error():
            by_time = found.groups.at_time(list(found.spans), where.at_ms, REPLY_TIMEOUT_S)
    return plan_reset(where, found.spans, found.committed, by_time)


def _topic_ids(found: OffsetsOfGroup, plan: Sequence[PlannedOffset]) -> dict[str, str]:
    with as_start_error():
        facts = found.admin.topics(sorted({one.place.topic for one in plan}), REPLY_TIMEOUT_S)
    return {name: fact.topic_id for name, fact in facts.items() if fact is not None and fact.topic_id}


def _inbox_of(target: str, consumer: str) -> Any:
    app = load_app(target, cwd=Path.cwd())
    return next(one.inbox for one in app.consumers.values() if one.name == consumer)


@contextmanager
def _inbox(found: OffsetsOfGroup, dsn: str | None) -> Iterator[Callable[..., int]]:
    """`tables.done_between` of its database, in one transaction. Raises ConfigError without one, or without the table,
    or if it does not know offsets, and StartError.
    """
    from keepfast.inbox import tables
    from keepfast.inbox.sqlite import SqliteInbox

    if found.has_keys:
        raise ConfigError(f"{KEYED} To have events processed again, delete their rows from keepfast_inbox: {ROWS}.")
    if isinstance(found.inbox, SqliteInbox) and dsn is None:
        with found.inbox.counting() as done_between:
            yield done_between
    else:
        with database(None, dsn, found.settings) as (connection, _), connection.transaction():
            yield partial(tables.done_between, connection)


def _known(
    found: OffsetsOfGroup, plan: Sequence[PlannedOffset], ids: Mapping[str, str], dsn: str | None, *, required: bool
) -> int | None:
    """How many records from the new offsets on the inbox knows; None if there is no inbox, or it cannot be asked."""
    if not (found.inbox is not None or dsn or required):
        return None
    try:
        with _inbox(found, dsn) as done_between:
            return _done(done_between, found.group, plan, ids)
    except ConfigError:
        if required or dsn:
            raise
        return None


def _done(
    done_between: Callable[..., int],
    group: str,
    plan: Sequence[PlannedOffset],
    ids: Mapping[str, str],
    *,
    remove: bool = False,
) -> int:
    """Records are noted under the id of their topic, or its name where that was not known."""
    return sum(
        done_between(RecordIdentity(group, source, one.place.partition, one.offset), one.end, remove=remove)
        for one in plan
        for source in filter(None, (one.place.topic, ids.get(one.place.topic)))
    )


def _print_known(found: OffsetsOfGroup, known: int | None, *, reprocess: bool) -> None:
    if known is None:
        if found.has_keys:
            click.echo(KEYED)
        elif found.inbox is not None:
            click.echo("Its inbox skips records that it knows; name its database with --dsn to count them.")
        return
    records = f"{known:,} record{'s' * (known != 1)}"
    if reprocess:
        click.echo(click.style(f"The inbox forgets {records}: their effects happen again.", fg="red"))
    else:
        click.echo(f"The inbox knows {records} from there on and skips them; --reprocess lets it forget them.")


@contextmanager
def _audited(found: OffsetsOfGroup, plan: Sequence[PlannedOffset], why: str) -> Iterator[AuditedAction]:
    topics = ", ".join(sorted({one.place.topic for one in plan}))
    moved = [one for one in plan if one.changed]
    places = ", ".join(str(one.place) for one in moved[:MAX_NAMED])
    more = f" and {len(moved) - MAX_NAMED} more" if len(moved) > MAX_NAMED else ""
    desk = Desk(found.connection, DeskOptions(topics=(), by=acting_user(), desk_topic=found.settings.desk.topic))
    try:
        with (
            as_start_error(),
            desk.audited(
                "offsets", topic=topics, count=len(moved), what=f"{found.group}: {places}{more}", why=why
            ) as audited,
        ):
            yield audited
    finally:
        desk.close()


def _forget(found: OffsetsOfGroup, plan: Sequence[PlannedOffset], ids: Mapping[str, str], dsn: str | None) -> int:
    """All of it or nothing. Returns how many records the inbox forgot."""
    with as_start_error(), _inbox(found, dsn) as done_between:
        return _done(done_between, found.group, plan, ids, remove=True)


def _commit(found: OffsetsOfGroup, plan: Sequence[PlannedOffset]) -> None:
    names = sorted({one.place.topic for one in plan})
    with as_start_error():
        facts = found.admin.topics(names, REPLY_TIMEOUT_S)
        positions = []
        for one in plan:
            if one.changed:
                known = facts[one.place.topic]
                metadata = encode(
                    CompletionMap(one.offset),
                    topic_id=(known.topic_id or "") if known is not None else "",
                    partitions=found.recorded_partitions(one.place.topic) or (known.partitions if known else None),
                )
                positions.append(Position(one.place, one.offset, metadata))
        found.groups.reset(found.group, positions)


def _plan_fields(group: str, plan: Sequence[PlannedOffset], *, done: bool) -> dict[str, Any]:
    again, skipped = totals(plan)
    return {
        "group": group,
        "done": done,
        "again": again,
        "skipped": skipped,
        "partitions": [
            {
                "topic": one.place.topic,
                "partition": one.place.partition,
                "committed": one.committed,
                "offset": one.offset,
                "wanted": one.wanted,
                "again": one.again,
                "skipped": one.skipped,
            }
            for one in plan
        ],
    }

"""Options of the `keepfast dlq` commands: which cluster and topics, and which cases."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import click

from keepfast.cli.connection import (
    CONNECT_TIMEOUT_S,
    acting_user,
    as_start_error,
    connect,
    connection_for,
    dev_app,
    missing_topic,
    reach_options,
)
from keepfast.cli.terminal import Progress
from keepfast.core.errors import ConfigError, StartError
from keepfast.deadletters.spool.places import reader_at, scheme_of
from keepfast.desk import CaseFilter, CaseState, Desk, DeskOptions, DeskSpool, default_index_dir
from keepfast.desk.case_filter import Offsets, moment_ms
from keepfast.desk.desk import EVERYTHING
from keepfast.kafka.config import Connection
from keepfast.redact.urls import shown
from keepfast.settings import Settings
from keepfast.telemetry.clean import clean_text
from keepfast.wiring.topic_discovery import with_matched_topics

F = TypeVar("F", bound=Callable[..., Any])

HINT = "`keepfast dlq causes --app MODULE:APP` finds the topics of an app."

_MANY = 5_000
_CAUSES_NAMED = 5


topics_argument = click.argument("topics", metavar="[TOPIC]...", nargs=-1)
"""Dead-letter topics; without any, those of --app."""


class Moment(click.ParamType[int]):
    """A time in milliseconds, from `2h` (ago) or ISO 8601."""

    name = "TIME"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        at_ms = moment_ms(str(value), round(time.time() * 1000))
        if at_ms is None:
            self.fail(f"{value!r} is not a time; write 30m, 2h or 7d (ago), or 2024-01-31T12:00 (UTC)", param, ctx)
        return at_ms


class OffsetsOption(click.ParamType[Offsets]):
    """P:FROM-TO, P:OFFSET or P:FROM-."""

    name = "P:FROM-TO"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Offsets:
        if isinstance(value, Offsets):
            return value
        try:
            return Offsets.parse(str(value))
        except ConfigError as error:
            self.fail(str(error), param, ctx)


class LetterOption(OffsetsOption):
    """P:OFFSET, of one letter."""

    name = "P:OFFSET"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Offsets:
        found = super().convert(value, param, ctx)
        if found.end != found.start + 1:
            self.fail("Name one letter: PARTITION:OFFSET.", param, ctx)
        return found


letter_argument = click.argument("letter", type=LetterOption(), metavar="PARTITION:OFFSET")

FAILURE_OPTIONS: Final = (
    click.option("--until", type=Moment(), help="Failed before this time."),
    click.option("--since", type=Moment(), help="Failed at this time or later: 2h, 7d, 2024-01-31T12:00."),
    click.option("--code", "codes", metavar="CODE", multiple=True, help="With this error code."),
    click.option("--error-type", "error_types", metavar="TYPE", multiple=True, help="With this exception type."),
    click.option("--group", "groups", metavar="NAME", multiple=True, help="Dead-lettered by this consumer group."),
)
"""Filters by what failed, when and where: of letters on the desk, and of those in a spool."""


def filter_options(command: F) -> F:
    """Add the filter options; their values are the keyword arguments of `filter_of`."""
    names = [str(state) for state in CaseState]
    for option in (
        click.option("--run", "runs", metavar="RUN", multiple=True, help="Sent by this replay run."),
        click.option("--case", "cases", metavar="ID", multiple=True, help="This case."),
        click.option(
            "--offsets",
            type=OffsetsOption(),
            multiple=True,
            help="Letters at these places: 3:100-200, 3:100, or 3:100- (and later).",
        ),
        click.option("--state", "states", type=click.Choice(names), multiple=True, help="In this state."),
        click.option("--text", default="", help="Part of the error type, message, code, place, group or topic."),
        click.option("--key", "keys", metavar="KEY", multiple=True, help="Records with this key."),
        click.option("--source", "sources", metavar="TOPIC", multiple=True, help="Records of this topic."),
        *FAILURE_OPTIONS,
        click.option("--cause", "causes", metavar="HEX", multiple=True, help="With this cause, or a prefix of it."),
    ):
        command = option(command)
    return command


def filter_of(filters: dict[str, Any]) -> CaseFilter:
    """The filter from the arguments of `filter_options`."""
    return CaseFilter(
        causes=frozenset(filters["causes"]),
        groups=frozenset(filters["groups"]),
        topics=frozenset(filters["sources"]),
        keys=frozenset(filters["keys"]),
        error_types=frozenset(filters["error_types"]),
        codes=frozenset(filters["codes"]),
        text=filters["text"],
        since_ms=filters["since"],
        until_ms=filters["until"],
        states=frozenset(map(CaseState, filters["states"])),
        offsets=tuple(filters["offsets"]),
        cases=frozenset(filters["cases"]),
        runs=frozenset(filters["runs"]),
    )


def selection_of(filters: dict[str, Any], *, everything: bool) -> CaseFilter:
    """The filter of a command that changes something: it selects by some option, or everything if that was asked for.
    Raises UsageError.
    """
    where = filter_of(filters)
    if everything and not where.is_everything:
        raise click.UsageError("--all excludes filters: omit the filters, or omit --all.")
    if not everything and where.is_everything and not where.states:
        raise click.UsageError("Select cases with --cause, --error-type, --offsets, …, or use --all.")
    return where


@contextmanager
def open_desk(
    topics: tuple[str, ...], target: str | None, brokers: str | None, *, refresh: bool = True
) -> Iterator[Desk]:
    """Connect, determine the topics if none are named, and read what is new. Without a topic and an app, it is the app
    of the `keepfast dev` of this directory. Raises ConfigError, LoadError or StartError.
    """
    if not topics and target is None and brokers is None:
        target = dev_app()
    connection, settings = connection_for(target, brokers)
    with desk_on(connection, settings, topics, has_app=target is not None, refresh=refresh) as desk:
        yield desk


@contextmanager
def desk_on(
    connection: Connection, settings: Settings, topics: tuple[str, ...], *, has_app: bool, refresh: bool
) -> Iterator[Desk]:
    """As `open_desk`, for a command that knows its cluster and, if `has_app`, the settings of its app."""
    admin = connect(connection)
    with as_start_error():
        if not topics:
            settings = with_matched_topics(settings, lambda: admin.names(CONNECT_TIMEOUT_S))
        letters = {letter for own in settings.consumers.values() for letter in own.dead_letter_topics.values()}
        chosen = topics or tuple(sorted(letters))
        if not chosen:
            raise ConfigError("Name the dead-letter topic, or the app with --app MODULE:APP.")
        options = DeskOptions(
            topics=chosen,
            by=acting_user(),
            desk_topic=settings.desk.topic,
            replay_limit=settings.desk.replay_limit,
            index_dir=default_index_dir(),
        )
        desk = Desk(connection, options, spool=spool_of(settings) if has_app else None)
        try:
            if refresh:
                _refresh(desk)
            yield desk
        finally:
            desk.close()


def spool_of(settings: Settings) -> DeskSpool | None:
    """The spool of an app, if it has one that other processes can read."""
    if settings.spool.url is None or scheme_of(url := settings.spool.url.reveal()) == "memory":
        return None
    app, max_bytes = settings.app.name, settings.spool.max_bytes
    return DeskSpool(lambda: reader_at(url, app=app, max_bytes=max_bytes), shown(url))


def _refresh(desk: Desk) -> None:
    waiting = Progress(0, done="letters read")
    shown = 0

    def progress(count: int) -> None:
        nonlocal shown
        if count > _MANY:
            shown = count
            waiting(count)

    found = desk.refresh(progress)
    waiting.end(shown)
    if found.spool_problem:
        click.echo(f"Letters in the spool are not shown: {clean_text(found.spool_problem)}", err=True)
    if found.missing and len(found.missing) == len(desk.options.topics) and not desk.summary().counts:
        raise StartError(missing_topic(found.missing[0], desk.cluster.names(), HINT))
    desk.infer_outcomes()


def refuse_unknown_causes(desk: Desk, where: CaseFilter) -> None:
    """For commands that change something. Raises ConfigError if a cause of the filter is none of these letters."""
    problem = _unknown_cause(desk, where)
    if problem:
        raise ConfigError(problem)


def _unknown_cause(desk: Desk, where: CaseFilter) -> str:
    """Empty if there is a cause for each prefix of the filter, or none at all."""
    known = desk.causes() if where.causes else []
    fingerprints = [cause.fingerprint for cause in known]
    unknown = [one for one in sorted(where.causes) if not any(has.startswith(one.lower()) for has in fingerprints)]
    if not known or not unknown:
        return ""
    names, topics = ", ".join(desk.options.topics), " ".join(desk.options.topics)
    named = [f"{one.fingerprint[:6]} {clean_text(one.error_type, 60)}" for one in known if one.fingerprint]
    there = f"There are {', '.join(named[:_CAUSES_NAMED])}{', …' * (len(named) > _CAUSES_NAMED)}." if named else ""
    text = f"No cause in {names} begins with {clean_text(unknown[0], 60)}."
    return " ".join(filter(None, (text, there, f"To list them: keepfast dlq causes {topics}{reach_options()}")))


def print_empty(desk: Desk, where: CaseFilter = EVERYTHING) -> None:
    """Nothing matches: say whether that is because of the filter, and what there is."""
    problem = _unknown_cause(desk, where)
    if problem:
        click.echo(problem)
        return
    names, counts = ", ".join(desk.options.topics), desk.summary().counts
    if not counts:
        click.echo(f"{names} has no letters.")
        return
    there = ", ".join(f"{count:,} {state}" for state, count in sorted(counts.items()))
    click.echo(f"No letter in {names} matches. There are: {there}.")
    topics = " ".join(desk.options.topics)
    click.echo(f"To list them: keepfast dlq list {topics} --state {min(counts)}{reach_options()}", err=True)

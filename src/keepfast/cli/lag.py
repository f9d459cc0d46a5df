"""`keepfast lag`: the lag of groups in records and seconds, and whether they progress."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from keepfast.cli.connection import as_start_error, brokers_option, connect, connection_for, exit_on_interrupt
from keepfast.cli.errors import report_errors
from keepfast.cli.terminal import LIVE_EVERY_S, console, live, table
from keepfast.core.errors import ConfigError
from keepfast.groups.lag import LagReport, LagWatcher, PartitionLag, WatchedGroup
from keepfast.kafka.admin import KafkaAdmin
from keepfast.kafka.browser import KafkaBrowser, browser_properties
from keepfast.kafka.config import admin_properties
from keepfast.kafka.groups import MAX_GROUPS, KafkaGroups
from keepfast.settings import Settings
from keepfast.telemetry.clean import clean_text
from keepfast.telemetry.state import QUEUE_NOTE
from keepfast.wiring.topic_discovery import with_matched_topics

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

COLUMNS = ("GROUP", "TOPIC", "PART", "COMMITTED", "END", "LAG", "SECONDS", "STATE")
COLOURS = {
    "ok": "green",
    "stalled": "yellow",
    "unassigned": "red",
    "stopped": "red",
    "rewinding": "red",
    "beyond_end": "red",
}
REPLY_TIMEOUT_S = 15.0
NO_GROUPS = "No group has commits."
NOT_LISTED = "The embedded broker lists no groups: name the group, or MODULE:APP."


@click.command(short_help="Show the lag of groups in records and seconds, and whether they progress.")
@click.argument("target", metavar="[MODULE:APP | GROUP]", required=False)
@brokers_option
@click.option("--watch", is_flag=True, help="Update until Ctrl-C.")
@click.option(
    "--every", "every_s", type=click.FloatRange(0.2), default=LIVE_EVERY_S, help="Update interval in seconds (2)."
)
@click.option("--for", "for_s", type=click.FloatRange(0), default=5.0, help="Seconds to observe progress for (5).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; with --watch one per line.")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
def lag(
    target: str | None,
    brokers: str | None,
    *,
    watch: bool,
    every_s: float,
    for_s: float,
    as_json: bool,
    debug: bool,
) -> None:
    """Show the lag of each group per partition: in records, and in seconds, the age of the first unfinished record.

    For an app: all its groups, including retry topics, and the size of its dead-letter topics. For a group: the
    partitions that it has committed. Without a name: all groups. Changes nothing and joins no group.

    LAG counts from the committed offset. Where keepfast has finished records above one that is not finished, BEHIND is
    the part of the lag that is not finished, and FINISHED the rest.

    \b
    STATE says whether the group progresses, independent of the lag:
      ok          the offset moves, or there is no lag
      waiting     the next record is in a retry topic, and not due yet
      stalled     a member owns the partition, and the offset does not move
      unassigned  there is lag, no member owns the partition, and members own others: it was just added to the topic
                  (members look for that every 30 s), or the group has just rebalanced
      stopped     there is lag, and no member owns any partition
      rewinding   the offset moved backwards
      beyond_end  the offset lies beyond the end of the log: its topic was deleted and created again, or records were
                  lost
      unknown     not observed for long enough; use --watch, or a longer --for

    \b
    Examples:
      keepfast lag app:app
      keepfast lag payments.charge --watch
      keepfast lag --for 0 --json
    """
    with report_errors(debug=debug), exit_on_interrupt(), _watcher(target, brokers) as (watcher, nothing):
        if watch:
            _watch(watcher, nothing, every_s, as_json=as_json)
            return
        if for_s:
            with as_start_error():
                watcher.sample(seconds=False)
            if not as_json:
                click.echo(f"Observing progress for {for_s:g} s …", err=True)
            time.sleep(for_s)
        seen = _measure(watcher)
        if as_json:
            click.echo(json.dumps(_fields(seen)))
        else:
            console().print(_view(seen, nothing))


def _watch(watcher: LagWatcher, nothing: str, every_s: float, *, as_json: bool) -> None:
    with live(every_s) as updates:
        for draw in updates:
            seen = _measure(watcher)
            if as_json:
                click.echo(json.dumps(_fields(seen)))
            else:
                draw(_view(seen, nothing, time.strftime("%H:%M:%S")))


def _measure(watcher: LagWatcher) -> LagReport:
    with as_start_error():
        return watcher.sample()


@contextmanager
def _watcher(target: str | None, brokers: str | None) -> Iterator[tuple[LagWatcher, str]]:
    """Also what to say while there is no partition to show."""
    app = target if target and is_app(target) else None
    connection, settings = connection_for(app, brokers)
    admin = connect(connection)
    groups = KafkaGroups(admin_properties(connection))
    # Only one record per partition is read, whatever the lag is.
    small = {"max.partition.fetch.bytes": 65_536, "queued.max.messages.kbytes": 4_096}
    browser = KafkaBrowser({**browser_properties(connection), **small})
    try:
        if app is not None:
            with as_start_error():
                settings = with_matched_topics(settings, lambda: admin.names(REPLY_TIMEOUT_S))
            watched, letters = _of_app(settings)
            topics = sorted({topic for one in watched for topic in one.topics})
            missing = f"None of these topics exists: {', '.join(topics)}."
            nothing = missing if topics else "There is no topic to look at."
        else:
            watched, letters = _of_groups(target, groups), []
            nothing = _without_groups(admin) if target is None else f"The group {clean_text(target)} has no commits."
        yield LagWatcher(browser, groups, watched, letters, now=time.monotonic, wall=time.time), nothing
    finally:
        browser.close()


def _without_groups(admin: KafkaAdmin) -> str:
    with as_start_error():
        admin.names(REPLY_TIMEOUT_S)  # with the answer it knows whether that is the embedded broker
    return NOT_LISTED if admin.embedded else NO_GROUPS


def is_app(text: str) -> bool:
    """Whether the text is `module:app`, a file, or a module in this folder."""
    return ":" in text or text.endswith(".py") or Path(f"{text}.py").is_file()


def _of_app(settings: Settings) -> tuple[list[WatchedGroup], list[str]]:
    watched = []
    for one in settings.consumers.values():
        if one.order == "queue":
            click.echo(f"{one.name} is {QUEUE_NOTE}.", err=True)
            continue
        retries = [name for topic in one.topics for name in one.retry_topics.topics(topic, one.group)]
        watched.append(WatchedGroup(one.group, (*one.topics, *retries)))
    letters = {name for one in settings.consumers.values() for name in one.dead_letter_topics.values()}
    return watched, sorted(letters)


def _of_groups(group: str | None, groups: KafkaGroups) -> list[WatchedGroup]:
    """The topics that the groups have committed."""
    with as_start_error():
        known = groups.names(REPLY_TIMEOUT_S)
        # The embedded broker lists no groups but knows their commits.
        if group is not None and group not in known and not groups.read_by(group, REPLY_TIMEOUT_S):
            raise ConfigError(
                f"There is no group {clean_text(group)!r} on these brokers; `keepfast lag` without a name lists all. An"
                " app is written as module:app."
            )
        chosen = [group] if group is not None else known[:MAX_GROUPS]
        return [
            WatchedGroup(one, tuple(sorted(groups.read_by(one, REPLY_TIMEOUT_S))), uncommitted_too=False)
            for one in chosen
        ]


def _view(seen: LagReport, nothing: str, *head: str) -> RenderableType:
    from rich.console import Group

    splits = any(one.sample.finished_above for one in seen.partitions)
    rows = [_row(one, splits=splits) for one in seen.partitions]
    if not rows:
        return Group(*head, *([] if seen.unreadable else [nothing]), *_notes(seen))
    columns = (*COLUMNS[:6], "BEHIND", "FINISHED", *COLUMNS[6:]) if splits else COLUMNS
    last = len(columns) - 1
    return Group(*head, table(columns, rows, right=range(2, last), whole=[last]), *_notes(seen))


def _notes(seen: LagReport) -> list[str]:
    text = []
    for topic, depth in seen.letters.items():
        count = "does not exist" if depth is None else f"{depth:,} letter{'s' * (depth != 1)}"
        text.append(f"{clean_text(topic)}: {count}")
    text += [
        f"{clean_text(group)}: its offsets cannot be read (no permission, or no answer)" for group in seen.unreadable
    ]
    if any(one.state == "stalled" and one.sample.owned is None for one in seen.partitions):
        text.append("These brokers do not report partition owners: a stalled partition may be stopped.")
    return text


def _row(one: PartitionLag, *, splits: bool) -> tuple[str | Text, ...]:
    from rich.text import Text

    sample = one.sample
    committed = "-" if sample.committed is None else str(sample.committed)
    seconds = "-" if one.lag_s is None else f"{one.lag_s:,.0f}"
    place = (one.group, one.place.topic, str(one.place.partition))
    parts = (f"{sample.behind:,}", f"{sample.lag - sample.behind:,}") if splits else ()
    state = Text(one.state, COLOURS.get(one.state, ""))
    return (*place, committed, str(sample.end), f"{sample.lag:,}", *parts, seconds, state)


def _fields(seen: LagReport) -> dict[str, Any]:
    return {
        "partitions": [
            {
                "group": one.group,
                "topic": one.place.topic,
                "partition": one.place.partition,
                "committed": one.sample.committed,
                "end": one.sample.end,
                "lag": one.sample.lag,
                "behind": one.sample.behind,
                "finished_above": one.sample.lag - one.sample.behind,
                "lag_s": None if one.lag_s is None else round(one.lag_s, 3),
                "owned": one.sample.owned,
                "state": one.state,
            }
            for one in seen.partitions
        ],
        "lag": sum(one.sample.lag for one in seen.partitions),
        "behind": sum(one.sample.behind for one in seen.partitions),
        "dead_letters": dict(seen.letters),
        "unreadable": list(seen.unreadable),
    }

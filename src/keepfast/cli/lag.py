"""`keepfast lag`: how far behind groups are, in records and in seconds, and whether they move."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from keepfast.cli.errors import said_plainly
from keepfast.cli.tables import LIVE_EVERY_S, live, table
from keepfast.cli.where import brokers_option, connection_for, interrupted_quietly, reached, told_as_start_error
from keepfast.core.errors import ConfigError
from keepfast.desk.lagging import LagSeen, LagWatcher, PartitionLag, Watched
from keepfast.kafka.browser import KafkaBrowser, browser_properties
from keepfast.kafka.config import admin_properties
from keepfast.kafka.groups import MAX_GROUPS, KafkaGroups
from keepfast.settings import Settings
from keepfast.telemetry.clean import clean_text

COLUMNS = ("GROUP", "TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "SECONDS", "STATE")
COLOURS = {"ok": "green", "stalled": "yellow", "stopped": "red", "rewinding": "red"}
REPLY_TIMEOUT_S = 15.0


@click.command(short_help="How far behind groups are, in records and seconds, and whether they move.")
@click.argument("target", metavar="[MODULE:APP | GROUP]", required=False)
@brokers_option
@click.option("--watch", is_flag=True, help="Look again and again, until Ctrl-C.")
@click.option("--every", "every_s", type=click.FloatRange(0.2), default=LIVE_EVERY_S, help="Seconds between looks (2).")
@click.option(
    "--for", "for_s", type=click.FloatRange(0), default=5.0, help="Seconds to look for, to see what moves (5)."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object; with --watch one a line.")
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
    """How far each group is behind, for every partition: in records, and in seconds, which is how old the first record
    is that is not finished. Of an app all its groups, with its retry topics and the depth of its dead-letter topics;
    of a group what it has committed; without a name all groups. Nothing is changed, and no group is joined.

    \b
    STATE says whether it moves, whatever its lag is:
      ok         it moves, or has nothing to do
      stalled    a member has the partition, and its offset does not move
      stopped    there is something to do, and no member has the partition
      rewinding  its offset went back
      unknown    it was not looked at for long enough; --watch, or a longer --for

    \b
    Examples:
      keepfast lag app:app
      keepfast lag payments.charge --watch
      keepfast lag --for 0 --json
    """
    with said_plainly(debug=debug), interrupted_quietly(), _watcher(target, brokers) as watcher:
        if watch:
            for draw in live(every_s):
                seen = _looked(watcher)
                if as_json:
                    click.echo(json.dumps(_fields(seen)))
                else:
                    draw([time.strftime("%H:%M:%S"), *_lines(seen)])
        if for_s:
            with told_as_start_error():
                watcher.look(seconds=False)
            if not as_json:
                click.echo(f"Looking for {for_s:g} s at what moves …", err=True)
            time.sleep(for_s)
        seen = _looked(watcher)
        click.echo(json.dumps(_fields(seen)) if as_json else "\n".join(_lines(seen)))


def _looked(watcher: LagWatcher) -> LagSeen:
    with told_as_start_error():
        return watcher.look()


@contextmanager
def _watcher(target: str | None, brokers: str | None) -> Iterator[LagWatcher]:
    app = target if target and _is_app(target) else None
    connection, settings = connection_for(app, brokers)
    reached(connection)
    groups = KafkaGroups(admin_properties(connection))
    # One record of a partition is looked at, however deep it is.
    small = {"max.partition.fetch.bytes": 65_536, "queued.max.messages.kbytes": 4_096}
    browser = KafkaBrowser({**browser_properties(connection), **small})
    try:
        if app is not None:
            watched, letters = _of_app(settings)
        else:
            watched, letters = _of_groups(target, groups), []
        yield LagWatcher(browser, groups, watched, letters, now=time.monotonic, wall=time.time)
    finally:
        browser.close()


def _is_app(text: str) -> bool:
    """`module:app`, a file, or a module of this folder."""
    return ":" in text or text.endswith(".py") or Path(f"{text}.py").is_file()


def _of_app(settings: Settings) -> tuple[list[Watched], list[str]]:
    watched = []
    for one in settings.consumers.values():
        retries = [name for topic in one.topics for name in one.retry_topics.topics(topic, one.group)]
        watched.append(Watched(one.group, (*one.topics, *retries)))
    letters = {name for one in settings.consumers.values() for name in one.dead_letter_topics.values()}
    return watched, sorted(letters)


def _of_groups(group: str | None, groups: KafkaGroups) -> list[Watched]:
    """Where they have committed something."""
    with told_as_start_error():
        known = groups.names(REPLY_TIMEOUT_S)
        # The embedded broker lists no groups, and yet knows what they have committed.
        if group is not None and group not in known and not groups.read_by(group, REPLY_TIMEOUT_S):
            raise ConfigError(
                f"There is no group {clean_text(group)!r} on these brokers; `keepfast lag` without a name lists all. An"
                " app is written module:app."
            )
        chosen = [group] if group is not None else known[:MAX_GROUPS]
        return [Watched(one, tuple(sorted(groups.read_by(one, REPLY_TIMEOUT_S))), all_of_it=False) for one in chosen]


def _lines(seen: LagSeen) -> list[str]:
    rows = [_row(one) for one in seen.partitions]
    lines = table(COLUMNS, rows, right=range(2, 7)).splitlines()
    head, *body = [click.style(lines[0], bold=True), *lines[1:]]
    text = [head, *(_coloured(line, one.state) for line, one in zip(body, seen.partitions, strict=True))]
    if not rows:
        text = ["No group with commits is listed there; the embedded broker lists none: name the group, or MODULE:APP."]
    for topic, depth in seen.letters.items():
        count = "is not there" if depth is None else f"{depth:,} letter{'s' * (depth != 1)}"
        text.append(f"{clean_text(topic)}: {count}")
    text += [f"{clean_text(group)}: its offsets may not be seen, or nobody answered" for group in seen.unseen]
    if any(one.state == "stalled" and one.look.owned is None for one in seen.partitions):
        text.append("These brokers do not tell who has a partition: what is stalled may be stopped.")
    return text


def _coloured(line: str, state: str) -> str:
    """The state stands at the end, if there was room for it."""
    return line.removesuffix(state) + click.style(state, fg=COLOURS.get(state)) if line.endswith(state) else line


def _row(one: PartitionLag) -> tuple[str, ...]:
    look = one.look
    committed = "-" if look.committed is None else str(look.committed)
    seconds = "-" if one.lag_s is None else f"{one.lag_s:,.0f}"
    place = (one.group, one.place.topic, str(one.place.partition))
    return (*place, committed, str(look.end), f"{look.lag:,}", seconds, one.state)


def _fields(seen: LagSeen) -> dict[str, Any]:
    return {
        "partitions": [
            {
                "group": one.group,
                "topic": one.place.topic,
                "partition": one.place.partition,
                "committed": one.look.committed,
                "end": one.look.end,
                "lag": one.look.lag,
                "lag_s": None if one.lag_s is None else round(one.lag_s, 3),
                "owned": one.look.owned,
                "state": one.state,
            }
            for one in seen.partitions
        ],
        "lag": sum(one.look.lag for one in seen.partitions),
        "dead_letters": dict(seen.letters),
        "unseen": list(seen.unseen),
    }

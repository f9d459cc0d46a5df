"""`keepfast dlq`: lists dead letters by cause or one by one, shows one, and replays them."""

from __future__ import annotations

import itertools
import json
import sys
from typing import Any, Literal

import click

from keepfast.cli import dlq_view as view
from keepfast.cli.connection import connection_options, exit_on_interrupt, settings_for
from keepfast.cli.dlq_options import DlqCluster, OffsetsOption, open_dlq, selection_of, selection_options
from keepfast.cli.dlq_replay import Rate, ReplayRequest, replay_letters
from keepfast.cli.errors import report_errors
from keepfast.cli.terminal import console, table
from keepfast.core.errors import KeepfastError
from keepfast.desk.letter_causes import by_cause
from keepfast.desk.letter_topic import LetterTopic
from keepfast.desk.planning import DEFAULT_MAX_REPLAYS, ReplayPolicy
from keepfast.desk.selection import FiledLetter, Offsets, Selection
from keepfast.kafka.browser import KafkaBrowser

LETTERS_SHOWN = 100


@click.group()
def dlq() -> None:
    """Inspect and replay dead letters.

    \b
    Examples:
      keepfast dlq list orders.payment.dlq
      keepfast dlq show orders.payment.dlq 3:17
      keepfast dlq replay orders.payment.dlq --fingerprint 5f2a --dry-run
      keepfast dlq replay orders.payment.dlq --fingerprint 5f2a --rate 100/s

    The brokers come from --brokers, KAFKA_BROKERS or --app. Letters are read in all formats of keepfast and in those of
    Spring Kafka, Kafka Connect, Kafka Streams and share groups. No command deletes or changes a letter.
    """


@dlq.command(name="list", short_help="List letters by cause, or one by one.")
@click.argument("topic", required=False)
@connection_options
@selection_options
@click.option("--letters", is_flag=True, help="One line per letter instead of one per cause.")
@click.option(
    "--limit", type=click.IntRange(0), default=LETTERS_SHOWN, show_default=True, help="For --letters; 0 is all."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def list_letters(
    topic: str | None,
    target: str | None,
    brokers: str | None,
    *,
    debug: bool,
    letters: bool,
    limit: int,
    as_json: bool,
    **filters: Any,
) -> None:
    """List why records were dead-lettered: one line per cause, the most frequent first.

    A cause is the exception type, its message without values, and the place in your code that raised it. Messages are
    shown without quoted text and numbers.
    """
    selection = selection_of(filters)
    with report_errors(debug=debug), exit_on_interrupt():
        cluster = open_dlq(topic, target, brokers)
        with cluster.browser() as browser:
            for name in cluster.topics:
                with cluster.reading(name):
                    source = LetterTopic(browser, name, selection)
                (_list_letters if letters else _list_causes)(source, limit=limit, as_json=as_json)


def _list_causes(source: LetterTopic, *, limit: int, as_json: bool) -> None:  # noqa: ARG001 - only for single letters
    causes = by_cause(source.letters())
    count = sum(cause.count for cause in causes)
    if as_json:
        fields = {"topic": source.topic, "letters": count, "causes": [view.cause_fields(cause) for cause in causes]}
        click.echo(json.dumps(fields, ensure_ascii=True))
        return
    if not causes:
        click.echo(_empty_message(source))
        return
    many = f"{count:,} letter{'s' * (count != 1)}, {len(causes):,} cause{'s' * (len(causes) != 1)}"
    click.echo(click.style(f"{source.topic}: {many}", bold=True))
    console().print(table(view.CAUSE_COLUMNS, [view.cause_row(cause) for cause in causes], whole=[0, 1, 3]))
    sample = f"keepfast dlq show {source.topic} {causes[0].sample}"
    click.echo(f"\nShow a letter of the first cause: {sample} (--reveal shows masked data)", err=True)


def _list_letters(source: LetterTopic, *, limit: int, as_json: bool) -> None:
    found = source.letters()
    some = list(itertools.islice(found, limit + 1)) if limit else list(found)
    rows, more = (some[:limit], len(some) > limit) if limit else (some, False)
    if as_json:
        for stored in rows:
            click.echo(json.dumps(view.letter_fields(stored), ensure_ascii=True))
    elif rows:
        console().print(table(view.LETTER_COLUMNS, [view.letter_row(stored) for stored in rows], whole=[0, 2]))
    else:
        click.echo(_empty_message(source))
    if more:
        click.echo(f"The first {limit:,} of {source.topic}; there are more. --limit 0 shows all.", err=True)


def _empty_message(source: LetterTopic) -> str:
    if source.selection.is_everything:
        return f"{source.topic} has no letters."
    return f"No letter in {source.topic} matches; {source.offsets:,} offsets were read."


def _decoded(stored: FiledLetter, target: str | None) -> bytes | None:
    """The value as JSON, if it was written with a schema and the registry has it."""
    if stored.letter.schema is None:
        return None
    from keepfast.app.schemas import source_of
    from keepfast.desk.decoding import decoded

    settings = settings_for(target).registry
    if settings.url is None:
        return None
    source = source_of(settings, at_once=True)
    try:
        return decoded(stored.letter, source)
    finally:
        source.close()


@dlq.command(short_help="Show one letter, masked unless --reveal.")
@click.argument("topic")
@click.argument("letter", type=OffsetsOption(), metavar="PARTITION:OFFSET")
@connection_options
@click.option("--reveal", is_flag=True, help="Show key, value, headers and messages unmasked.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; revealed bytes are base64.")
def show(
    topic: str, letter: Offsets, target: str | None, brokers: str | None, *, debug: bool, reveal: bool, as_json: bool
) -> None:
    """Show one letter: what failed, where, how often, and the structure of the record.

    Values are masked: JSON is shown with the types of its fields, anything else with its size. --reveal shows the
    values. A record with a schema is decoded by the registry of --app or KEEPFAST_REGISTRY_URL, if there is one.
    """
    with report_errors(debug=debug), exit_on_interrupt():
        cluster = open_dlq(topic, target, brokers)
        with cluster.browser() as browser:
            stored = _read_one(browser, cluster, letter)
        value = _decoded(stored, target)
        if as_json:
            fields = view.letter_fields(stored, reveal=reveal, decoded=value)
            click.echo(json.dumps(fields, ensure_ascii=True, indent=2))
        else:
            click.echo(view.letter_text(stored, reveal=reveal, decoded=value))
        if stored.letter.format == "unknown":
            click.echo("The format of this letter is unknown. Check that this is a dead-letter topic.", err=True)


def _read_one(browser: KafkaBrowser, cluster: DlqCluster, wanted: Offsets) -> FiledLetter:
    if wanted.end != wanted.start + 1:
        raise click.UsageError("Name one letter: PARTITION:OFFSET.")
    with cluster.reading(cluster.topic):
        source = LetterTopic(browser, cluster.topic, Selection(offsets=(wanted,)))
    stored = next(source.letters(), None)
    if stored is None:
        spans = browser.spans(cluster.topic, 10.0)
        low, high = spans.get(wanted.partition, (0, 0))
        holds = f"offsets {low} to {high - 1}" if low < high else "nothing"
        if wanted.partition not in spans:
            raise KeepfastError(f"{cluster.topic} has no partition {wanted.partition}; it has {len(spans)}.")
        raise KeepfastError(
            f"There is no letter at {wanted} in {cluster.topic}: partition {wanted.partition} holds {holds}."
        )
    return stored


@dlq.command(short_help="Send records back to their original topic.")
@click.argument("topic", required=False)
@connection_options
@selection_options
@click.option("--all", "everything", is_flag=True, help="All letters present now.")
@click.option("--topic", "to", metavar="OTHER", help="Send to this topic, partitioned by key.")
@click.option(
    "--to",
    "audience",
    type=click.Choice(["topic", "group"]),
    default="topic",
    show_default=True,
    help="The receivers: every group that reads the topic, or only the letter's group, through its retry topics.",
)
@click.option("--rate", type=Rate(), help="Limit, such as 100/s.")
@click.option(
    "--max-replays",
    type=click.IntRange(1),
    default=DEFAULT_MAX_REPLAYS,
    show_default=True,
    help="Skip records that were dead-lettered again after this many replays.",
)
@click.option(
    "--keep-timestamp", is_flag=True, help="Keep the original timestamps; the topic's retention applies to them."
)
@click.option(
    "--inexact", is_flag=True, help="Include foreign JSON letters that do not contain the exact original bytes."
)
@click.option("--dry-run", is_flag=True, help="Show what would be sent; send nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def replay(
    topic: str | None,
    target: str | None,
    brokers: str | None,
    *,
    debug: bool,
    everything: bool,
    to: str | None,
    audience: Literal["topic", "group"],
    rate: float | None,
    max_replays: int,
    keep_timestamp: bool,
    inexact: bool,
    dry_run: bool,
    yes: bool,
    **filters: Any,
) -> None:
    """Send records back: the original key, value and headers, byte for byte, to the original topic and partition.

    Only letters present at the start are replayed. Each record is sent once, even if several letters contain it. Two
    headers are added: the number of replays, and the letter that the record came from. All groups that read the topic
    get the records again, unless --to group sends them through the retry topics of the group that wrote the letter.
    Letters are not removed, so replaying them again sends the records again.

    \b
      keepfast dlq replay orders.payment.dlq --error-type TimeoutError --dry-run
      keepfast dlq replay orders.payment.dlq --offsets 3:100-200 --rate 50/s
      keepfast dlq replay orders.payment.dlq --all --topic orders.payment.repair

    \b
    Exit codes: 0 all planned records are confirmed, 1 not all (the output says what is left),
    2 usage, 3 broker or topic missing, 130 stopped by a signal (the output says how to continue).
    """
    selection = selection_of(filters)
    if everything and not selection.is_everything:
        raise click.UsageError("--all excludes filters: omit the filters, or omit --all.")
    if not everything and selection.is_everything:
        raise click.UsageError("Select letters with --offsets, --error-type, --fingerprint, …, or use --all.")
    with report_errors(debug=debug):
        policy = ReplayPolicy(
            topic=to,
            to=audience,
            max_replays=max_replays,
            rate_per_s=rate,
            keep_timestamp=keep_timestamp,
            inexact=inexact,
        )
        request = ReplayRequest(
            selection=selection, policy=policy, target=target, brokers=brokers, dry_run=dry_run, yes=yes
        )
        code = replay_letters(open_dlq(topic, target, brokers), request)
    sys.exit(code)

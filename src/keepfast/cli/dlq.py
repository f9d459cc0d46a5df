"""`keepfast dlq`: dead letters by cause, one by one, and back to where they came from."""

from __future__ import annotations

import itertools
import json
import sys
from typing import Any, Literal

import click

from keepfast.cli import dlq_shown as shown
from keepfast.cli.dlq_options import Office, OffsetsOption, open_office, selection_of, selection_options
from keepfast.cli.dlq_replay import Rate, ReplayOrder, replay_letters
from keepfast.cli.errors import said_plainly
from keepfast.cli.tables import table
from keepfast.cli.where import interrupted_quietly, where_options
from keepfast.core.errors import KeepfastError
from keepfast.desk.causes import by_cause
from keepfast.desk.planning import DEFAULT_MAX_REPLAYS, ReplayPolicy
from keepfast.desk.selection import Filed, Offsets, Selection
from keepfast.desk.shelf import LetterTopic
from keepfast.kafka.browser import KafkaBrowser

LETTERS_SHOWN = 100


@click.group()
def dlq() -> None:
    """Look at dead letters, and replay them.

    \b
    A typical day:
      keepfast dlq list orders.payment.dlq
      keepfast dlq show orders.payment.dlq 3:17
      keepfast dlq replay orders.payment.dlq --fingerprint 5f2a --dry-run
      keepfast dlq replay orders.payment.dlq --fingerprint 5f2a --rate 100/s

    The brokers are those of KAFKA_BROKERS, --brokers, or --app. Letters of keepfast are read in all its formats, and
    those of Spring Kafka, Kafka Connect, Kafka Streams and share groups too. Nothing here deletes or changes a letter.
    """


@dlq.command(name="list", short_help="Letters by cause, or one by one.")
@click.argument("topic", required=False)
@where_options
@selection_options
@click.option("--letters", is_flag=True, help="One line a letter instead of one a cause.")
@click.option("--limit", type=click.IntRange(0), default=LETTERS_SHOWN, show_default=True, help="Of --letters; 0: all.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
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
    """Why records died: one line for each cause, the most frequent first.

    A cause is the exception's type, what it says apart from values, and where in your code it was raised. Messages are
    shown without quoted texts and numbers.
    """
    selection = selection_of(filters)
    with said_plainly(debug=debug), interrupted_quietly():
        office = open_office(topic, target, brokers)
        with office.browser() as browser:
            for name in office.topics:
                with office.looking_into(name):
                    shelf = LetterTopic(browser, name, selection)
                (_list_letters if letters else _list_causes)(shelf, limit=limit, as_json=as_json)


def _list_causes(shelf: LetterTopic, *, limit: int, as_json: bool) -> None:  # noqa: ARG001 - limits letters alone
    causes = by_cause(shelf.letters())
    count = sum(cause.count for cause in causes)
    if as_json:
        told = {"topic": shelf.topic, "letters": count, "causes": [shown.cause_fields(cause) for cause in causes]}
        click.echo(json.dumps(told, ensure_ascii=True))
        return
    if not causes:
        click.echo(_nothing(shelf))
        return
    many = f"{count:,} letter{'s' * (count != 1)}, {len(causes):,} cause{'s' * (len(causes) != 1)}"
    click.echo(click.style(f"{shelf.topic}: {many}", bold=True))
    click.echo(table(shown.CAUSE_COLUMNS, [shown.cause_row(cause) for cause in causes]))
    sample = f"keepfast dlq show {shelf.topic} {causes[0].sample}"
    click.echo(f"\nA letter of the first: {sample} (--reveal shows what is masked)", err=True)


def _list_letters(shelf: LetterTopic, *, limit: int, as_json: bool) -> None:
    found = shelf.letters()
    some = list(itertools.islice(found, limit + 1)) if limit else list(found)
    rows, more = (some[:limit], len(some) > limit) if limit else (some, False)
    if as_json:
        for filed in rows:
            click.echo(json.dumps(shown.letter_fields(filed), ensure_ascii=True))
    elif rows:
        click.echo(table(shown.LETTER_COLUMNS, [shown.letter_row(filed) for filed in rows]))
    else:
        click.echo(_nothing(shelf))
    if more:
        click.echo(f"The first {limit:,} of {shelf.topic}; there are more. --limit 0 shows all.", err=True)


def _nothing(shelf: LetterTopic) -> str:
    if shelf.selection.is_everything:
        return f"Nothing is dead in {shelf.topic}."
    return f"No letter in {shelf.topic} fits; {shelf.offsets:,} offsets were looked at."


@dlq.command(short_help="One letter, masked unless --reveal.")
@click.argument("topic")
@click.argument("letter", type=OffsetsOption(), metavar="PARTITION:OFFSET")
@where_options
@click.option("--reveal", is_flag=True, help="Show key, value and headers, and texts unmasked.")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object; revealed bytes are base64.")
def show(
    topic: str, letter: Offsets, target: str | None, brokers: str | None, *, debug: bool, reveal: bool, as_json: bool
) -> None:
    """One letter: what failed, where, how often, and what the record looks like.

    Values are masked: of JSON the fields are shown with kinds instead of values, of anything else the size. --reveal
    shows them as they are.
    """
    with said_plainly(debug=debug), interrupted_quietly():
        office = open_office(topic, target, brokers)
        with office.browser() as browser:
            filed = _the_one(browser, office, letter)
        if as_json:
            click.echo(json.dumps(shown.letter_fields(filed, reveal=reveal), ensure_ascii=True, indent=2))
        else:
            click.echo(shown.letter_text(filed, reveal=reveal))
        if filed.letter.format == "unknown":
            click.echo("That is a letter in no format that is known here; is this a dead-letter topic?", err=True)


def _the_one(browser: KafkaBrowser, office: Office, wanted: Offsets) -> Filed:
    if wanted.end != wanted.start + 1:
        raise click.UsageError("One letter at a time: write PARTITION:OFFSET.")
    with office.looking_into(office.topic):
        shelf = LetterTopic(browser, office.topic, Selection(offsets=(wanted,)))
    filed = next(shelf.letters(), None)
    if filed is None:
        there = browser.spans(office.topic, 10.0)
        low, high = there.get(wanted.partition, (0, 0))
        holds = f"offsets {low} to {high - 1}" if low < high else "nothing"
        if wanted.partition not in there:
            raise KeepfastError(f"{office.topic} has no partition {wanted.partition}; it has {len(there)}.")
        raise KeepfastError(
            f"There is no letter at {wanted} in {office.topic}: partition {wanted.partition} holds {holds}."
        )
    return filed


@dlq.command(short_help="Send records back to where they came from.")
@click.argument("topic", required=False)
@where_options
@selection_options
@click.option("--all", "everything", is_flag=True, help="All letters that are there now.")
@click.option("--topic", "to", metavar="OTHER", help="Send to this topic; the key decides about the partition.")
@click.option(
    "--to",
    "audience",
    type=click.Choice(["topic", "group"]),
    default="topic",
    show_default=True,
    help="Who gets them: every group that reads the topic, or the letter's own group through its retry topics.",
)
@click.option("--rate", type=Rate(), help="At most so many a second: 100/s.")
@click.option(
    "--max-replays",
    type=click.IntRange(1),
    default=DEFAULT_MAX_REPLAYS,
    show_default=True,
    help="Leave out records that were replayed so often and died again.",
)
@click.option("--keep-timestamp", is_flag=True, help="Send the original timestamps; mind the topic's retention time.")
@click.option("--inexact", is_flag=True, help="Also foreign JSON letters that do not hold the exact original bytes.")
@click.option("--dry-run", is_flag=True, help="Say what would be sent where, and send nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
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

    Only letters that are there when it begins are meant. Each record is sent once, however many letters tell of it.
    Two headers are added: how often the record was replayed, and the letter it came from. All groups that read the
    topic get the records again, unless --to group sends them through the retry topics of the group that wrote the
    letter. Letters stay where they are, so replaying the same ones once more sends them once more.

    \b
      keepfast dlq replay orders.payment.dlq --error-type TimeoutError --dry-run
      keepfast dlq replay orders.payment.dlq --offsets 3:100-200 --rate 50/s
      keepfast dlq replay orders.payment.dlq --all --topic orders.payment.repair

    \b
    Exit codes: 0 all that was planned is confirmed, 1 not all (it says what is left),
    2 usage, 3 broker or topic missing, 130 stopped by a signal (it says how to go on).
    """
    selection = selection_of(filters)
    if everything and not selection.is_everything:
        raise click.UsageError("--all means all: leave out the filters, or leave out --all.")
    if not everything and selection.is_everything:
        raise click.UsageError("Which letters? Say --all, or choose with --offsets, --error-type, --fingerprint, …")
    with said_plainly(debug=debug):
        policy = ReplayPolicy(
            topic=to,
            to=audience,
            max_replays=max_replays,
            rate_per_s=rate,
            keep_timestamp=keep_timestamp,
            inexact=inexact,
        )
        order = ReplayOrder(
            selection=selection, policy=policy, target=target, brokers=brokers, dry_run=dry_run, yes=yes
        )
        code = replay_letters(open_office(topic, target, brokers), order)
    sys.exit(code)

"""`keepfast dlq`: dead letters by cause and by case, and what can be done about them."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import click

from keepfast.cli import dlq_view as view
from keepfast.cli.connection import connection_options, exit_on_interrupt, reach_options, settings_for
from keepfast.cli.dlq_marks import archive, discard, export, fail, purge, restore
from keepfast.cli.dlq_options import filter_of, filter_options, letter_argument, open_desk, print_empty, topics_argument
from keepfast.cli.dlq_replay import cancel, edit, pause, replay, resume
from keepfast.cli.dlq_try import try_letter
from keepfast.cli.errors import report_errors
from keepfast.cli.terminal import console, table
from keepfast.core.errors import KeepfastError
from keepfast.core.records import SPOOL_PARTITION, RecordPlace
from keepfast.desk import Desk, StoredLetter
from keepfast.desk.case_filter import Offsets
from keepfast.desk.causes import Cause

CASES_SHOWN = 100
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")


@click.group()
def dlq() -> None:
    """Find out why records failed, and get them through.

    \b
    Examples:
      keepfast dlq causes orders.payment.dlq
      keepfast dlq show orders.payment.dlq 3:17
      keepfast dlq try orders.payment.dlq 3:17 --app app:app
      keepfast dlq replay orders.payment.dlq --cause 5f2a --dry-run
      keepfast dlq replay orders.payment.dlq --cause 5f2a --canary 10 --rate 100/s
      keepfast dlq discard orders.payment.dlq --cause 77c0 --why "test data"

    A record that failed is a case: open, replaying, resolved, discarded, permanently failed or archived. What is done
    about cases is kept in the topic keepfast.desk, who did it in keepfast.desk.audit. The brokers come from --brokers,
    KAFKA_BROKERS or --app. Letters are read in all formats of keepfast and in those of Spring Kafka, Kafka Connect,
    Kafka Streams and share groups. Only `purge` deletes letters.
    """


for command in (try_letter, replay, edit, resume, pause, cancel, discard, fail, restore, export, archive, purge):
    dlq.add_command(command)


@dlq.command(short_help="List why records failed, one line per cause.")
@topics_argument
@connection_options
@filter_options
@json_option
def causes(
    topics: tuple[str, ...], target: str | None, brokers: str | None, *, debug: bool, as_json: bool, **filters: Any
) -> None:
    """List why records were dead-lettered: one line per cause, those with most open cases first.

    A cause is the exception type, its message without values, and the place in your code that raised it. Messages are
    shown without quoted text and numbers. Closed cases count too; --state open leaves them out.
    """
    where = filter_of(filters)
    with report_errors(debug=debug), exit_on_interrupt(), open_desk(topics, target, brokers) as desk:
        found, summary = desk.causes(where), desk.summary(where)
        _warn_of_no_letters(found)
        if as_json:
            states = {str(state): count for state, count in summary.counts.items()}
            fields = {"topics": list(desk.options.topics), "unresolved": summary.unresolved, "states": states}
            click.echo(json.dumps({**fields, "causes": [view.cause_fields(cause) for cause in found]}))
            return
        names = ", ".join(desk.options.topics)
        click.echo(click.style(f"{names}: {view.headline(summary, desk.now_ms())}", bold=True))
        if not found:
            print_empty(desk, where)
            return
        rows = [view.cause_row(cause) for cause in found]
        console().print(table(view.CAUSE_COLUMNS, rows, right=[0, 1], whole=[2]))
        first = found[0]
        sample = f"{first.sample.topic} {first.sample.name}"
        click.echo(f"\nA letter of the first cause: keepfast dlq show {sample}{reach_options()}", err=True)
        if first.unresolved and first.fingerprint:
            command = (
                f"keepfast dlq replay {first.sample.topic} --cause {first.fingerprint[:6]} --dry-run{reach_options()}"
            )
            click.echo(f"Its replay, as a dry run:    {command}", err=True)


def _warn_of_no_letters(found: list[Cause]) -> None:
    """The topic may have been given by mistake: that of the records, for instance."""
    others: Counter[str] = Counter()
    for cause in found:
        if not cause.is_of_letters:
            others.update(cause.dlqs)
    for topic, count in others.items():
        records = "1 record" if count == 1 else f"{count:,} records"
        click.echo(f"The format of {records} of {topic} is unknown. Check that this is a dead-letter topic.", err=True)


@dlq.command(name="list", short_help="List cases, one line each.")
@topics_argument
@connection_options
@filter_options
@click.option("--limit", type=click.IntRange(0), default=CASES_SHOWN, show_default=True, help="0 is all.")
@json_option
def list_cases(
    topics: tuple[str, ...],
    target: str | None,
    brokers: str | None,
    *,
    debug: bool,
    limit: int,
    as_json: bool,
    **filters: Any,
) -> None:
    """List cases: those that failed last first.

    A case is one record of one consumer group, however often it failed; LETTER is the place of its last letter.
    """
    where = filter_of(filters)
    with report_errors(debug=debug), exit_on_interrupt(), open_desk(topics, target, brokers) as desk:
        page = desk.cases(where, size=limit or -1)
        if as_json:
            for case in page.cases:
                click.echo(json.dumps(view.case_fields(case)))
        elif page.cases:
            console().print(table(view.CASE_COLUMNS, list(map(view.case_row, page.cases)), whole=[0, 1, 3]))
        else:
            print_empty(desk, where)
        if page.total > len(page.cases):
            click.echo(f"The last {len(page.cases):,} of {page.total:,}. --limit 0 shows all.", err=True)


def _decoded(stored: StoredLetter, target: str | None) -> bytes | None:
    """The value as JSON, if it was written with a schema and the registry has it."""
    if stored.letter.schema is None:
        return None
    from keepfast.app.schemas import source_of

    settings = settings_for(target).registry
    if settings.url is None:
        return None
    source = source_of(settings, at_once=True)
    try:
        reading = view.reading_of(stored.letter, source)
    finally:
        source.close()
    return None if reading is None else reading.data


@dlq.command(short_help="Show one letter, masked unless --reveal.")
@click.argument("topic")
@letter_argument
@connection_options
@click.option("--reveal", is_flag=True, help="Show key, value, headers and messages unmasked. This is audited.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; revealed bytes are base64.")
def show(
    topic: str, letter: Offsets, target: str | None, brokers: str | None, *, debug: bool, reveal: bool, as_json: bool
) -> None:
    """Show one letter: what failed, where, how often, what was done about it, and the structure of the record.

    Values are masked: JSON is shown with the types of its fields, anything else with its size. --reveal shows the
    values, and is noted in the audit. A record with a schema is decoded by the registry of --app or
    KEEPFAST_REGISTRY_URL, if there is one.
    """
    with report_errors(debug=debug), exit_on_interrupt(), open_desk((topic,), target, brokers) as desk:
        place = RecordPlace(topic, letter.partition, letter.start)
        stored = _read_one(desk, place, reveal=reveal)
        history, value = desk.case_at(place), _decoded(stored, target)
        if as_json:
            fields = view.letter_fields(stored, reveal=reveal, decoded=value)
            case = {} if history is None else {"case": view.case_fields(history.case)}
            click.echo(json.dumps({**fields, **case}, ensure_ascii=True, indent=2))
        else:
            click.echo(view.letter_text(stored, history, reveal=reveal, decoded=value))
        if stored.letter.format == "unknown":
            click.echo("The format of this letter is unknown. Check that this is a dead-letter topic.", err=True)


def _read_one(desk: Desk, place: RecordPlace, *, reveal: bool) -> StoredLetter:
    stored = desk.reveal(place) if reveal else desk.letter(place)
    if stored is not None:
        return stored
    if place.partition == SPOOL_PARTITION:
        raise KeepfastError(f"There is no letter {place.name} in the spool; it may be in {place.topic} meanwhile.")
    spans = desk.cluster.spans(place.topic)
    if place.partition not in spans:
        raise KeepfastError(f"{place.topic} has no partition {place.partition}; it has {len(spans)}.")
    low, high = spans[place.partition]
    holds = f"offsets {low} to {high - 1}" if low < high else "nothing"
    raise KeepfastError(
        f"There is no letter at {place.name} in {place.topic}: partition {place.partition} holds {holds}."
    )


@dlq.command(short_help="List replay runs and their results.")
@topics_argument
@connection_options
@json_option
def runs(topics: tuple[str, ...], target: str | None, brokers: str | None, *, debug: bool, as_json: bool) -> None:
    """List replay runs: how many records each has sent, and what became of them."""
    with report_errors(debug=debug), exit_on_interrupt(), open_desk(topics, target, brokers) as desk:
        found = [(run, desk.index.succeeded(run.run), desk.index.failed_again(run.run)) for run in desk.runs()]
        if as_json:
            for one in found:
                click.echo(json.dumps(view.run_fields(*one)))
        elif found:
            rows = [view.run_row(*one) for one in found]
            console().print(table(view.RUN_COLUMNS, rows, right=range(2, 6), whole=[0]))
        else:
            click.echo("There were no replays.")


@dlq.command(short_help="List who did what.")
@topics_argument
@connection_options
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
@json_option
def audit(
    topics: tuple[str, ...], target: str | None, brokers: str | None, *, debug: bool, limit: int, as_json: bool
) -> None:
    """List what was done at the desk, by whom and why: the latest first. Names of the command line are unverified."""
    with report_errors(debug=debug), exit_on_interrupt(), open_desk(topics, target, brokers, refresh=False) as desk:
        found = desk.audit(limit)
        if as_json:
            for entry in found:
                click.echo(json.dumps(view.audit_fields(entry)))
        elif found:
            console().print(table(view.AUDIT_COLUMNS, list(map(view.audit_row, found)), right=[3], whole=[0]))
        else:
            click.echo("Nothing was done yet.")

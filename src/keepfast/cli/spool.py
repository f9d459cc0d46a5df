"""`keepfast spool`: inspects and publishes dead letters that Kafka did not accept."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from keepfast.cli.connection import connect, connection_for, connection_options, exit_on_interrupt
from keepfast.cli.dlq_options import FAILURE_OPTIONS, OffsetsOption
from keepfast.cli.errors import report_errors
from keepfast.cli.terminal import Progress
from keepfast.core.errors import ConfigError, SpoolError, StartError
from keepfast.deadletters.checked import iso
from keepfast.deadletters.spool.letters import SpooledLetter
from keepfast.deadletters.spool.places import reader_at, scheme_of, store_at
from keepfast.deadletters.spool.query import SpoolQuery, find
from keepfast.deadletters.spool.service import SpoolService
from keepfast.deadletters.spool.store import Head, Reader, Store
from keepfast.desk.masking import masked_text
from keepfast.engine.clock import RealClock
from keepfast.kafka.config import sink_properties
from keepfast.kafka.sink import KafkaSink
from keepfast.redact.urls import shown
from keepfast.settings import Settings
from keepfast.telemetry.clean import clean_text

F = TypeVar("F", bound=Callable[..., Any])

EXIT_LEFT = 1
DEFAULT_LIMIT = 1_000
POLL_INTERVAL_S = 0.05
ADOPT_AT_S = 1e9
"""A time late enough that every store takes over the letters of processes that have ended."""

RUNNING_APP_HINT = "A running app publishes them itself."


@click.group()
def spool() -> None:
    """Inspect and publish dead letters that Kafka did not accept.

    A running app publishes its spool as soon as Kafka accepts letters again; `list` and `show` read it meanwhile.
    `drain` is for an app that does not run.

    Filters choose letters by error, group, original topic, offset and time. In PostgreSQL they are queries of the
    table keepfast_spool, whose columns have the same: error_type, error_code, error_message, consumer_group,
    original_topic, original_partition, original_offset, failed_at, spooled_at.

    \b
    Examples:
      keepfast spool list --app app:app
      keepfast spool list --app app:app --error-type TimeoutError --since 2h
      keepfast spool show --app app:app part-0000/…
      keepfast spool drain --app app:app --dry-run
      keepfast spool drain --app app:app --topic orders.payment.v1
    """


def filter_options(command: F) -> F:
    """Add the filters; their values are the keyword arguments of `_query`."""
    for option in (
        click.option(
            "--offsets", type=OffsetsOption(), multiple=True, help="Original offsets: 3:100-200, 3:100, or 3:100-."
        ),
        click.option("--topic", "topics", metavar="NAME", multiple=True, help="With this original topic."),
        *FAILURE_OPTIONS,
    ):
        command = option(command)
    return command


def _query(filters: dict[str, Any]) -> SpoolQuery:
    return SpoolQuery(
        error_types=frozenset(filters["error_types"]),
        codes=frozenset(filters["codes"]),
        groups=frozenset(filters["groups"]),
        topics=frozenset(filters["topics"]),
        offsets=tuple((one.partition, one.start, one.end) for one in filters["offsets"]),
        since_ms=filters["since"],
        until_ms=filters["until"],
    )


@spool.command("list")
@filter_options
@click.option("--limit", type=click.IntRange(min=1), default=DEFAULT_LIMIT, help="List at most this many letters.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per letter.")
@connection_options
def list_command(limit: int, *, as_json: bool, **options: Any) -> None:
    """List the letters in the spool, oldest first."""
    with report_errors(debug=options["debug"]), exit_on_interrupt(), _reader(options) as (store, where):
        heads, fill = find(store, _query(options), limit), store.fill()
        for head in heads:
            fields = _fields(head) | _listed(store, head)
            click.echo(json.dumps(fields) if as_json else _line(head, fields))
        for damage in fill.damaged:
            click.echo(f"Damaged: {clean_text(damage)}", err=True)
        if not as_json:
            more = f", {len(heads)} shown" if len(heads) < fill.letters else ""
            click.echo(
                f"{fill.letters:,} letters, {fill.held_bytes:,} bytes, in {where}{more}. {RUNNING_APP_HINT}", err=True
            )


@spool.command("show")
@click.argument("ref")
@connection_options
def show_command(ref: str, **options: Any) -> None:
    """Show one letter as JSON, without its payload; values of the record in its message are masked."""
    with report_errors(debug=options["debug"]), exit_on_interrupt(), _reader(options) as (store, where):
        head = next(iter(store.heads(1, lambda one: one.ref == ref)), None)
        if head is None:
            raise ConfigError(f"There is no letter {clean_text(ref)} in {where}; `keepfast spool list` lists them.")
        click.echo(json.dumps(_fields(head) | _letter_fields(store.read(head)), indent=2))


@spool.command("drain")
@filter_options
@click.option("--dry-run", is_flag=True, help="Show what would be sent; send nothing.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0),
    default=60.0,
    help="Seconds to wait for acknowledgements (60).",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@connection_options
def drain_command(*, dry_run: bool, timeout_s: float, as_json: bool, **options: Any) -> None:
    """Publish the letters, all or those that filters choose, to their dead-letter topics, oldest first; each is removed
    when it is acknowledged.

    Exit code 1 means that some are left. It is safe to interrupt the command and to run it again.
    """
    with report_errors(debug=options["debug"]):
        with _open_store(options) as (store, where):
            chosen = find(store, _query(options), store.fill().letters)
            if dry_run:
                _print_plan(Counter(head.topic for head in chosen), where, as_json=as_json)
                return
        sent, left, why = _drain(options, {head.identity for head in chosen}, timeout_s)
    if as_json:
        click.echo(json.dumps({"sent": sent, "left": left, "why": why}))
    else:
        click.echo(f"Sent {sent:,} letters; {left:,} left in {where}." + (f" {clean_text(why)}" if left else ""))
    if left:
        raise click.exceptions.Exit(EXIT_LEFT)


def _drain(options: dict[str, Any], chosen: set[bytes], timeout_s: float) -> tuple[int, int, str]:
    waiting = len(chosen)
    connection, settings = connection_for(options["target"], options["brokers"])
    connect(connection)
    sink = KafkaSink(sink_properties(connection))
    store, _ = _store(settings)
    service = SpoolService(store, sink, RealClock(), sends=lambda head: head.identity in chosen)
    try:
        service.open()
        store.lead(0.0)
        store.lead(ADOPT_AT_S)
    except SpoolError as error:
        raise StartError(str(error)) from error
    progress, deadline = Progress(max(waiting, 1), done="published"), time.monotonic() + timeout_s
    try:
        while service.status.sent_on + len(service.status.stuck) < waiting and time.monotonic() < deadline:
            progress(service.status.sent_on)
            time.sleep(POLL_INTERVAL_S)
    except KeyboardInterrupt:
        pass  # letters in flight are awaited below
    service.stop_draining()
    sink.close(5.0)
    service.close(5.0)
    sent = service.status.sent_on
    progress.end(sent)
    stuck = [f"{one.letter}: {one.why}" for one in service.status.stuck]
    return (
        sent,
        max(0, waiting - sent),
        "; ".join(stuck[:3]) or "Not all were acknowledged in time; run the command again.",
    )


@contextmanager
def _reader(options: dict[str, Any]) -> Iterator[tuple[Reader, str]]:
    _, settings = connection_for(options["target"], options["brokers"])
    url = _url(settings)
    reader = reader_at(url, app=settings.app.name, max_bytes=settings.spool.max_bytes)
    try:
        reader.open()
        yield reader, shown(url)
    except SpoolError as error:
        raise StartError(str(error)) from error
    finally:
        reader.close()


@contextmanager
def _open_store(options: dict[str, Any]) -> Iterator[tuple[Store, str]]:
    _, settings = connection_for(options["target"], options["brokers"])
    store, where = _store(settings)
    try:
        store.open()
        store.lead(0.0)
        store.lead(ADOPT_AT_S)
        yield store, where
    except SpoolError as error:
        raise StartError(str(error)) from error
    finally:
        store.close()


def _store(settings: Settings) -> tuple[Store, str]:
    url = _url(settings)
    return store_at(url, app=settings.app.name, max_bytes=settings.spool.max_bytes), shown(url)


def _url(settings: Settings) -> str:
    if settings.spool.url is None:
        raise ConfigError("No spool is configured. Name the app with --app, or set KEEPFAST_SPOOL_URL.")
    url = settings.spool.url.reveal()
    if scheme_of(url) == "memory":
        raise ConfigError(
            "The spool is in memory and is gone with its process; use another kind of spool to inspect it."
        )
    return url


def _fields(head: Head) -> dict[str, object]:
    return {"ref": head.ref, "topic": head.topic, "spooled_at": iso(head.at_ms), "bytes": head.size}


def _line(head: Head, fields: dict[str, object]) -> str:
    what = f"{fields.get('error_type') or '-'}  {fields.get('id') or '-'}"
    return f"{iso(head.at_ms)}  {clean_text(head.topic)}  {head.size:>9,} bytes  {clean_text(head.ref)}  {what}"


def _listed(store: Reader, head: Head) -> dict[str, object]:
    """What the letter says; of one that is damaged or was sent meanwhile, nothing."""
    try:
        return _letter_fields(store.read(head))
    except SpoolError:
        return {}


def _letter_fields(spooled: SpooledLetter) -> dict[str, object]:
    letter = spooled.letter
    return {
        "id": clean_text(spooled.id),
        "consumer_group": clean_text(letter.group),
        "failed_at": None if letter.failed_at_ms is None else iso(letter.failed_at_ms),
        "error_type": clean_text(letter.error_type),
        "error_code": clean_text(letter.error_code),
        "error_message": clean_text(masked_text(letter.error_message, letter)),
        "retry_count": letter.retry_count,
        "original_topic": letter.topic,
        "original_partition": letter.partition,
        "original_offset": letter.offset,
        "value_bytes": len(letter.value or b""),
    }


def _print_plan(counts: Mapping[str, int], where: str, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"would_send": counts}))
        return
    for topic, count in sorted(counts.items()):
        click.echo(f"{count:,} letters to {clean_text(topic)}")
    click.echo(f"{sum(counts.values()):,} letters in {where}; nothing was sent.", err=True)

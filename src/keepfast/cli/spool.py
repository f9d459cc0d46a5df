"""`keepfast spool`: letters that Kafka did not take, and the way to get them there."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from keepfast.cli.errors import said_plainly
from keepfast.cli.progress import Progress
from keepfast.cli.where import connection_for, interrupted_quietly, reached, where_options
from keepfast.core.errors import ConfigError, SpoolError, StartError
from keepfast.deadletters.checked import iso
from keepfast.deadletters.spool.letters import SpooledLetter
from keepfast.deadletters.spool.places import reader_at, scheme_of, shown, store_at
from keepfast.deadletters.spool.service import SpoolService
from keepfast.deadletters.spool.store import Head, Reader, Store
from keepfast.engine.clock import RealClock
from keepfast.kafka.config import sink_properties
from keepfast.kafka.sink import KafkaSink
from keepfast.settings import Settings
from keepfast.telemetry.clean import clean_text

EXIT_LEFT = 1
LISTED = 1_000
PAUSE_S = 0.05
ADOPTED_BY_S = 1e9
"""A time at which every store looks for what processes that have ended left behind."""

OTHERS = "An app that runs sends them on by itself."


@click.group()
def spool() -> None:
    """Look at letters that Kafka did not take, and send them on.

    An app that runs sends its spool on by itself, as soon as Kafka answers; `list` and `show` look into it meanwhile.
    `drain` is for one that does not run.

    \b
    Examples:
      keepfast spool list --app app:app
      keepfast spool show --app app:app part-0000/…
      keepfast spool drain --app app:app --dry-run
      keepfast spool drain --app app:app
    """


@spool.command("list")
@click.option("--limit", type=click.IntRange(min=1), default=LISTED, help="At most so many letters, oldest first.")
@click.option("--json", "as_json", is_flag=True, help="One JSON line a letter.")
@where_options
def list_command(limit: int, *, as_json: bool, **options: Any) -> None:
    """List the letters in the spool, oldest first."""
    with said_plainly(debug=options["debug"]), interrupted_quietly(), _looking(options) as (store, where):
        heads, fill = store.heads(limit, lambda _: True), store.fill()
        for head in heads:
            click.echo(json.dumps(_fields(head)) if as_json else _line(head))
        for damage in fill.damaged:
            click.echo(f"Damaged: {clean_text(damage)}", err=True)
        if not as_json:
            more = f", {len(heads)} shown" if len(heads) < fill.letters else ""
            click.echo(f"{fill.letters:,} letters, {fill.held_bytes:,} bytes, in {where}{more}. {OTHERS}", err=True)


@spool.command("show")
@click.argument("ref")
@where_options
def show_command(ref: str, **options: Any) -> None:
    """Show one letter as JSON, without its payload."""
    with said_plainly(debug=options["debug"]), interrupted_quietly(), _looking(options) as (store, where):
        head = next(iter(store.heads(1, lambda one: one.ref == ref)), None)
        if head is None:
            raise ConfigError(f"There is no letter {clean_text(ref)} in {where}; `keepfast spool list` names them.")
        click.echo(json.dumps(_fields(head) | _told(store.read(head)), indent=2))


@spool.command("drain")
@click.option("--dry-run", is_flag=True, help="Only say what would be sent.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0), default=60.0, help="Seconds to try (60).")
@click.option("--json", "as_json", is_flag=True, help="Say the outcome as JSON.")
@where_options
def drain_command(*, dry_run: bool, timeout_s: float, as_json: bool, **options: Any) -> None:
    """Send the letters on to their dead-letter topics, oldest first; each leaves the spool when it is acknowledged.

    Exit code 1 says that some are left. Interrupted or run twice, it does no harm.
    """
    with said_plainly(debug=options["debug"]):
        with _opened(options) as (store, where):
            waiting = store.fill().letters
            if dry_run:
                counts: dict[str, int] = {}
                for head in store.heads(waiting, lambda _: True):
                    counts[head.topic] = counts.get(head.topic, 0) + 1
                _say_plan(counts, where, as_json=as_json)
                return
        sent, left, why = _drain(options, waiting, timeout_s)
    if as_json:
        click.echo(json.dumps({"sent": sent, "left": left, "why": why}))
    else:
        click.echo(f"Sent {sent:,} letters; {left:,} left in {where}." + (f" {clean_text(why)}" if left else ""))
    if left:
        raise click.exceptions.Exit(EXIT_LEFT)


def _drain(options: dict[str, Any], waiting: int, timeout_s: float) -> tuple[int, int, str]:
    connection, settings = connection_for(options["target"], options["brokers"])
    reached(connection)
    sink = KafkaSink(sink_properties(connection))
    store, _ = _store(settings)
    service = SpoolService(store, sink, RealClock())
    try:
        service.open()
        store.lead(0.0)
        store.lead(ADOPTED_BY_S)
    except SpoolError as error:
        raise StartError(str(error)) from error
    progress, deadline = Progress(max(waiting, 1), done="sent on"), time.monotonic() + timeout_s
    try:
        while service.status.sent_on + len(service.status.stuck) < waiting and time.monotonic() < deadline:
            progress(service.status.sent_on)
            time.sleep(PAUSE_S)
    except KeyboardInterrupt:
        pass  # what is on its way is waited for below
    service.stop_draining()
    sink.close(5.0)
    service.close(5.0)
    sent = service.status.sent_on
    progress.end(sent)
    stuck = [f"{one.letter}: {one.why}" for one in service.status.stuck]
    return sent, max(0, waiting - sent), "; ".join(stuck[:3]) or "Not all were acknowledged in time; run it again."


@contextmanager
def _looking(options: dict[str, Any]) -> Iterator[tuple[Reader, str]]:
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
def _opened(options: dict[str, Any]) -> Iterator[tuple[Store, str]]:
    _, settings = connection_for(options["target"], options["brokers"])
    store, where = _store(settings)
    try:
        store.open()
        store.lead(0.0)
        store.lead(ADOPTED_BY_S)
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
        raise ConfigError("The spool is in memory, so it went with its process; there is nothing to look at.")
    return url


def _fields(head: Head) -> dict[str, object]:
    return {"ref": head.ref, "topic": head.topic, "spooled_at": iso(head.at_ms), "bytes": head.size}


def _line(head: Head) -> str:
    return f"{iso(head.at_ms)}  {clean_text(head.topic)}  {head.size:>9,} bytes  {clean_text(head.ref)}"


def _told(kept: SpooledLetter) -> dict[str, object]:
    letter = kept.letter
    return {
        "id": clean_text(kept.id),
        "error_type": clean_text(letter.error_type),
        "error_code": clean_text(letter.error_code),
        "error_message": clean_text(letter.error_message),
        "retry_count": letter.retry_count,
        "original_topic": letter.topic,
        "original_partition": letter.partition,
        "original_offset": letter.offset,
        "value_bytes": len(letter.value or b""),
    }


def _say_plan(counts: dict[str, int], where: str, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"would_send": counts}))
        return
    for topic, count in sorted(counts.items()):
        click.echo(f"{count:,} letters to {clean_text(topic)}")
    click.echo(f"{sum(counts.values()):,} letters in {where}; nothing was sent.", err=True)

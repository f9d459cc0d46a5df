"""`keepfast outbox`: events that are written in PostgreSQL and not sent yet."""

from __future__ import annotations

import json
import time
from typing import Any

import click

from keepfast.cli.connection import brokers_option, connect, connection_for, exit_on_interrupt
from keepfast.cli.database import database, database_options
from keepfast.cli.errors import report_errors
from keepfast.inbox import tables
from keepfast.inbox.postgres import connection_to, conninfo_of
from keepfast.inbox.relay import OutboxStatus, Relay
from keepfast.kafka.config import sink_properties
from keepfast.kafka.sink import KafkaSink

EXIT_LEFT = 1
PAUSE_S = 0.2


@click.group()
def outbox() -> None:
    """Show events that are written in the outbox and not sent yet, and send them.

    A running app with `inbox=PostgresInbox(outbox=True)` sends its outbox itself. `drain` is for an app that does not
    run.

    \b
    Examples:
      keepfast outbox status app:app
      keepfast outbox drain app:app
    """


@outbox.command("status")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@database_options
def status_command(*, as_json: bool, target: str | None, dsn: str | None, debug: bool) -> None:
    """Show how many events of the app wait, and the age of the oldest."""
    with report_errors(debug=debug), exit_on_interrupt(), database(target, dsn) as (connection, settings):
        fill = tables.outbox_fill(connection, settings.app.name)
        if as_json:
            click.echo(json.dumps({"app": settings.app.name, "rows": fill.rows, "oldest_s": fill.oldest_s}))
        else:
            click.echo(f"{settings.app.name}: {_text(fill)}")


@outbox.command("drain")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0),
    default=60.0,
    help="Seconds to wait for all to be sent (60).",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@brokers_option
@database_options
def drain_command(
    *, timeout_s: float, as_json: bool, brokers: str | None, target: str | None, dsn: str | None, debug: bool
) -> None:
    """Send the events of the app, in the order of their keys; each is removed when it is acknowledged.

    If a process of the app runs, that sends them, and this waits for it. Exit code 1 means that some are left. It is
    safe to interrupt the command and to run it again.
    """
    with report_errors(debug=debug), exit_on_interrupt(), database(target, dsn) as (connection, settings):
        kafka, _ = connection_for(target, brokers)
        connect(kafka)
        sink, app = KafkaSink(sink_properties(kafka)), settings.app.name
        relay = Relay(lambda: connection_to(dsn or conninfo_of(settings.postgres)), sink, app, OutboxStatus())
        deadline = time.monotonic() + timeout_s
        try:
            while (fill := tables.outbox_fill(connection, app)).rows and time.monotonic() < deadline:
                if not relay.step():
                    time.sleep(PAUSE_S)
        finally:
            relay.close()
            sink.close(5.0)
    result: dict[str, Any] = {"sent": relay.status.sent, "left": fill.rows, "refused": relay.status.refused}
    why = f" Kafka refuses: {relay.status.refused}" if fill.rows and relay.status.refused else ""
    click.echo(json.dumps(result) if as_json else f"Sent {relay.status.sent:,} events; {_text(fill)}{why}")
    if fill.rows:
        raise click.exceptions.Exit(EXIT_LEFT)


def _text(fill: tables.TableFill) -> str:
    if not fill.rows:
        return "the outbox is empty."
    count = f"more than {tables.COUNTED_ROWS:,}" if fill.rows > tables.COUNTED_ROWS else f"{fill.rows:,}"
    return f"{count} events wait, the oldest for {fill.oldest_s or 0.0:.1f} s."

"""`keepfast inbox`: the table in which processed records are noted."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from keepfast.cli.connection import exit_on_interrupt
from keepfast.cli.database import database, database_options
from keepfast.cli.errors import report_errors
from keepfast.core.inbox import RETENTION_DAYS
from keepfast.inbox import tables
from keepfast.telemetry.clean import clean_text


@click.group()
def inbox() -> None:
    """Create the tables of inbox and outbox in PostgreSQL, show and clean the inbox.

    An app with `inbox=PostgresInbox()` makes missing tables when it starts, if its role may, and removes old rows in
    the background. `migrate` is for a role that may create tables. The file of a `SqliteInbox` needs no command.

    \b
    Examples:
      keepfast inbox migrate app:app
      keepfast inbox migrate --sql > migration.sql
      keepfast inbox status --dsn postgresql://me@db/shop
      keepfast inbox prune app:app --older-than-days 30
    """


@inbox.command("migrate")
@click.option("--sql", is_flag=True, help="Print the statements; connect to nothing.")
@database_options
def migrate_command(*, sql: bool, target: str | None, dsn: str | None, debug: bool) -> None:
    """Create the tables keepfast_inbox and keepfast_outbox, if they are missing."""
    if sql:
        for statements in tables.SCHEMA.values():
            for statement in statements:
                click.echo(f"{statement.strip()};")
        return
    with report_errors(debug=debug), exit_on_interrupt(), database(target, dsn) as (connection, _):
        made = tables.migrate(connection, outbox=True)
        click.echo(f"Created {' and '.join(made)}." if made else "Nothing to do: both tables are there.")


@inbox.command("status")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per group.")
@database_options
def status_command(*, as_json: bool, target: str | None, dsn: str | None, debug: bool) -> None:
    """Show how many processed records of each group are noted, and since when."""
    with report_errors(debug=debug), exit_on_interrupt(), database(target, dsn) as (connection, _):
        found = tables.inbox_groups(connection)
        for group, rows, oldest, newest in found:
            fields: dict[str, Any] = {"group": group, "rows": rows}
            fields |= {"oldest": oldest.isoformat(), "newest": newest.isoformat()}
            if as_json:
                click.echo(json.dumps(fields))
            else:
                click.echo(
                    f"{clean_text(group)}: {rows:,} records, from {oldest:%Y-%m-%d %H:%M} to {newest:%Y-%m-%d %H:%M}"
                )
        if not found and not as_json:
            click.echo("The inbox is empty.", err=True)


@inbox.command("prune")
@click.option(
    "--older-than-days",
    type=click.FloatRange(min=0),
    default=RETENTION_DAYS,
    show_default=True,
    help="Remove what was noted longer ago.",
)
@database_options
def prune_command(*, older_than_days: float, target: str | None, dsn: str | None, debug: bool) -> None:
    """Remove old rows, 10,000 at a time. A record that comes again after that is processed again."""
    with report_errors(debug=debug), exit_on_interrupt(), database(target, dsn) as (connection, _):
        before, removed = datetime.now(UTC) - timedelta(days=older_than_days), 0
        while count := tables.prune(connection, before):
            removed += count
        click.echo(f"Removed {removed:,} rows.")

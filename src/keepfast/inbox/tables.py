"""The tables in PostgreSQL: `keepfast_inbox`, one row a processed record, and `keepfast_outbox`, one row an event that
is not sent yet. Functions take an open connection and block.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from keepfast.core.errors import StartError
from keepfast.core.inbox import RecordIdentity

INBOX, OUTBOX = "keepfast_inbox", "keepfast_outbox"

SCHEMA: Final = {
    INBOX: (
        """
CREATE TABLE IF NOT EXISTS keepfast_inbox (
    consumer_group text NOT NULL,
    source text NOT NULL,
    partition integer NOT NULL,
    record_offset bigint NOT NULL,
    done_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (consumer_group, source, partition, record_offset)
)""",
        # Rows are appended in the order of time, so a summary of each range of pages is enough to find old ones.
        "CREATE INDEX IF NOT EXISTS keepfast_inbox_done_at ON keepfast_inbox USING brin (done_at)",
    ),
    OUTBOX: (
        """
CREATE TABLE IF NOT EXISTS keepfast_outbox (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    app text NOT NULL,
    event_id uuid NOT NULL,
    topic text NOT NULL,
    key bytea,
    value bytea,
    headers bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
)""",
    ),
}
_MAKING = 0x6B665F6D
"""Key of the advisory lock under which tables are made: two processes that do it at once would conflict."""

PRUNE_ROWS: Final = 10_000
COUNTED_ROWS: Final = 100_000
"""More rows than this are not counted one by one."""


@dataclass(frozen=True, slots=True)
class TableFill:
    """How many rows there are, at most COUNTED_ROWS + 1 in the outbox, and how old the oldest is; None: there is
    none.
    """

    rows: int
    oldest_s: float | None


def missing_tables(connection: Any, *, outbox: bool) -> list[str]:
    """Those that do not exist."""
    wanted = [INBOX, OUTBOX] if outbox else [INBOX]
    return [name for name in wanted if connection.execute("SELECT to_regclass(%s)", (name,)).fetchone()[0] is None]


def migrate(connection: Any, *, outbox: bool) -> list[str]:
    """Make what is missing; returns the names of the tables. A role that may only read and write needs no more rights
    if nothing is.
    """
    missing = missing_tables(connection, outbox=outbox)
    if missing:
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MAKING,))
            for name in missing:
                for statement in SCHEMA[name]:
                    connection.execute(statement)
    return missing


def ensure(connection: Any, *, outbox: bool) -> None:
    """As `migrate`, at the start of an app. Raises StartError if the role may not make them."""
    import psycopg

    try:
        migrate(connection, outbox=outbox)
    except (psycopg.errors.InsufficientPrivilege, psycopg.errors.InvalidSchemaName) as error:
        raise StartError(
            f"The table {' or '.join(missing_tables(connection, outbox=outbox))} is missing in PostgreSQL, and the role"
            " may not create it. Run `keepfast inbox migrate --app …` with a role that may."
        ) from error


def prune(connection: Any, before: datetime, limit: int = PRUNE_ROWS) -> int:
    """Remove up to `limit` identities that were stored before this time; returns how many."""
    found = connection.execute(
        "DELETE FROM keepfast_inbox WHERE ctid = ANY(ARRAY("
        "SELECT ctid FROM keepfast_inbox WHERE done_at < %s LIMIT %s FOR UPDATE SKIP LOCKED))",
        (before, limit),
    )
    return int(found.rowcount)


def inbox_groups(connection: Any) -> list[tuple[str, int, datetime, datetime]]:
    """Each group with its number of rows, and the times of the oldest and the newest."""
    return list(
        connection.execute(
            "SELECT consumer_group, count(*), min(done_at), max(done_at) FROM keepfast_inbox GROUP BY 1 ORDER BY 1"
        )
    )


def outbox_fill(connection: Any, app: str) -> TableFill:
    """Of one app. Reads at most COUNTED_ROWS + 1 rows."""
    rows, oldest_s = connection.execute(
        "SELECT count(*), extract(epoch FROM clock_timestamp() - min(created_at))::float8 FROM"
        " (SELECT created_at FROM keepfast_outbox WHERE app = %s ORDER BY id LIMIT %s) AS waiting",
        (app, COUNTED_ROWS + 1),
    ).fetchone()
    return TableFill(rows, oldest_s)


def done_between(connection: Any, first: RecordIdentity, end: int, *, remove: bool = False) -> int:
    """How many records of a partition, from this one to below the offset `end`, the group has processed; `remove`
    forgets them.
    """
    where = "FROM keepfast_inbox WHERE consumer_group = %s AND source = %s AND partition = %s AND record_offset >= %s"
    values = (*first, end)
    if remove:
        return int(connection.execute(f"DELETE {where} AND record_offset < %s", values).rowcount)
    return int(connection.execute(f"SELECT count(*) {where} AND record_offset < %s", values).fetchone()[0])

"""A spool in a table of PostgreSQL. Needs the extra `postgres`."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any

from keepfast.core.errors import ConfigError, SpoolError
from keepfast.deadletters.spool.letters import SpooledLetter, decode, encode
from keepfast.deadletters.spool.store import Fill, Head, Wanted

CONNECT_S, STATEMENT_MS = 5, 15_000
PAGE = 500
MAX_IDENTITIES = 100_000

# Under a lock: two processes that create the table at once would conflict.
MAKE = """
CREATE TABLE IF NOT EXISTS keepfast_spool (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    app text NOT NULL,
    identity bytea NOT NULL,
    topic text NOT NULL,
    at_ms bigint NOT NULL,
    letter bytea NOT NULL,
    UNIQUE (app, identity)
)
"""
_MAKING = 0x686F6C64


class PostgresStore:
    """Implements `store.Store`: the table `keepfast_spool`, one row a letter, shared by all processes of an app.

    One of them sends letters at a time: the holder of the advisory lock, which ends with its connection. A lost
    connection is reopened by the next call.
    """

    def __init__(self, url: str, *, app: str, max_bytes: int) -> None:
        self._url = url
        self._app = app
        self._max_bytes = max_bytes
        self._connection: Any = None
        self._leads = False
        self._held_bytes = 0
        self._identities: dict[bytes, None] = {}

    def open(self) -> None:
        with self._cursor("open it") as cursor:
            cursor.execute("SELECT to_regclass('keepfast_spool')")
            if cursor.fetchone()[0] is None:  # a role that may only read and write needs no more rights
                cursor.execute("SELECT pg_advisory_lock(%s)", (_MAKING,))
                cursor.execute(MAKE)
                cursor.execute("SELECT pg_advisory_unlock(%s)", (_MAKING,))
            cursor.execute(
                "SELECT identity FROM keepfast_spool WHERE app = %s ORDER BY seq DESC LIMIT %s",
                (self._app, MAX_IDENTITIES),
            )
            self._identities = {bytes(identity): None for (identity,) in cursor}
        self.fill()

    def add(self, letters: Sequence[SpooledLetter]) -> list[Head]:
        rows = [(self._app, one.identity, one.topic, one.at_ms, encode(one)) for one in letters]
        self._check_room(sum(len(row[-1]) for row in rows))
        heads: list[Head] = []
        with self._cursor("write to it") as cursor, cursor.connection.transaction():
            for row in rows:
                cursor.execute(
                    "INSERT INTO keepfast_spool (app, identity, topic, at_ms, letter) VALUES (%s, %s, %s, %s, %s)"
                    " ON CONFLICT (app, identity) DO NOTHING RETURNING seq",
                    row,
                )
                found = cursor.fetchone()
                if found is not None:
                    heads.append(Head(str(found[0]), row[2], row[1], len(row[4]), row[3]))
        self._held_bytes += sum(head.size for head in heads)
        for one in letters:
            self._identities[one.identity] = None
        while len(self._identities) > MAX_IDENTITIES:
            del self._identities[next(iter(self._identities))]
        return heads

    def try_room(self, size: int) -> None:
        self.fill()
        self._check_room(size)
        row = (self._app, secrets.token_bytes(16), "", 0, bytes(size))
        with self._cursor("write to it") as cursor, cursor.connection.transaction(force_rollback=True):
            cursor.execute(
                "INSERT INTO keepfast_spool (app, identity, topic, at_ms, letter) VALUES (%s, %s, %s, %s, %s)", row
            )

    def heads(self, limit: int, wanted: Wanted) -> list[Head]:
        found: list[Head] = []
        last = 0
        with self._cursor("read it") as cursor:
            while len(found) < limit:
                cursor.execute(
                    "SELECT seq, topic, identity, octet_length(letter), at_ms FROM keepfast_spool"
                    " WHERE app = %s AND seq > %s ORDER BY seq LIMIT %s",
                    (self._app, last, PAGE),
                )
                rows = cursor.fetchall()
                for seq, topic, identity, size, at_ms in rows:
                    last = seq
                    head = Head(str(seq), topic, bytes(identity), size, at_ms)
                    if len(found) < limit and wanted(head):
                        found.append(head)
                if len(rows) < PAGE:
                    break
        return found

    def read(self, head: Head) -> SpooledLetter:
        with self._cursor("read it") as cursor:
            cursor.execute("SELECT letter FROM keepfast_spool WHERE app = %s AND seq = %s", (self._app, int(head.ref)))
            row = cursor.fetchone()
        if row is None:
            raise SpoolError(f"Letter {head.ref} is not in the spool any more; it was removed.")
        return decode(bytes(row[0]))

    def remove(self, heads: Sequence[Head]) -> None:
        with self._cursor("remove from it") as cursor:
            cursor.execute(
                "DELETE FROM keepfast_spool WHERE app = %s AND seq = ANY(%s)",
                (self._app, [int(head.ref) for head in heads]),
            )
        self._held_bytes = max(0, self._held_bytes - sum(head.size for head in heads))
        for head in heads:
            self._identities.pop(head.identity, None)

    def lead(self, now: float) -> bool:  # noqa: ARG002 - as every store
        if not self._leads:
            with self._cursor("acquire its lock") as cursor:
                cursor.execute("SELECT pg_try_advisory_lock(%s)", (self._key,))
                self._leads = bool(cursor.fetchone()[0])
        return self._leads

    def identities(self) -> Collection[bytes]:
        return self._identities.keys()

    def fill(self) -> Fill:
        with self._cursor("count it") as cursor:
            cursor.execute(
                "SELECT count(*), coalesce(sum(octet_length(letter)), 0), min(at_ms) FROM keepfast_spool"
                " WHERE app = %s",
                (self._app,),
            )
            letters, held, oldest = cursor.fetchone()
        self._held_bytes = int(held)
        return Fill(letters, int(held), oldest)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection, self._leads = None, False

    def _check_room(self, size: int) -> None:
        if self._held_bytes + size > self._max_bytes:
            raise SpoolError(
                f"The spool in PostgreSQL is full: it holds {self._held_bytes:,} of {self._max_bytes:,} bytes."
                " Restore Kafka so that the letters are sent, or raise spool.max_bytes.",
                full=True,
            )

    @property
    def _key(self) -> int:
        """Key of the advisory lock of this app."""
        digest = blake2b(self._app.encode(), digest_size=8, person=b"keepfast-spool").digest()
        return int.from_bytes(digest, "big", signed=True)

    @contextmanager
    def _cursor(self, what: str) -> Iterator[Any]:
        psycopg = _psycopg()
        try:
            if self._connection is None:
                # A commit must be on the server's disk when it is answered, whatever the database is set to.
                options = f"-c synchronous_commit=on -c statement_timeout={STATEMENT_MS}"
                self._connection = psycopg.connect(
                    self._url, autocommit=True, connect_timeout=CONNECT_S, options=options
                )
            with self._connection.cursor() as cursor:
                yield cursor
        except psycopg.Error as error:
            if self._connection is not None and (
                self._connection.broken or isinstance(error, psycopg.OperationalError)
            ):
                self.close()
            text = str(error).strip().partition("\n")[0]
            raise SpoolError(f"The spool in PostgreSQL: could not {what}: {text}") from error


def _psycopg() -> Any:
    try:
        import psycopg
    except ImportError as error:
        raise ConfigError("A spool in PostgreSQL needs psycopg: pip install 'psycopg[binary]'.") from error
    return psycopg

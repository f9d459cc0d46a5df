"""A spool in a table of PostgreSQL, with what each letter says in columns. Needs the extra `postgres`."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from typing import Any

from keepfast.core.errors import ConfigError, SpoolError
from keepfast.deadletters.checked import iso
from keepfast.deadletters.spool.letters import SpooledLetter, decode, encode
from keepfast.deadletters.spool.query import SpoolQuery
from keepfast.deadletters.spool.store import Fill, Head, Wanted
from keepfast.redact.urls import conceal

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
COLUMNS = {
    "error_type": "text",
    "error_class": "text",
    "error_code": "text",
    "error_classification": "text",
    "error_message": "text",
    "retry_count": "integer",
    "consumer_group": "text",
    "original_topic": "text",
    "original_partition": "integer",
    "original_offset": "bigint",
    "failed_at": "timestamptz",
    "spooled_at": "timestamptz",
}
"""What a letter says, for queries; the bytes of the letter are what is sent. A table of an older version gets them."""
_ADDED = (f"ADD COLUMN IF NOT EXISTS {name} {kind}" for name, kind in COLUMNS.items())
WIDEN = f"ALTER TABLE keepfast_spool {', '.join(_ADDED)}"
_NAMES = ", ".join(COLUMNS)
_PLACES = ", ".join(["%s"] * len(COLUMNS))
_INSERT = (
    f"INSERT INTO keepfast_spool (app, identity, topic, at_ms, letter, {_NAMES})"  # noqa: S608 - names of our own
    f" VALUES (%s, %s, %s, %s, %s, {_PLACES}) ON CONFLICT (app, identity) DO NOTHING RETURNING seq"
)
_FILL_IN = f"UPDATE keepfast_spool SET ({_NAMES}) = ROW({_PLACES}) WHERE seq = %s"  # noqa: S608 - names of our own
OPEN = "open it"
_SELECT = "SELECT seq, topic, identity, octet_length(letter), at_ms FROM keepfast_spool WHERE app = %s"
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
        with self._cursor(OPEN) as cursor:
            cursor.execute("SELECT to_regclass('keepfast_spool')")
            # A role that may only read and write needs no more rights, where the table is there.
            if cursor.fetchone()[0] is None or not _is_wide(cursor):
                cursor.execute("SELECT pg_advisory_lock(%s)", (_MAKING,))
                cursor.execute(MAKE)
                cursor.execute(WIDEN)
                cursor.execute("SELECT pg_advisory_unlock(%s)", (_MAKING,))
            _fill_in(cursor, self._app)
            cursor.execute(
                "SELECT identity FROM keepfast_spool WHERE app = %s ORDER BY seq DESC LIMIT %s",
                (self._app, MAX_IDENTITIES),
            )
            self._identities = {bytes(identity): None for (identity,) in cursor}
        self.fill()

    def add(self, letters: Sequence[SpooledLetter]) -> list[Head]:
        encoded = [encode(one) for one in letters]
        self._check_room(sum(map(len, encoded)))
        heads: list[Head] = []
        with self._cursor("write to it") as cursor, cursor.connection.transaction():
            for one, data in zip(letters, encoded, strict=True):
                cursor.execute(_INSERT, (self._app, one.identity, one.topic, one.at_ms, data, *_columns(one)))
                found = cursor.fetchone()
                if found is not None:
                    heads.append(Head(str(found[0]), one.topic, one.identity, len(data), one.at_ms))
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
                    f"{_SELECT} AND seq > %s ORDER BY seq LIMIT %s",
                    (self._app, last, PAGE),
                )
                rows = cursor.fetchall()
                for row in rows:
                    last, head = row[0], _head(*row)
                    if len(found) < limit and wanted(head):
                        found.append(head)
                if len(rows) < PAGE:
                    break
        return found

    def find(self, query: SpoolQuery, limit: int) -> list[Head]:
        """Implements `query.Queryable`, in SQL."""
        where, values = _conditions(query)
        with self._cursor("read it") as cursor:
            cursor.execute(
                f"{_SELECT}{''.join(where)} ORDER BY seq LIMIT %s",
                (self._app, *values, limit),
            )
            return [_head(*row) for row in cursor]

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
                given = psycopg.conninfo.conninfo_to_dict(self._url).get("options") or ""
                options = f"{given} -c synchronous_commit=on -c statement_timeout={STATEMENT_MS}"
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
            if isinstance(error, psycopg.errors.InsufficientPrivilege) and what == OPEN:
                text += f". Let the owner of the database run: {' '.join(MAKE.split())}; {WIDEN};"
            raise SpoolError(f"The spool in PostgreSQL: could not {what}: {conceal(text, self._url)}") from None


def _head(seq: int, topic: str, identity: bytes, size: int, at_ms: int) -> Head:
    return Head(str(seq), topic, bytes(identity), size, at_ms)


def _is_wide(cursor: Any) -> bool:
    cursor.execute(
        "SELECT count(*) FROM information_schema.columns"
        " WHERE table_name = 'keepfast_spool' AND table_schema = ANY(current_schemas(false)) AND column_name = ANY(%s)",
        (list(COLUMNS),),
    )
    return int(cursor.fetchone()[0]) >= len(COLUMNS)


def _fill_in(cursor: Any, app: str) -> None:
    """The columns of letters that an older version has written. One that cannot be read stays as it is."""
    last = 0
    while True:
        cursor.execute(
            "SELECT seq, letter FROM keepfast_spool WHERE app = %s AND spooled_at IS NULL AND seq > %s"
            " ORDER BY seq LIMIT %s",
            (app, last, PAGE),
        )
        rows = cursor.fetchall()
        for seq, letter in rows:
            last = seq
            with suppress(SpoolError):
                cursor.execute(_FILL_IN, (*_columns(decode(bytes(letter))), seq))
        if len(rows) < PAGE:
            return


def _columns(spooled: SpooledLetter) -> tuple[object, ...]:
    """The values of `COLUMNS`."""
    letter = spooled.letter
    texts = (letter.error_type, letter.error_class, letter.error_code, letter.classification, letter.error_message)
    return (
        *map(_text, texts),
        letter.retry_count,
        _text(letter.group),
        letter.topic,
        letter.partition,
        letter.offset,
        None if letter.failed_at_ms is None else iso(letter.failed_at_ms),
        iso(spooled.at_ms),
    )


def _text(text: str) -> str:
    """PostgreSQL stores neither NUL nor half of a surrogate pair."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()


def _conditions(query: SpoolQuery) -> tuple[list[str], list[object]]:
    """More conditions of a WHERE clause, with their values."""
    where: list[str] = []
    values: list[object] = []
    for names, wanted in (
        (("error_type", "error_class"), query.error_types),
        (("error_code",), query.codes),
        (("consumer_group",), query.groups),
        (("original_topic",), query.topics),
    ):
        if wanted:
            where.append(f" AND ({' OR '.join(f'{name} = ANY(%s)' for name in names)})")
            values += [sorted(wanted)] * len(names)
    for time_ms, sign in ((query.since_ms, ">="), (query.until_ms, "<")):
        if time_ms is not None:
            where.append(f" AND coalesce(failed_at, spooled_at) {sign} %s")
            values.append(iso(time_ms))
    ranges: list[str] = []
    for partition, start, end in query.offsets:
        ranges.append(
            "(original_partition = %s AND original_offset >= %s AND (%s::bigint IS NULL OR original_offset < %s))"
        )
        values += [partition, start, end, end]
    return [*where, f" AND ({' OR '.join(ranges)})"] if ranges else where, values


def _psycopg() -> Any:
    try:
        import psycopg
    except ImportError as error:
        raise ConfigError("A spool in PostgreSQL needs psycopg: pip install 'psycopg[binary]'.") from error
    return psycopg

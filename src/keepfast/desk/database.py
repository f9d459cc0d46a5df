"""The SQLite database of the desk's index. It may be deleted at any time: it is rebuilt from Kafka."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Final

from keepfast.sqlite import connect

VERSION: Final = 5
"""A database of another version is emptied."""
CACHE_KIB: Final = 16 * 1024
HOUR_MS: Final = 3_600_000
_MANY: Final = 500
_SCHEMA: Final = """
CREATE TABLE positions(topic TEXT, partition INT, topic_id TEXT, next INT, PRIMARY KEY(topic, partition)) WITHOUT ROWID;
CREATE TABLE names(id INTEGER PRIMARY KEY, name TEXT UNIQUE);
CREATE TABLE causes(id INTEGER PRIMARY KEY, fingerprint TEXT UNIQUE, error_type TEXT, error_class TEXT, message TEXT,
  classification TEXT, place TEXT, fields TEXT);
CREATE TABLE cases(id INTEGER PRIMARY KEY, name TEXT UNIQUE, dlq INT, grp INT, topic INT, partition INT, offset INT,
  cause INT, code INT, key_hash TEXT, first_ms INT, last_ms INT, lp INT, lo INT, letters INT DEFAULT 0,
  facts INT DEFAULT 0, state INT DEFAULT 0, replays INT DEFAULT 0, failed_again INT DEFAULT 0, reported INT DEFAULT 1,
  exact INT DEFAULT 1, own INT DEFAULT 1);
CREATE INDEX cases_by_time ON cases(last_ms, id);
CREATE TABLE tallies(part INT, cause INT, dlq INT, grp INT, topic INT, code INT, state INT, hour INT, cases INT,
  failed_again INT, first_ms INT, oldest_ms INT, last_ms INT, sample INT);
CREATE INDEX tallies_by_part ON tallies(part);
CREATE TABLE stale_tallies(part INTEGER PRIMARY KEY);
CREATE TRIGGER case_changed AFTER UPDATE ON cases
  WHEN NOT EXISTS (SELECT 1 FROM stale_tallies WHERE part = new.id >> 12)
  BEGIN INSERT INTO stale_tallies VALUES(new.id >> 12); END;
CREATE TRIGGER case_removed AFTER DELETE ON cases
  WHEN NOT EXISTS (SELECT 1 FROM stale_tallies WHERE part = old.id >> 12)
  BEGIN INSERT INTO stale_tallies VALUES(old.id >> 12); END;
CREATE TABLE letters(dlq INT, partition INT, offset INT, case_id INT, at_ms INT, run TEXT,
  PRIMARY KEY(dlq, partition, offset)) WITHOUT ROWID;
CREATE INDEX letters_of_case ON letters(case_id);
CREATE TABLE claims(name TEXT, run TEXT, dlq INT, partition INT, offset INT,
  PRIMARY KEY(name, run, dlq, partition, offset)) WITHOUT ROWID;
CREATE TABLE sends(case_id INT, run TEXT, n INT, at_ms INT, topic TEXT, partition INT, offset INT, passed INT DEFAULT 0,
  PRIMARY KEY(case_id, run)) WITHOUT ROWID;
CREATE TABLE outcomes(case_id INT, run TEXT, kind TEXT, at_ms INT, code TEXT, PRIMARY KEY(case_id, run)) WITHOUT ROWID;
CREATE TABLE marks(case_id INTEGER PRIMARY KEY, kind TEXT, by TEXT, at_ms INT, why TEXT, note TEXT, url TEXT);
CREATE TABLE runs(run TEXT PRIMARY KEY, fact TEXT) WITHOUT ROWID;
CREATE TABLE plans(run TEXT, number INT, fact TEXT, PRIMARY KEY(run, number)) WITHOUT ROWID;
CREATE TABLE orders(run TEXT PRIMARY KEY, kind TEXT, by TEXT, at_ms INT) WITHOUT ROWID;
"""

_TALLY: Final = f"""
INSERT INTO tallies SELECT id >> 12, cause, dlq, grp, topic, code, state, last_ms / {HOUR_MS}, count(*),
  sum(failed_again > 0), min(first_ms), min(last_ms), max(last_ms), max(id)
FROM cases WHERE letters > 0 AND id BETWEEN ? << 12 AND (? << 12) + 4095 GROUP BY 1, 2, 3, 4, 5, 6, 7, 8
"""  # noqa: S608 - a number of ours


class Database:
    """`path` None: in memory. Any thread may call it; calls take turns."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._lock = threading.RLock()
        self._made: sqlite3.Connection | None = None

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._db.execute(query, values).fetchall()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction."""
        with self._lock:
            db = self._db
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
            except BaseException:
                db.execute("ROLLBACK")
                raise
            db.execute("COMMIT")

    def tally(self) -> None:
        """Make `tallies` agree with `cases`. They are counted in parts of 4,096, and only those that have changed:
        triggers note them in `stale_tallies`; what inserts cases must do it, too.
        """
        if not self.rows("SELECT 1 FROM stale_tallies LIMIT 1"):
            return
        with self.writing() as db:
            for (part,) in db.execute("SELECT part FROM stale_tallies").fetchall():
                db.execute("DELETE FROM tallies WHERE part = ?", (part,))
                db.execute(_TALLY, (part, part))
            db.execute("DELETE FROM stale_tallies")

    def close(self) -> None:
        with self._lock:
            if self._made is not None:
                self._made.close()
                self._made = None

    @property
    def _db(self) -> sqlite3.Connection:
        if self._made is None:
            self._made = self._open()
        return self._made

    def _open(self) -> sqlite3.Connection:
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        db = connect(self._path)
        db.execute("PRAGMA synchronous = OFF")  # a lost index is rebuilt
        db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        db.execute("BEGIN IMMEDIATE")
        if db.execute("PRAGMA user_version").fetchone()[0] != VERSION:
            for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                db.execute(f'DROP TABLE "{name}"')
            for statement in _SCHEMA.split(";\n"):
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {VERSION}")
        db.execute("COMMIT")
        if self._path is not None:
            self._path.chmod(0o600)
        return db


def batches(names: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
    """As many as one query takes."""
    left = iter(names)
    while some := tuple(islice(left, _MANY)):
        yield some


def placeholders(values: Iterable[object]) -> str:
    return ", ".join("?" for _ in values)

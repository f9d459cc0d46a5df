"""An inbox in SQLite, and the desk's index: opened while other connections write; one transaction at a time."""

from __future__ import annotations

import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from keepfast import RawRecord, sqlite
from keepfast.core.errors import StartError
from keepfast.core.inbox import RecordIdentity
from keepfast.desk.database import Database
from keepfast.inbox.service import InboxService
from keepfast.inbox.sqlite import SqliteInbox
from keepfast.telemetry.metrics import Tally
from tests.engine.test_inbox import batch_of, handler_of, run_of, walked
from tests.support.fakes import FakeSink
from tests.support.waiting import DEADLINE_S, happens, wait_until
from tests.telemetry.test_tracing import traced

Work = Callable[[Path], object]


def begin_and_commit(path: Path) -> None:
    inbox = SqliteInbox(path)
    tx, new = inbox.begin([RecordIdentity("g", "t", 0, 1)])
    assert new
    inbox.commit(tx)
    inbox.close()


def read_the_index(path: Path) -> None:
    database = Database(path)
    assert database.rows("SELECT * FROM cases") == []
    database.close()


@pytest.fixture
def writer(tmp_path: Path) -> sqlite3.Connection:
    """A transaction in a new file, before its mode was changed."""
    connection = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    connection.execute("CREATE TABLE other (id TEXT)")
    connection.execute("BEGIN IMMEDIATE")
    return connection


@pytest.mark.parametrize("work", [begin_and_commit, read_the_index])
def test_a_transaction_under_way_is_waited_for(writer: sqlite3.Connection, tmp_path: Path, work: Work) -> None:
    failures, done = list[BaseException](), threading.Event()

    def run() -> None:
        try:
            work(tmp_path / "a.db")
        except BaseException as error:  # noqa: BLE001 - reported by the test's thread
            failures.append(error)
        done.set()

    thread = threading.Thread(target=run)
    thread.start()
    assert not done.wait(0.3), f"it waits; {failures}"
    writer.execute("COMMIT")
    thread.join()
    assert failures == []
    writer.close()


def test_it_does_not_wait_longer_than_for_any_transaction(
    writer: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_S", 0.05)
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        sqlite.connect(tmp_path / "a.db")
    writer.close()


def test_other_errors_are_raised_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.db").write_bytes(b"not a database" * 100)
    with pytest.raises(sqlite3.DatabaseError, match="not a database"):
        sqlite.connect(tmp_path / "a.db")


# -- one transaction at a time


def record(offset: int) -> RecordIdentity:
    return RecordIdentity("g", "t", 0, offset)


def test_inboxes_of_one_file_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    one, same, other = (SqliteInbox(path) for path in ("inbox.db", tmp_path / "inbox.db", "other.db"))
    assert one.serial_gate is same.serial_gate
    assert one.serial_gate is not other.serial_gate


def test_records_wait_for_their_turn_however_long_it_takes_and_that_is_not_their_own_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_S", 0.05)
    go, begun = threading.Event(), list[bytes]()

    def handle(value: bytes, tx: sqlite3.Connection) -> None:
        begun.append(value)
        assert go.wait(DEADLINE_S)

    handlers = [handler_of(handle, SqliteInbox(tmp_path / "inbox.db")) for _ in range(2)]
    runs = [run_of(b"%02d" % number, topic_id=f"{number}") for number in range(12)]
    with ThreadPoolExecutor(len(runs)) as pool:
        for number, run in enumerate(runs):
            pool.submit(walked, handlers[number % 2], run)
        try:
            wait_until(lambda: sum(run.waits for run in runs) == 11, "the others wait")
            assert not happens(lambda: len(begun) > 1, within_s=0.2), "four times as long as SQLite waits"
        finally:
            go.set()
    assert [(run.failure, run.done, run.waits) for run in runs] == [(None, 1, False)] * 12
    assert sorted(begun) == [b"%02d" % number for number in range(12)]


def test_what_is_asked_to_stop_while_it_waits_is_not_begun(tmp_path: Path) -> None:
    go, begun, entered = threading.Event(), list[bytes](), list[None]()
    inbox = SqliteInbox(tmp_path / "inbox.db")

    def around() -> Iterator[None]:
        entered.append(None)
        yield

    def handle(value: bytes, tx: sqlite3.Connection) -> None:
        begun.append(value)
        assert go.wait(DEADLINE_S)

    def handle_all(values: list[bytes], tx: sqlite3.Connection) -> None:
        begun.extend(values)

    handler, of_batches = handler_of(handle, inbox, around), handler_of(handle_all, inbox)
    holder, other, batch, going = run_of(b"holder", b"next"), run_of(b"other"), batch_of(b"all"), batch_of(b"going")
    with ThreadPoolExecutor(4) as pool:
        pool.submit(walked, handler, holder)
        wait_until(lambda: begun, "it has its turn")
        for waiting in (other, batch, going):
            pool.submit(walked, handler if waiting is other else of_batches, waiting)
        wait_until(lambda: other.waits and batch.waits and going.waits, "they wait for theirs")
        for run in (holder, other, batch, going.parts[0]):  # as in a drain, and of a batch when a partition goes
            run.stop = True
        wait_until(lambda: not (other.waits or batch.waits or going.waits), "they do not wait for a turn any more")
        go.set()
    assert begun == [b"holder"]
    assert len(entered) == 1, "nor is what is around the handler called"
    assert [(run.done, run.failure) for run in (holder, other, batch, going)] == [(1, None), *[(0, None)] * 3]


def test_a_record_that_timed_out_has_no_turn_any_more_and_writes_nothing(tmp_path: Path) -> None:
    go, has_begun = threading.Event(), threading.Event()
    inbox = SqliteInbox(tmp_path / "inbox.db")
    waits = list[bool]()

    def around() -> Iterator[None]:
        waits.append(other.waits)
        yield

    def handle(value: bytes, tx: sqlite3.Connection) -> None:
        if value == b"hangs":
            has_begun.set()
            assert go.wait(DEADLINE_S)
        else:
            assert not other.waits, "from here on its time counts"

    handler, hangs, other = handler_of(handle, inbox, around), run_of(b"hangs"), run_of(b"other", topic_id="other")
    with ThreadPoolExecutor(2) as pool:
        pool.submit(walked, handler, hangs)
        assert has_begun.wait(DEADLINE_S)
        done = pool.submit(walked, handler, other)
        wait_until(lambda: other.waits, "it waits for its turn")
        hangs.abandoned = True
        wait_until(lambda: len(waits) == 2, "it has its turn")
        wait_until(lambda: other.waits, "it waits for the transaction, which is not its time either")
        go.set()
        done.result(DEADLINE_S)
    assert waits == [False, False], "what is around the handler counts"
    with inbox.counting() as count:
        counts = [count(RecordIdentity("g", source, 0, 0), 1) for source in ("id", "other")]
    assert (counts, other.failure, other.done) == ([0, 1], None, 1)


ENDLESS = "WITH RECURSIVE c(n) AS (SELECT begun() UNION ALL SELECT n + 1 FROM c) INSERT INTO effects SELECT n FROM c"


@pytest.mark.parametrize("hangs_in", ["a call of its own", "a statement", "many statements", "an open cursor"])
def test_the_transaction_of_an_abandoned_handler_is_rolled_back_at_once_and_takes_nothing_more(
    tmp_path: Path, hangs_in: str
) -> None:
    inbox, go, has_begun = SqliteInbox(tmp_path / "inbox.db"), threading.Event(), threading.Event()
    late = list[sqlite3.Error]()
    tx, _ = inbox.begin([])
    tx.execute("CREATE TABLE effects (n)")
    inbox.commit(tx)

    def handle(value: bytes, tx: sqlite3.Connection) -> None:
        tx.execute("INSERT INTO effects VALUES (1)")
        try:
            if hangs_in == "a statement":
                tx.create_function("begun", 0, has_begun.set)
                tx.execute(ENDLESS)
            cursor = tx.execute("SELECT 1 UNION SELECT 2") if hangs_in == "an open cursor" else None
            has_begun.set()
            while hangs_in == "many statements":
                tx.execute("INSERT INTO effects VALUES (2)")
            assert go.wait(DEADLINE_S)
            tx.execute("INSERT INTO effects VALUES (3)")
            assert cursor is None, "it was open until here"
        except sqlite3.OperationalError as error:
            late.append(error)
            with pytest.raises(sqlite3.OperationalError):
                tx.execute("BEGIN IMMEDIATE")
            raise

    run = run_of(b"hangs")
    with ThreadPoolExecutor(1) as pool:
        over = pool.submit(walked, handler_of(handle, inbox), run)
        assert has_begun.wait(DEADLINE_S)
        run.abandoned = True
        assert run.abort is not None
        run.abort()
        next_one, new = inbox.begin([record(0)])
        assert new
        go.set()
        over.result(DEADLINE_S)
        assert next_one.execute("SELECT count(*) FROM effects").fetchone() == (0,)
        inbox.commit(next_one)
    assert len(late) == 1
    assert len(inbox._idle) == 1, "its connection is not used again"
    inbox.close()


def test_a_batch_that_is_asked_to_stop_while_it_waits_is_as_if_it_had_never_been_out(tmp_path: Path) -> None:
    inbox = SqliteInbox(tmp_path / "inbox.db")

    def handle(values: list[bytes], tx: sqlite3.Connection) -> None:
        raise AssertionError("it is called")

    def passes(raw: RawRecord) -> bool:
        return raw.value != b"filtered"

    batch = batch_of(b"filtered", b"one", b"filtered")
    with ThreadPoolExecutor(1) as pool, inbox.serial_gate.of(None):
        over = pool.submit(walked, handler_of(handle, inbox, passes=passes), batch)
        wait_until(lambda: batch.waits, "it waits for its turn")
        assert len(batch.filtered) == 2
        batch.stop = True
        over.result(DEADLINE_S)
    assert (batch.done, batch.failure, batch.handled, batch.given, list(batch.leading)) == (0, None, 0, None, [])


def test_the_wait_for_the_turn_is_not_part_of_the_span(tmp_path: Path) -> None:
    inbox, (tracing, spans), run = SqliteInbox(tmp_path / "inbox.db"), traced(), run_of(b"one")

    def handle(value: bytes, tx: sqlite3.Connection) -> None: ...

    call = handler_of(handle, inbox).call(FakeSink(), tracing=tracing)
    with ThreadPoolExecutor(1) as pool:
        with inbox.serial_gate.of(None):
            over = pool.submit(call.walk, run, Tally(), time.perf_counter)
            wait_until(lambda: run.waits, "it waits for its turn")
            waited_until = time.time_ns()
        over.result(DEADLINE_S)
    [span] = spans.get_finished_spans()
    assert (span.start_time or 0) >= waited_until


def test_a_file_that_cannot_be_used_is_named_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_bytes(b"not a database" * 100)
    for path in (tmp_path / "missing" / "inbox.db", tmp_path / "text.db"):
        with pytest.raises(StartError, match=re.escape(str(path))):
            InboxService([SqliteInbox(path)], "app").prepare()
    InboxService([SqliteInbox(tmp_path / "inbox.db")], "app").prepare()
    assert (tmp_path / "inbox.db").exists()


def test_old_records_are_removed_between_two_transactions_or_not_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox = SqliteInbox(tmp_path / "inbox.db")
    with inbox.serial_gate.of(None), monkeypatch.context() as patch:
        patch.setattr("keepfast.inbox.sqlite.BUSY_TIMEOUT_S", 0.2)
        tx, _ = inbox.begin([record(0)])
        with pytest.raises(TimeoutError):
            inbox.prune(datetime.now(UTC))
        inbox.commit(tx)
    assert inbox.prune(datetime.now(UTC)) == 1
    with suppress(LookupError), inbox.counting() as count:
        assert count(record(0), 9) == 0
        raise LookupError
    assert inbox.begin([record(0)])[1], "what failed has ended its transaction"
    inbox.close()

"""One attempt at one record, outside of a consumer: what is sent is captured, and the handler is left alone in time."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from keepfast import App, BatchPolicy, Context, Reject, SqliteInbox
from keepfast.app.trial import TrialResult, try_record
from keepfast.cli.dlq_try import consumer_of
from keepfast.core.errors import ConfigError
from keepfast.core.records import Record
from tests.support.letters import letter

app = App("payments", kafka={"brokers": "127.0.0.1:1"})
never = threading.Event()


@app.consumer("orders.bill.v1", filter=lambda record: record.key != b"skip")
async def bill(order: dict[str, Any], ctx: Context) -> None:
    await app.send("out", b"from the app")
    ctx.send("out", b"from the handler")
    await asyncio.sleep(order["wait_s"])


@app.consumer("orders.charge.v1", exactly_once=True)
def charge(order: dict[str, Any], ctx: Context) -> None:
    ctx.send("out", b"in a transaction")
    if "hang" in order:
        never.wait(30)
    if "closed" in order:
        raise Reject("the account is closed", code="CLOSED")


@app.consumer("orders.many.v1", batch=BatchPolicy(size=10), idempotent=True)
def many(orders: list[dict[str, Any]]) -> None:
    assert [order["id"] for order in orders] == [1]


def tried(consumer: str, value: bytes, *, key: bytes = b"k", timeout_s: float = 20.0) -> TrialResult:
    record = Record(f"orders.{consumer}.v1", 0, 17, key, value, (), 1_700_000_000_000)
    settings = app.settings(environ={}, cwd=Path("/nonexistent"))
    return try_record(app, consumer, record, settings=settings, timeout_s=timeout_s)


def test_what_a_handler_and_its_app_send_is_captured() -> None:
    result = tried("bill", b'{"wait_s": 0}')
    assert (result.outcome, [one.value for one in result.sent]) == (
        "succeeded",
        [b"from the app", b"from the handler"],
    )
    assert [one.value for one in tried("charge", b"{}").sent] == [b"in a transaction"]
    assert tried("many", b'{"id": 1}').outcome == "succeeded"
    assert tried("bill", b'{"wait_s": 0}', key=b"skip").outcome == "filtered"


def test_a_failure_has_its_classification_and_the_letter_that_it_would_become() -> None:
    result = tried("charge", b'{"closed": true}')
    assert result.failure is not None
    assert (result.outcome, result.failure.found.kind, result.failure.found.code) == (
        "failed",
        "non-retryable",
        "CLOSED",
    )
    assert (result.failure.letter.error_type, result.failure.letter.offset) == ("Reject", 17)
    assert result.sent == ()  # the transaction would not have been committed
    undecodable = tried("charge", b"{")
    assert undecodable.failure is not None
    assert undecodable.failure.letter.error_type == "DecodeError"


def test_a_handler_that_does_not_end_is_left_alone() -> None:
    for consumer, value in (("bill", b'{"wait_s": 60}'), ("charge", b'{"hang": true}')):
        result = tried(consumer, value, timeout_s=0.3)
        assert result.failure is not None
        assert result.failure.letter.error_type == "HandlerTimeout"
    never.set()


def test_the_consumer_of_a_letter_is_found_by_its_group_and_topic() -> None:
    settings = app.settings(environ={}, cwd=Path("/nonexistent"))
    assert consumer_of(letter(topic="orders.bill.v1", group="payments.bill"), settings) == "bill"
    assert consumer_of(letter(topic="orders.bill.v1", group="gone"), settings) == "bill"
    with pytest.raises(ConfigError, match="choose with --consumer: bill, charge, many"):
        consumer_of(letter(topic="gone", group="gone"), settings)


def test_the_transaction_of_an_inbox_is_rolled_back(tmp_path: Path) -> None:
    path = tmp_path / "scores.db"
    scores, calls = App("scores", kafka={"brokers": "127.0.0.1:1"}), list[int]()

    @scores.consumer("scores.v1", inbox=SqliteInbox(path))
    def store(score: int, tx: sqlite3.Connection) -> None:
        calls.append(score)
        tx.execute("CREATE TABLE IF NOT EXISTS scores (score INTEGER)")
        tx.execute("INSERT INTO scores VALUES (?)", (score,))

    settings = scores.settings(environ={}, cwd=tmp_path)
    for _ in range(2):  # the second would be skipped, had the first left its identity
        record = Record("scores.v1", 0, 17, None, b"5", (), None)
        result = try_record(scores, "store", record, settings=settings, timeout_s=20)
        assert (result.outcome, result.rolled_back) == ("succeeded", True)
    assert calls == [5, 5]
    with sqlite3.connect(path) as database:
        assert [row[0] for row in database.execute("SELECT count(*) FROM keepfast_inbox")] == [0]
        assert database.execute("SELECT name FROM sqlite_master WHERE name = 'scores'").fetchall() == []

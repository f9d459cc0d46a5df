"""The relay: every row is sent, in the order of its key, by one process at a time."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest

from keepfast.core.errors import Fault
from keepfast.core.records import Outgoing, Receipt
from keepfast.inbox.outbox import OUTBOX_ID, Outbox
from keepfast.inbox.relay import OutboxStatus, Relay
from tests.support.fakes import FakeSink, acknowledge, refuse
from tests.support.waiting import wait_until

LOCKS = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"


@pytest.fixture
def connect(database: str) -> Iterator[Callable[[], psycopg.Connection]]:
    """Opens connections, which end with the test."""
    with ExitStack() as opened:
        yield lambda: opened.enter_context(psycopg.connect(database, autocommit=True))
    with psycopg.connect(database, autocommit=True) as connection:
        wait_until(lambda: connection.execute(LOCKS).fetchone() == (0,), "the server has ended all of them")


def write(connection: Any, *events: tuple[str | None, int], topic: str = "out") -> None:
    with connection.transaction():
        for key, number in events:
            Outbox("app").send(connection, topic, {"n": number}, key=key, headers={"h": b"1"})


def numbers(sink: FakeSink) -> list[int]:
    return [json.loads(one.value or b"")["n"] for one in sink.sent]


def relay_of(connect: Any, sink: FakeSink, app: str = "app") -> Relay:
    return Relay(connect, sink, app, OutboxStatus())


def test_rows_become_records_and_are_removed(connect: Any, connection: Any) -> None:
    write(connection, ("a", 1), (None, 2))
    sink = FakeSink(answers_elsewhere=True)
    relay = relay_of(connect, sink)
    relay.look()
    assert relay.status.fill.rows == 2
    assert relay.status.fill.oldest_s is not None
    assert relay.step() == 2
    assert relay.step() == 0
    relay.look()
    assert (relay.status.sent, relay.status.fill.rows) == (2, 0)
    first = next(one for one in sink.sent if one.key == b"a")
    headers = dict(first.headers)
    assert headers["h"] == b"1"
    assert (headers["keepfast-origin"] or b"").endswith(b"outbox:" + (headers[OUTBOX_ID] or b""))


def test_a_transaction_that_is_rolled_back_sends_nothing(connect: Any, connection: Any) -> None:
    with connection.transaction(force_rollback=True):
        Outbox("app").send(connection, "out", b"1")
    sink = FakeSink()
    assert relay_of(connect, sink).step() == 0


def test_autocommit_without_a_transaction_is_refused(connection: Any) -> None:
    with pytest.raises(ValueError, match="autocommit"):
        Outbox("app").send(connection, "out", b"1")
    with pytest.raises(ValueError, match="reserved"), connection.transaction():
        Outbox("app").send(connection, "out", b"1", headers={"keepfast-x": b""})


def test_the_next_row_of_a_key_waits_for_the_acknowledgement_of_the_one_before(connect: Any, connection: Any) -> None:
    write(connection, ("a", 1), ("a", 2), ("b", 3), (None, 4), (None, 5))
    sent_at_first: list[int] = []
    sink = FakeSink()

    def decide(outgoing: Outgoing) -> Receipt | None:
        if not sent_at_first and len(sink.sent) == 3:  # all that may be sent at once
            sent_at_first.extend([*numbers(sink), json.loads(outgoing.value or b"")["n"]])
        return acknowledge(outgoing) if sent_at_first else None

    sink.decide = decide
    page_thread = _in_thread(relay_of(connect, sink).step)
    wait_until(lambda: sent_at_first, "the first rows are sent")
    assert sorted(sent_at_first) == [1, 3, 4, 5]
    sink.answer()
    page_thread.join(30)
    assert numbers(sink).index(1) < numbers(sink).index(2)


def _in_thread(function: Any) -> Any:
    thread = threading.Thread(target=function)
    thread.start()
    return thread


def test_a_row_that_is_refused_blocks_its_key_and_no_other(connect: Any, connection: Any) -> None:
    write(connection, ("bad", 1))
    write(connection, ("bad", 2), ("good", 3))
    sink = FakeSink(lambda one: refuse(Fault.TOO_LARGE)(one) if one.key == b"bad" else acknowledge(one))
    relay = relay_of(connect, sink)
    assert relay.step() == 3
    assert numbers(sink) == [1, 3]
    assert relay.status.refused
    assert relay.step() == 0
    write(connection, ("bad", 4), ("good", 5))
    assert relay.step() == 4
    assert numbers(sink) == [1, 3, 1, 5], "the first of the key is tried again"
    relay.step()
    sink.decide = acknowledge
    relay.step()
    assert numbers(sink)[4:] == [1, 2, 4]
    relay.step()
    assert not relay.status.refused


def test_what_was_refused_does_not_keep_later_pages_back(
    connect: Any, connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("keepfast.inbox.relay.PAGE_ROWS", 2)
    write(connection, ("bad", 1), ("bad", 2), ("bad", 3), ("good", 4))
    sink = FakeSink(lambda one: refuse(Fault.TOO_LARGE)(one) if one.key == b"bad" else acknowledge(one))
    relay = relay_of(connect, sink)
    while relay.step():
        pass
    assert numbers(sink) == [1, 4]


def test_one_process_sends_until_its_connection_ends(connect: Any, connection: Any) -> None:
    write(connection, ("a", 1))
    first, second = relay_of(connect, FakeSink()), relay_of(connect, sink := FakeSink())
    assert first.step() == 1
    write(connection, ("a", 2))
    assert second.step() == 0
    assert not second.status.leads
    first.close()
    wait_until(second.step, "the server has ended the first connection")
    assert numbers(sink) == [2]


def test_apps_that_share_a_database_have_rows_of_their_own(connect: Any, connection: Any) -> None:
    write(connection, ("a", 1))
    other = relay_of(connect, FakeSink(), app="other")
    assert other.step() == 0
    assert other.status.leads, "and locks of their own"


def test_a_crash_between_the_acknowledgement_and_the_removal_repeats_the_event_with_its_id(
    connect: Any, connection: Any
) -> None:
    write(connection, ("a", 1))
    sink = FakeSink()
    dying = relay_of(connect, sink)

    def delivered(outgoing: Outgoing) -> Receipt:
        dying._connection.close()
        return acknowledge(outgoing)

    sink.decide = delivered
    with pytest.raises(psycopg.OperationalError):
        dying.step()
    sink.decide = acknowledge
    heir = relay_of(connect, sink)
    wait_until(heir.step, "the server has ended the connection, and its lock")
    first, second = sink.sent
    assert first == second

"""`timeout_s`: a handler that takes too long is cancelled or abandoned, its record is dead-lettered at once, and the
rest goes on. What the handler still does is of no consequence.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from keepfast import Context, RetryPolicy, SqliteInbox
from keepfast.core.errors import Abandoned
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.scenarios.conftest import MakeScene
from tests.scenarios.scene import Work
from tests.support.broker_client import Client, NewRecord
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import DEADLINE_S, wait_until

LONG_S = 30.0


class Gates:
    """A handler that waits for a gate, which stays shut until the test opens it or ends."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.seen: list[bytes] = []
        self.ended: list[bytes] = []

    def handle(self, value: bytes) -> None:
        self.seen.append(value)
        if value.startswith(b"hangs"):
            self.opened.wait(LONG_S)
        self.ended.append(value)


@pytest.fixture
def gates() -> Any:
    made = Gates()
    yield made
    made.opened.set()


def letters_of(client: Client, topic: str, count: int) -> list[dict[str, Any]]:
    return [json.loads(letter.value()) for letter in client.read(f"{topic}.dlq", count)]


@pytest.mark.parametrize("order", ["partition", "key"])
@pytest.mark.parametrize("mode", ["each", "interval"])
def test_a_thread_is_abandoned_and_everything_else_is_processed(
    kafka: TopicAdmin, topic: TopicFactory, gates: Gates, order: Any, mode: Any
) -> None:
    name, client, app = topic(), Client(kafka), app_for(kafka)
    records = [NewRecord(b"%d" % n, b"k%d" % (n % 3)) for n in range(40)]
    records[11] = NewRecord(b"hangs", b"k2")
    client.produce(name, records)

    @app.consumer(name, order=order, commit=mode, idempotent=True, timeout_s=0.3, dead_letter="{topic}.dlq")
    def work(value: bytes) -> None:
        gates.handle(value)

    with RunningApp(app) as inside:
        wait_until(
            lambda: client.committed("scenario.work", name)[0] == 40, "all are done or dead-lettered, and committed"
        )
        assert inside.loop.overdue.abandoned(time.monotonic()) == 1
        assert not inside.loop.overdue.stuck
        assert gates.seen.count(b"hangs") == 1, "never again, whatever retries are left"
        gates.opened.set()
        wait_until(lambda: inside.log.of("abandoned_handler_ended"), "the thread comes back")
        wait_until(lambda: inside.loop.overdue.abandoned(time.monotonic()) == 0, "and counts no more")
    assert sorted(gates.ended) == sorted(record.value or b"" for record in records)
    (fields,) = letters_of(client, name, 1)
    assert (fields["original_offset"], fields["error_type"], fields["error_code"]) == (11, "HandlerTimeout", "TIMEOUT")
    assert (fields["reason"], fields["retry_count"]) == ("the handler did not end within 0.3 s", 0)
    assert fields["error_classification"] == "non-retryable"
    assert "in handle" in fields["stack_trace"], "it says where the handler hangs"
    assert client.edges(f"{name}.dlq") == (0, 1)


def test_a_fast_handler_that_hangs_on_the_loops_own_thread_times_out_too(
    kafka: TopicAdmin, topic: TopicFactory, gates: Gates
) -> None:
    name, client, app = topic(), Client(kafka), app_for(kafka)
    client.produce(name, [b"hangs" if n == 7_000 else b"%d" % n for n in range(10_000)])

    @app.consumer(name, commit="interval", idempotent=True, timeout_s=0.3, dead_letter="{topic}.dlq")
    def work(value: bytes) -> None:
        gates.handle(value)

    with RunningApp(app) as inside:
        wait_until(
            lambda: client.committed("scenario.work", name)[0] == 10_000, "all are done or dead-lettered, and committed"
        )
        assert inside.loop.overdue.abandoned(time.monotonic()) == 1
        gates.opened.set()
        wait_until(lambda: inside.loop.overdue.abandoned(time.monotonic()) == 0, "the thread comes back")
    assert len(gates.seen) == len(set(gates.seen)) == 10_000
    (fields,) = letters_of(client, name, 1)
    assert fields["original_offset"] == 7_000
    assert "in handle" in fields["stack_trace"]


def test_a_timeout_in_a_retry_ends_the_retries(kafka: TopicAdmin, topic: TopicFactory, gates: Gates) -> None:
    name, client, app = topic(), Client(kafka), app_for(kafka)
    client.produce(name, [b"fails once", b"next"])

    @app.consumer(name, timeout_s=0.2, retry=RetryPolicy(initial_delay_ms=1), dead_letter="{topic}.dlq")
    def work(value: bytes, ctx: Context) -> None:
        if value == b"fails once":
            if ctx.attempt == 1:
                raise TimeoutError("the handler's own, which is retried")
            gates.opened.wait(LONG_S)

    with RunningApp(app):
        wait_until(lambda: client.committed("scenario.work", name)[0] == 2, "both are through")
    (fields,) = letters_of(client, name, 1)
    assert [one["error_type"] for one in fields["attempts"]] == ["TimeoutError", "HandlerTimeout"]


def test_a_coroutine_is_cancelled_and_its_worker_goes_on(kafka: TopicAdmin, topic: TopicFactory) -> None:
    name, client, app = topic(), Client(kafka), app_for(kafka)
    client.produce(name, [b"1", b"hangs", b"swallows", b"2"])
    seen: list[bytes] = []
    cancelled: list[bytes] = []

    @app.consumer(name, timeout_s=0.2, dead_letter="{topic}.dlq", concurrency=1)
    async def work(value: bytes) -> None:
        seen.append(value)
        if value in (b"hangs", b"swallows"):
            try:
                await asyncio.sleep(LONG_S)
            except asyncio.CancelledError:
                cancelled.append(value)
                if value == b"hangs":
                    raise

    with RunningApp(app) as inside:
        wait_until(lambda: client.committed("scenario.work", name)[0] == 4, "all are through")
        assert inside.loop.overdue.abandoned(time.monotonic()) == 0
    assert seen == [b"1", b"hangs", b"swallows", b"2"]
    assert cancelled == [b"hangs", b"swallows"]
    assert [fields["original_offset"] for fields in letters_of(client, name, 2)] == [1, 2]


def test_when_too_many_threads_are_abandoned_nothing_starts_until_one_is_back(
    kafka: TopicAdmin, topic: TopicFactory, gates: Gates
) -> None:
    name, client, app = topic(), Client(kafka), app_for(kafka)
    hanging = [Gates(), Gates()]  # by offset: which of them is abandoned is for the engine to choose

    @app.consumer(name, order="none", timeout_s=0.2, max_abandoned=1, dead_letter="{topic}.dlq")
    def work(value: bytes, ctx: Context) -> None:
        gates.seen.append(value)
        if ctx.offset < len(hanging):
            hanging[ctx.offset].handle(value)

    with RunningApp(app) as inside:
        client.produce(name, [b"hangs 1", b"hangs 2"])
        wait_until(lambda: "abandoned" in inside.loop.holds, "the consumer is held")
        assert inside.loop.overdue.stuck
        client.produce(name, [b"waits"])
        wait_until(lambda: any(len(one.buffer) for one in inside.loop.ownership), "the next record is there")
        (printed,) = inside.log.of("handler_overdue")
        assert printed.level == "error"
        assert sorted(gates.seen) == [b"hangs 1", b"hangs 2"]
        [letter] = letters_of(client, name, 1)
        hanging[1 - letter["original_offset"]].opened.set()
        wait_until(lambda: client.committed("scenario.work", name)[0] == 3, "it continues")
        wait_until(lambda: not inside.loop.overdue.stuck, "all is well again")
        hanging[letter["original_offset"]].opened.set()
    assert client.edges(f"{name}.dlq") == (0, 1), "the second one had its end, and that counted"


def test_with_hold_the_lane_waits_and_the_result_counts(kafka: TopicAdmin, topic: TopicFactory, gates: Gates) -> None:
    name, client, app = topic(), Client(kafka), app_for(kafka)
    client.produce(name, [NewRecord(b"hangs", b"a"), NewRecord(b"behind", b"a"), NewRecord(b"beside", b"b")])

    @app.consumer(name, order="key", timeout_s=0.2, on_timeout="hold", dead_letter="{topic}.dlq")
    def work(value: bytes) -> None:
        gates.handle(value)

    with RunningApp(app) as inside:
        wait_until(lambda: inside.log.of("handler_overdue"), "it is overdue")
        wait_until(lambda: b"beside" in gates.ended, "other keys continue")
        assert inside.loop.overdue.stuck
        assert gates.seen.count(b"behind") == 0
        gates.opened.set()
        wait_until(lambda: client.committed("scenario.work", name)[0] == 3, "all are done")
        wait_until(lambda: not inside.loop.overdue.stuck, "all is well again")
    assert gates.ended.index(b"hangs") < gates.ended.index(b"behind")
    assert client.edges(f"{name}.dlq") == (0, 0)


def test_what_an_abandoned_handler_sends_does_not_go_out(kafka: TopicAdmin, topic: TopicFactory, gates: Gates) -> None:
    name, out, client, app = topic(), topic(), Client(kafka), app_for(kafka)
    client.produce(name, [b"hangs", b"quick"])
    raised: list[BaseException] = []

    @app.consumer(name, timeout_s=0.2, dead_letter="{topic}.dlq")
    def work(value: bytes, ctx: Context) -> None:
        ctx.send(out, value + b" before")
        gates.handle(value)
        try:
            ctx.send(out, value + b" after")
        except Abandoned as error:
            raised.append(error)

    with RunningApp(app) as inside:
        wait_until(lambda: client.committed("scenario.work", name)[0] == 2, "both are through")
        gates.opened.set()
        wait_until(lambda: inside.log.of("abandoned_handler_ended"), "the thread comes back")
    assert len(raised) == 1
    sent = [message.value() for message in client.read(out, 3)]
    assert sent == [b"hangs before", b"quick before", b"quick after"]
    assert client.edges(out) == (0, 3)


def test_after_a_drain_a_coroutine_that_returns_because_it_is_cancelled_is_not_finished(
    kafka: TopicAdmin, topic: TopicFactory
) -> None:
    name, client, app = topic(), Client(kafka), app_for(kafka, shutdown_s=1.0)
    client.produce(name, [b"1"])
    begun, returned = threading.Event(), threading.Event()

    @app.consumer(name)
    async def work(value: bytes) -> None:
        begun.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(LONG_S)
        returned.set()

    with RunningApp(app, code=5):
        assert begun.wait(DEADLINE_S)
    assert returned.is_set()
    assert client.committed("scenario.work", name)[0] in (None, 0), "its record is not done"


@pytest.mark.timing
@pytest.mark.parametrize("manners", ["thread", "stubborn coroutine"])
def test_sigterm_with_an_abandoned_handler_ends_clean(make_scene: MakeScene, manners: str) -> None:
    scene = make_scene(partitions=1)
    [stuck, *others] = scene.send(
        [Work(gate=scene.gate(), manners=manners.partition(" ")[0]), *(Work() for _ in range(5))]
    )
    variables = {} if manners == "thread" else {"SCENARIO_ASYNC": "1"}
    member = scene.member({"consumer.timeout_s": 0.3}, variables=variables)
    scene.wait_all_ended(others)
    scene.wait_committed()
    assert member.wait_event("handler_timed_out")["offset"] == stuck.id.offset
    member.terminate()
    code, took_s = member.end()
    assert code == 0
    assert took_s < 3.0, "nobody waits for it"
    wait_until(lambda: scene.committed() == {0: 6}, "everything stays committed")
    assert stuck.id not in scene.journal.ended()


def test_its_transaction_in_sqlite_ends_with_it_and_the_others_have_theirs(
    kafka: TopicAdmin, topic: TopicFactory, gates: Gates, tmp_path: Path
) -> None:
    name, client, app = topic(partitions=1), Client(kafka), app_for(kafka)
    file, late = tmp_path / "inbox.db", list[sqlite3.Error]()

    @app.consumer(name, timeout_s=1.0, inbox=SqliteInbox(file))
    def work(value: bytes, tx: sqlite3.Connection) -> None:
        tx.execute("CREATE TABLE IF NOT EXISTS effects (value BLOB)")
        gates.handle(value)
        try:
            tx.execute("INSERT INTO effects VALUES (?)", (value,))
        except sqlite3.Error as error:
            late.append(error)
            raise

    values = [b"before", b"hangs", *(b"good %d" % number for number in range(5))]
    client.produce(name, [NewRecord(value, b"k", partition=0) for value in values])
    with RunningApp(app) as running:
        wait_until(lambda: client.is_committed("scenario.work", name, len(values)), "all are done")
        gates.opened.set()
        wait_until(lambda: running.log.of("abandoned_handler_ended"), "the handler ends after all")
    [letter] = letters_of(client, name, 1)
    assert (letter["original_offset"], letter["error_code"]) == (1, "TIMEOUT")
    assert gates.seen == values, "nothing was tried twice"
    assert len(late) == 1, "what it does afterwards fails"
    with contextlib.closing(sqlite3.connect(file)) as connection:
        assert [row[0] for row in connection.execute("SELECT value FROM effects")] == [
            value for value in values if value != b"hangs"
        ]

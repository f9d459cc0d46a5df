"""`keepfast ctl` and `keepfast top` against an app that runs, and against nothing."""

from __future__ import annotations

import json
import socket
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path

import msgspec
import pytest
import uvicorn
from click.testing import CliRunner, Result
from fastapi import FastAPI
from rich.console import Console, RenderableType

from keepfast import Context
from keepfast.cli import main
from keepfast.cli.control_client import ControlClient
from keepfast.cli.live_view import detail_of, view_of
from keepfast.inbox.sqlite import SqliteInbox
from keepfast.telemetry.state import (
    AppState,
    ConsumerCounts,
    ConsumerDetail,
    ConsumerState,
    GuardState,
    Hold,
    LaneState,
    PartitionState,
    QueueState,
    SeekResult,
    StuckHandler,
)
from keepfast.testing import KafkaBroker
from keepfast.testing.loopback import free_ports
from keepfast.testing.pytest_plugin import TopicFactory
from tests.support.broker_client import Client, numbered
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import DEADLINE_S, wait_until
from tests.support.web import web_of


def keepfast(*words: str, url: str = "", token: str = "") -> Result:
    more = ["--url", url] if url else []
    return CliRunner().invoke(main, [*words, *more], env={"KEEPFAST_CONTROL_TOKEN": token or None})


def test_a_running_app_is_looked_at_paused_resumed_and_released(kafka: KafkaBroker, topic: TopicFactory) -> None:
    app, name = app_for(kafka), topic(partitions=2)
    gate = threading.Event()

    @app.consumer(name, storm_guard=True, breaker=True)
    def charge(value: bytes) -> None:
        gate.wait(DEADLINE_S)

    with RunningApp(app) as running, web_of(running, token="t") as web:
        running.wait_assigned(2)
        Client(kafka).produce(name, [b"1"])
        wait_until(lambda: running.loop.in_flight, "a record is in flight")

        state = json.loads(keepfast("ctl", "state", "--json", url=web.url).stdout)
        assert list(state["consumers"]) == ["charge"]
        shown = keepfast("ctl", "state", "charge", url=web.url)
        assert shown.exit_code == 0, shown.output
        lane = shown.stdout.splitlines()[-1].split()
        assert lane[0] == name
        assert lane[-1] == "running"
        top = keepfast("top", "--once", "--every", "0.3", url=web.url)
        assert top.exit_code == 0, top.output
        assert {"REC/S", "BREAKER", "POSITION", "ATTEMPT"} <= set(top.stdout.split())
        assert "closed" in top.stdout
        assert "watching" in top.stdout
        json.loads(keepfast("top", "--once", "--json", url=web.url).stdout)

        for token, code, words in (("", 2, "missing or wrong"), ("no", 2, "missing or wrong")):
            refused = keepfast("ctl", "pause", "charge", url=web.url, token=token)
            assert (refused.exit_code, words in refused.output) == (code, True), refused.output
        paused = keepfast("ctl", "pause", "charge", url=web.url, token="t")
        assert (paused.exit_code, paused.stdout) == (0, "Paused: what runs finishes its record.\n")
        assert "operator" in running.loop.holds
        view = ("top", "--once", "--every", "0.2")
        wait_until(lambda: "operator" in keepfast(*view, url=web.url).stdout, "the view shows the pause")
        assert keepfast("ctl", "resume", "charge", url=web.url, token="t").stdout == "Resumed.\n"
        one = keepfast("ctl", "pause", "charge", "--topic", name, "--partition", "1", "--json", url=web.url, token="t")
        assert json.loads(one.stdout)["changed"] == 1
        released = keepfast("ctl", "release", "charge", url=web.url, token="t")
        assert released.stdout == "There is no hold named storm now.\n"
        level = keepfast("ctl", "log-level", "info", url=web.url, token="t")
        assert level.stdout == "The log level is info until the process ends.\n"
        unknown = keepfast("ctl", "pause", "charg", url=web.url, token="t")
        assert (unknown.exit_code, "there is charge" in unknown.output) == (1, True)
        health = keepfast("ctl", "health", url=web.url)
        assert (health.exit_code, health.stdout.startswith("ok: live, ready, started")) == (0, True), health.output
        gate.set()


@contextmanager
def served(web: FastAPI) -> Iterator[str]:
    """Its address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(web, lifespan="off", log_level="warning"))
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            wait_until(lambda: server.started, "the service is up")
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(DEADLINE_S)


def test_an_app_that_is_mounted_in_a_service_is_reached_under_its_path(
    kafka: KafkaBroker, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEEPFAST_CONTROL_TOKEN", "t")
    app, name, web = app_for(kafka), topic(partitions=1), FastAPI()

    @app.consumer(name)
    def charge(value: bytes) -> None: ...

    web.mount("/kafka", app.asgi)
    with app, served(web) as address:
        for url in (f"{address}/kafka", f"{address}/kafka/"):
            state = keepfast("ctl", "state", "--json", url=url)
            assert state.exit_code == 0, state.output
            assert list(json.loads(state.stdout)["consumers"]) == ["charge"]
        paused = keepfast("ctl", "pause", "charge", url=f"{address}/kafka", token="t")
        assert (paused.exit_code, paused.stdout) == (0, "Paused: what runs finishes its record.\n"), paused.output
        assert keepfast("ctl", "state", url=address).exit_code == 3


def test_a_partition_is_moved_with_a_plan_and_a_confirmation(kafka: KafkaBroker, topic: TopicFactory) -> None:
    app, name = app_for(kafka), topic(partitions=1)
    seen: list[int] = []

    @app.consumer(name, order="partition")
    def charge(value: bytes, ctx: Context) -> None:
        seen.append(ctx.offset)

    with RunningApp(app) as running, web_of(running, token="t") as web:
        running.wait_assigned(1)
        Client(kafka).produce(name, numbered(10))
        wait_until(lambda: len(seen) == 10, "all are processed")
        at = ("ctl", "seek", "charge", name, "0", "--to")

        plan = keepfast(*at, "4", "--dry-run", url=web.url, token="t")
        assert plan.stdout == (
            f"{name}[0]: from 10 to 4 (the log has 0 to 10): 6 offsets are processed again.\n"
            "Dry run: nothing was changed.\n"
        )
        not_planned = keepfast(*at, "4", "--dry-run", url=web.url)
        assert (not_planned.exit_code, "KEEPFAST_CONTROL_TOKEN" in not_planned.output) == (2, True)
        asked = keepfast(*at, "4", url=web.url, token="t")
        assert (asked.exit_code, "--yes" in asked.output) == (2, True), "nobody can be asked"
        without = keepfast(*at, "4", "--yes", url=web.url)
        assert (without.exit_code, "KEEPFAST_CONTROL_TOKEN" in without.output) == (2, True)
        assert len(seen) == 10

        done = keepfast(*at, "-6", "--yes", url=web.url, token="t")
        assert done.stdout.splitlines()[-1] == "Done: it was at 10 and reads from 4."
        wait_until(lambda: len(seen) == 16, "six are processed again")
        assert seen == [*range(10), *range(4, 10)]
        told = json.loads(keepfast(*at, "end", "--yes", "--json", url=web.url, token="t").stdout)
        assert (told["to"], told["repeats"], told["skips"], told["done"], told["committed"]) == (10, 0, 0, True, True)

        outside = keepfast(*at, "11", "--yes", url=web.url, token="t")
        assert (outside.exit_code, "outside the log" in outside.output) == (1, True), outside.output
        other = keepfast("ctl", "seek", "charge", name, "5", "--to", "0", "--yes", url=web.url, token="t")
        assert (
            f"{name}[5] is not assigned to this process. No member of the group scenario.charge has it" in other.output
        )

        shown = keepfast("ctl", "position", "charge", url=web.url).stdout.split()
        assert shown[:6] == ["TOPIC", "PARTITION", "POSITION", "COMMITTED", "END", "LAG"]
        assert shown[6:9] == [name, "0", "10"]
        assert keepfast("ctl", "lag", "charge", url=web.url).stdout.splitlines()[-1] == "Lag: 0"
        assert json.loads(keepfast("ctl", "lag", "charge", "--json", url=web.url).stdout)["lag"] == 0


def test_a_seek_of_a_consumer_with_an_inbox_says_that_it_skips_and_how_to_process_records_again(
    kafka: KafkaBroker, topic: TopicFactory, tmp_path: Path
) -> None:
    inbox = SqliteInbox(tmp_path / "effects.sqlite")
    app, name = app_for(kafka), topic(partitions=1)

    @app.consumer(name, order="partition", inbox=inbox)
    def charge(value: bytes, tx: sqlite3.Connection) -> None: ...

    with RunningApp(app) as running, web_of(running, token="t") as web:
        running.wait_assigned(1)
        Client(kafka).produce(name, numbered(10))
        wait_until(lambda: running.loop.counts.processed == 10, "all are processed")
        at = ("ctl", "seek", "charge", name, "0", "--to")
        plan = keepfast(*at, "4", "--dry-run", url=web.url, token="t")
        again = f"keepfast replay-from MODULE:APP charge --topic {name} --offsets 0:4-9 --reprocess"
        assert plan.stdout == (
            f"{name}[0]: from 10 to 4 (the log has 0 to 10): 6 offsets are read again.\n"
            f"Its inbox skips the records that it has processed. To process them again, without a seek: {again}\n"
            "Dry run: nothing was changed.\n"
        )
        done = json.loads(keepfast(*at, "4", "--yes", "--json", url=web.url, token="t").stdout)
        assert (done["repeats"], done["inbox"]) == (6, True)
        wait_until(lambda: running.loop.counts.skipped == 6, "the inbox skips them")
        assert running.loop.counts.processed == 10


@pytest.mark.parametrize(
    "words",
    [
        ("ctl", "dead-letter", "charge", "orders.payment.v1", "3", "1200"),
        ("ctl", "seek", "charge", "orders.payment.v1", "3", "--to", "4"),
    ],
)
def test_without_a_terminal_only_options_that_a_command_has_are_recommended(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = SeekResult(topic="t", partition=3, position=9, to=4, first=0, end=9, repeats=5, skips=0)
    monkeypatch.setattr(ControlClient, "seek", lambda *_, **__: plan)
    done = keepfast(*words)
    assert (done.exit_code, "confirm with --yes" in done.output) == (2, True), done.output
    assert ("--dry-run" in done.output) == ("--dry-run" in keepfast(*words[:2], "--help").output)


@pytest.mark.parametrize("command", [("ctl", "state"), ("top",)])
def test_an_unreachable_address_is_reported_with_the_remedy(command: tuple[str, ...]) -> None:
    [port] = free_ports(1)
    done = keepfast(*command, url=f"http://127.0.0.1:{port}")
    assert done.exit_code == 3
    assert "No app answers at" in done.output
    assert "HEALTH_CHECK_PORT" in done.output


def test_the_view_has_rates_holds_and_the_worst_partitions_first() -> None:
    partitions = tuple(
        PartitionState(topic="orders", partition=number, lag=number, lag_s=number * 100, end=9, suspects=number // 28)
        for number in range(30)
    )
    state = ConsumerState(
        name="charge",
        group="g",
        topics=("orders",),
        order="key",
        commit="each",
        phase="running",
        member=True,
        partitions=partitions,
        guards=GuardState(breaker="open"),
        holds=(Hold(name="breaker", for_s=75),),
        brokers="nobody\x1b[31m answers",
        stuck_handlers=5,
        stuck=(StuckHandler(topic="orders", partition=1, offset=7, for_s=31, stack=("shop.py:3 charge", "x.py:1 w")),),
    )
    before = AppState(
        app="shop",
        version="1",
        keepfast="0",
        pid=7,
        uptime_s=3700,
        phase="running",
        consumers={"charge": state},
        counts={"charge": ConsumerCounts(processed=100)},
    )
    now = msgspec.structs.replace(before, counts={"charge": ConsumerCounts(processed=150, dead_lettered=3)})
    text = drawn(view_of(now, before, elapsed_s=2.0), width=200)
    assert text[0] == "shop 1, running for 1 h 1 min, pid 7, keepfast 0"
    assert " ".join(text[3].split()) == "charge running 30 435 2,900 25.0 0.0 0.0"
    assert " ".join(text[6].split()) == "charge 0 0 0 3 open - breaker 1 min 15 s"
    assert [line for line in text if "\x1b" in line] == []
    assert any("nobody" in line for line in text)
    assert "charge: its handler has been running orders[1] offset 7 for 31 s: x.py:1 w < shop.py:3 charge" in text
    assert "charge: and 4 more handlers do not return" in text
    assert "charge: probation, 2 suspects" in text
    first = next(line for line in text if line.startswith("orders "))
    assert first.split()[1:5] == ["29", "0", "29", "2,900"]
    assert first.endswith("probation: 1 suspects")
    assert text[-1] == "and 10 partitions with less lag"


def test_the_view_names_a_topic_that_is_missing() -> None:
    state = ConsumerState(
        name="charge", group="g", topics=("orders.v1",), order="key", commit="each", phase="running",
        missing_topics=("orders.v1",),
    )  # fmt: skip
    app = AppState(
        app="shop", version="", keepfast="0.1.0", pid=7, uptime_s=5, phase="running", consumers={"charge": state},
        counts={},
    )  # fmt: skip
    assert "charge: there is no topic orders.v1: nothing of it is read" in drawn(view_of(app), width=80)


def drawn(view: RenderableType, *, width: int) -> list[str]:
    paper = StringIO()
    Console(file=paper, width=width).print(view)
    return [line.rstrip() for line in paper.getvalue().splitlines()]


def test_the_view_fits_80_columns_and_no_number_is_cut() -> None:
    topic, position = "payments.authorisation-requests.v1", 123_456_789
    partition = PartitionState(
        topic=topic, partition=31, lag=8_765_432, lag_s=86_400, position=position, buffered=2_000, in_flight=64,
        pauses=("buffer",), holds=("operator",),
    )  # fmt: skip
    state = ConsumerState(
        name="charge_authorised_payments@3",
        group="g",
        topics=(topic,),
        order="key",
        commit="each",
        phase="running",
        partitions=(partition,) * 30,
        guards=GuardState(breaker="half-open", storm="watching"),
        holds=(Hold(name="breaker", for_s=75), Hold(name="operator", for_s=4000)),
        in_flight=12_345,
        waiting=100_000,
        settling=1_234,
    )
    counts = ConsumerCounts(
        processed=2_469_135, errors=46_913, retries=46_913, dead_lettered=1_234_567, filtered=9_876_543
    )
    other = msgspec.structs.replace(state, name="refund", partitions=())
    app = AppState(
        app="payments", version="1.2.3", keepfast="0.1.0", pid=0, uptime_s=3700, phase="running",
        consumers={state.name: state, other.name: other}, counts={state.name: counts},
    )  # fmt: skip
    lane = LaneState(
        state="waiting", topic=topic, partition=31, offset=position, records=500, attempt=10, for_s=3_600.5,
        error_type="TimeoutError", code="TIMEOUT",
    )  # fmt: skip
    before = msgspec.structs.replace(app, counts={state.name: ConsumerCounts()})
    detail = ConsumerDetail(state=state, counts=counts, lanes=(lane,))
    for view in (view_of(app, before, elapsed_s=2.0, lanes=[(state.name, lane)]), detail_of(state.name, detail)):
        text = drawn(view, width=80)
        assert max(map(len, text)) <= 80
        words = set(" ".join(text).split())
        assert {"8,765,432", "86,400", str(position), "12,345", "100,000", "1,234", "1,234,567", "2,000", "64"} <= words
        assert {"half-open", "watching", "31", "500", "10", "3,600.5"} <= words
        assert {"CONSUMER", "POSITION", "BREAKER", "ATTEMPT", "FILTERED", "9,876,543"} <= words, (
            "columns keep their names"
        )
        assert any(topic[:4] in line and "held" in line for line in text)
    assert {"1,234,568", "23,456"} <= set(" ".join(drawn(view_of(app, before, elapsed_s=2.0), width=80)).split())


def test_the_view_of_a_queue_has_its_locks_and_says_that_its_lag_is_not_known() -> None:
    state = ConsumerState(
        name="charge", group="g", topics=("t",), order="queue", commit="each", phase="running",
        queue=QueueState(lock_s=30.0, redelivered=1_234, locks_expired=5),
    )  # fmt: skip
    app = AppState(
        app="payments", version="1", keepfast="0.1.0", pid=0, uptime_s=1, phase="running", consumers={"charge": state}
    )
    detail = ConsumerDetail(state=state, counts=ConsumerCounts())
    for view in (view_of(app), detail_of("charge", detail)):
        text = " ".join(" ".join(drawn(view, width=80)).split())
        assert "the client has no request for its lag" in text
        assert "Locks of 30 s, 5 ran out; 1,234 records delivered again" in text

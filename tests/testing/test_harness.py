"""A user's tests: the harness runs an app in memory at once, and the same test on a real broker."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest

from keepfast import (
    App,
    BatchContext,
    CardNumbers,
    Context,
    DeadLettered,
    Discard,
    Event,
    Halt,
    Halted,
    LifecycleError,
    Provide,
    Reject,
    RetryLater,
    RetryScheduled,
)
from keepfast.core.errors import ConfigError
from keepfast.core.policies import RetryPolicy
from keepfast.core.retry_topics import RetryTopics
from keepfast.runner import KafkaConsumerRunner
from keepfast.testing.harness import NotSettled, harness
from keepfast.testing.topics import TopicAdmin


@pytest.fixture(params=["memory", "kafka"])
def address(request: pytest.FixtureRequest) -> str | None:
    if request.param == "memory":
        return None
    broker: TopicAdmin = request.getfixturevalue("kafka")
    return broker.bootstrap


def played(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


def test_settings_come_from_the_file_that_run_reads_but_not_from_this_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App("shop")

    @app.consumer("shop.order.v1", retry="patient")
    def charge(order: dict[str, Any]) -> None:
        raise ConnectionError("gateway")

    (tmp_path / "keepfast.toml").write_text(
        """
        kafka = {security_protocol = "SSL", ssl_ca_location = "/only/in/production.pem"}
        spool = "file:///only/in/production"
        [retry.profiles.patient]
        max_retries = 7
        """
    )
    (tmp_path / ".env").write_text("KEEPFAST_CONSUMERS_CHARGE_RETRY_MAX_RETRIES=0")
    monkeypatch.setenv("KEEPFAST_CONSUMERS_CHARGE_RETRY_MAX_RETRIES", "0")

    async def story(retries: int, **more: Any) -> None:
        async with harness(app, **more) as h:
            await h.send("shop.order.v1", {"id": 1})
            [letter] = h.dead
            assert letter.retry_count == retries

    monkeypatch.chdir(tmp_path)
    played(story(7))
    played(story(2, environ={"KEEPFAST_CONSUMERS_CHARGE_RETRY_MAX_RETRIES": "2"}))
    monkeypatch.chdir("/")
    played(story(7, cwd=tmp_path))
    with pytest.raises(ConfigError, match="there is no retry profile 'patient'"):
        played(story(7))


def test_records_that_a_filter_drops_are_found_apart(address: str | None) -> None:
    topic = f"shop.event-{uuid.uuid4().hex[:6]}.v1"
    app = App("shop")

    @app.consumer(topic, filter=lambda record: record.header("type") == b"login")
    def audit(event: dict[str, Any]) -> None: ...

    @app.consumer(topic, filter=lambda record: record.header("type") == b"logout", idempotent=True)
    def count(events: list[dict[str, Any]]) -> None: ...

    async def story() -> None:
        async with harness(app, kafka=address) as h:
            for kind in ("login", "logout", "other"):
                await h.send(topic, {"id": kind}, headers={"type": kind}, settle=False)
            await h.settle()
            assert {record.header("type") for record in h.processed} == {b"login", b"logout"}
            assert [record.header("type") for record in h.filtered] == [b"other"]
            assert (h.dead, h.discarded) == ([], [])

    played(story())


def test_each_record_is_found_where_it_ended(address: str | None) -> None:
    topic, out = f"shop.order-{uuid.uuid4().hex[:6]}.v1", f"out-{uuid.uuid4().hex[:6]}"
    app = App("shop")

    @app.consumer(topic, retry=RetryPolicy(initial_delay_ms=10, max_delay_ms=10), sensitive=CardNumbers())
    def charge(order: dict[str, Any], ctx: Context) -> None:
        match order["id"]:
            case "bad":
                raise Reject("no such customer", code="NO_CUSTOMER")
            case "flaky" if ctx.attempt < 3:
                raise ConnectionError("gateway")
            case "unwanted":
                raise Discard("test order")
            case _:
                pass
        ctx.send(out, {"charged": order["id"]}, key=ctx.key)

    async def story() -> None:
        async with harness(app, topics=[out], kafka=address) as h:
            sent = {}
            for name in ("good", "flaky", "bad", "unwanted", "4111111111111111"):
                sent[name] = await h.send(topic, {"id": name}, key=name, headers={"trace": "t1"})
            assert {record.key for record in h.processed} == {b"good", b"flaky"}
            assert {record.key for record in h.discarded} == {b"unwanted", b"4111111111111111"}
            [letter] = h.dead
            assert (letter.error_code, letter.reason, letter.key) == ("NO_CUSTOMER", "no such customer", b"bad")
            assert (letter.value, letter.offset) == (b'{"id":"bad"}', sent["bad"].offset)
            assert [h.retries(sent[name]) for name in ("good", "flaky", "bad")] == [0, 2, 0]
            assert {record.value for record in await h.topic(out)} == {b'{"charged":"good"}', b'{"charged":"flaky"}'}

    played(story())


def test_a_runner_is_tested_as_an_app_is(address: str | None) -> None:
    topic, dead_lettered, words = f"shop.order-{uuid.uuid4().hex[:6]}.v1", [], [False, None]

    def process(order: dict[str, Any]) -> dict[str, Any]:
        failing.append(order["id"])
        error = {"bad": ValueError("no such customer"), "flaky": ConnectionError("gateway")}.get(order["id"])
        if failing.count(order["id"]) > 2:
            error = None
        return {"success": error is None, "error": error}

    def publish(message: Any, error: BaseException, *, retry_count: int) -> bool | None:
        dead_lettered.append((message, str(error), retry_count))
        return words.pop(0) if words else None

    failing: list[str] = []
    runner = KafkaConsumerRunner(
        consumer_factory=lambda: {"group.id": "shop.v1", "bootstrap.servers": "127.0.0.1:1"},
        producer_factory=lambda: pytest.fail("a test needs no producer"),
        cleanup_callback=lambda: pytest.fail("a test may still look"),
        topics=topic,
        retry_config=RetryPolicy(initial_delay_ms=10, max_delay_ms=10),
        process_message=process,
        dlq_publisher=publish,
        rate_limit_min_delay_ms=lambda: 20,
    )

    async def story() -> None:
        async with harness(runner, kafka=address) as h:
            await h.send(topic, {"id": "good"}, key="good")
            flaky = await h.send(topic, {"id": "flaky"}, key="flaky")
            bad = await h.send(topic, {"id": "bad"}, key="bad")
            assert {record.key for record in h.processed} == {b"good", b"flaky"}
            assert h.retries(flaky) == 2
            [letter] = h.dead
            assert (letter.error_type, letter.error_message, letter.value) == (
                "ValueError",
                "no such customer",
                bad.value,
            )
            assert (letter.topic, letter.partition, letter.offset) == (topic, bad.partition, bad.offset)
            assert await h.topic("shop.order.dlq") == []

    played(story())
    assert dead_lettered == [({"id": "bad"}, "no such customer", 0)] * 2, "called again, because it first said False"


def test_a_record_for_a_topic_that_nobody_reads_is_refused_unless_the_test_has_named_it() -> None:
    app = App("shop")

    @app.consumer("shop.order.v1", retry_topics=RetryTopics(delays=("5s",), allow_reorder=True))
    def charge(order: int) -> None: ...

    async def story() -> None:
        async with harness(app, topics=["users.own.v1"]) as h:
            for topic in ("users.own.v1", "shop.order.dlq", "shop.order.v1.shop.charge.replay"):
                await h.send(topic, b"1")
            with pytest.raises(
                ConfigError, match=r"reads shop\.ordr\.v1\. Did you mean shop\.order\.v1\? .*topics="
            ) as raised:
                await h.send("shop.ordr.v1", b"1")
            assert "Topics that are read: shop.order.v1." in str(raised.value)

    asyncio.run(story())


def test_a_runner_without_a_publisher_writes_letters_of_ours_in_memory() -> None:
    runner = KafkaConsumerRunner(
        consumer_factory=lambda: {"group.id": "shop.v1"}, topics="a.b.v1", process_message=lambda _: {"success": False}
    )

    async def story() -> None:
        async with harness(runner, environ={"RETRY_MAX_RETRIES": "1"}) as h:
            await h.send("a.b.v1", {"n": 1})
            await h.send("a.b.v1", b"{")
            assert [(letter.error_type, letter.retry_count) for letter in h.dead] == [
                ("ProcessingFailed", 1),
                ("DecodeError", 0),
            ]
            assert len(await h.topic("a.b.dlq")) == 2

    played(story())


@pytest.mark.parametrize("order", ["partition", "key", "none"])
def test_async_handlers_and_batches_run_in_memory(order: Any) -> None:
    app, seen = App("shop"), []

    @app.consumer("a.b.v1", order=order, idempotent=True)
    async def single(value: dict[str, Any]) -> None:
        await asyncio.sleep(0.001)
        seen.append(("single", value["n"]))

    @app.consumer("a.b.v1", order=order, idempotent=True)
    async def many(values: list[dict[str, Any]]) -> None:
        await asyncio.sleep(0.001)
        seen.extend(("many", value["n"]) for value in values)

    async def story() -> None:
        async with harness(app) as h:
            for number in range(50):
                await h.send("a.b.v1", {"n": number}, key=str(number % 5), settle=False)
            await h.settle()
            assert len(h.processed) == 50

    played(story())
    assert sorted(seen) == [(name, number) for name in ("many", "single") for number in range(50)]


@pytest.mark.timing
def test_a_day_in_retry_topics_takes_a_moment() -> None:
    app, attempts = App("shop"), []

    @app.consumer(
        "a.b.v1", retry=RetryPolicy(max_retries=1), retry_topics=RetryTopics(delays=("10m", "1d"), allow_reorder=True)
    )
    def work(value: bytes, ctx: Context) -> None:
        attempts.append(ctx.attempt)
        if ctx.attempt < 4:
            raise TimeoutError

    async def story() -> None:
        async with harness(app) as h:
            record = await h.send("a.b.v1", b"x")
            assert (h.processed, h.dead) == ([record_of(h, record)], [])

    def record_of(h: Any, sent: Any) -> Any:
        return next(one for one in h.processed if (one.topic, one.offset) == (sent.topic, sent.offset))

    begun = time.monotonic()
    played(story())
    assert attempts == [1, 2, 3, 4]
    assert time.monotonic() - begun < 30


def test_what_never_ends_is_reported_and_not_waited_for_without_limit() -> None:
    app = App("shop")

    @app.consumer("a.b.v1", retry=RetryPolicy(max_retries=None))
    def work(value: bytes) -> None:
        raise RetryLater(after_s=3600)

    async def story() -> None:
        async with harness(app) as h:
            with pytest.raises(NotSettled, match=r"not finished: 1 of a\.b\.v1\[\d\]"):
                await h.send("a.b.v1", b"x")

    played(story())


def test_a_handler_that_halts_ends_the_test() -> None:
    app = App("shop")

    @app.consumer("a.b.v1")
    def work(value: bytes) -> None:
        raise Halt("wrong database")

    async def story() -> None:
        async with harness(app) as h:
            with pytest.raises(Halt, match="wrong database"):
                await h.send("a.b.v1", b"x")

    played(story())


USERS_TEST = """
import asyncio, os
from keepfast import App
from keepfast.testing.harness import harness

app = App("shop")

@app.consumer("users.own.v1")
def work(value: bytes) -> None: ...

def test_it():
    async def story():
        async with harness(app) as h:
            await h.send("users.own.v1", b"x")
            assert [record.value for record in h.processed] == [b"x"]
            print("REAL" if "KEEPFAST_TEST_KAFKA" in os.environ else "MEMORY", type(h._backend).__name__)
    asyncio.run(story())
"""


@pytest.mark.parametrize(("flags", "printed"), [((), "MEMORY Memory"), (("--keepfast-kafka",), "REAL Real")])
def test_a_flag_of_pytest_takes_the_same_test_to_a_broker(
    kafka: TopicAdmin, tmp_path: Path, flags: tuple[str, ...], printed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "test_mine.py").write_text(USERS_TEST)
    monkeypatch.setenv("KEEPFAST_TEST_BOOTSTRAP", kafka.bootstrap)
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", *flags]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, printed in done.stdout) == (0, True), done.stdout + done.stderr


class Gateway:
    """What lifespan would make."""

    def rate(self) -> int:
        raise ConnectionError("no network in tests")


class FakeGateway(Gateway):
    def rate(self) -> int:
        return 7


@dataclass
class Resources:
    gateway: Gateway


def rate(gateway: Gateway) -> int:
    return gateway.rate()


def fixed_rate() -> int:
    return 5


def unused() -> int:
    return 0


def test_resources_and_overrides_are_in_place_of_the_real_ones() -> None:
    app, seen = App("shop"), list[int]()

    @app.consumer("shop.order.v1")
    def charge(order: dict[str, Any], cents: Annotated[int, Provide(rate)], gateway: Gateway) -> None:
        assert isinstance(gateway, FakeGateway)
        seen.append(cents)

    async def story(**more: Any) -> None:
        async with harness(app, resources=Resources(FakeGateway()), **more) as h:
            await h.send("shop.order.v1", {"id": 1})
            assert len(h.processed) == 1

    played(story())
    played(story(overrides={rate: fixed_rate}))
    assert seen == [7, 5]
    with pytest.raises(ConfigError, match=r"no handler or middleware takes what unused\(\) provides"):
        played(story(overrides={unused: fixed_rate}))


def test_a_runner_has_no_resources() -> None:
    runner = KafkaConsumerRunner(consumer_factory=dict, process_message=print)

    async def story() -> None:
        async with harness(runner, resources=Resources(FakeGateway())):
            pass

    with pytest.raises(ConfigError, match="are for apps"):
        played(story())


def test_middleware_is_around_the_handlers_of_all_consumers_and_a_failed_exit_is_tried_again(
    address: str | None,
) -> None:
    first, second = (f"shop.{name}-{uuid.uuid4().hex[:6]}.v1" for name in ("order", "refund"))
    app, journal = App("shop"), list[str]()
    retry = RetryPolicy(initial_delay_ms=10, max_delay_ms=10)

    @app.consumer(first, retry=retry)
    def charge(order: dict[str, Any]) -> None:
        journal.append("charge")

    @app.middleware
    def session(ctx: Context | BatchContext) -> Iterator[None]:
        yield
        if ctx.attempt == 1:
            raise ConnectionError("the COMMIT failed")
        journal.append("committed")

    def own() -> Iterator[None]:
        journal.append("own")
        yield

    @app.consumer(second, retry=retry, middleware=[own], idempotent=True)
    async def refund(orders: list[dict[str, Any]]) -> None:
        journal.append("refund")

    async def story(topic: str) -> list[str]:
        journal.clear()
        async with harness(app, kafka=address) as h:
            record = await h.send(topic, {"id": 1})
            assert [one.offset for one in h.processed] == [record.offset]
            assert h.dead == []
        return list(journal)

    assert asyncio.run(story(first)) == ["charge", "charge", "committed"]
    assert asyncio.run(story(second)) == ["own", "refund", "own", "refund", "committed"]


def test_hooks_were_called_when_send_returns(address: str | None) -> None:
    app = App("shop")
    plain, awaited = list[Event](), list[Event]()

    @app.consumer("shop.order.v1", retry=RetryPolicy(max_retries=1, initial_delay_ms=100))
    async def charge(order: dict[str, Any]) -> None:
        if order["id"] == 1:
            raise ConnectionError("gateway")

    @app.on(RetryScheduled, DeadLettered)
    def report(event: RetryScheduled | DeadLettered) -> None:
        plain.append(event)
        raise ValueError("a bug in the hook")

    @app.on(DeadLettered)
    async def report_async(event: DeadLettered) -> None:
        await asyncio.sleep(0.01)
        awaited.append(event)

    async def story() -> None:
        async with harness(app, kafka=address) as h:
            await h.send("shop.order.v1", {"id": 1})
            assert [type(one) for one in plain] == [RetryScheduled, DeadLettered]
            [letter] = awaited
            assert isinstance(letter, DeadLettered)
            assert isinstance(letter.error, ConnectionError)
            await h.send("shop.order.v1", {"id": 2})
            assert len(h.processed) == 1
            assert len(plain) == 2

    played(story())


def test_a_halt_is_reported_to_hooks_before_it_is_raised() -> None:
    app, seen = App("shop"), list[Halted]()

    @app.consumer("shop.order.v1")
    def charge(order: dict[str, Any]) -> None:
        raise Halt("enough")

    @app.on(Halted)
    def report(event: Halted) -> None:
        seen.append(event)

    async def story() -> None:
        async with harness(app) as h:
            with pytest.raises(Halt):
                await h.send("shop.order.v1", {"id": 1})

    played(story())
    assert [event.reason for event in seen] == ["enough"]


def test_the_lifespan_is_entered_on_the_handlers_event_loop_and_app_send_lands_in_the_topics(
    address: str | None,
) -> None:
    life: list[str] = []
    source, target = (f"shop.{uuid.uuid4().hex[:8]}.v1" for _ in range(2))

    @asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[asyncio.AbstractEventLoop]:
        life.append("entered")
        yield asyncio.get_running_loop()
        life.append("left")

    app = App("shop", lifespan=lifespan)

    @app.consumer(source)
    async def copy(value: bytes, ctx: Context) -> None:
        assert ctx.resources is app.resources is asyncio.get_running_loop()
        await app.send(target, value, key="k")

    async def story() -> None:
        async with harness(app, topics=[target], kafka=address) as h:
            await app.send(source, b"1")
            await h.settle()
            assert [(record.value, record.key) for record in await h.topic(target)] == [(b"1", b"k")]
            with pytest.raises(LifecycleError, match="started already"):
                await app.start_async()
            with pytest.raises(LifecycleError, match="harness"):
                await app.stop_async()

    played(story())
    assert life == ["entered", "left"]
    with pytest.raises(LifecycleError, match="not started"):
        app.send(target, b"2")


def test_resources_of_the_test_are_in_place_of_the_lifespan() -> None:
    @contextmanager
    def lifespan(app: App) -> Iterator[str]:
        raise AssertionError("it is not entered")
        yield

    app = App("shop", lifespan=lifespan)

    @app.consumer("shop.order.v1")
    def charge(value: bytes, pool: str, ctx: Context) -> None:
        assert pool == ctx.resources == app.resources == "fake"

    async def story() -> None:
        async with harness(app, resources="fake") as h:
            await h.send("shop.order.v1", b"1")
            assert len(h.processed) == 1

    played(story())


def test_outputs_of_exactly_once_are_there_once_and_none_of_a_failed_attempt(address: str | None) -> None:
    topic, out = f"shop.order-{uuid.uuid4().hex[:6]}.v1", f"out-{uuid.uuid4().hex[:6]}"
    app = App("shop")

    @app.consumer(topic, exactly_once=True, retry=RetryPolicy(max_retries=1, initial_delay_ms=1))
    async def charge(order: dict[str, str], ctx: Context) -> None:
        ctx.send(out, order["id"])
        if order["id"] == "bad" or (order["id"] == "flaky" and ctx.attempt == 1):
            raise OSError("no")

    async def story() -> None:
        async with harness(app, topics=[out], kafka=address) as h:
            for name in ("good", "flaky", "bad"):
                await h.send(topic, {"id": name}, key=name)
            assert sorted(record.value or b"" for record in await h.topic(out)) == [b"flaky", b"good"]
            [letter] = h.dead
            assert letter.value == b'{"id":"bad"}'

    played(story())

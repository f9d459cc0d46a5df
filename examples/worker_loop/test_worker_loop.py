"""The same outage for both loops: the naive one loses a message, the other one does not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import confluent_kafka
import pytest

from examples.worker_loop.articles import decode
from examples.worker_loop.naive import naive_worker
from examples.worker_loop.worker import with_worker
from keepfast import App
from keepfast.testing import EmbeddedBroker
from keepfast.testing.harness import Harness, harness

TOPIC = "catalogue.article.v1"
SENT = [f"a{number}" for number in range(10)]
Save = Callable[[bytes], None]


def article(key: str) -> bytes:
    return json.dumps({"id": key, "title": key, "version": 1}).encode()


class Downstream:
    """Fails for one article, twice, as a database does that is restarted; then it is well again."""

    def __init__(self) -> None:
        self.saved: list[str] = []
        self._failures = 2

    def save(self, value: bytes) -> None:
        found = decode(value)
        if found.id == "a4" and self._failures:
            self._failures -= 1
            raise ConnectionError("the database is down")
        self.saved.append(found.id)


def with_the_naive_loop(save: Save, done: Callable[[], bool]) -> None:
    """On a broker and with a client that are real enough for the bug: until everything is committed."""
    with EmbeddedBroker() as broker:
        broker.create_topic(TOPIC)
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        for key in SENT:
            producer.produce(TOPIC, article(key), partition=0)
        producer.flush(10)
        settings = {"enable.auto.commit": False, "auto.offset.reset": "earliest", "log_level": 0}
        consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "naive", **settings})
        consumer.subscribe([TOPIC])
        naive_worker(consumer, save, lambda: not done())
        [committed] = consumer.committed([confluent_kafka.TopicPartition(TOPIC, 0)], timeout=10)
        assert committed.offset == len(SENT), "it is past all of them: nothing will come again"
        consumer.close()


def with_keepfast(save: Save, done: Callable[[], bool]) -> None:
    app = App("articles")
    with_worker(app, TOPIC, name="cache", decode=lambda value: value, do=save)

    async def story() -> None:
        async with harness(app, partitions=1) as h:
            for key in SENT:
                await h.send(TOPIC, article(key), settle=False)
            await h.settle()

    asyncio.run(story())


def assert_that_nothing_is_lost(loop: Callable[[Save, Callable[[], bool]], None]) -> None:
    downstream = Downstream()
    loop(downstream.save, lambda: downstream.saved[-1:] == SENT[-1:])
    assert sorted(downstream.saved) == SENT, f"lost: {set(SENT) - set(downstream.saved)}"


def test_nothing_is_lost() -> None:
    assert_that_nothing_is_lost(with_keepfast)


def test_the_naive_loop_does_not_pass_that_test() -> None:
    with pytest.raises(AssertionError, match=r"lost: \{'a4'\}"):
        assert_that_nothing_is_lost(with_the_naive_loop)


def test_attempts_come_every_3_s_unless_the_environment_says_otherwise() -> None:
    app = App("articles")
    with_worker(app, TOPIC, name="cache", decode=decode, do=print)
    settings = {f"KEEPFAST_CONSUMERS_CACHE_RETRY_{which}_DELAY_MS": "500" for which in ("INITIAL", "MAX")}
    for environ, wait_ms in ({}, 3000), (settings, 500):
        retry = app.settings(environ=environ).consumers["cache"].retry
        assert [retry.delay_ms(count, 0.0) for count in (0, 1, 9)] == [wait_ms] * 3
        assert retry.max_retries is None


def played(value: bytes | None, do: Save) -> tuple[Harness, int]:
    """The outcome of one record, and how often it was tried again."""
    app = App("articles")
    with_worker(app, TOPIC, name="cache", decode=lambda value: str(decode(value).id).encode(), do=do)

    async def story() -> tuple[Harness, int]:
        async with harness(app) as h:
            record = await h.send(TOPIC, value)
            return h, h.retries(record)

    return asyncio.run(story())


@pytest.mark.parametrize("value", [b"{", b"[]", b'{"id": "a1"}', b"\xff", None])
def test_what_cannot_be_decoded_is_skipped_and_not_tried_again(value: bytes | None) -> None:
    done: list[bytes] = []
    h, retries = played(value, done.append)
    assert (len(h.discarded), h.dead, retries, done) == (1, [], 0, [])


@pytest.mark.parametrize("error", [ConnectionError("away"), ValueError("a bug"), PermissionError("a right is missing")])
def test_whatever_the_work_raises_is_tried_again_until_it_is_mended(error: Exception) -> None:
    left = [error] * 50

    def do(value: bytes) -> None:
        if left:
            raise left.pop()

    h, retries = played(article("a1"), do)
    assert (len(h.processed), h.dead, retries) == (1, [], 50)

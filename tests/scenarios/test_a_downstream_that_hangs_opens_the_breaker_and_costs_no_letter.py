"""P8: a downstream that accepts connections and never answers is an outage. With a breaker, timeouts open it, whether
the client of the handler raises them or `timeout_s` ends the handler. Nothing is dead-lettered, and when the downstream
answers again everything is processed.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator

import pytest

from keepfast import BreakerPolicy, Context, RetryPolicy
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import Client, NewRecord
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import wait_until

GROUP = "scenario.work"
PARTITIONS, RECORDS = 2, 40
BREAKER = BreakerPolicy(failures=3, window_s=60, open_s=0.3, max_open_s=0.5)
RETRY = RetryPolicy(max_retries=1, initial_delay_ms=10, max_delay_ms=10)


class Downstream:
    """Answers each request with one byte, or accepts the connection and says nothing."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.answers = threading.Event()
        self._silent: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            if self.answers.is_set():
                connection.sendall(b"1")
                connection.close()
            else:
                self._silent.append(connection)

    def close(self) -> None:
        self._listener.close()
        for connection in self._silent:
            connection.close()


@pytest.fixture
def downstream() -> Iterator[Downstream]:
    downstream = Downstream()
    yield downstream
    downstream.close()


def flood(client: Client, topic: str) -> None:
    client.produce(topic, [NewRecord(b"%d" % number, partition=number % PARTITIONS) for number in range(RECORDS)])


def check(running: RunningApp, client: Client, name: str, downstream: Downstream, done: set[tuple[int, int]]) -> None:
    """Hangs until the breaker has opened and a probe has failed; then the downstream answers."""
    wait_until(lambda: running.log.of("breaker_opened"), "the breaker opens")
    wait_until(lambda: running.log.of("breaker_probe_failed"), "a probe meets the outage")
    downstream.answers.set()
    wait_until(lambda: len(done) == RECORDS, "everything is processed")
    wait_until(
        lambda: sum(client.committed(GROUP, name, number)[0] or 0 for number in range(PARTITIONS)) == RECORDS,
        "everything is committed",
    )
    assert [client.edges(f"{name}.dlq", number)[1] for number in range(PARTITIONS)] == [0] * PARTITIONS


def test_a_client_that_raises_timeout_error(kafka: TopicAdmin, topic: TopicFactory, downstream: Downstream) -> None:
    name, client, done = topic(partitions=PARTITIONS), Client(kafka), set[tuple[int, int]]()
    app = app_for(kafka)

    @app.consumer(name, name="work", dead_letter="{topic}.dlq", breaker=BREAKER, retry=RETRY)
    def work(value: bytes, ctx: Context) -> None:
        with socket.create_connection(("127.0.0.1", downstream.port), timeout=60) as connection:
            connection.settimeout(60 if downstream.answers.is_set() else 0.05)
            assert connection.recv(1) == b"1"
        done.add((ctx.partition, ctx.offset))

    flood(client, name)
    with RunningApp(app) as running:
        check(running, client, name, downstream, done)


def test_a_coroutine_without_a_timeout_of_its_own(
    kafka: TopicAdmin, topic: TopicFactory, downstream: Downstream
) -> None:
    name, client, done = topic(partitions=PARTITIONS), Client(kafka), set[tuple[int, int]]()
    app = app_for(kafka)

    @app.consumer(name, name="work", dead_letter="{topic}.dlq", breaker=BREAKER, retry=RETRY, timeout_s=2)
    async def work(value: bytes, ctx: Context) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", downstream.port)
        try:
            assert await reader.read(1) == b"1"
        finally:
            writer.close()
        done.add((ctx.partition, ctx.offset))

    flood(client, name)
    with RunningApp(app) as running:
        check(running, client, name, downstream, done)
        assert running.log.of("handler_timed_out")


def test_a_function_without_a_timeout_of_its_own(
    kafka: TopicAdmin, topic: TopicFactory, downstream: Downstream
) -> None:
    name, client, done = topic(partitions=PARTITIONS), Client(kafka), set[tuple[int, int]]()
    app = app_for(kafka)

    @app.consumer(name, name="work", dead_letter="{topic}.dlq", breaker=BREAKER, retry=RETRY, timeout_s=2)
    def work(value: bytes, ctx: Context) -> None:
        if not downstream.answers.wait(60):
            raise AssertionError("the test is over")
        if not ctx.abandoned:
            done.add((ctx.partition, ctx.offset))

    flood(client, name)
    with RunningApp(app) as running:
        check(running, client, name, downstream, done)

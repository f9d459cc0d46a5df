"""Row 2 of the fraud service's error table, with a breaker: while the database is unavailable records wait, however it
is unavailable. None is dead-lettered, and all are stored when it is back.

Two drivers with the pools that services use: asyncpg under `async def`, psycopg2 under `def`. The database is a real
one behind a proxy that can refuse and hang.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncpg
import psycopg
import psycopg2.pool
import pytest

from examples.stage.proxy import TcpProxy
from keepfast import App, BreakerPolicy, RetryPolicy
from keepfast.testing.topics import TopicAdmin
from tests.support import postgres
from tests.support.broker_client import Client, NewRecord
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import wait_until

GROUP = "scenario.store"
PARTITIONS, RECORDS, CONNECTIONS = 2, 20, 3
ANSWER_S, RECORD_S = 0.5, 1.5
BREAKER = BreakerPolicy(failures=3, window_s=60, open_s=0.2, max_open_s=0.4)
RETRY = RetryPolicy(max_retries=1, initial_delay_ms=10, max_delay_ms=10)
UPSERT = "INSERT INTO stored (id) VALUES ({}) ON CONFLICT (id) DO UPDATE SET id = EXCLUDED.id"

Give = Callable[[], object]


@dataclass(slots=True)
class Pool:
    """Of a service. `take` takes all of its connections, and returns what gives them back."""

    take: Callable[[RunningApp], Give]
    close: Callable[[RunningApp], object]


class Database:
    """A server, its administrator, and the proxy that services connect to."""

    def __init__(self, uri: str, proxy: TcpProxy) -> None:
        self.uri = uri
        self._admin = psycopg.connect(uri, autocommit=True)
        self._folder = Path(parse_qs(urlsplit(uri).query)["host"][0])
        self.proxy = proxy
        self.execute("CREATE TABLE stored (id int PRIMARY KEY)")
        self.execute("CREATE ROLE service LOGIN PASSWORD 'first'")
        self.execute("GRANT ALL ON stored TO service")
        rules = self._folder / "pg_hba.conf"
        rules.write_text("local all service scram-sha-256\n" + rules.read_text())
        self.execute("SELECT pg_reload_conf()")

    @property
    def service(self) -> str:
        return f"postgresql://service:first@127.0.0.1:{self.proxy.port}/postgres"

    def execute(self, statement: str) -> None:
        self._admin.execute(statement.encode())

    def disconnect(self) -> None:
        self.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'service'")

    def stored(self) -> set[int]:
        return {number for (number,) in self._admin.execute("SELECT id FROM stored").fetchall()}

    def close(self) -> None:
        self._admin.close()


@dataclass(slots=True)
class Service:
    """A consumer that stores the records of a topic, running."""

    topic: str
    running: RunningApp
    client: Client
    database: Database
    pool: Pool
    sent: int = 0

    def send(self) -> None:
        values = range(self.sent, self.sent + RECORDS)
        self.sent += RECORDS
        self.client.produce(self.topic, [NewRecord(b"%d" % each, partition=each % PARTITIONS) for each in values])

    def opened(self) -> int:
        return len(self.running.log.of("breaker_opened"))

    def failed_probes(self) -> int:
        return len(self.running.log.of("breaker_probe_failed"))

    def committed(self) -> int:
        return sum(self.client.committed(GROUP, self.topic, number)[0] or 0 for number in range(PARTITIONS))

    def letters(self) -> list[int]:
        return [self.client.edges(f"{self.topic}.dlq", number)[1] for number in range(PARTITIONS)]


OPTIONS: Any = {"dead_letter": "{topic}.dlq", "breaker": BREAKER, "retry": RETRY, "timeout_s": RECORD_S}


def with_asyncpg(app: App, topic: str, database: Database) -> Pool:
    pool: Any = None

    @app.consumer(topic, name="store", **OPTIONS)
    async def store(value: bytes) -> None:
        nonlocal pool
        if pool is None:
            pool = asyncpg.create_pool(
                database.service, min_size=0, max_size=CONNECTIONS, timeout=ANSWER_S, command_timeout=ANSWER_S
            )
            await pool
        async with pool.acquire(timeout=ANSWER_S) as connection:
            await connection.execute(UPSERT.format("$1"), int(value))

    def take(running: RunningApp) -> Give:
        taken, over = threading.Event(), asyncio.Event()

        async def hold() -> None:
            async with AsyncExitStack() as held:
                for _ in range(CONNECTIONS):
                    await held.enter_async_context(pool.acquire())
                taken.set()
                await over.wait()

        running.in_event_loop(lambda: tasks.append(asyncio.ensure_future(hold())))
        wait_until(taken.is_set, "the pool is used up")
        return lambda: running.in_event_loop(over.set)

    tasks: list[asyncio.Future[None]] = []
    return Pool(take, lambda running: running.in_event_loop(pool.terminate))


def with_psycopg2(app: App, topic: str, database: Database) -> Pool:
    pool = psycopg2.pool.ThreadedConnectionPool(0, CONNECTIONS, database.service, connect_timeout=2)

    @app.consumer(topic, name="store", **OPTIONS)
    def store(value: bytes) -> None:
        connection = pool.getconn()
        try:
            with connection, connection.cursor() as cursor:
                cursor.execute(UPSERT.format("%s"), (int(value),))
        finally:
            pool.putconn(connection, close=bool(connection.closed))

    def take(_: RunningApp) -> Give:
        held = [pool.getconn() for _ in range(CONNECTIONS)]
        return lambda: [pool.putconn(each) for each in held]

    return Pool(take, lambda _: pool.closeall())


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    with postgres.running() as uri:
        socket = f"{parse_qs(urlsplit(uri).query)['host'][0]}/.s.PGSQL.5432"
        with TcpProxy(socket) as proxy:
            database = Database(uri, proxy)
            yield database
            database.close()


@pytest.fixture(scope="module")
def service(request: pytest.FixtureRequest, kafka: TopicAdmin, database: Database) -> Iterator[Service]:
    topic = kafka.create_topic(f"unavailable-{uuid.uuid4().hex[:6]}", partitions=PARTITIONS)
    database.execute("TRUNCATE stored")
    app = app_for(kafka)
    pool = request.param(app, topic, database)
    with RunningApp(app) as running:
        service = Service(topic, running, Client(kafka), database, pool)
        service.send()  # so that the pool is in use before anything happens
        wait_until(lambda: len(database.stored()) == service.sent, "the first records are stored")
        yield service
        pool.close(running)


@contextmanager
def refused(service: Service) -> Iterator[None]:
    service.database.proxy.refuse()
    yield
    service.database.proxy.restore()


@contextmanager
def hanging(service: Service) -> Iterator[None]:
    service.database.proxy.hang()
    yield
    service.database.proxy.restore()


@contextmanager
def pool_exhausted(service: Service) -> Iterator[None]:
    give_back = service.pool.take(service.running)
    yield
    give_back()


@contextmanager
def connections_exhausted(service: Service) -> Iterator[None]:
    service.database.execute("ALTER ROLE service CONNECTION LIMIT 0")
    service.database.disconnect()
    yield
    service.database.execute("ALTER ROLE service CONNECTION LIMIT -1")


@contextmanager
def password_rotated(service: Service) -> Iterator[None]:
    service.database.execute("ALTER ROLE service PASSWORD 'second'")
    service.database.disconnect()
    yield
    service.database.execute("ALTER ROLE service PASSWORD 'first'")


@contextmanager
def failed_over(service: Service) -> Iterator[None]:
    """The primary goes, and what answers at its address is a standby until it is promoted."""
    with refused(service):
        service.database.execute("ALTER ROLE service SET default_transaction_read_only = on")
        service.database.disconnect()
    yield
    service.database.execute("ALTER ROLE service RESET default_transaction_read_only")
    service.database.disconnect()


@contextmanager
def locked(service: Service) -> Iterator[None]:
    """Every statement is cancelled by its time limit."""
    service.database.execute("ALTER ROLE service SET statement_timeout = 100")
    service.database.disconnect()
    with psycopg.connect(service.database.uri) as migration:
        migration.execute("LOCK TABLE stored")
        yield
    service.database.execute("ALTER ROLE service RESET statement_timeout")


FAULTS = [refused, hanging, pool_exhausted, connections_exhausted, password_rotated, failed_over, locked]
OF_PSYCOPG2 = (hanging, pool_exhausted)
"""Where it is told apart from asyncpg by what it raises; the others are in `make test-full`."""


CASES = [
    *(pytest.param(with_asyncpg, fault, id=f"asyncpg-{fault.__name__}") for fault in FAULTS),
    *(pytest.param(with_psycopg2, fault, id=f"psycopg2-{fault.__name__}") for fault in OF_PSYCOPG2),
    *(
        pytest.param(with_psycopg2, fault, id=f"psycopg2-{fault.__name__}", marks=pytest.mark.long)
        for fault in FAULTS
        if fault not in OF_PSYCOPG2
    ),
]


@pytest.mark.parametrize(("service", "fault"), CASES, indirect=["service"])
def test_records_wait_and_are_stored_when_it_is_back(
    service: Service, fault: Callable[[Service], AbstractContextManager[None]]
) -> None:
    opened, failed_probes = service.opened(), service.failed_probes()
    with fault(service):
        service.send()
        wait_until(lambda: service.opened() > opened, "the breaker opens")
        wait_until(lambda: service.failed_probes() > failed_probes + 1, "probes meet the outage")
    expected = set(range(service.sent))
    wait_until(lambda: service.database.stored() == expected, "everything is stored")
    wait_until(lambda: service.committed() == service.sent, "everything is committed")
    assert service.letters() == [0] * PARTITIONS

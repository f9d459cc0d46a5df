"""Inboxes in PostgreSQL, with psycopg 3 and its pools. Needs the extra `postgres`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from keepfast.core.errors import ConfigError, StartError
from keepfast.core.inbox import RETENTION_DAYS, RecordIdentity
from keepfast.core.records import Outgoing
from keepfast.inbox import tables
from keepfast.inbox.outbox import INSERT as INSERT_EVENTS
from keepfast.inbox.outbox import rows_of

if TYPE_CHECKING:
    from keepfast.engine.context import RawRecord
    from keepfast.settings.model import PostgresSettings

CONNECT_S: Final = 10
START_S: Final = 30.0
"""How long the database is waited for at the start."""

# A commit must be on the server's disk when it is answered, whatever the database is set to.
OPTIONS: Final = "-c synchronous_commit=on"

INSERT_ONE: Final = (
    "INSERT INTO keepfast_inbox (consumer_group, source, partition, record_offset) VALUES (%s, %s, %s, %s)"
    " ON CONFLICT DO NOTHING"
)
INSERT_MANY: Final = (
    "INSERT INTO keepfast_inbox (consumer_group, source, partition, record_offset)"
    " SELECT * FROM unnest(%s::text[], %s::text[], %s::int[], %s::bigint[])"
    " ON CONFLICT DO NOTHING RETURNING consumer_group, source, partition, record_offset"
)


class PostgresInbox:
    """Processed records are noted in PostgreSQL, in the transaction of the handler's own writes: the parameter
    `tx: psycopg.Connection` of a `def` handler, `tx: psycopg.AsyncConnection` of an `async def` one.

    It takes connections from the pool of psycopg_pool among the app's resources, which `pool` may name
    (`lambda resources: resources.pool`); without one it opens its own, from the settings `[postgres]`. `key` is a
    function from a `RawRecord` to the business key of the *event*, for topics where one event may come twice, such as
    mirrored ones. With `outbox`, what the handler sends with `ctx.send` is written in the same transaction, too, and
    sent by a relay in the background. Identities are kept for `retention_days`.

    Nothing is connected before the app starts. Raises ConfigError without psycopg and psycopg_pool.
    """

    def __init__(
        self,
        *,
        pool: Callable[[Any], Any] | None = None,
        key: Callable[[RawRecord], str | bytes] | None = None,
        outbox: bool = False,
        retention_days: float = RETENTION_DAYS,
    ) -> None:
        drivers()
        if not retention_days > 0:
            raise ConfigError(f"retention_days of PostgresInbox must be more than 0; got {retention_days!r}.")
        self.pool = pool
        self.key = key
        self.outbox = outbox
        self.retention_days = retention_days

    def bind(self, *, resources: Any, candidates: Sequence[Any], pools: PostgresPools, is_async: bool) -> BoundInbox:
        """For one kind of handlers of a starting app. `candidates` are its resources, one by one."""
        _, pooling = drivers()
        kind = pooling.AsyncConnectionPool if is_async else pooling.ConnectionPool
        pool = self._pool_of(resources, candidates, kind) or pools.of(is_async=is_async)
        return self._bound(pool, pools.app, pools.wake, is_async=is_async)

    def unbound(self, *, is_async: bool) -> BoundInbox:
        """Of the same shape, for checks before there are resources."""
        return self._bound(None, "", lambda: None, is_async=is_async)

    def _bound(self, pool: Any, app: str, wake: Callable[[], None], *, is_async: bool) -> BoundInbox:
        make = AsyncPostgresInbox if is_async else PlainPostgresInbox
        return make(pool, app=app, key=self.key, outbox=self.outbox, retention_days=self.retention_days, wake=wake)

    def _pool_of(self, resources: Any, candidates: Sequence[Any], kind: type[Any]) -> Any:
        if self.pool is not None:
            pool = self.pool(resources)
            if not isinstance(pool, kind):
                raise ConfigError(
                    f"pool=… of PostgresInbox returned {type(pool).__name__}; this handler needs {kind.__name__}"
                )
            return pool
        found = {id(one): one for one in candidates if isinstance(one, kind)}
        if len(found) > 1:
            raise ConfigError(
                f"the app's resources have {len(found)} pools of type {kind.__name__}; name one of them, as in"
                " PostgresInbox(pool=lambda resources: resources.pool)"
            )
        return next(iter(found.values()), None)


class BoundInbox:
    """A `PostgresInbox` with its pool: what both kinds have in common. Any thread, or any task of the event loop.

    `wake` is called after each commit with an outbox.
    """

    transaction: type[Any]

    def __init__(
        self,
        pool: Any,
        *,
        app: str,
        key: Callable[[RawRecord], str | bytes] | None,
        outbox: bool,
        retention_days: float,
        wake: Callable[[], None],
    ) -> None:
        self.pool = pool
        self.app = app
        self.key = key
        self.outbox = outbox
        self.retention_days = retention_days
        self._wake = wake
        self._open: dict[Any, Any] = {}  # connection → its transaction, which refuses commits by the handler
        self._cursors: dict[Any, Any] = {}  # connection → a cursor for INSERT_ONE, which costs 20 µs to make
        self._psycopg, _ = drivers()
        status = self._psycopg.pq.TransactionStatus
        self._sound, self._failed = status.INTRANS, status.INERROR

    def connect(self) -> Any:
        """A connection of its own to the same database, in autocommit, not of the pool. Blocks."""
        return connection_like(self.pool)

    def _tries(self) -> int:
        """After a restart of the server every connection of the pool may be dead."""
        return int(self.pool.max_size) + 1

    def _cursor(self, connection: Any) -> Any:
        """For INSERT_ONE alone, with which it is ready after the first time."""
        cursor = self._cursors.get(connection)
        if cursor is None:
            for other in [one for one in list(self._cursors) if one.closed]:
                self._cursors.pop(other, None)
            cursor = self._cursors[connection] = connection.cursor()
        return cursor

    def _refuse_lost(self, connection: Any) -> None:
        """COMMIT of a transaction in which a statement failed is a rollback, without an error; and psycopg does not
        even send it on a connection that is lost.
        """
        status = connection.info.transaction_status
        if status is self._sound:
            return
        if status is self._failed:
            raise self._psycopg.errors.InFailedSqlTransaction(
                "a statement failed in the inbox's transaction, and the handler went on: nothing of it can be"
                " committed; let the error out, or run that statement within `with tx.transaction():`"
            )
        raise self._psycopg.OperationalError("the connection of the inbox's transaction was lost before its COMMIT")


class PlainPostgresInbox(BoundInbox):
    """Implements `core.inbox.OutboxInbox` for threads."""

    def __init__(self, pool: Any, **options: Any) -> None:
        super().__init__(pool, **options)
        self.transaction = self._psycopg.Connection

    def begin(self, identities: Sequence[RecordIdentity]) -> tuple[Any, Collection[RecordIdentity]]:
        left = self._tries()
        while True:
            connection = self.pool.getconn()
            self._open[connection] = transaction = self._psycopg.Transaction(connection)
            try:
                transaction.__enter__()
                return connection, self._insert(connection, identities)
            except BaseException:
                left, broken = left - 1, connection.broken
                self.rollback(connection)
                if not broken or not left:
                    raise

    def _insert(self, connection: Any, identities: Sequence[RecordIdentity]) -> Collection[RecordIdentity]:
        if len(identities) == 1:
            return identities if self._cursor(connection).execute(INSERT_ONE, identities[0]).rowcount else ()
        with connection.cursor(row_factory=self._psycopg.rows.tuple_row) as cursor:
            cursor.execute(INSERT_MANY, _columns(identities))
            if cursor.rowcount == len(identities):  # the rule: nothing has to be read
                return identities
            return {RecordIdentity(*row) for row in cursor.fetchall()}

    def publish(self, tx: Any, outgoing: Sequence[Outgoing]) -> None:
        tx.execute(INSERT_EVENTS, rows_of(self.app, outgoing))

    def commit(self, tx: Any) -> None:
        try:
            self._refuse_lost(tx)
        except BaseException:
            self.rollback(tx)
            raise
        try:
            self._open.pop(tx).__exit__(None, None, None)
        finally:
            self.pool.putconn(tx)
        if self.outbox:
            self._wake()

    def rollback(self, tx: Any) -> None:
        transaction, undo = self._open.pop(tx), self._psycopg.Rollback()
        try:
            transaction.__exit__(type(undo), undo, None)
        except Exception:  # noqa: BLE001 - what cannot be rolled back ends with its connection
            tx.close()
        finally:
            self.pool.putconn(tx)

    def prune(self, before: datetime) -> int:
        with self.connect() as connection:
            return tables.prune(connection, before)


class AsyncPostgresInbox(BoundInbox):
    """Implements `core.inbox.OutboxInbox` for coroutines."""

    def __init__(self, pool: Any, **options: Any) -> None:
        super().__init__(pool, **options)
        self.transaction = self._psycopg.AsyncConnection

    async def begin(self, identities: Sequence[RecordIdentity]) -> tuple[Any, Collection[RecordIdentity]]:
        left = self._tries()
        while True:
            connection = await self.pool.getconn()
            self._open[connection] = transaction = self._psycopg.AsyncTransaction(connection)
            try:
                await transaction.__aenter__()
                return connection, await self._insert(connection, identities)
            except BaseException:
                left, broken = left - 1, connection.broken
                await self.rollback(connection)
                if not broken or not left:
                    raise

    async def _insert(self, connection: Any, identities: Sequence[RecordIdentity]) -> Collection[RecordIdentity]:
        if len(identities) == 1:
            return identities if (await self._cursor(connection).execute(INSERT_ONE, identities[0])).rowcount else ()
        async with connection.cursor(row_factory=self._psycopg.rows.tuple_row) as cursor:
            await cursor.execute(INSERT_MANY, _columns(identities))
            if cursor.rowcount == len(identities):
                return identities
            return {RecordIdentity(*row) for row in await cursor.fetchall()}

    async def publish(self, tx: Any, outgoing: Sequence[Outgoing]) -> None:
        await tx.execute(INSERT_EVENTS, rows_of(self.app, outgoing))

    async def commit(self, tx: Any) -> None:
        try:
            self._refuse_lost(tx)
        except BaseException:
            await self.rollback(tx)
            raise
        try:
            await self._open.pop(tx).__aexit__(None, None, None)
        finally:
            await self.pool.putconn(tx)
        if self.outbox:
            self._wake()

    async def rollback(self, tx: Any) -> None:
        transaction, undo = self._open.pop(tx), self._psycopg.Rollback()
        try:
            await transaction.__aexit__(type(undo), undo, None)
        except Exception:  # noqa: BLE001 - what cannot be rolled back ends with its connection
            await tx.close()
        finally:
            await self.pool.putconn(tx)

    async def prune(self, before: datetime) -> int:
        def at_once() -> int:
            with self.connect() as connection:
                return tables.prune(connection, before)

        return await asyncio.to_thread(at_once)


class PostgresPools:
    """Pools of our own, from the settings: one for threads, one for coroutines, made when an inbox asks for it. Owner:
    one start of an app. `wake` is for inboxes with an outbox.
    """

    def __init__(self, settings: PostgresSettings, app: str, wake: Callable[[], None] = lambda: None) -> None:
        self._settings = settings
        self.app = app
        self.wake = wake
        self._pools: dict[bool, Any] = {}

    def of(self, *, is_async: bool) -> Any:
        """Not open yet. Raises ConfigError if the settings name no database."""
        if is_async not in self._pools:
            _, pooling = drivers()
            kind = pooling.AsyncConnectionPool if is_async else pooling.ConnectionPool
            try:
                conninfo = conninfo_of(self._settings)
            except ConfigError as error:
                raise ConfigError(
                    f"PostgresInbox finds no database: the app's resources have no pool of type {kind.__name__} (of"
                    f" psycopg_pool), which this handler needs. {error}"
                ) from error
            self._pools[is_async] = kind(
                conninfo,
                kwargs={"options": OPTIONS, "connect_timeout": CONNECT_S},
                min_size=min(self._settings.pool_min, self._settings.pool_max),
                max_size=self._settings.pool_max,
                name=f"{self.app}-inbox",
                open=False,
            )
        return self._pools[is_async]

    @property
    def needs_event_loop(self) -> bool:
        return True in self._pools

    def open(self) -> None:
        """That of threads. Raises StartError."""
        if False in self._pools:
            with _starting(self._settings):
                self._pools[False].open(wait=True, timeout=START_S)

    async def open_async(self) -> None:
        """That of coroutines, on the event loop that they run on. Raises StartError."""
        if True in self._pools:
            with _starting(self._settings):
                await self._pools[True].open(wait=True, timeout=START_S)

    def close(self) -> None:
        if False in self._pools:
            self._pools[False].close()

    async def close_async(self) -> None:
        if True in self._pools:
            await self._pools[True].close()


@contextmanager
def _starting(settings: PostgresSettings) -> Iterator[None]:
    psycopg, _ = drivers()
    try:
        yield
    except psycopg.Error as error:
        raise StartError(
            f"PostgreSQL at {settings.shown} did not accept a connection within {START_S:g} s: {first_line(error)}."
            " Check the settings [postgres] (POSTGRES_HOST, POSTGRES_USER, …) and the server."
        ) from error


def conninfo_of(settings: PostgresSettings) -> str:
    """Raises ConfigError if the settings name no database."""
    psycopg, _ = drivers()
    if settings.url is not None:
        return settings.url.reveal()
    if settings.host is None:
        raise ConfigError("No database in PostgreSQL is named: set POSTGRES_HOST or POSTGRES_URL.")
    password = None if settings.password is None else settings.password.reveal()
    parts = {"host": settings.host, "port": settings.port, "dbname": settings.db, "user": settings.user}
    return str(psycopg.conninfo.make_conninfo(**parts, password=password))


def connection_like(pool: Any) -> Any:
    """A plain connection to the database of a pool, in autocommit. Raises psycopg.Error."""
    conninfo, options = pool.conninfo, pool.kwargs or {}
    if callable(conninfo) or callable(options):
        raise ConfigError(
            "the pool computes its conninfo, which the relay and the cleaning of the inbox cannot do: give it a text"
        )
    return connection_to(conninfo, **options)


def connection_to(conninfo: str, **options: Any) -> Any:
    """A plain connection in autocommit. Raises psycopg.Error."""
    psycopg, _ = drivers()
    own = {"autocommit": True, "row_factory": psycopg.rows.tuple_row, "connect_timeout": CONNECT_S}
    return psycopg.connect(conninfo, **{**options, **own})


def first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]


def _columns(identities: Sequence[RecordIdentity]) -> tuple[list[Any], ...]:
    return tuple(map(list, zip(*identities, strict=True)))


def drivers() -> tuple[Any, Any]:
    """The modules psycopg and psycopg_pool. Raises ConfigError if they are not installed."""
    try:
        import psycopg
        import psycopg_pool
    except ImportError as error:
        raise ConfigError("PostgreSQL needs psycopg and psycopg_pool: pip install 'psycopg[binary,pool]'.") from error
    return psycopg, psycopg_pool

"""Rows of the outbox: events that are written in a transaction of the database, and sent by the relay."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, overload

import msgspec

from keepfast.core.inbox import RecordOrigin
from keepfast.core.records import Outgoing
from keepfast.engine.context import Encode, outgoing_of

if TYPE_CHECKING:
    import psycopg

OUTBOX_ID: Final = "keepfast-outbox-id"
"""Header with the id of the event: the same each time it is sent."""
INSERT: Final = (
    "INSERT INTO keepfast_outbox (app, event_id, topic, key, value, headers)"
    " SELECT * FROM unnest(%s::text[], %s::uuid[], %s::text[], %s::bytea[], %s::bytea[], %s::bytea[])"
)

HeadersGiven = Mapping[str, bytes | str | None] | Sequence[tuple[str, bytes | None]]
_Headers = list[tuple[str, bytes | None]]
_decoder = msgspec.msgpack.Decoder(_Headers)


def rows_of(app: str, outgoing: Sequence[Outgoing]) -> tuple[list[Any], ...]:
    """The arguments of INSERT."""
    return (
        [app] * len(outgoing),
        [uuid.uuid4() for _ in outgoing],
        [one.topic for one in outgoing],
        [one.key for one in outgoing],
        [one.value for one in outgoing],
        [msgspec.msgpack.encode([(name, value) for name, value in one.headers]) for one in outgoing],
    )


def event_of(event_id: uuid.UUID, topic: str, key: bytes | None, value: bytes | None, headers: bytes) -> Outgoing:
    """The record of a row. One that is sent again is recognised by its id, and by consumers with an inbox."""
    own = _decoder.decode(headers)
    origin = RecordOrigin(f"outbox:{event_id}", 0, 0)
    return Outgoing(topic, value, key, (*own, (OUTBOX_ID, str(event_id).encode()), origin.header(topic, value)))


class Outbox:
    """`app.outbox`: events that are one fact with what else a transaction of PostgreSQL writes."""

    def __init__(self, app: str, encode: Encode | None = None) -> None:
        self._app = app
        self._encode = encode

    @overload
    def send(
        self,
        connection: psycopg.Connection[Any],
        topic: str,
        value: Any,
        key: Any = None,
        headers: HeadersGiven = (),
    ) -> None: ...
    @overload
    def send(
        self,
        connection: psycopg.AsyncConnection[Any],
        topic: str,
        value: Any,
        key: Any = None,
        headers: HeadersGiven = (),
    ) -> Awaitable[None]: ...
    def send(
        self, connection: Any, topic: str, value: Any, key: Any = None, headers: HeadersGiven = ()
    ) -> Awaitable[None] | None:
        """Write an event into the outbox, in the open transaction of this connection: it is sent if that commits, by
        the relay of whichever process of the app, at least once, in the order of the rows of its key. Await it on an
        AsyncConnection.

        `value` may be bytes, str, None, or anything that can be JSON; a topic with a schema (`app.schema`) gets it in
        that, of an app that is started. Raises ValueError for a connection in autocommit without a transaction, for
        headers that begin with `keepfast-` and for a value that does not fit its schema.
        """
        import psycopg

        outgoing = outgoing_of(self._encode, topic, value, key, headers)
        status = psycopg.pq.TransactionStatus
        if connection.autocommit and connection.info.transaction_status is status.IDLE:
            raise ValueError(
                "app.outbox.send: the connection is in autocommit, so that the event would be sent whatever becomes of"
                " the rest; call it within `with connection.transaction():`."
            )
        done = connection.execute(INSERT, rows_of(self._app, [outgoing]))
        return _nothing(done) if isinstance(connection, psycopg.AsyncConnection) else None


async def _nothing(done: Awaitable[object]) -> None:
    await done

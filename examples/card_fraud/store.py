"""Decisions in PostgreSQL. Writing one twice is as good as once."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any, Protocol, Self

import asyncpg

from examples.card_fraud.events import DecisionEvent
from keepfast import upsert

CLOSE_S = 2.0
KEY = ("transaction_id", "evaluation_type", "transaction_timestamp")


class Store(Protocol):
    async def keep(self, event: DecisionEvent, raw: bytes) -> None: ...


class PostgresStore:
    """A pool of connections while it is entered. None is opened before the first event needs one: where there is no
    database, records wait instead of the start failing. Owner: the event loop of the handlers.

    The server cancels a statement after `timeout_s`. A server that does not answer at all is given up a second later,
    by the client.
    """

    def __init__(self, url: str, *, connections: int = 10, timeout_s: float = 4.0) -> None:
        self._timeout_s = timeout_s + 1
        limit = f"{timeout_s * 1000:.0f}"
        self._pool: Any = asyncpg.create_pool(
            url,
            min_size=0,
            max_size=connections,
            timeout=self._timeout_s,
            command_timeout=self._timeout_s,
            server_settings={"statement_timeout": limit, "idle_in_transaction_session_timeout": limit},
        )

    async def __aenter__(self) -> Self:
        await self._pool
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await asyncio.wait_for(self._pool.close(), CLOSE_S)
        except TimeoutError:  # connections to a server that hangs
            self._pool.terminate()

    async def keep(self, event: DecisionEvent, raw: bytes) -> None:
        row = {
            "transaction_id": event.transaction_id,
            "evaluation_type": event.evaluation_type,
            "transaction_timestamp": event.transaction_timestamp,
            "card_token": event.card_token,
            "amount": event.amount,
            "currency": event.currency,
            "decision": event.decision,
            "decision_reason": event.decision_reason,
            "raw_payload": raw.decode(),
            "updated_at": datetime.now(UTC),
        }
        # Metadata alone is updated: what was decided stays decided.
        statement, values = upsert(
            "fraud_gov.transactions", row, key=KEY, update=("raw_payload", "updated_at"), numbered=True
        )
        async with self._pool.acquire(timeout=self._timeout_s) as connection:
            await connection.execute(statement, *values)

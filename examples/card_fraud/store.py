"""Decisions in PostgreSQL. Writing one twice is as good as once."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

import asyncpg

from examples.card_fraud.events import DecisionEvent

_UPSERT = """
    INSERT INTO fraud_gov.transactions (
        transaction_id, evaluation_type, transaction_timestamp,
        card_token, amount, currency, decision, decision_reason, raw_payload
    ) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
    ON CONFLICT (transaction_id, evaluation_type, transaction_timestamp) DO UPDATE SET
        raw_payload = EXCLUDED.raw_payload, -- metadata alone: what was decided stays decided
        updated_at = now()
"""


class Store(Protocol):
    async def keep(self, event: DecisionEvent, raw: bytes) -> None: ...


class PostgresStore:
    """A pool of connections, opened by the first event: where there is no database, records wait instead of the start
    failing. Owner: the event loop of the handlers.
    """

    def __init__(self, url: str, *, connections: int = 10, timeout_s: float = 5.0) -> None:
        self._url = url
        self._connections = connections
        self._timeout_s = timeout_s
        self._opening = asyncio.Lock()
        self._pool: Any = None

    async def keep(self, event: DecisionEvent, raw: bytes) -> None:
        async with asyncio.timeout(self._timeout_s):  # behind others that try to connect, too: they try one by one
            pool = await self._opened()
        async with pool.acquire(timeout=self._timeout_s) as connection:
            await connection.execute(
                _UPSERT,
                event.transaction_id,
                event.evaluation_type,
                event.transaction_timestamp,
                event.card_token,
                event.amount,
                event.currency,
                event.decision,
                event.decision_reason,
                raw.decode(),
            )

    async def _opened(self) -> Any:
        async with self._opening:
            if self._pool is None:
                self._pool = await asyncpg.create_pool(
                    self._url,
                    min_size=1,
                    max_size=self._connections,
                    timeout=self._timeout_s,
                    command_timeout=self._timeout_s,
                )
            return self._pool

"""Decisions of the fraud engine into the database. Run it with `keepfast run examples.card_fraud.service:app`."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from examples.card_fraud.events import DecisionEvent
from examples.card_fraud.store import PostgresStore, Store
from keepfast import App, CardNumbers, Context, DeadLetterPolicy

TOPIC = "fraud.card.decisions.v1"
GROUP = "card-fraud-transaction-management.{env}"
LETTERS = "{topic}.dlq.{env}"


@dataclass(frozen=True)
class Resources:
    """What lives as long as the app."""

    store: Store


@asynccontextmanager
async def lifespan(_: App) -> AsyncIterator[Resources]:
    url = os.environ.get("DATABASE_URL", "postgresql://localhost/card_fraud")
    timeout_s = float(os.environ.get("DATABASE_TIMEOUT_S", "4"))
    async with PostgresStore(url, timeout_s=timeout_s) as store:
        yield Resources(store)


app = App("card-fraud-transaction-management", lifespan=lifespan)


@app.consumer(
    TOPIC,
    group=GROUP,
    order="key",  # the key is the transaction: its PREAUTH before its POSTAUTH, others side by side
    dead_letter=DeadLetterPolicy(topic=LETTERS, format="nested"),
    unknown_errors="dead-letter",
    idempotent=True,  # the upsert takes an event as often as it comes
    breaker=True,  # while the database is down or hangs records wait, and none of them becomes a letter
    sensitive=CardNumbers(),
    timeout_s=20,
)
async def ingest(event: DecisionEvent, store: Store, ctx: Context) -> None:
    await store.keep(event, ctx.raw or b"")

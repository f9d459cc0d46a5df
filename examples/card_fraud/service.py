"""Decisions of the fraud engine into the database. Run it with `keepfast run examples.card_fraud.service:app`."""

from __future__ import annotations

import os

from examples.card_fraud.events import DecisionEvent
from examples.card_fraud.store import PostgresStore, Store
from keepfast import App, CardNumbers, Context, DeadLetterPolicy

TOPIC = "fraud.card.decisions.v1"
GROUP = "card-fraud-transaction-management.{env}"
LETTERS = "{topic}.dlq.{env}"


def make_app(store: Store) -> App:
    app = App("card-fraud-transaction-management")

    @app.consumer(
        TOPIC,
        group=GROUP,
        order="key",  # the key is the transaction: its PREAUTH before its POSTAUTH, others side by side
        dead_letter=DeadLetterPolicy(topic=LETTERS, format="nested"),
        unknown_errors="dead-letter",
        idempotent=True,  # the upsert takes an event as often as it comes
        breaker=True,  # while the database is down records wait, and none of them becomes a letter
        sensitive=CardNumbers(),
        timeout_s=20,
    )
    async def ingest(event: DecisionEvent, ctx: Context) -> None:
        await store.keep(event, ctx.raw or b"")

    return app


app = make_app(PostgresStore(os.environ.get("DATABASE_URL", "postgresql://localhost/card_fraud")))

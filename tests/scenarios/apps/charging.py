"""A consumer that writes a row for each record, and sends an event, in the transaction of its inbox; or without one.

Variables: SCENARIO_INBOX (yes or no), SCENARIO_OUTPUT (the topic of events), POSTGRES_URL.
"""

from __future__ import annotations

import os

import psycopg

from keepfast import App, Context, PostgresInbox

app = App("scenario")
INSERT = "INSERT INTO effects (source, place) VALUES (%s, %s)"

if os.environ["SCENARIO_INBOX"] == "yes":

    @app.consumer(name="handle", order="key", inbox=PostgresInbox(outbox=True))
    async def handle(value: bytes, tx: psycopg.AsyncConnection, ctx: Context) -> None:
        number = int(value)
        await tx.execute(INSERT, (number, f"{ctx.partition}/{ctx.offset}"))
        ctx.send(os.environ["SCENARIO_OUTPUT"], {"id": number}, key=ctx.key)

else:

    @app.consumer(name="handle", order="key", idempotent=True, commit="interval")
    async def without(value: bytes, ctx: Context) -> None:
        async with await psycopg.AsyncConnection.connect(os.environ["POSTGRES_URL"]) as connection:
            await connection.execute(INSERT, (int(value), f"{ctx.partition}/{ctx.offset}"))

"""An invoices service on FastAPI that also consumes: one process, one event loop, one pool.

    uvicorn examples.invoices.service:web

`keepfast run examples.invoices.service:app` runs the consumers alone, with the same lifespan.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx
import sentry_sdk
from fastapi import FastAPI
from prometheus_client import Counter
from psycopg_pool import AsyncConnectionPool
from pydantic import BaseModel, PositiveInt

from examples.invoices.sentry import init_sentry
from keepfast import App, BreakerPolicy, Context, DeadLettered, Halted, RetryLater

INVOICES, CHARGED, REPORT = "billing.invoice.v1", "billing.charged.v1", "billing.report.v1"
CENTS = Counter("invoices_charged_cents", "Cents that the gateway has charged.")

init_sentry(os.environ)


@dataclass
class Resources:
    """What lives as long as the app; handlers take each of it by its type."""

    pool: AsyncConnectionPool
    gateway: httpx.AsyncClient


@asynccontextmanager
async def lifespan(_: App) -> AsyncIterator[Resources]:
    """Entered once, on the event loop of the handlers, before the first record; left after the last."""
    database = os.environ.get("DATABASE_URL", "postgresql://localhost/invoices")
    gateway = os.environ.get("GATEWAY_URL", "http://localhost:9000")
    pool: AsyncConnectionPool = AsyncConnectionPool(database, min_size=1, max_size=8, timeout=5, open=False)
    async with pool, httpx.AsyncClient(base_url=gateway, timeout=5) as client:
        yield Resources(pool, client)
    tell("lifespan_left", pool_closed=pool.closed, gateway_closed=client.is_closed)


app = App("invoices", lifespan=lifespan)


class Invoice(BaseModel):
    id: str
    cents: PositiveInt


@app.on(DeadLettered, Halted)
def report(event: DeadLettered | Halted) -> None:
    with sentry_sdk.new_scope() as scope:
        scope.set_tags({"consumer": event.consumer, "record": f"{event.topic}[{event.partition}] {event.offset}"})
        scope.capture_exception(event.error)


@app.consumer(INVOICES, order="key", breaker=BreakerPolicy(open_s=1), idempotent=True)
async def charge(invoice: Invoice, pool: AsyncConnectionPool, gateway: httpx.AsyncClient, ctx: Context) -> None:
    """Charge it at the gateway, which knows an invoice by its id, and keep the receipt: both may happen again."""
    reply = await gateway.post("/charges", json={"id": invoice.id, "cents": invoice.cents})
    if reply.status_code == httpx.codes.TOO_EARLY:
        raise RetryLater(after_s=0.2)
    reply.raise_for_status()
    async with pool.connection() as connection:
        await connection.execute(
            "INSERT INTO charges VALUES (%s, %s, %s) ON CONFLICT (id) DO NOTHING",
            (invoice.id, invoice.cents, reply.json()["receipt"]),
        )
    CENTS.inc(invoice.cents)
    ctx.send(CHARGED, {"id": invoice.id, "cents": invoice.cents}, key=invoice.id)


@app.consumer(CHARGED, idempotent=True)
def total(charged: Invoice, ctx: Context) -> None:
    """A plain function runs on a thread beside the event loop. The report counts an id once."""
    ctx.send(REPORT, {"n": 1, "cents": charged.cents}, key=charged.id)


@asynccontextmanager
async def web_lifespan(_: FastAPI) -> AsyncIterator[None]:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    async with app:  # no signals, no port; async handlers on this event loop; drains at the end
        yield
    after = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    tell("service_left", signals_untouched=before == after)


web = FastAPI(lifespan=web_lifespan)
web.mount("/kafka", app.asgi)  # /kafka/health/ready, /kafka/metrics


@web.post("/invoices", status_code=202)
async def create(invoice: Invoice) -> None:
    """Accepted when it is in the database and in Kafka. A client that hears nothing sends it again, to no harm."""
    pool: AsyncConnectionPool = app.resources.pool
    async with pool.connection() as connection:
        await connection.execute(
            "INSERT INTO invoices VALUES (%s, %s) ON CONFLICT (id) DO NOTHING", (invoice.id, invoice.cents)
        )
    await app.send(INVOICES, invoice, key=invoice.id)


def tell(event: str, **fields: object) -> None:
    """A line of the log, for the story."""
    print(json.dumps({"event": event, **fields}), flush=True)  # noqa: T201

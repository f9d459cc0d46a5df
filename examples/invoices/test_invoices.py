"""The web page and the handlers together, in memory; the database's part is in the story."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from psycopg_pool import AsyncConnectionPool

from examples.invoices.sentry import TEST_DSN, FileTransport
from examples.invoices.service import CHARGED, INVOICES, REPORT, Resources, app, web
from keepfast.testing.harness import Harness, harness


class Rows:
    """In place of a pool: keeps what is written, by table and id."""

    def __init__(self) -> None:
        self.kept: dict[str, dict[str, tuple[Any, ...]]] = {"invoices": {}, "charges": {}}

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Rows]:
        yield self

    async def execute(self, statement: str, values: tuple[Any, ...]) -> None:
        self.kept[statement.split()[2]].setdefault(values[0], values)


class Gateway:
    """Answers with the given responses, then 200."""

    def __init__(self, *statuses: int) -> None:
        self._statuses = list(statuses)
        self.asked: list[dict[str, Any]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        self.asked.append(body)
        return httpx.Response(self._statuses.pop(0) if self._statuses else 200, json={"receipt": f"r-{body['id']}"})


@asynccontextmanager
async def on_stage(gateway: Gateway) -> AsyncIterator[tuple[Harness, httpx.AsyncClient, Rows]]:
    transport = httpx.MockTransport(gateway)
    rows = Rows()
    async with (
        httpx.AsyncClient(base_url="http://gateway", transport=transport) as client,
        harness(app, resources=Resources(cast(AsyncConnectionPool, rows), client)) as h,
        httpx.AsyncClient(base_url="http://web", transport=httpx.ASGITransport(web)) as browser,
    ):
        yield h, browser, rows


@pytest.mark.parametrize("statuses", [(), (425,), (503, 503)])
def test_an_invoice_that_is_posted_is_charged_once_and_reported(statuses: tuple[int, ...]) -> None:
    async def story() -> None:
        gateway = Gateway(*statuses)
        async with on_stage(gateway) as (h, browser, rows):
            for _ in range(2):  # a client that heard nothing sends it again
                answer = await browser.post("/invoices", json={"id": "a", "cents": 5})
                assert answer.status_code == 202
            await h.settle()
            assert rows.kept == {"invoices": {"a": ("a", 5)}, "charges": {"a": ("a", 5, "r-a")}}
            assert len(gateway.asked) == 2 + len(statuses)
            assert {record.key for record in await h.topic(CHARGED)} == {b"a"}
            assert {record.key for record in await h.topic(REPORT)} == {b"a"}
            assert h.dead == []

    asyncio.run(story())


def test_an_invoice_that_is_wrong_is_refused_at_the_door_and_dead_lettered_from_the_topic() -> None:
    async def story() -> None:
        gateway = Gateway()
        async with on_stage(gateway) as (h, browser, _):
            assert (await browser.post("/invoices", json={"id": "a", "cents": 0})).status_code == 422
            await h.send(INVOICES, {"id": "a", "cents": 0}, key="a")
            assert [letter.error_code for letter in h.dead] == ["SCHEMA_INVALID"]
            assert gateway.asked == []

    asyncio.run(story())


def test_sentry_gets_what_was_dead_lettered(tmp_path: Path) -> None:
    import sentry_sdk

    async def story() -> None:
        client = sentry_sdk.Client(
            dsn=TEST_DSN, transport=FileTransport(tmp_path / "sentry"), default_integrations=False
        )
        async with on_stage(Gateway()) as (h, _, _rows):
            with sentry_sdk.isolation_scope() as scope:
                scope.set_client(client)
                await h.send(INVOICES, {"id": "a", "cents": -1}, key="a")

    asyncio.run(story())
    [event] = [json.loads(line) for line in (tmp_path / "sentry").read_text().splitlines()]
    assert event["tags"]["consumer"] == "charge"
    assert event["tags"]["record"].startswith(f"{INVOICES}[")

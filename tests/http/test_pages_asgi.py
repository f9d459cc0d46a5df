"""The pages as an ASGI application: the same answers as on a port, wherever it is mounted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any

import pytest

from keepfast import App
from keepfast.http.local_app import LocalApp
from keepfast.http.pages import AsgiApp, Pages
from keepfast.http.server import MAX_BODY_BYTES

LOCAL = ("127.0.0.1", 50_000)


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


def ask(
    path: str,
    *,
    method: str = "GET",
    root: str = "",
    client: tuple[str, int] | None = LOCAL,
    headers: dict[str, str] | None = None,
    body: bytes = b"",
    app: AsgiApp | None = None,
) -> Answer:
    sent: list[MutableMapping[str, Any]] = []
    named = {"host": "localhost:8000", **(headers or {})}
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "root_path": root,
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in named.items()],
        "client": client,
    }

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    served = app or AsgiApp(lambda: Pages(LocalApp("shop"), token="secret"))
    asyncio.run(served(scope, receive, send))
    start, content = sent
    answered = {name.decode(): value.decode() for name, value in start["headers"]}
    return Answer(start["status"], answered, content["body"])


@pytest.mark.parametrize("root", ["", "/kafka", "/a/b"])
def test_it_answers_below_whatever_it_is_mounted_at(root: str) -> None:
    pages = ("/health/live", "/health/ready", "/health/startup", "/metrics", "/nowhere", "/")
    assert [ask(f"{root}{path}", root=root).status for path in pages] == [200, 503, 503, 200, 404, 200]
    assert [ask(path, root=root).status for path in pages] == [200, 503, 503, 200, 404, 200], "the mount cut it off"
    assert ask(root, root=root).status == 200 if root else True


def test_an_app_that_is_not_started_is_alive_and_not_ready() -> None:
    app = App("shop")
    assert ask("/health/live", app=app.asgi).status == 200
    ready = ask("/health/ready", app=app.asgi)
    assert ready.status == 503
    assert json.loads(ready.body)["reasons"][0]["text"] == "It is not started."
    assert ready.headers["content-type"].startswith("application/json")
    assert ready.headers["cache-control"] == "no-store"


def test_head_has_the_headers_and_no_body() -> None:
    got, head = ask("/health/live"), ask("/health/live", method="HEAD")
    assert head.body == b""
    assert head.status == got.status
    assert int(head.headers["content-length"]) > 0


@pytest.mark.parametrize("client", [None, ("", 0), ("10.0.0.7", 1), ("testclient", 1)])
def test_the_control_api_is_for_this_host_and_an_unknown_client_is_not_on_it(client: tuple[str, int] | None) -> None:
    assert ask("/api/state", client=client).status == 403
    assert ask("/families", client=client).status == 404
    assert ask("/api/state").status == 200
    assert ask("/api/state", headers={"x-forwarded-for": "10.0.0.7"}).status == 403


def test_changes_need_the_token() -> None:
    body = b'{"level": "verbose"}'
    assert ask("/api/log-level", method="POST", body=body).status == 401
    known = ask("/api/log-level", method="POST", body=body, headers={"authorization": "Bearer secret"})
    assert known.status == 400, "it is read, and there is no such level"
    assert ask("/api/log-level", method="POST", body=body, app=App("shop").asgi).status == 403


def test_a_body_that_is_too_large_is_refused() -> None:
    assert ask("/api/log-level", method="POST", body=bytes(MAX_BODY_BYTES + 1)).status == 413


def test_a_page_that_fails_is_a_500_and_not_an_error_of_the_service() -> None:
    def broken() -> Pages:
        raise ZeroDivisionError

    assert ask("/health", app=AsgiApp(broken)).status == 500


def test_served_alone_it_takes_part_in_the_lifespan_and_closes_websockets() -> None:
    sent: list[str] = []
    messages = iter(["lifespan.startup", "lifespan.shutdown"])

    async def receive() -> MutableMapping[str, Any]:
        return {"type": next(messages)}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message["type"])

    asgi = App("shop").asgi
    asyncio.run(asgi({"type": "lifespan"}, receive, send))
    asyncio.run(asgi({"type": "websocket"}, receive, send))
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete", "websocket.close"]

"""The HTTP server itself: who may ask for what, clients that misbehave, and ports that are taken."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from holdfast import App
from holdfast.core.errors import ConfigError
from holdfast.core.masking import mask
from holdfast.settings import Settings
from holdfast.web import http as web_http
from holdfast.web.asking import ask
from holdfast.web.http import Request, Server
from holdfast.web.one_app import OneApp, Serving
from holdfast.web.pages import Pages
from holdfast.web.running import Running
from tests.scenarios.served import Web

HERE = {"host": "localhost:8080"}


@pytest.fixture
def pages() -> Pages:
    return Pages(OneApp(Running(app="shop")), token="secret")


@pytest.fixture(autouse=True)
def level() -> Iterator[None]:
    before = logging.getLogger("holdfast").level
    yield
    logging.getLogger("holdfast").setLevel(before)


@pytest.fixture
def server(pages: Pages) -> Iterator[Server]:
    one = Server(pages)
    one.start("127.0.0.1", 0)
    yield one
    one.stop()


def test_an_app_that_waits_for_its_brokers_answers_already(server: Server) -> None:
    web = Web(server.url)
    assert [web.get(f"/health/{name}").status for name in ("live", "ready", "startup")] == [200, 503, 503]
    assert web.get("/health").codes() == {"starting"}
    assert web.get("/metrics").status == 200
    assert b"/health/live" in web.get("/").body
    assert web.get("/nowhere").status == 404
    assert web.post("/health").status == 405


@pytest.mark.parametrize(
    ("peer", "headers", "status"),
    [
        ("127.0.0.1", HERE, 200),
        ("::1", {"host": "[::1]:8080"}, 200),
        ("::ffff:127.0.0.1", HERE, 200),
        ("", {}, 200),
        ("10.0.0.7", HERE, 403),
        ("10.0.0.7", {}, 403),
        ("127.0.0.1", {"host": "evil.example"}, 403),
        ("127.0.0.1", {**HERE, "x-forwarded-for": "10.0.0.7"}, 403),
        ("nonsense", HERE, 403),
    ],
)
def test_the_control_api_answers_this_host_alone(pages: Pages, peer: str, headers: dict[str, str], status: int) -> None:
    assert pages(Request("GET", "/api/state", headers=headers, peer=peer)).status == status
    assert pages(Request("GET", "/health/live", headers=headers, peer=peer)).status == 200


@pytest.mark.parametrize(
    ("authorization", "status"), [("Bearer secret", 200), ("Bearer wrong", 401), ("", 401), ("Bearer sécret", 401)]
)
def test_a_change_needs_the_token(pages: Pages, authorization: str, status: int) -> None:
    headers = {**HERE, "authorization": authorization}
    body = b'{"level": "info"}'
    assert pages(Request("POST", "/api/log-level", headers=headers, body=body, peer="127.0.0.1")).status == status
    without = Pages(OneApp(Running(app="shop")))
    refused = without(Request("POST", "/api/log-level", headers=headers, body=body, peer="127.0.0.1"))
    assert refused.status == 403
    told = refused.body.decode()
    assert "HOLDFAST_CONTROL_TOKEN" in told
    assert mask(told) == told, "what to do is not taken for a secret"


@pytest.mark.parametrize(
    "body", [b"nonsense", b"[]", b'{"level": 5}', b'{"level": "info", "more": 1}', b'{"level": "loud"}']
)
def test_a_body_that_does_not_fit_is_refused_with_a_sentence(pages: Pages, body: bytes) -> None:
    headers = {**HERE, "authorization": "Bearer secret"}
    answer = pages(Request("POST", "/api/log-level", headers=headers, body=body, peer="127.0.0.1"))
    assert answer.status == 400
    assert b'"error"' in answer.body


def test_a_client_that_says_nothing_holds_up_nobody(monkeypatch: pytest.MonkeyPatch, server: Server) -> None:
    monkeypatch.setattr(web_http._Handler, "timeout", 0.2)
    place = urlsplit(server.url)
    silent = [socket.create_connection((place.hostname, place.port), timeout=5) for _ in range(web_http.AT_ONCE)]
    try:
        for one in silent:
            assert one.recv(1) == b"", "it is dropped"
    finally:
        for one in silent:
            one.close()
    assert Web(server.url).get("/health/live").status == 200


def test_a_socket_in_the_file_system_serves_too_and_gives_what_a_supervisor_wants(tmp_path: Path, pages: Pages) -> None:
    server = Server(pages)
    path = tmp_path / "0.sock"
    path.touch()  # of one that died
    server.start(f"unix:{path}", 0)
    try:
        assert ask(server.url, "/health/live").status == 200
        assert ask(server.url, "/families").content_type == "application/msgpack"
        assert path.stat().st_mode & 0o077 == 0
    finally:
        server.stop()
    assert not path.exists()


def test_families_are_not_for_the_network(server: Server) -> None:
    assert Web(server.url).get("/families").status == 404


def test_a_request_that_fails_is_a_500_and_the_server_goes_on() -> None:
    def broken(request: Request) -> web_http.Response:
        raise RuntimeError("a secret")

    server = Server(broken)
    server.start("127.0.0.1", 0)
    try:
        answers = [Web(server.url).get("/x") for _ in range(2)]
    finally:
        server.stop()
    assert [one.status for one in answers] == [500, 500]
    assert b"secret" not in answers[0].body


def settings_of(environ: dict[str, str]) -> Settings:
    app = App("shop")
    app.consumer("orders.v1", name="work")(lambda value: None)
    return app.settings(environ=environ, cwd=Path("/nonexistent"))


@pytest.mark.parametrize(
    ("told", "required", "starts"),
    [(True, None, False), (True, "false", True), (False, None, True), (False, "true", False)],
)
def test_a_taken_port_is_an_error_if_somebody_asked_for_it(told: bool, required: str | None, starts: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        environ = {"HOLDFAST_HEALTH_HOST": "127.0.0.1"}
        environ |= {"HEALTH_CHECK_PORT": str(port)} if told else {}
        environ |= {"HOLDFAST_HEALTH_REQUIRED": required} if required else {}
        settings = settings_of(environ)
        settings = replace(settings, health=replace(settings.health, port=port))  # as if it were the default
        if starts:
            with Serving(settings) as serving:
                assert serving.url == ""
        else:
            with pytest.raises(ConfigError, match=rf"cannot be served on 127.0.0.1:{port} .*HEALTH_CHECK_PORT"):
                Serving(settings).__enter__()


def test_switched_off_nothing_listens() -> None:
    before = threading.active_count()
    with Serving(settings_of({"HEALTH_CHECK_ENABLED": "false"})) as serving:
        assert serving.url == ""
        assert threading.active_count() == before

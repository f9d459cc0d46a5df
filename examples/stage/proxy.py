"""A TCP listener in front of a server that can refuse, hang, and work again."""

from __future__ import annotations

import select
import socket
import threading
from typing import Self

from keepfast.testing.loopback import free_ports

POLL_S = 0.05
CHUNK = 65_536

Address = tuple[str, int] | str
"""Host and port, or the path of a Unix socket."""


class TcpProxy:
    """Forwards connections to `target` while it is entered. Any thread may change what it does."""

    def __init__(self, target: Address) -> None:
        self._target = target
        (self.port,) = free_ports(1)
        self._forwards = threading.Event()
        self._forwards.set()
        self._closing = threading.Event()
        self._listener: socket.socket | None = None
        self._lock = threading.Lock()  # guards the list below
        self._connections: list[socket.socket] = []

    def __enter__(self) -> Self:
        self._listen()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._forwards.set()
        self._close_listener()
        self.reset()

    def hang(self) -> None:
        """Accept, and neither read nor write: on new connections and on those that are open."""
        self._forwards.clear()

    def refuse(self) -> None:
        """Close the port, and break the open connections."""
        self._close_listener()
        self.reset()

    def restore(self) -> None:
        """Forward again, also what was sent meanwhile."""
        if self._listener is None:
            self._listen()
        self._forwards.set()

    def reset(self) -> None:
        """Break the open connections."""
        with self._lock:
            connections, self._connections = self._connections, []
        for connection in connections:
            connection.close()

    def _listen(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port), backlog=128)
        threading.Thread(target=self._accept, args=(self._listener,), name="proxy", daemon=True).start()

    def _close_listener(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.shutdown(socket.SHUT_RDWR)  # wakes up `accept`
            listener.close()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with self._lock:
                self._connections.append(client)
            threading.Thread(target=self._serve, args=(client,), name="proxied", daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        self._forwards.wait()
        try:
            with client, _connected(self._target) as server:
                with self._lock:
                    self._connections.append(server)
                self._forward(client, server)
        except (OSError, ValueError):
            """One of them went away, or was broken by `reset`."""

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        while not self._closing.is_set():
            readable, _, _ = select.select([client, server], [], [], POLL_S)
            self._forwards.wait()
            for source in readable:
                data = source.recv(CHUNK)
                if not data:
                    return
                (server if source is client else client).sendall(data)


def _connected(target: Address) -> socket.socket:
    if isinstance(target, str):
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(target)
        return connection
    return socket.create_connection(target)

"""A proxy that knows Kafka's frames: it stands between clients and brokers, and can lose replies, fall silent and hold
what passes.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Final, Self

PRODUCE: Final = 0
FETCH: Final = 1
OFFSET_COMMIT: Final = 8
JOIN_GROUP: Final = 11
SYNC_GROUP: Final = 14
ADD_OFFSETS_TO_TXN: Final = 25
END_TXN: Final = 26
TXN_OFFSET_COMMIT: Final = 28
CONSUMER_GROUP_HEARTBEAT: Final = 68

Answer = Callable[[bytes], bytes | None]
"""Gives the reply to a request that the broker shall not see; None lets the request through."""


class BrokerProxy:
    """One listener for each broker of `bootstrap`, which must name all of them. Brokers tell clients their own
    addresses; in replies, those are replaced by the listeners'. Any thread may call the methods.
    """

    def __init__(self, bootstrap: str, *, answer: Answer | None = None) -> None:
        self._answer = answer
        self._lock = threading.Lock()  # guards the four below
        self._connections: set[_Connection] = set()
        self._losing: dict[int, int] = {}
        self._keeping: set[int] = set()
        self._kept: list[tuple[_Connection, bytes]] = []
        self._passing = threading.Event()
        self._passing.set()
        self.lost: list[int] = []
        """The kinds of the requests whose replies were lost."""
        self._listeners: dict[tuple[str, int], socket.socket] = {}
        for address in bootstrap.split(","):
            host, _, port = address.rpartition(":")
            self._listeners[host, int(port)] = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._addresses = [
            (_on_the_wire(host, port), _on_the_wire("127.0.0.1", listener.getsockname()[1]))
            for (host, port), listener in self._listeners.items()
        ]
        self.bootstrap = ",".join(f"127.0.0.1:{one.getsockname()[1]}" for one in self._listeners.values())
        for broker, listener in self._listeners.items():
            threading.Thread(target=self._accept, args=(broker, listener), daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def lose_reply(self, *requests: int, count: int = 1) -> None:
        """Lose the replies to the next `count` requests of each of these kinds. Their connections live on."""
        with self._lock:
            self._losing.update(dict.fromkeys(requests, count))

    def keep_back(self, request: int) -> None:
        """Keep the next request of this kind, and break its connection, as a network does that delivers it late."""
        with self._lock:
            self._keeping.add(request)

    @property
    def kept(self) -> int:
        """How many requests are kept back."""
        return len(self._kept)

    def deliver(self) -> None:
        """Deliver what is kept back; the answers are dropped."""
        with self._lock:
            kept, self._kept = self._kept, []
        for connection, frame in kept:
            connection.broker.sendall(_framed(frame))

    def forget_connections(self) -> None:
        """Let nothing more through the open connections, as a NAT that has forgotten them: no reset, no end. New ones
        work.
        """
        with self._lock:
            for connection in self._connections:
                connection.forgotten = True

    def hold(self) -> None:
        """Stop forwarding in both directions, on all connections, until `release`."""
        self._passing.clear()

    def release(self) -> None:
        """Forward again, first what was held."""
        self._passing.set()

    def reset(self) -> None:
        """Break the open connections."""
        with self._lock:
            connections, self._connections = self._connections, set()
        for connection in connections:
            connection.close()

    def close(self) -> None:
        for listener in self._listeners.values():
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes up `accept`
            listener.close()
        self._passing.set()
        self.reset()

    def _accept(self, broker: tuple[str, int], listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                try:
                    connection = _Connection(client, socket.create_connection(broker))
                except OSError:  # the broker is away
                    client.close()
                    continue
                with self._lock:
                    self._connections.add(connection)
                for serve in (self._requests, self._replies):
                    threading.Thread(target=self._serve, args=(serve, connection), daemon=True).start()

    def _serve(self, direction: Callable[[_Connection], None], connection: _Connection) -> None:
        with contextlib.suppress(OSError, ValueError):  # one of the two went away, or was closed by `reset`
            direction(connection)
        if not connection.forgotten:
            connection.close()

    def _requests(self, connection: _Connection) -> None:
        for frame in _frames(connection.client):
            self._passing.wait()
            if connection.forgotten:
                continue
            reply = self._answer(frame) if self._answer is not None else None
            if reply is not None:
                connection.reply(reply)
                continue
            kind, _, number = struct.unpack_from(">hhi", frame)
            if self._keeps(kind):
                self._kept.append((connection, frame))
                connection.forgotten = True  # the side of the broker stays open
                connection.client.shutdown(socket.SHUT_RDWR)
                return
            connection.kinds[number] = kind
            connection.broker.sendall(_framed(frame))

    def _replies(self, connection: _Connection) -> None:
        for frame in _frames(connection.broker):
            self._passing.wait()
            (number,) = struct.unpack_from(">i", frame)
            if connection.forgotten or self._loses(connection.kinds.pop(number, -1)):
                continue
            connection.reply(self._with_our_addresses(frame))

    def _with_our_addresses(self, frame: bytes) -> bytes:
        for theirs, ours in self._addresses:
            frame = frame.replace(theirs, ours)
        return frame

    def _keeps(self, kind: int) -> bool:
        with self._lock:
            found = kind in self._keeping
            self._keeping.discard(kind)
            return found

    def _loses(self, kind: int) -> bool:
        with self._lock:
            if self._losing.get(kind, 0) <= 0:
                return False
            self._losing[kind] -= 1
            self.lost.append(kind)
            return True


class _Connection:
    """A client's connection and the one to the broker behind it. One thread reads each."""

    def __init__(self, client: socket.socket, broker: socket.socket) -> None:
        self.client = client
        self.broker = broker
        for one in (client, broker):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.kinds: dict[int, int] = {}  # of the requests under way, by their number
        self.forgotten = False
        self._lock = threading.Lock()  # held while a reply is written

    def reply(self, frame: bytes) -> None:
        with self._lock:
            self.client.sendall(_framed(frame))

    def close(self) -> None:
        for one in (self.client, self.broker):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)  # wakes up the thread that reads it
            one.close()


def _frames(connection: socket.socket) -> Iterator[bytes]:
    with connection.makefile("rb") as stream:
        while len(head := stream.read(4)) == 4:
            yield stream.read(struct.unpack(">i", head)[0])


def _framed(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


def _on_the_wire(host: str, port: int) -> bytes:
    return host.encode() + struct.pack(">i", port)

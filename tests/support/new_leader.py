"""A broker that becomes the leader of a partition a moment late: behind this proxy, the first batch for a topic is
refused with NOT_LEADER_OR_FOLLOWER, and everything else goes through.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

PRODUCE = 0
FIRST_FLEXIBLE = 9
"""From this version of a produce request on, lengths are varints."""

NOT_LEADER = 6


class LateLeader:
    """Listens at `address`; `refused` counts batches."""

    def __init__(self, broker: str, topic: str) -> None:
        host, _, port = broker.rpartition(":")
        self._broker = (host, int(port))
        self.topic = topic
        self._name = topic.encode()
        self._server = socket.create_server(("127.0.0.1", 0))
        self._port: int = self._server.getsockname()[1]
        self.address = f"127.0.0.1:{self._port}"
        self.refused = 0
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                there = socket.create_connection(self._broker)
                threading.Thread(target=self._requests, args=(client, there), daemon=True).start()
                threading.Thread(target=self._answers, args=(there, client), daemon=True).start()

    def _requests(self, client: socket.socket, there: socket.socket) -> None:
        with contextlib.suppress(OSError):
            for frame in _frames(client):
                if self._refuses(frame):
                    with self._lock:
                        client.sendall(_framed(_refusal(frame, self._name)))
                else:
                    there.sendall(_framed(frame))
        there.close()

    def _answers(self, there: socket.socket, client: socket.socket) -> None:
        """The broker's own address, in what it says about itself, is replaced by ours."""
        own, ours = (b"127.0.0.1" + struct.pack(">i", port) for port in (self._broker[1], self._port))
        with contextlib.suppress(OSError):
            for frame in _frames(there):
                with self._lock:
                    client.sendall(_framed(frame.replace(own, ours)))
        client.close()

    def _refuses(self, frame: bytes) -> bool:
        if struct.unpack_from(">h", frame)[0] != PRODUCE or self._name not in frame or self.refused:
            return False
        self.refused += 1
        return True

    def close(self) -> None:
        self._server.close()


def _frames(connection: socket.socket) -> Iterator[bytes]:
    with connection.makefile("rb") as stream:
        while len(head := stream.read(4)) == 4:
            yield stream.read(struct.unpack(">i", head)[0])


def _framed(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


def _refusal(request: bytes, topic: bytes) -> bytes:
    """The answer to a produce request of one batch."""
    _, version, number = struct.unpack_from(">hhi", request)
    assert version >= FIRST_FLEXIBLE
    at = request.index(topic) + len(topic) + 1  # behind the number of partitions, which is one
    partition = request[at : at + 4]
    one = partition + struct.pack(">hqqq", NOT_LEADER, -1, -1, -1) + b"\x01\x00\x00"
    name = bytes([len(topic) + 1]) + topic
    return struct.pack(">i", number) + b"\x00\x02" + name + b"\x02" + one + b"\x00" + bytes(4) + b"\x00"

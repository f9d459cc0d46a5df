"""A TCP proxy on loopback that delivers everything a fixed time later, each way: a network between client and broker.

It is a process of its own: `python -m bench.delay PORT TARGET_PORT DELAY_S` listens on one port and forwards to the
other. It ends with its standard input, so that it never outlives the bench.
"""

from __future__ import annotations

import contextlib
import select
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator

HOST = "127.0.0.1"
CHUNK_BYTES = 1024 * 1024


@contextlib.contextmanager
def delaying(port: int, target_port: int, delay_s: float) -> Iterator[None]:
    """Run the proxy as long as the context lasts."""
    command = [sys.executable, "-m", "bench.delay", str(port), str(target_port), repr(delay_s)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as proxy:
        assert proxy.stdin is not None
        assert proxy.stdout is not None
        proxy.stdout.readline()  # it listens
        yield
        proxy.stdin.close()


class DelayProxy:
    """Connections to `target_port` with a delay. One thread: `select` waits with microseconds, `epoll` with
    milliseconds.
    """

    def __init__(self, listener: socket.socket, target_port: int, delay_s: float) -> None:
        self._listener = listener
        self._target_port = target_port
        self._delay_s = delay_s
        self._peers: dict[socket.socket, socket.socket] = {}
        self._due: deque[tuple[float, socket.socket, bytes]] = deque()  # in order: the delay is the same for all

    def run(self, until: int) -> None:
        """Forward until the file descriptor `until` is readable."""
        while True:
            wait_s = max(0.0, self._due[0][0] - time.perf_counter()) if self._due else None
            waited: list[socket.socket | int] = [until, self._listener, *self._peers]
            ready, _, _ = select.select(waited, [], [], wait_s)
            for source in ready:
                if isinstance(source, int):
                    return
                if source is self._listener:
                    self._accept()
                else:
                    self._receive(source)
            while self._due and self._due[0][0] <= time.perf_counter():
                _, target, data = self._due.popleft()
                self._deliver(target, data)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        server = socket.create_connection((HOST, self._target_port))
        for one in (client, server):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._peers |= {client: server, server: client}

    def _receive(self, source: socket.socket) -> None:
        peer = self._peers.get(source)
        if peer is None:  # closed by its peer in this round
            return
        try:
            data = source.recv(CHUNK_BYTES)
        except OSError:
            data = b""
        if data:
            self._due.append((time.perf_counter() + self._delay_s, peer, data))
        else:
            self._close(source, peer)

    def _deliver(self, target: socket.socket, data: bytes) -> None:
        peer = self._peers.get(target)
        if peer is None:
            return
        try:
            target.sendall(data)
        except OSError:
            self._close(target, peer)

    def _close(self, *pair: socket.socket) -> None:
        for one in pair:
            self._peers.pop(one, None)
            one.close()


def main() -> None:
    """Command line: the ports and the delay."""
    port, target_port, delay_s = sys.argv[1:]
    with socket.create_server((HOST, int(port)), backlog=128) as listener:
        print("listening", flush=True)
        DelayProxy(listener, int(target_port), float(delay_s)).run(sys.stdin.fileno())


if __name__ == "__main__":
    main()

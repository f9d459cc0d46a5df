"""A client for the server of a running app: over TCP, or through a socket in the file system."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Mapping
from urllib.parse import urlsplit

from keepfast.http.http import UNIX, Response


class _ThroughFile(http.client.HTTPConnection):
    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def ask(
    url: str,
    path: str,
    *,
    method: str = "GET",
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    timeout_s: float = 5.0,
) -> Response:
    """One request to `http://host:port` or `unix:/path`. Raises OSError if nobody answers (properly) in time."""
    connection: http.client.HTTPConnection
    if url.startswith(UNIX):
        connection = _ThroughFile(url.removeprefix(UNIX), timeout_s)
    else:
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=timeout_s)
    try:
        connection.request(method, path, body=body, headers=dict(headers or {}))
        answer = connection.getresponse()
        return Response(answer.status, answer.read(), answer.headers.get("Content-Type", ""))
    except http.client.HTTPException as error:
        raise OSError(f"No proper answer from {url}: {type(error).__name__}") from error
    finally:
        connection.close()

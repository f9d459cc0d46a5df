"""A client for the server of a running app: over TCP, or through a Unix socket."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Mapping
from urllib.parse import urlsplit

from keepfast.http.server import UNIX, Response
from keepfast.redact.urls import shown


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def fetch(
    url: str,
    path: str,
    *,
    method: str = "GET",
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    timeout_s: float = 5.0,
) -> Response:
    """Send one request to `http://host:port` or `unix:/path`. Raises OSError if there is no valid response in time.

    A URL with a path, `http://host:port/kafka`, is that of an app that is mounted there.
    """
    connection: http.client.HTTPConnection
    if url.startswith(UNIX):
        connection = _UnixConnection(url.removeprefix(UNIX), timeout_s)
    else:
        try:
            address = urlsplit(url)
            connection = http.client.HTTPConnection(address.netloc, timeout=timeout_s)
        except (ValueError, http.client.InvalidURL):
            raise ConnectionError(f"{shown(url)} is no address like http://127.0.0.1:8080") from None
        path = address.path.rstrip("/") + path
    try:
        connection.request(method, path, body=body, headers=dict(headers or {}))
        answer = connection.getresponse()
        return Response(answer.status, answer.read(), answer.headers.get("Content-Type", ""))
    except http.client.HTTPException as error:
        raise ConnectionError(f"No valid response from {shown(url)}: {type(error).__name__}") from error
    finally:
        connection.close()

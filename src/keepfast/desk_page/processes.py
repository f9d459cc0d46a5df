"""The running processes that the desk reaches, by their control API: state, what is in flight, events, orders."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final, TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from keepfast.core.errors import ControlRefused
from keepfast.http.client import fetch
from keepfast.redact.urls import shown
from keepfast.telemetry.state import (
    AppState,
    CommandDone,
    ConsumerDetail,
    HealthReport,
    Problem,
    TimelineEvent,
    TimelineEvents,
)

TIMEOUT_S: Final = 6.0
"""Longer than a supervisor waits for its processes."""
MAX_PROCESSES: Final = 64
S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class ProcessView:
    """One process as it answered. `problem`: why it did not."""

    url: str
    state: AppState | None = None
    health: HealthReport | None = None
    consumers: tuple[tuple[str, ConsumerDetail], ...] = ()
    events: tuple[TimelineEvent, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Processes:
    """`urls`: addresses of health servers. A name with several addresses means several processes. `token`: the control
    token of the apps; without it the desk only reads.
    """

    urls: tuple[str, ...] = ()
    token: str = field(default="", repr=False)

    def views(self) -> list[ProcessView]:
        """All of them, asked side by side."""
        return _side_by_side(self._view, self.addresses())

    def events(self) -> list[ProcessView]:
        """All of them, with their events only."""
        return _side_by_side(self._events, self.addresses())

    def order(self, url: str, consumer: str, verb: str, **body: object) -> str:
        """Send a command to one process. Raises ControlRefused."""
        if url not in self.addresses():
            raise ControlRefused("The desk does not know this process.")
        if not self.token:
            raise ControlRefused("The desk was started without KEEPFAST_CONTROL_TOKEN, so it can only read.")
        path = f"/api/consumers/{quote(consumer, safe='@')}/{verb}"
        content = msgspec.json.encode({name: value for name, value in body.items() if value is not None})
        try:
            answer = fetch(
                url,
                path,
                method="POST",
                body=content,
                headers={"Authorization": f"Bearer {self.token}"},
                timeout_s=TIMEOUT_S,
            )
            if answer.status == HTTPStatus.OK:
                return msgspec.json.decode(answer.body, type=CommandDone).text
            raise ControlRefused(msgspec.json.decode(answer.body, type=Problem).error)
        except (OSError, msgspec.MsgspecError) as error:
            raise ControlRefused(f"{shown(url)} does not answer: {error}.") from error

    def addresses(self) -> list[str]:
        """Each address once."""
        found: dict[str, None] = {}
        for url in self.urls:
            for one in _resolved(url):
                found[one] = None
        return list(found)[:MAX_PROCESSES]

    def _view(self, url: str) -> ProcessView:
        try:
            state = _get(url, "/api/state", AppState)
            health = _get(url, "/api/health", HealthReport)
            details = [(name, _detail(url, name)) for name in state.consumers]
        except (OSError, msgspec.MsgspecError, ControlRefused) as error:
            return ProcessView(url, problem=str(error) or type(error).__name__)
        return ProcessView(url, state, health, tuple((name, one) for name, one in details if one is not None))

    def _events(self, url: str) -> ProcessView:
        try:
            return ProcessView(url, events=_get(url, "/api/events", TimelineEvents).events)
        except (OSError, msgspec.MsgspecError, ControlRefused) as error:
            return ProcessView(url, problem=str(error) or type(error).__name__)


def _detail(url: str, consumer: str) -> ConsumerDetail | None:
    """None if its loop does not answer."""
    try:
        return _get(url, f"/api/consumers/{quote(consumer, safe='@')}", ConsumerDetail)
    except ControlRefused:
        return None


def _get(url: str, path: str, shape: type[S]) -> S:
    answer = fetch(url, path, timeout_s=TIMEOUT_S)
    if answer.status != HTTPStatus.OK:
        raise ControlRefused(msgspec.json.decode(answer.body, type=Problem).error)
    return msgspec.json.decode(answer.body, type=shape)


def _side_by_side(ask: object, urls: Sequence[str]) -> list[ProcessView]:
    if not urls:
        return []
    with ThreadPoolExecutor(min(16, len(urls))) as threads:
        return list(threads.map(ask, urls))  # type: ignore[arg-type]


def _resolved(url: str) -> list[str]:
    """A DNS name with several addresses means several processes. The control API answers on its own host only, so the
    name must be one of this host, or of a tunnel to another.
    """
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname or parts.port is None:
        return [url]
    try:
        found = {
            one[4][0] for one in socket.getaddrinfo(parts.hostname, parts.port, socket.AF_INET, socket.SOCK_STREAM)
        }
    except OSError:
        return [url]
    return [f"http://{one}:{parts.port}" for one in sorted(map(str, found))] if len(found) > 1 else [url]

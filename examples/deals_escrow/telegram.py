"""The bot that writes to people."""

from __future__ import annotations

from typing import Protocol, Self

import httpx


class Bot(Protocol):
    def write(self, chat: str, text: str) -> None: ...


class TelegramBot:
    """Raises httpx.HTTPError, whose kinds the classification knows: 429 and 503 pass, 400 does not. Any thread."""

    def __init__(self, url: str, *, timeout_s: float = 5.0) -> None:
        self._client = httpx.Client(base_url=url, timeout=timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def write(self, chat: str, text: str) -> None:
        self._client.post("/sendMessage", json={"chat_id": chat, "text": text}).raise_for_status()

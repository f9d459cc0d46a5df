"""The company registry: an external API with a limit of 5 requests a minute."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import httpx


class UnreadableAnswer(ValueError):
    """The registry answered 200 with something that is no company. Asking again gives the same."""


class Registry:
    """Asks for companies, never two of them closer together than `rate_limit_s`. Any thread."""

    def __init__(
        self,
        url: str,
        *,
        rate_limit_s: float,
        timeout_s: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client = httpx.Client(base_url=url, timeout=timeout_s)
        self._rate_limit_s = rate_limit_s
        self._clock = clock
        self._sleep = sleep
        self._turn = threading.Lock()
        self._next_at = 0.0

    def parent_of(self, cnpj: str) -> str:
        """The name of the parent company. Raises httpx.HTTPError, whose kinds the classification knows, with a
        `Retry-After` if there is one; and UnreadableAnswer.
        """
        self._wait_for_turn()
        answer = self._client.get(f"/companies/{cnpj}")
        answer.raise_for_status()
        try:
            company: Any = answer.json()
            return str(company["parent"]["name"])
        except (ValueError, KeyError, TypeError) as error:
            raise UnreadableAnswer("the registry's answer is no company") from error

    def close(self) -> None:
        self._client.close()

    def _wait_for_turn(self) -> None:
        with self._turn:
            now = self._clock()
            wait_s = max(0.0, self._next_at - now)
            self._next_at = now + wait_s + self._rate_limit_s
        if wait_s:
            self._sleep(wait_s)

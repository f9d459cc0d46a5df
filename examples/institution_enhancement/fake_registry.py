"""A company registry on a loopback port, as bad as real ones: it limits, is down, is slow, knows not everybody, and
now and then answers with garbage. For tests and for the story.
"""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from itertools import pairwise

from examples.stage.http import Answer, HttpServer

SLOW_S = 2.0
RETRY_AFTER_S = 1


class FakeRegistry(HttpServer):
    """What it does with a company is in the last digit of its number, some of it only the first time it is asked."""

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.asked: defaultdict[str, list[float]] = defaultdict(list)
        """When each company was asked for."""
        self._lock = threading.Lock()

    def gaps_s(self) -> list[float]:
        """Between one request and the next."""
        times = sorted(at for asked in self.asked.values() for at in asked)
        return [later - at for at, later in pairwise(times)]

    def _answer(self, path: str, _: bytes) -> Answer:
        cnpj = path.rpartition("/")[2]
        with self._lock:
            self.asked[cnpj].append(time.monotonic())
            first = len(self.asked[cnpj]) == 1
        found = json.dumps({"parent": {"name": f"Parent of {cnpj}"}}).encode()
        match cnpj[-1]:
            case "1" if first:
                return Answer(429, headers={"Retry-After": str(RETRY_AFTER_S)})
            case "2" if first:
                return Answer(503)
            case "3" if first:
                return Answer(200, found, wait_s=SLOW_S)
            case "4":
                return Answer(404)
            case "5":
                return Answer(200, b"<html>it works</html>")
            case _:
                return Answer(200, found)

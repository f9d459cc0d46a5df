"""A run in which everything that is logged about records happens once, and what its log said."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from keepfast import App, Discard, RetryPolicy
from keepfast.telemetry import logs
from keepfast.testing.harness import harness

GOLDEN = Path(__file__).with_name("scripted.jsonl")
TOPIC = "orders.payment.v1"
SECRET = "tok_51Hx\r\n\x1b[31m"
ERRORS: dict[str, list[Exception]] = {
    "flaky": [TimeoutError(SECRET)],
    "down": [ConnectionError(SECRET)] * 3,
    "bad": [ValueError(SECRET)],
    "unwanted": [Discard("a test order")],
}


@contextmanager
def logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger("keepfast")
    before = root.handlers[:], root.level, root.propagate
    try:
        yield
    finally:
        root.handlers[:], root.propagate = before[0], before[2]
        root.setLevel(before[1])


def scripted_lines() -> list[str]:
    """One line an entry about a record, without its time and how long the handler took."""
    stream = io.StringIO()
    with logging_as_it_was():
        logs.configure(format="json", stream=stream)
        asyncio.run(_story())
    printed = [json.loads(line) for line in stream.getvalue().splitlines()]
    return [
        json.dumps({name: value for name, value in line.items() if name not in ("ts", "processing_ms")})
        for line in printed
        if line["logger"] == "keepfast.consumer"
    ]


async def _story() -> None:
    app = App("payments")
    left = {fate: list(errors) for fate, errors in ERRORS.items()}

    @app.consumer(TOPIC, retry=RetryPolicy(max_retries=2, jitter=False))
    def charge(payment: dict[str, Any]) -> None:
        if left.get(payment["fate"]):
            raise left[payment["fate"]].pop(0)

    async with harness(app, partitions=1) as run:
        for fate in ("good", "flaky", "down", "bad", "unwanted"):
            await run.send(TOPIC, {"fate": fate, "card": SECRET}, key=SECRET)


if __name__ == "__main__":
    from tests.telemetry import scripted  # as the tests have it: places are named by modules

    GOLDEN.write_text("\n".join(scripted.scripted_lines()) + "\n")

"""The generic helper: a topic, a way to read a record, and what to do with it. It never gives up on a record."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from keepfast import App, Context, Discard, RetryPolicy

T = TypeVar("T")

BACKOFF_S = 3.0


class NotDone(Exception):
    """The work failed; `__cause__` is why. By the table of errors a bug would become a letter at once; this never."""


def with_worker(
    app: App,
    topic: str,
    *,
    name: str,
    decode: Callable[[bytes], T],
    do: Callable[[T], None],
    backoff_s: float = BACKOFF_S,
) -> None:
    """Add a worker to the app, with a group of its own.

    What `do` raises is a failure of the service or of the network, which will pass or be mended: the record is tried
    again, every `backoff_s` seconds, until `do` returns. Its partition waits meanwhile, and the group keeps its member:
    waiting does not stop the polling. What `decode` raises as ValueError will never be better: the record is skipped,
    with a line in the log.
    """

    @app.consumer(
        topic,
        name=name,
        retry=RetryPolicy(max_retries=None, initial_delay_ms=backoff_s * 1000, max_delay_ms=backoff_s * 1000),
        rules={NotDone: "retryable"},
        tombstones="discard",
        idempotent=True,  # `do` must bear a record twice: that is the price of losing none
    )
    def worker(value: bytes, ctx: Context) -> None:
        try:
            entity = decode(value)
        except ValueError as error:
            raise Discard(f"{ctx.topic}[{ctx.partition}]@{ctx.offset} cannot be decoded") from error
        try:
            do(entity)
        except Exception as error:
            raise NotDone(f"failed with {type(error).__name__}") from error

"""A consumer whose first attempt at every record fails, and which continues only when all have failed once, so that at
one moment all of them wait. It writes down what it handled.

Variables: SCENARIO_TALLY (where to write), SCENARIO_RECORDS (for each partition), SCENARIO_WAIT_S (how long all of
them need to fail once).
"""

from __future__ import annotations

import atexit
import itertools
import logging
import os
import time
from pathlib import Path

from keepfast import App, Context, RetryLater, RetryPolicy

PARTITIONS = 8
TALLY, RECORDS = Path(os.environ["SCENARIO_TALLY"]), int(os.environ["SCENARIO_RECORDS"])
WAIT_S = float(os.environ["SCENARIO_WAIT_S"])
AGAIN_S = 0.7 * WAIT_S
tried = [bytearray(RECORDS) for _ in range(PARTITIONS)]
handled = [bytearray(RECORDS) for _ in range(PARTITIONS)]
count = itertools.count(1)
all_wait = False
begun = time.monotonic()

# Each retry is a line of the log, and here there are too many of them to look at.
logging.getLogger("keepfast.consumer").setLevel(logging.ERROR)
app = App("scenario")


@app.consumer(name="handle", order="key", concurrency=8, retry=RetryPolicy(max_retries=None))
def handle(value: bytes, ctx: Context) -> None:
    global all_wait  # noqa: PLW0603
    if ctx.attempt == 1:
        tried[ctx.partition][ctx.offset] += 1
        all_wait = all_wait or next(count) == PARTITIONS * RECORDS
        raise RetryLater(after_s=max(AGAIN_S, begun + WAIT_S - time.monotonic()))
    if not all_wait:
        raise RetryLater(after_s=AGAIN_S)
    handled[ctx.partition][ctx.offset] += 1


@atexit.register
def write_down() -> None:
    TALLY.write_bytes(b"".join((*tried, *handled)))

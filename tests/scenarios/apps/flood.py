"""A consumer of a large backlog: slow until the gate is open, then as fast as it can be. It remembers what it handled
as one byte a record, and writes that down when it ends.

Variables: SCENARIO_GATE (a file that the test makes), SCENARIO_TALLY (where to write), SCENARIO_RECORDS (for each
partition).
"""

from __future__ import annotations

import atexit
import os
import time
from pathlib import Path

from keepfast import App, Context

PARTITIONS = 4
GATE, TALLY = Path(os.environ["SCENARIO_GATE"]), Path(os.environ["SCENARIO_TALLY"])
handled = [bytearray(int(os.environ["SCENARIO_RECORDS"])) for _ in range(PARTITIONS)]
slow = True

app = App("scenario")


@app.consumer(name="handle", idempotent=True)
def handle(value: bytes, ctx: Context) -> None:
    global slow  # noqa: PLW0603 - asking for the file once too often is what would be slow
    if slow:
        slow = not GATE.exists()
        time.sleep(0.02)
    handled[ctx.partition][ctx.offset] += 1


atexit.register(lambda: TALLY.write_bytes(b"".join(handled)))

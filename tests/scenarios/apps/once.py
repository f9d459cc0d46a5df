"""A consumer whose outputs and offsets are one transaction. Every fifth record fails at first, after it has sent.

Variables: SCENARIO_OUTPUT (the topic); SCENARIO_ONCE=0 for a consumer like it that commits at least once.
"""

from __future__ import annotations

import os
from typing import Any

from keepfast import App, Context, RetryPolicy

app = App("scenario")
OUTPUT = os.environ["SCENARIO_OUTPUT"]
ONCE: dict[str, Any] = {"exactly_once": True}
if os.environ.get("SCENARIO_ONCE") == "0":
    ONCE = {"idempotent": True, "commit": "interval"}


@app.consumer(
    name="handle", order="key", storm_guard=False, max_deliveries=0, retry=RetryPolicy(initial_delay_ms=1), **ONCE
)
async def handle(value: bytes, ctx: Context) -> None:
    number = ctx.offset * 1000 + ctx.partition
    fails = ctx.offset % 5 == 0 and ctx.attempt == 1
    ctx.send(OUTPUT, {"id": number, "failed": fails}, key=ctx.key)
    if fails:
        raise OSError("once")

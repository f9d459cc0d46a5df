"""A consumer of batches, which holds each call while a file is there, and a neighbour that takes single records.

Variables besides those of `journalled.py`: SCENARIO_HOLD (the file), SCENARIO_CALL_S (what a call takes).
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

from keepfast import App, BatchContext, Context
from keepfast.core.policies import BatchPolicy
from tests.scenarios.apps.journalled import write_down

HOLD = Path(os.environ["SCENARIO_HOLD"])
CALL_S = float(os.environ.get("SCENARIO_CALL_S", "0.02"))

app = App("searched")


@app.consumer(idempotent=True, atomic=True, batch=BatchPolicy(size=500, wait_s=0.2), commit="interval")
async def batched(values: list[bytes], batch: BatchContext) -> None:
    for ctx in batch:
        write_down("start", ctx, "batched")
    while HOLD.exists():
        await asyncio.sleep(0.01)
    await asyncio.sleep(CALL_S)
    if any(value and json.loads(value).get("error") == "exit" for value in values):
        os._exit(1)
    for ctx in batch:
        write_down("end", ctx, "batched")


@app.consumer()
async def neighbour(value: bytes, ctx: Context) -> None:
    write_down("start", ctx, "neighbour")
    await asyncio.sleep(0.005)
    write_down("end", ctx, "neighbour")

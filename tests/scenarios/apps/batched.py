"""A consumer of batches that writes down what it handles, and fails as the first record says that says anything."""

from __future__ import annotations

import time

from keepfast import App, BatchContext
from keepfast.core.policies import BatchPolicy
from tests.scenarios.apps.journalled import speak, work_of, write_down

app = App("scenario")


@app.consumer(name="handle", idempotent=True, batch=BatchPolicy(size=10, wait_s=0.05))
def handle(values: list[bytes], batch: BatchContext) -> None:
    for ctx in batch:
        write_down("start", ctx)
    time.sleep(0.01)
    for value, ctx in zip(values, batch, strict=True):
        speak(work_of(value), ctx)
    for ctx in batch:
        write_down("end", ctx)

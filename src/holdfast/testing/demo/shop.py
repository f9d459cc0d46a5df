"""The consumer of the demo: ships orders. Some fail for a while, some can never be shipped."""

from __future__ import annotations

import time
from typing import Any

from holdfast import App, Context, Reject, RetryPolicy

ORDERS, SHIPMENTS = "shop.order.v1", "shop.shipment.v1"

app = App("shop")


@app.consumer(
    ORDERS,
    order="key",
    concurrency=16,
    retry=RetryPolicy(max_retries=3, initial_delay_ms=50, max_delay_ms=400),
    # A killed member must be noticed within the demo's patience; never so in production.
    session_timeout_ms=6000,
    heartbeat_interval_ms=2000,
    max_poll_interval_ms=10_000,
    unsafe_timings=True,
)
def ship(order: dict[str, Any], ctx: Context) -> None:
    """One order of one customer at a time."""
    time.sleep(0.002)
    if order["kind"] == "unshippable":
        raise Reject("the address does not exist", code="ADDRESS_UNKNOWN")
    if order["kind"] == "flaky" and ctx.attempt <= order["failures"]:
        raise ConnectionError("the carrier does not answer")
    ctx.send(SHIPMENTS, {"id": order["id"]}, key=ctx.key)

"""The consumer of the demo: ships the orders of a small shop. This is user code.

Release 1.0 has two bugs: it cannot read a coupon of "10%", and its label printer, a library in C, crashes the
process when it gets an emoji. Release 1.1 fixes both.
"""

from __future__ import annotations

import ctypes
import os
import socket
from functools import cache

import msgspec

from keepfast import App, BreakerPolicy, Context, Discard, Reject, RetryPolicy

ORDERS, SHIPMENTS = "shop.order.v1", "shop.shipment.v1"
LANES = 16

app = App("shop")


class Order(msgspec.Struct):
    id: str
    name: str
    city: str
    coupon: str = ""


class CarrierBusy(Exception):
    """The carrier is busy: retry later."""


@app.consumer(
    ORDERS,
    order="key",  # the orders of one customer in order, customers in parallel
    concurrency=LANES,
    retry=RetryPolicy(max_retries=5, initial_delay_ms=100, max_delay_ms=500),
    breaker=BreakerPolicy(window_s=0.2, open_s=1.0, max_open_s=1.0),
    # The following settings make the demo short; do not use them in production: two crashes mark the place, the
    # third one dead-letters, and a dead process is detected after seconds.
    max_deliveries=1,
    session_timeout_ms=6_000,
    heartbeat_interval_ms=1_000,
    unsafe_timings=True,
)
def ship(order: Order, ctx: Context) -> None:
    if order.name == "Test":
        raise Discard("an order of our own tests")
    if not order.city:
        raise Reject("the address is incomplete", code="NO_ADDRESS")
    discount = discount_of(order.coupon)
    label = print_label(order.name)
    book(order.id)
    shipment = {"id": order.id, "label": label, "discount": discount, "of": [ctx.partition, ctx.offset]}
    ctx.send(SHIPMENTS, {**shipment, "pid": os.getpid()}, key=ctx.key)


def discount_of(coupon: str) -> int:
    if release() >= "1.1":
        coupon = coupon.removesuffix("%")
    return int(coupon) if coupon else 0


def print_label(name: str) -> str:
    if not name.isascii() and release() < "1.1":
        ctypes.string_at(0)  # a segmentation fault, which no exception handler can catch
    return f"To {name}"


def book(order_id: str) -> None:
    """Book with the carrier. It may be busy or down."""
    with socket.create_connection(carrier(), timeout=5) as line:
        line.sendall(f"{order_id}\n".encode())
        answer = line.recv(100)
    if answer == b"busy\n":
        raise CarrierBusy("the carrier is busy")
    if answer != b"booked\n":
        raise ConnectionResetError("the carrier closed the connection")


@cache
def release() -> str:
    return os.environ.get("SHOP_RELEASE", "1.0")


@cache
def carrier() -> tuple[str, int]:
    host, _, port = os.environ["SHOP_CARRIER"].rpartition(":")
    return host, int(port)

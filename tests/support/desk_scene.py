"""A desk with something to look at: letters of four causes, written as the runtime writes them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from random import Random

from keepfast.deadletters.fingerprint import fingerprint
from keepfast.deadletters.letter import Attempted, Letter
from keepfast.deadletters.writing import write
from tests.support.broker_client import NewRecord

HOUR_MS = 3_600_000
STACK = """Traceback (most recent call last):
  File "/usr/lib/python3.12/site-packages/keepfast/engine/calls.py", line 212, in walk
    call(message)
  File "/srv/shop/handlers.py", line 31, in ship
    price = total(order)
  File "/srv/shop/{file}", line {line}, in {function}
    {code}
{kind}: {message}
"""
CAUSES = (
    ("KeyError", "'currency'", "LOOKUP_FAILED", "non-retryable", "pricing.py", 48, "total", 0.56),
    (
        "ConnectionError",
        "carrier.internal refused the connection",
        "NETWORK_ERROR",
        "retryable",
        "carrier.py",
        112,
        "book",
        0.3,
    ),
    (
        "IntegrityError",
        'duplicate key value violates unique constraint "orders_pkey"',
        "DB_CONSTRAINT_VIOLATION",
        "non-retryable",
        "store.py",
        77,
        "save",
        0.11,
    ),
    (
        "ValidationError",
        "1 validation error for Order\naddress.zip\n  Field required",
        "MISSING_REQUIRED_FIELD",
        "non-retryable",
        "models.py",
        19,
        "parse",
        0.03,
    ),
)
GROUPS = ("shop.ship", "shop.ship", "shop.ship", "billing.invoice")


def letters(count: int, *, topic: str = "shop.order.v1", seed: int = 7, now: float | None = None) -> Iterator[Letter]:
    """So many letters of four causes, over the last day; the same seed gives the same."""
    random = Random(seed)
    now_ms = round((time.time() if now is None else now) * 1000)
    weights = [cause[-1] for cause in CAUSES]
    for offset in range(count):
        kind, message, code, classification, file, line, function, _ = random.choices(CAUSES, weights)[0]
        order = {
            "id": f"o-{offset:05}",
            "total": random.randint(100, 9_999),
            "address": {"city": "Oslo", "zip": "0150"},
        }
        if kind != "KeyError":
            order["currency"] = "NOK"
        if kind == "ValidationError":
            del order["address"]["zip"]  # type: ignore[attr-defined]
        if random.random() < 0.4:
            order["coupon"] = "SPRING"
        ago_ms = (
            min(22 * HOUR_MS, round(random.expovariate(1 / (5 * HOUR_MS))))
            if kind != "ConnectionError"
            else random.randint(1, 2 * HOUR_MS)
        )
        at_ms = now_ms - 30_000 - ago_ms
        yield Letter(
            topic=topic,
            partition=offset % 4,
            offset=10_000 + offset // 4,
            timestamp_ms=at_ms - 4_000,
            key=f"customer-{offset % 700}".encode(),
            value=json.dumps(order).encode(),
            headers=(("traceparent", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"), ("source", b"web")),
            error_type=kind,
            error_class=kind if kind in ("KeyError", "ConnectionError") else f"shop.errors.{kind}",
            error_message=message,
            error_code=code,
            classification=classification,
            reason="failed 4 times" if classification == "retryable" else f"{kind} is final",
            fingerprint=fingerprint(kind, message, f"shop.{file.removesuffix('.py')}:{function}"),
            stack_trace=STACK.format(file=file, line=line, function=function, code="…", kind=kind, message=message),
            failed_at_ms=at_ms,
            retry_count=3 if classification == "retryable" else 0,
            attempts=(Attempted(at_ms - 3_000, kind), Attempted(at_ms, kind)),
            group=GROUPS[offset % len(GROUPS)] if kind != "IntegrityError" else "billing.invoice",
            handler="shop.handlers:ship",
            app_version="1.4.2",
            format="envelope",
        )


def records(count: int, **more: object) -> list[NewRecord]:
    """The same as records of a dead-letter topic, in order of their failures."""
    found = sorted(letters(count, **more), key=lambda one: one.failed_at_ms or 0)  # type: ignore[arg-type]
    return [written(one) for one in found]


def written(letter: Letter) -> NewRecord:
    """As a record of a dead-letter topic."""
    value, headers = write(letter, "envelope")
    return NewRecord(value, letter.key, headers)

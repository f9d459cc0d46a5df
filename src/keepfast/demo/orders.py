"""The input: mostly valid orders. Deterministic for a seed."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass

CUSTOMERS = 120
_NAMES = ("Ada", "Alan", "Barbara", "Dennis", "Edsger", "Frances", "Grace", "Katherine", "Ken", "Leslie", "Radia")
_CITIES = ("Bern", "Lima", "Oslo", "Porto", "Quito", "Zürich")

TEST_ORDERS, NO_ADDRESS, GARBAGE, NEW_COUPONS = 0.005, 0.004, 0.003, 0.008
"""Shares of all orders."""

KILLER_AT = 0.9
"""Position of the order whose name crashes the label printer."""


@dataclass(frozen=True, slots=True)
class OrderPlan:
    """Number of orders, seed and faults. `calm`: neither a crash nor an outage."""

    records: int = 4_000
    seed: int = 7
    calm: bool = False

    def orders(self) -> Iterator[tuple[bytes, bytes]]:
        """Key and value of each; values are unique and identify the order."""
        rng = random.Random(self.seed)
        killer = -1 if self.calm else int(self.records * KILLER_AT)
        for number in range(self.records):
            customer = f"customer-{rng.randrange(CUSTOMERS)}".encode()
            yield customer, b"\x00\xff garbage %d" % number if rng.random() < GARBAGE else _order(number, killer, rng)


def _order(number: int, killer: int, rng: random.Random) -> bytes:
    order = {"id": f"order-{number}", "name": rng.choice(_NAMES), "city": rng.choice(_CITIES), "coupon": ""}
    chance = rng.random()
    if number == killer:
        order["name"] = "Zoë 🦊"
    elif chance < TEST_ORDERS:
        order["name"] = "Test"
    elif chance < TEST_ORDERS + NO_ADDRESS:
        order["city"] = ""
    elif chance < TEST_ORDERS + NO_ADDRESS + NEW_COUPONS:
        order["coupon"] = f"{rng.choice((5, 10, 20))}%"
    elif chance > 0.9:
        order["coupon"] = str(rng.choice((5, 10)))
    return json.dumps(order, ensure_ascii=False, separators=(",", ":")).encode()

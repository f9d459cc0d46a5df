"""A payment gateway that takes everything."""

from __future__ import annotations


class CardDeclined(Exception):
    """The customer's bank says no."""


def charge(payment_id: str, amount: int) -> None:
    """Blocks until it is charged."""


async def charge_async(payment_id: str, amount: int) -> None:
    """The same, for coroutines."""


async def busy() -> bool:
    """Whether it asks for patience."""
    return False

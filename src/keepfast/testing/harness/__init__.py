"""Tests of your own consumers: the same engine in memory, at once, with a clock that skips every wait.

    def test_a_payment_is_charged() -> None:
        async def story() -> None:
            async with harness(app) as h:
                await h.send("orders.payment.v1", {"id": "a1", "amount": 12}, key="a1")
                assert [record.key for record in h.processed] == [b"a1"]
                assert h.dead == []

        asyncio.run(story())

`pytest --keepfast-kafka` runs the very same test on a real broker.
"""

from __future__ import annotations

from keepfast.testing.harness.harness import Harness, NotSettled, harness

__all__ = ["Harness", "NotSettled", "harness"]

"""What the topics carry. `idempotency_key` names the effect: however often a message comes, it is done once."""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class Message(msgspec.Struct, frozen=True, kw_only=True):
    idempotency_key: str
    deal_id: str

    def followed_by(self, kind: str, **fields: Any) -> dict[str, Any]:
        """What a consumer sends on about it. The same message gives the same key, so that receivers can tell too."""
        key = f"{self.idempotency_key}/{kind}"
        return {"idempotency_key": key, "deal_id": self.deal_id, "kind": kind, **fields}


class DealEvent(Message, frozen=True, kw_only=True):
    kind: Literal["DEAL_CREATED", "DEAL_CANCELLED", "DEAL_TIMED_OUT"]
    timeout_s: float | None = None
    """How long it may take to settle the deal; None: as long as the service says."""


class EscrowCommand(Message, frozen=True, kw_only=True):
    kind: Literal["WATCH_DEPOSIT", "PAYOUT", "REFUND"]


class EscrowConfirmation(Message, frozen=True, kw_only=True):
    kind: Literal["DEPOSIT_CONFIRMED", "PAYOUT_CONFIRMED", "REFUND_CONFIRMED"]


class DeliveryCommand(Message, frozen=True, kw_only=True):
    kind: Literal["PUBLISH", "VERIFY"]


class DeliveryResult(Message, frozen=True, kw_only=True):
    kind: Literal["PUBLISHED", "VERIFIED"]


class Notification(Message, frozen=True, kw_only=True):
    kind: Literal["NOTIFY"]
    chat: str


class Deadline(Message, frozen=True, kw_only=True):
    kind: Literal["DEADLINE"]
    ends_at: float
    """Seconds since 1970."""


class ReconciliationTrigger(Message, frozen=True, kw_only=True):
    kind: Literal["RECONCILE"]

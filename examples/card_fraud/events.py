"""What the fraud engine publishes. Anything else is refused before the handler sees it."""

from __future__ import annotations

from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Self

from pydantic import AwareDatetime, BaseModel, Field, model_validator


class EvaluationType(StrEnum):
    PREAUTH = "PREAUTH"
    POSTAUTH = "POSTAUTH"


class Decision(StrEnum):
    APPROVE = "APPROVE"
    DECLINE = "DECLINE"
    REVIEW = "REVIEW"


class DecisionEvent(BaseModel):
    """One evaluation of one transaction. Cards are identified by their token, never by their number."""

    transaction_id: Annotated[str, Field(min_length=1)]
    evaluation_type: EvaluationType
    transaction_timestamp: AwareDatetime
    card_token: Annotated[str, Field(min_length=1)]
    amount: Annotated[Decimal, Field(ge=0, max_digits=14, decimal_places=2)]
    currency: Annotated[str, Field(pattern="^[A-Z]{3}$")]
    decision: Decision | None = None
    decision_reason: str | None = None

    @model_validator(mode="after")
    def _decided_before_and_not_after(self) -> Self:
        given = (self.decision is not None, bool(self.decision_reason))
        if self.evaluation_type is EvaluationType.PREAUTH and not all(given):
            raise ValueError("PREAUTH needs a decision and its reason")
        if self.evaluation_type is EvaluationType.POSTAUTH and any(given):
            raise ValueError("POSTAUTH has neither a decision nor a reason")
        return self

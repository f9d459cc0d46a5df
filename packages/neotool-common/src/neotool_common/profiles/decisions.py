"""The numbers of the decision records in docs/decisions that overrule a rule."""

from __future__ import annotations

from typing import Final

UNKNOWN_ERRORS: Final = 3
BUSINESS_ERRORS: Final = 4
JITTER_AFTER_THE_CAP: Final = 5
HEARTBEAT_AT_A_THIRD: Final = 6
COOPERATIVE_STICKY: Final = 7
SLIM_IMAGE: Final = 8
RETRY_SUM_WARNS: Final = 9
SPOOL: Final = 22
GUARDS: Final = 23
FIRST_MINUTE: Final = 26
CHOSEN_BY_NAME: Final = 30
"""Where the documents contradict each other, an explicit choice of one of them violates no rule of another."""

OVERRULING: Final = frozenset(
    {
        UNKNOWN_ERRORS,
        BUSINESS_ERRORS,
        JITTER_AFTER_THE_CAP,
        HEARTBEAT_AT_A_THIRD,
        COOPERATIVE_STICKY,
        SLIM_IMAGE,
        RETRY_SUM_WARNS,
        SPOOL,
        GUARDS,
        FIRST_MINUTE,
        CHOSEN_BY_NAME,
    }
)

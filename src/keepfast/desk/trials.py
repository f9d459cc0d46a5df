"""What became of a letter's record when today's handler was tried on it: values masked, to be shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from keepfast.core.errors import KeepfastError
from keepfast.core.records import Outgoing, RecordPlace
from keepfast.desk.desk import Desk
from keepfast.desk.masking import shape


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedSend:
    """A record that the handler would have sent; `value` has types and sizes instead of values."""

    topic: str
    key_bytes: int | None
    value_bytes: int | None
    value: Any

    @classmethod
    def of(cls, outgoing: Outgoing) -> CapturedSend:
        key, value = outgoing.key, outgoing.value
        return cls(
            topic=outgoing.topic,
            key_bytes=None if key is None else len(key),
            value_bytes=None if value is None else len(value),
            value=shape(value),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialReport:
    """`outcome`: succeeded, failed, filtered or processed-before. The fields of an error are empty unless it failed."""

    consumer: str
    handler: str
    outcome: str
    took_s: float
    rolled_back: bool = False
    """Whether a transaction of the consumer's inbox was rolled back."""
    sent: Sequence[CapturedSend] = ()
    error_type: str = ""
    error_message: str = ""
    error_code: str = ""
    kind: str = ""
    rule: str = ""
    place: str = ""
    """`file:line` in the user's code."""
    stack: Sequence[str] = ()
    same_cause: bool = False
    """Whether it failed for the cause that the letter has."""
    next: str = ""
    """What would happen to the record, in words."""

    @property
    def verdict(self) -> str:
        """The outcome in one sentence."""
        took = f"{self.took_s * 1000:,.0f} ms" if self.took_s < 1 else f"{self.took_s:,.1f} s"
        match self.outcome:
            case "succeeded":
                return f"It comes through: {self.handler} succeeded in {took}."
            case "filtered":
                return f"The filter of {self.consumer} does not let it pass: it would be finished without a call."
            case "processed-before":
                return f"The inbox of {self.consumer} has it: it was processed before, so the handler was not called."
            case _:
                again = "for the same cause" if self.same_cause else "for another cause than before"
                return f"It fails again, {again}: {self.error_type} after {took}."


Trier = Callable[[RecordPlace, str], TrialReport]
"""Tries the record of the letter at a place, for a person of that name, and audits it. Blocks; raises KeepfastError,
and TrialKilled if its process was killed, which has not audited it then.
"""


class TrialKilled(KeepfastError):
    """The process in which a handler was tried was killed. It is not known whether the handler ran."""


def try_handler(desk: Desk, trier: Trier, place: RecordPlace) -> TrialReport:
    """Try the record of a letter for who acts at `desk`, which audits it if the process of the trial was killed. Raises
    KeepfastError.
    """
    try:
        return trier(place, desk.options.by)
    except TrialKilled as error:
        what = f"{place.partition}:{place.offset}"
        desk.note_action("try", topic=place.topic, count=1, what=what, result=f"not known: {error}")
        raise

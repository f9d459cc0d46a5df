"""Numbers, times and states in words, for the templates."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from keepfast.desk.audit import Action, AuditEntry
from keepfast.desk.cases import CaseState
from keepfast.desk.causes import Cause

SPARK_WIDTH, SPARK_HEIGHT, SPARK_GAP = 176, 36, 2

STATES: Final[dict[CaseState, tuple[str, str]]] = {
    CaseState.OPEN: ("waiting", "bad"),
    CaseState.REPLAYING: ("replaying", "accent"),
    CaseState.RESOLVED: ("through", "good"),
    CaseState.DISCARDED: ("discarded", ""),
    CaseState.PERMANENTLY_FAILED: ("permanently failed", "warn"),
    CaseState.ARCHIVED: ("archived", "calm"),
}
"""The word for a state, and its colour."""

KINDS: Final[dict[str, str]] = {
    "retryable": "transient: it was retried until the retries were used up",
    "non-retryable": "final: retrying the same record cannot help",
    "halt": "the consumer stopped because of it",
    "discard": "discarded by a rule",
}


ACTIONS: Final[dict[Action, str]] = {
    "replay": "{who} replayed {records}, run {what}",
    "resume": "{who} resumed the replay {what}",
    "pause": "{who} paused the replay {what}",
    "cancel": "{who} cancelled the replay {what}",
    "edit": "{who} changed a record and sent it, {what}",
    "discard": "{who} discarded {records}",
    "fail": "{who} marked {records} as permanently failed",
    "archive": "{who} archived {records}",
    "restore": "{who} restored {records}",
    "note": "{who} wrote a note about {what}",
    "reveal": "{who} revealed the values of {what}",
    "try": "{who} tried the handler on {what}: {result}",
    "export": "{who} exported {records} with their values to {what}",
    "import": "{who} brought back {records} from {what}",
    "purge": "{who} deleted {records} for good ({what})",
    "replay-from": "{who} consumed {records} a second time, {what}",
    "offsets": "{who} moved a group to other offsets, {what}",
    "control": "{who} gave the order {what}: {result}",
}
"""What was done at the desk, in words."""


def count(number: int | float | None) -> str:
    return "–" if number is None else f"{number:,.0f}"


def plural(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def duration(seconds: float | None) -> str:
    """As in `4 h`, `12 min`, `8 s`."""
    if seconds is None:
        return "–"
    for size, unit in ((86_400, "d"), (3_600, "h")):
        if seconds >= size:
            number = f"{seconds / size:.0f}" if seconds >= 10 * size else f"{seconds / size:.1f}".removesuffix(".0")
            return f"{number} {unit}"
    if seconds >= 90:
        return f"{seconds / 60:.0f} min"
    return f"{seconds:.0f} s" if seconds >= 1 or seconds == 0 else f"{seconds * 1000:.0f} ms"


def ago(at_ms: int | None, now_ms: int) -> str:
    if at_ms is None:
        return "–"
    seconds = max(0.0, (now_ms - at_ms) / 1000)
    return "just now" if seconds < 5 else f"{duration(seconds)} ago"


def when(at_ms: float | None) -> str:
    """In UTC, to the second."""
    return "–" if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def size(length: int | None) -> str:
    if length is None:
        return "–"
    return f"{length:,} bytes" if length < 10_000 else f"{length / 1024:,.0f} KiB"


def state_word(state: CaseState) -> str:
    return STATES[state][0]


def state_colour(state: CaseState) -> str:
    return STATES[state][1]


def spark(hours: Sequence[int]) -> list[tuple[float, float, float, float, bool]]:
    """Bars of a small chart: x, y, width, height, and whether there is something."""
    highest = max(hours, default=0) or 1
    width = SPARK_WIDTH / max(1, len(hours))
    bars = []
    for index, number in enumerate(hours):
        height = max(3.0, number / highest * SPARK_HEIGHT) if number else 2.0
        bars.append(
            (
                round(index * width, 2),
                round(SPARK_HEIGHT - height, 2),
                width - SPARK_GAP,
                round(height, 2),
                bool(number),
            )
        )
    return bars


def sentence_of(cause: Cause) -> str:
    """What went wrong, in one sentence."""
    where = f" at {cause.place}" if cause.place else ""
    if cause.fields:
        names = ", ".join(cause.fields)
        return (
            f"The field {names} is missing{where}."
            if len(cause.fields) == 1
            else f"Fields are missing: {names}{where}."
        )
    what = cause.message.strip().rstrip(".")
    return f"{cause.error_type}{where}: {what}." if what else f"{cause.error_type}{where}."


def action_of(one: AuditEntry) -> str:
    """Who did what and why, in one sentence."""
    sentence = ACTIONS[one.action].format(
        who=one.by or "unknown", records=plural(one.count, "record"), what=one.what or "–", result=one.result
    )
    return f"{sentence}: {one.why.rstrip('.')}." if one.why else f"{sentence}."

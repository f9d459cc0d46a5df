"""The filter of a view, which lives in its address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlencode

from keepfast.desk.case_filter import CaseFilter, moment_ms
from keepfast.desk.cases import CaseState
from keepfast.desk.facts import MarkKind

SETS: Final[dict[str, str]] = {
    "dlq": "dlqs",
    "topic": "topics",
    "group": "groups",
    "cause": "causes",
    "error": "error_types",
    "code": "codes",
    "key": "keys",
}
"""Parameter of an address → field of the filter."""
VIEWS: Final[dict[str, frozenset[CaseState]]] = {
    "waiting": frozenset({CaseState.OPEN}),
    "replaying": frozenset({CaseState.REPLAYING}),
    "through": frozenset({CaseState.RESOLVED}),
    "put-aside": frozenset({CaseState.DISCARDED, CaseState.PERMANENTLY_FAILED, CaseState.ARCHIVED}),
    "all": frozenset(),
}
"""Value of the parameter `show` → states."""
MARKS: Final[Mapping[str, MarkKind]] = {"discard": "discarded", "fail": "permanently-failed", "restore": "restored"}
"""Value of the field `do` → mark."""
NAMES: Final = (*SETS, "q", "since", "until", "show")
MAX_TEXT: Final = 500


def filter_of(given: Mapping[str, str], now_ms: int, *, show: str = "all") -> CaseFilter:
    """From the parameters of an address; what is not understood is ignored."""
    sets: dict[str, Any] = {
        field: frozenset({given[name].strip()[:MAX_TEXT]})
        for name, field in SETS.items()
        if given.get(name, "").strip()
    }
    return CaseFilter(
        **sets,
        text=given.get("q", "").strip()[:MAX_TEXT],
        since_ms=moment_ms(given.get("since", ""), now_ms),
        until_ms=moment_ms(given.get("until", ""), now_ms),
        states=VIEWS.get(given.get("show", show), VIEWS["all"]),
    )


def frozen_at(where: CaseFilter, seen_ms: int) -> CaseFilter:
    """The same without what failed after the page was made."""
    return replace(where, until_ms=seen_ms if where.until_ms is None else min(seen_ms, where.until_ms))


def address(path: str, given: Mapping[str, str], **changes: str | int | None) -> str:
    """The address of a view with these parameters; None removes one."""
    known = {name: given[name] for name in NAMES if given.get(name)}
    merged = known | {name: str(value) for name, value in changes.items() if value is not None}
    left = {name: value for name, value in merged.items() if name not in changes or changes[name] is not None}
    return f"{path}?{urlencode(left)}" if left else path

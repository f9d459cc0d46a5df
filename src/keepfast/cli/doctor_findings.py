"""What `keepfast doctor` found: one sentence each, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

Status = Literal["ok", "warning", "problem", "unknown"]
Section = Literal["environment", "settings", "broker", "topics", "rights", "dead letters", "clock"]

EXIT_OK, EXIT_SETTINGS, EXIT_OUTSIDE = 0, 2, 3
_HERE: Final = frozenset({"environment", "settings"})
"""What is wrong here is a matter of configuration; all else is missing outside."""


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """`unknown`: nobody could tell, which is no problem by itself."""

    section: Section
    status: Status
    text: str
    fix: str = ""


def exit_code(findings: Sequence[DoctorFinding]) -> int:
    """As a start would end: 2 for settings, 3 for what is missing outside, 0 with warnings alone."""
    wrong = {one.section for one in findings if one.status == "problem"}
    if wrong & _HERE:
        return EXIT_SETTINGS
    return EXIT_OUTSIDE if wrong else EXIT_OK


def summary(findings: Sequence[DoctorFinding]) -> str:
    problems = sum(one.status == "problem" for one in findings)
    warnings = sum(one.status == "warning" for one in findings)
    if not problems and not warnings:
        return "Nothing is wrong."
    counted = [(problems, "problem"), (warnings, "warning")]
    return ", ".join(f"{count} {word}{'s' * (count != 1)}" for count, word in counted if count) + "."

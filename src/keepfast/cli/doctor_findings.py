"""The findings of `keepfast doctor`: one sentence each, with a fix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

Status = Literal["ok", "warning", "problem", "unknown"]
Section = Literal["environment", "settings", "broker", "groups", "topics", "permissions", "dead letters", "clock"]

EXIT_OK, EXIT_SETTINGS, EXIT_CLUSTER = 0, 2, 3
_LOCAL: Final = frozenset({"environment", "settings"})
"""Sections whose problems are configuration errors; the others concern the cluster."""


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """One result. `unknown` means that it could not be checked, which is no problem by itself."""

    section: Section
    status: Status
    text: str
    fix: str = ""


def exit_code(findings: Sequence[DoctorFinding]) -> int:
    """The exit code that `keepfast run` would give: 2 for settings, 3 for the cluster, 0 if there are only warnings."""
    wrong = {one.section for one in findings if one.status == "problem"}
    if wrong & _LOCAL:
        return EXIT_SETTINGS
    return EXIT_CLUSTER if wrong else EXIT_OK


def summary(findings: Sequence[DoctorFinding]) -> str:
    problems = sum(one.status == "problem" for one in findings)
    warnings = sum(one.status == "warning" for one in findings)
    if not problems and not warnings:
        return "No problems found."
    counted = [(problems, "problem"), (warnings, "warning")]
    return ", ".join(f"{count} {word}{'s' * (count != 1)}" for count, word in counted if count) + "."

"""Audits an app against all rules: one result per rule, the exit code and the summary."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from keepfast.audit.checks_hooks import replaced_by_hook
from keepfast.audit.clause import STATUSES, Clause, Finding, Status, not_applicable
from keepfast.audit.clauses import CLAUSES
from keepfast.audit.subject import DecisionRecord, Subject
from keepfast.core.errors import ConfigError
from keepfast.core.exit_codes import EXIT_OK, EXIT_UNEXPECTED


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one rule; `findings` are those of the app or its consumers, the most severe first."""

    clause: Clause
    findings: tuple[Finding, ...]

    @property
    def status(self) -> Status:
        return self.findings[0].status


def examine(subject: Subject, *, ignore: Collection[str] = (), clauses: Sequence[Clause] = CLAUSES) -> list[Result]:
    """Audit all rules, in the order of their documents.

    Raises ConfigError if `ignore`, or a decision record of the app, names an unknown rule.
    """
    known, listed = {clause.id for clause in (*CLAUSES, *clauses)}, "`keepfast check --list` lists all."
    problems = [f"There is no rule {one!r}; {listed}" for one in sorted(set(ignore) - known)]
    problems += [
        f"{record.path} overrules {rule!r}, which is not a rule; {listed}"
        for rule, record in subject.overruled.items()
        if rule not in known
    ]
    if problems:
        raise ConfigError(*problems)
    return [_examined(clause, subject, ignored=clause.id in ignore) for clause in clauses]


def _examined(clause: Clause, subject: Subject, *, ignored: bool) -> Result:
    if ignored:
        found: Iterable[Finding] = [not_applicable("Skipped by --ignore.")]
    elif clause.check is None:
        guaranteed = Finding(status="guaranteed", reason="Guaranteed by keepfast for every app.")
        found = [replaced_by_hook(clause, subject) or guaranteed]
    else:
        found = [_apply_record(one, subject.overruled.get(clause.id)) for one in clause.check(subject)]
    most_severe_first = sorted(found, key=lambda one: STATUSES.index(one.status))
    return Result(clause, tuple(most_severe_first) or (not_applicable("The app has no consumers."),))


def _apply_record(finding: Finding, record: DecisionRecord | None) -> Finding:
    """A decision record of the app overrules a failed finding, and no other."""
    if record is None or finding.status != "failed":
        return finding
    reason = f"{finding.reason} See {record.path}."
    return replace(finding, status="overruled", reason=reason, fix="", decision=record.number, record=record.path)


def exit_code(results: Iterable[Result], *, strict: bool) -> int:
    """1 if a MUST rule is violated; with `strict`, also for a SHOULD rule."""
    violated = [one for one in results if one.status == "failed" and (strict or one.clause.level == "must")]
    return EXIT_UNEXPECTED if violated else EXIT_OK


def summary(results: Sequence[Result]) -> str:
    """`61 passed (16 by trial), 80 guaranteed by keepfast, …`; violated rules by level."""
    violated = {level: sum(r.status == "failed" and r.clause.level == level for r in results) for level in LEVELS}
    parts = [f"{count} {level.upper()} rule{'s' * (count != 1)} violated" for level, count in violated.items() if count]
    for status, text in STATUS_TEXTS.items():
        found = [result for result in results if result.status == status]
        parts += [f"{len(found)} {text}{_detail(status, found)}"] if found else []
    return ", ".join(parts) + "."


def _detail(status: str, results: Sequence[Result]) -> str:
    tried = sum(one.clause.is_tried for one in results)
    if status == "passed" and tried:
        return f" ({tried} by trial)"
    return f" ({', '.join(_decisions(results))})" if status == "overruled" else ""


def _decisions(results: Iterable[Result]) -> list[str]:
    """By number, our own; those of the app by path."""
    found = [one for result in results for one in result.findings if one.status == "overruled"]
    return sorted({one.record or f"{one.decision:04}" for one in found})


LEVELS = ("must", "should")
STATUS_TEXTS = {
    "passed": "passed",
    "guaranteed": "guaranteed by keepfast",
    "overruled": "overruled by a decision",
    "not checkable": "not checkable here",
    "not applicable": "not applicable",
}

"""An app against all rules: one result each, and what CI has to know."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from keepfast.audit.checks_hooks import in_its_place
from keepfast.audit.clause import STATUSES, Clause, Finding, Status, not_applicable
from keepfast.audit.subject import DecisionRecord, Subject
from keepfast.audit.table import CLAUSES
from keepfast.core.errors import ConfigError
from keepfast.core.exit_codes import EXIT_OK, EXIT_UNEXPECTED


@dataclass(frozen=True, slots=True)
class Result:
    """What is so about one rule; `findings` has those of single consumers, the heaviest first."""

    clause: Clause
    findings: tuple[Finding, ...]

    @property
    def status(self) -> Status:
        return self.findings[0].status


def examine(subject: Subject, *, ignore: Collection[str] = (), clauses: Sequence[Clause] = CLAUSES) -> list[Result]:
    """All rules, in the order of their documents. Raises ConfigError if `ignore`, or a record of the app's own, names
    what is no rule.
    """
    known, listed = {clause.id for clause in (*CLAUSES, *clauses)}, "`keepfast check --list` has them all."
    problems = [f"There is no rule {one!r}; {listed}" for one in sorted(set(ignore) - known)]
    problems += [
        f"{record.path} overrules {rule!r}, which is no rule; {listed}"
        for rule, record in subject.overruled.items()
        if rule not in known
    ]
    if problems:
        raise ConfigError(*problems)
    return [_examined(clause, subject, ignored=clause.id in ignore) for clause in clauses]


def _examined(clause: Clause, subject: Subject, *, ignored: bool) -> Result:
    if ignored:
        found: Iterable[Finding] = [not_applicable("Left out by --ignore.")]
    elif clause.look is None:
        kept = Finding(status="kept", reason="Kept by keepfast, whatever an app says.")
        found = [in_its_place(clause, subject) or kept]
    else:
        found = [_weighed(one, subject.overruled.get(clause.id)) for one in clause.look(subject)]
    heaviest_first = sorted(found, key=lambda one: STATUSES.index(one.status))
    return Result(clause, tuple(heaviest_first) or (not_applicable("The app has no consumers."),))


def _weighed(finding: Finding, record: DecisionRecord | None) -> Finding:
    """A record of the app's own overrules what is broken, and nothing else."""
    if record is None or finding.status != "failed":
        return finding
    reason = f"{finding.reason} {record.path} says why."
    return replace(finding, status="overruled", reason=reason, fix="", decision=record.number, record=record.path)


def exit_code(results: Iterable[Result], *, strict: bool) -> int:
    """1 if a MUST rule is broken; if `strict`, a SHOULD rule, too."""
    broken = [one for one in results if one.status == "failed" and (strict or one.clause.level == "must")]
    return EXIT_UNEXPECTED if broken else EXIT_OK


def summary(results: Sequence[Result]) -> str:
    """`61 passed, 80 kept by construction, …`; broken rules by their level."""
    broken = {level: sum(r.status == "failed" and r.clause.level == level for r in results) for level in LEVELS}
    said = [f"{count} {level.upper()} rule{'s' * (count != 1)} broken" for level, count in broken.items() if count]
    for status, words in WORDS.items():
        count = sum(result.status == status for result in results)
        said += [f"{count} {words}"] if count else []
    return ", ".join(said) + "."


LEVELS = ("must", "should")
WORDS = {
    "passed": "passed",
    "kept": "kept by construction",
    "overruled": "overruled by a decision",
    "not applicable": "not applicable",
}

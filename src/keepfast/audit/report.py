"""Audits an app against the rules of profiles: one result per rule, the exit code and the summary."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from keepfast.audit.profile import Profile, installed_profiles
from keepfast.audit.rule import STATUSES, AuditRule, Finding, Status, not_applicable
from keepfast.audit.rules import OWN
from keepfast.audit.subject import DecisionRecord, Subject
from keepfast.core.errors import ConfigError
from keepfast.core.exit_codes import EXIT_OK, EXIT_UNEXPECTED


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one rule; `findings` are those of the app or its consumers, the most severe first."""

    rule: AuditRule
    findings: tuple[Finding, ...]

    @property
    def status(self) -> Status:
        return self.findings[0].status


def examine(subject: Subject, profiles: Sequence[Profile] = (OWN,), *, ignore: Collection[str] = ()) -> list[Result]:
    """Audit the rules of these profiles, in their order.

    Raises ConfigError if `ignore`, or a decision record of the app, names an unknown rule of a known profile.
    """
    known = defaultdict[str, set[str]](set)
    for profile in (OWN, *installed_profiles().values(), *profiles):
        known[profile.name].update(rule.id for rule in profile.rules)
    listed = "`keepfast check --list`, with --profile for those of a document, lists all."
    problems = [f"There is no rule {id_!r}; {listed}" for id_ in sorted(set(ignore)) if not _is_known(id_, known)]
    problems += [
        f"{record.path} overrules {id_!r}, which is not a rule; {listed}"
        for id_, record in subject.overruled.items()
        if id_.partition(":")[0] in known and not _is_known(id_, known)
    ]
    if problems:
        raise ConfigError(*problems)
    return [
        _examined(rule, profile, subject, ignored=rule.id in ignore) for profile in profiles for rule in profile.rules
    ]


def _is_known(id_: str, known: Mapping[str, Collection[str]]) -> bool:
    return id_ in known.get(id_.partition(":")[0], ())


def _examined(rule: AuditRule, profile: Profile, subject: Subject, *, ignored: bool) -> Result:
    if ignored:
        found: Iterable[Finding] = [not_applicable("Skipped by --ignore.")]
    elif rule.check is None:
        guaranteed = Finding(status="guaranteed", reason="Guaranteed by keepfast for every app.")
        found = [profile.replaced_by_hook(rule, subject) or guaranteed]
    else:
        found = [_apply_record(finding, subject.overruled.get(rule.id)) for finding in rule.check(subject)]
    most_severe_first = sorted(found, key=lambda finding: STATUSES.index(finding.status))
    return Result(rule, tuple(most_severe_first) or (not_applicable("The app has no consumers."),))


def _apply_record(finding: Finding, record: DecisionRecord | None) -> Finding:
    """A decision record of the app overrules a failed finding, and no other."""
    if record is None or finding.status != "failed":
        return finding
    reason = f"{finding.reason} See {record.path}."
    return replace(finding, status="overruled", reason=reason, fix="", decision=record.number, record=record.path)


def exit_code(results: Iterable[Result], *, strict: bool) -> int:
    """1 if a MUST rule is violated; with `strict`, also for a SHOULD rule."""
    violated = [one for one in results if one.status == "failed" and (strict or one.rule.level == "must")]
    return EXIT_UNEXPECTED if violated else EXIT_OK


def summary(results: Sequence[Result]) -> str:
    """`61 passed (16 by trial), 80 guaranteed by keepfast, …`; violated rules by level."""
    violated = {level: sum(r.status == "failed" and r.rule.level == level for r in results) for level in LEVELS}
    parts = [f"{count} {level.upper()} rule{'s' * (count != 1)} violated" for level, count in violated.items() if count]
    for status, text in STATUS_TEXTS.items():
        found = [result for result in results if result.status == status]
        parts += [f"{len(found)} {text}{_detail(status, found)}"] if found else []
    return ", ".join(parts) + "."


def _detail(status: str, results: Sequence[Result]) -> str:
    tried = sum(one.rule.is_tried for one in results)
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

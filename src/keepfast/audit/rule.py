"""A rule, its check, and the findings of that check."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from keepfast.audit.subject import AuditedConsumer, Subject

Level = Literal["must", "should"]
Status = Literal["failed", "overruled", "passed", "guaranteed", "not checkable", "not applicable"]

STATUSES: Final[tuple[Status, ...]] = (
    *("failed", "overruled", "passed", "guaranteed", "not checkable", "not applicable"),
)
"""The most severe first: it is the status of a rule with several findings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The finding of one rule for an app or one of its consumers, with a fix if it failed.

    `guaranteed`: keepfast ensures it for every app. `not checkable`: an app does not show whether it complies.
    `overruled`: a decision record says why the app deviates. `decision` is its number; `record` is its path if it is
    one of the app's own.
    """

    status: Status
    reason: str
    fix: str = ""
    decision: int | None = None
    consumer: str = ""
    record: str = ""


Check = Callable[["Subject"], Iterable[Finding]]


@dataclass(frozen=True, slots=True)
class AuditRule:
    """One rule. `id` is the name of its profile and its place there. Without `check`, keepfast guarantees it for every
    app.
    """

    id: str
    level: Level
    text: str
    check: Check | None = None

    @property
    def is_tried(self) -> bool:
        return self.check in TRIALS

    @property
    def profile(self) -> str:
        return self.id.partition(":")[0]

    @property
    def place(self) -> str:
        return self.id.partition(":")[2]


UNSEEN: Final[set[Check]] = set()
"""Checks of rules that an app does not show."""
TRIALS: Final[set[Check]] = set()
"""Checks that classify errors as the app would. The others read its settings and files."""


def must(id_: str, text: str, check: Check | None = None) -> AuditRule:
    return AuditRule(id_, "must", text, check)


def should(id_: str, text: str, check: Check | None = None) -> AuditRule:
    return AuditRule(id_, "should", text, check)


def passed(reason: str) -> Finding:
    return Finding(status="passed", reason=reason)


def failed(reason: str, fix: str) -> Finding:
    return Finding(status="failed", reason=reason, fix=fix)


def overruled(decision: int, reason: str) -> Finding:
    return Finding(status="overruled", reason=reason, decision=decision)


def not_applicable(reason: str) -> Finding:
    return Finding(status="not applicable", reason=reason)


def per_consumer(check: Callable[[AuditedConsumer], Finding]) -> Check:
    """Check every consumer."""

    def check_all(subject: Subject) -> Iterable[Finding]:
        for consumer in subject.consumers:
            yield replace(check(consumer), consumer=consumer.own.name)

    return check_all


def per_app(check: Callable[[Subject], Finding]) -> Check:
    """Check the app as a whole."""
    return lambda subject: (check(subject),)


def trial(check: Callable[[AuditedConsumer], Finding]) -> Check:
    """Try every consumer."""
    tried = per_consumer(check)
    TRIALS.add(tried)
    return tried


def not_checkable(reason: str) -> Check:
    """Return a check of a rule that code, settings and files of an app do not show."""
    check = per_app(lambda _: Finding(status="not checkable", reason=reason))
    UNSEEN.add(check)
    return check

"""A rule of a document, and the findings of its check."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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

DOCUMENTS: Final[Mapping[str, str]] = {
    "standard": "the consumer standard",
    "loop": "the loop article",
    "pattern": "the consumer pattern",
    "fraud": "the fraud service's decision",
    "spring": "the Spring-style strategy",
}
"""Document → description, as in docs/decisions/README.md."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The finding of one rule for an app or one of its consumers, with a fix if it failed.

    `guaranteed`: keepfast ensures it for every app. `not checkable`: an app does not show whether it complies; that our
    template or our repository does says nothing about it. `overruled`: one of our decision records says why we deviate,
    or why the user's explicit choice is as good; or a decision record of the app does, and `record` is its path.
    """

    status: Status
    reason: str
    fix: str = ""
    decision: int | None = None
    consumer: str = ""
    record: str = ""


Check = Callable[["Subject"], Iterable[Finding]]


@dataclass(frozen=True, slots=True)
class Clause:
    """One rule. `id` is the document and the section. Without `check`, keepfast guarantees it for every app."""

    id: str
    level: Level
    text: str
    check: Check | None = None

    @property
    def is_tried(self) -> bool:
        return self.check in TRIALS

    @property
    def document(self) -> str:
        return self.id.partition(":")[0]

    @property
    def place(self) -> str:
        return self.id.partition(":")[2]


UNSEEN: Final[set[Check]] = set()
"""Checks that can see nothing of an app."""
TRIALS: Final[set[Check]] = set()
"""Checks that try what an app does, such as how it classifies an error; the others look at its settings and files."""


def must(id_: str, text: str, check: Check | None = None) -> Clause:
    return Clause(id_, "must", text, check)


def should(id_: str, text: str, check: Check | None = None) -> Clause:
    return Clause(id_, "should", text, check)


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
        for one in subject.consumers:
            yield replace(check(one), consumer=one.own.name)

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
    """Code, settings and files of an app do not show it, so it is never called kept."""
    check = per_app(lambda _: Finding(status="not checkable", reason=reason))
    UNSEEN.add(check)
    return check

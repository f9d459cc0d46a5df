"""What a rule of a document is here, and what can be found out about an app and a rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from keepfast.audit.subject import Asked, Subject

Level = Literal["must", "should"]
Status = Literal["failed", "overruled", "passed", "kept", "not applicable"]

STATUSES: Final[tuple[Status, ...]] = ("failed", "overruled", "passed", "kept", "not applicable")
"""The heaviest first: of several findings about one rule, this one is told."""

DOCUMENTS: Final[Mapping[str, str]] = {
    "standard": "the consumer standard",
    "loop": "the loop article",
    "pattern": "the consumer pattern",
    "fraud": "the fraud service's decision",
    "spring": "the Spring-style strategy",
}
"""As docs/decisions/README.md tells them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What is so about one rule, in an app or in one of its consumers, and what to do if it failed.

    `kept`: keepfast does it whatever the app says. `overruled`: one of our decision records says why it is done in
    another way, or why what the user chose by name is as good; or a record of the app's own does, and `record` is its
    path.
    """

    status: Status
    reason: str
    fix: str = ""
    decision: int | None = None
    consumer: str = ""
    record: str = ""


Look = Callable[["Subject"], Iterable[Finding]]


@dataclass(frozen=True, slots=True)
class Clause:
    """One rule. `id` is the document and the place in it; without `look`, keepfast keeps it and no app can break it."""

    id: str
    level: Level
    text: str
    look: Look | None = None

    @property
    def document(self) -> str:
        return self.id.partition(":")[0]

    @property
    def place(self) -> str:
        return self.id.partition(":")[2]


def must(id_: str, text: str, look: Look | None = None) -> Clause:
    return Clause(id_, "must", text, look)


def should(id_: str, text: str, look: Look | None = None) -> Clause:
    return Clause(id_, "should", text, look)


def passed(reason: str) -> Finding:
    return Finding(status="passed", reason=reason)


def failed(reason: str, fix: str) -> Finding:
    return Finding(status="failed", reason=reason, fix=fix)


def overruled(decision: int, reason: str) -> Finding:
    return Finding(status="overruled", reason=reason, decision=decision)


def not_applicable(reason: str) -> Finding:
    return Finding(status="not applicable", reason=reason)


def each(look: Callable[[Asked], Finding]) -> Look:
    """Of every consumer by itself."""

    def all_of_them(subject: Subject) -> Iterable[Finding]:
        for one in subject.consumers:
            yield replace(look(one), consumer=one.own.name)

    return all_of_them


def whole(look: Callable[[Subject], Finding]) -> Look:
    """Of the app as a whole."""
    return lambda subject: (look(subject),)


def outside(reason: str) -> Look:
    """Nothing that an app's code, settings or files could show."""
    return whole(lambda _: not_applicable(reason))

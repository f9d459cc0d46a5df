"""The rules of `keepfast check`, with the code that implements and the tests that prove each of them."""

from __future__ import annotations

from collections import Counter

from keepfast.audit import CLAUSES, Clause
from keepfast.audit.clause import DOCUMENTS, UNSEEN
from tests.audit.breaks import BREAKS
from tests.audit.rules import KEPT_BY
from tests.audit.second_reading import FAILED_BEFORE, TAKEN_BACK
from tools.reference.markdown import MADE, code, codes, table

INTRODUCTION = """# Rules

Every rule of [the documents that keepfast is based on](../decisions/README.md#the-documents-they-speak-of), in our
own words, with the file of `src/keepfast` that implements it and the tests below `tests/` that fail without it;
mutations of the code prove that they do (`tests/audit/breaks`).

- **guaranteed**: by the engine, for every app.
- **not checkable**: an app does not show whether it complies; `keepfast check` says so and never calls it kept.
- **tried**: `keepfast check app:app` classifies errors as the app would, its own rules included.
- **checked**: `keepfast check app:app` reports whether an app complies, and what to do
  ([how](../decisions/0030-what-check-holds-an-app-to.md)). `tests/audit` has an app that violates it, or one that
  chooses otherwise and is overruled.
"""


def page() -> str:
    parts = [MADE + INTRODUCTION, f"{_counts()}\n"]
    for document, name in DOCUMENTS.items():
        rows = (_row(clause) for clause in CLAUSES if clause.document == document)
        head = ("rule", "level", "text", "", "code", "tests")
        parts += [f"## {name.capitalize()}\n", table(head, rows)]
    texts = {clause.id: clause.text for clause in CLAUSES}
    found = ((texts[rule], code(rule), codes(tests), TAKEN_BACK.get(rule, "")) for rule, tests in FAILED_BEFORE.items())
    parts += [SECOND_READING, table(("text", "rule", "tests", "taken back"), found)]
    return "\n".join(parts)


SECOND_READING = """## What the second reading found

Rules that an earlier version of this table called kept although trials on a real broker showed otherwise, with the
tests that each has now, below `tests/` or in `examples/`. *Taken back* is what was taken out of the code of today to
see them fail.
"""


def _counts() -> str:
    ways = Counter(map(_way, CLAUSES))
    trials = sum(map(len, BREAKS.values()))
    return (
        f"{len(CLAUSES)} rules: {ways['guaranteed']} guaranteed, {ways['checked']} checked, {ways['tried']}"
        f" tried, {ways['not checkable']} not"
        f" checkable. The code behind them is tried by {trials} breaks of {len(BREAKS)} pieces of evidence"
        " (`make test-breaks`)."
    )


def _way(clause: Clause) -> str:
    if clause.check is None:
        return "guaranteed"
    if clause.check in UNSEEN:
        return "not checkable"
    return "tried" if clause.is_tried else "checked"


def _row(clause: Clause) -> tuple[str, ...]:
    kept = KEPT_BY[clause.id]
    return code(clause.id), clause.level, clause.text, _way(clause), code(kept.code), codes(kept.tests)

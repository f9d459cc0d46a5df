"""The rules of `keepfast check`, with the code that implements and the tests that prove each of them."""

from __future__ import annotations

from keepfast.audit import CLAUSES, Clause
from keepfast.audit.clause import DOCUMENTS
from tests.audit.rules import KEPT_BY
from tools.reference.markdown import MADE, code, table

INTRODUCTION = """# Rules

Every rule of [the documents that keepfast is based on](../decisions/README.md#the-documents-they-speak-of), in our
own words, with the file of `src/keepfast` that implements it and the tests below `tests/` that fail without it;
mutations of the code prove that they do (`tests/audit/breaks`).

- **guaranteed**: by the engine, for every app.
- **checked**: `keepfast check app:app` reports whether an app complies, and what to do
  ([how](../decisions/0030-what-check-holds-an-app-to.md)). `tests/audit` has an app that violates it, or one that
  chooses otherwise and is overruled.
"""


def page() -> str:
    parts = [MADE + INTRODUCTION]
    for document, name in DOCUMENTS.items():
        rows = (_row(clause) for clause in CLAUSES if clause.document == document)
        head = ("rule", "level", "text", "", "code", "tests")
        parts += [f"## {name.capitalize()}\n", table(head, rows)]
    return "\n".join(parts)


def _row(clause: Clause) -> tuple[str, ...]:
    way = "checked" if clause.check is not None else "guaranteed"
    kept = KEPT_BY[clause.id]
    return code(clause.id), clause.level, clause.text, way, code(kept.code), "<br>".join(map(code, kept.tests))

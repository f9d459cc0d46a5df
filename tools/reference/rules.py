"""The rules that `keepfast check` knows: which code and which tests keep each."""

from __future__ import annotations

from keepfast.audit import CLAUSES, Clause
from keepfast.audit.clause import DOCUMENTS
from tests.audit.rules import KEPT_BY
from tools.reference.markdown import MADE, code, table

INTRODUCTION = """# Rules

Every rule of [the documents that keepfast began from](../decisions/README.md#the-documents-they-speak-of), in our
words, with the file of `src/keepfast` that keeps it and the tests below `tests/` that fail if it does not: the code was
broken to see that they do (`tests/audit/breaks.py`).

- **kept**: by the engine, whatever an app says.
- **looked at**: `keepfast check app:app` says whether an app keeps it, and what to do
  ([how](../decisions/0030-what-check-holds-an-app-to.md)). `tests/audit` has an app that breaks it, or one that chooses
  otherwise and is overruled.
"""


def page() -> str:
    parts = [MADE + INTRODUCTION]
    for document, name in DOCUMENTS.items():
        rows = (_row(clause) for clause in CLAUSES if clause.document == document)
        head = ("rule", "level", "says", "", "code", "tests")
        parts += [f"## {name.capitalize()}\n", table(head, rows)]
    return "\n".join(parts)


def _row(clause: Clause) -> tuple[str, ...]:
    way = "looked at" if clause.look is not None else "kept"
    kept = KEPT_BY[clause.id]
    return code(clause.id), clause.level, clause.text, way, code(kept.code), "<br>".join(map(code, kept.tests))

"""`keepfast check`: audits an app against the rules of the documents that keepfast is based on.

Rules are data (`clauses_*.py`): each has its section in its document, a level, a text in our own words, and, if an app
can violate it, a check function.
"""

from __future__ import annotations

from keepfast.audit.clause import Clause as Clause
from keepfast.audit.clause import Finding as Finding
from keepfast.audit.clauses import CLAUSES as CLAUSES
from keepfast.audit.report import Result as Result
from keepfast.audit.report import examine as examine
from keepfast.audit.report import exit_code as exit_code
from keepfast.audit.schemas import SchemaFinding as SchemaFinding
from keepfast.audit.schemas import schema_findings as schema_findings
from keepfast.audit.subject import Subject as Subject

__all__ = [
    "CLAUSES",
    "Clause",
    "Finding",
    "Result",
    "SchemaFinding",
    "Subject",
    "examine",
    "exit_code",
    "schema_findings",
]

"""`keepfast check`: the rules of the documents that keepfast began from, as an audit of an app.

Rules are data (`clauses_*.py`): each has its place in its document, a level, words of our own, the code and the tests
that keep it in keepfast, and, where an app can keep or break it, a function that looks.
"""

from __future__ import annotations

from keepfast.audit.clause import Clause as Clause
from keepfast.audit.clause import Finding as Finding
from keepfast.audit.report import Result as Result
from keepfast.audit.report import examine as examine
from keepfast.audit.subject import Subject as Subject
from keepfast.audit.table import CLAUSES as CLAUSES

__all__ = ["CLAUSES", "Clause", "Finding", "Result", "Subject", "examine"]

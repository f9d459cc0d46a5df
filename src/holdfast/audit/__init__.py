"""`holdfast check`: the rules of the documents that holdfast began from, as an audit of an app.

Rules are data (`clauses_*.py`): each has its place in its document, a level, words of our own, the code and the tests
that keep it in holdfast, and, where an app can keep or break it, a function that looks.
"""

from __future__ import annotations

from holdfast.audit.clause import Clause as Clause
from holdfast.audit.clause import Finding as Finding
from holdfast.audit.report import Result as Result
from holdfast.audit.report import examine as examine
from holdfast.audit.subject import Subject as Subject
from holdfast.audit.table import CLAUSES as CLAUSES

__all__ = ["CLAUSES", "Clause", "Finding", "Result", "Subject", "examine"]

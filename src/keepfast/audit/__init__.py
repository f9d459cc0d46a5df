"""`keepfast check`: audits an app against keepfast's own rules, or against the profile of a document.

Rules are data (`rules.py`, and the profiles of installed packages): each has an id, a level, a text and, if an app can
violate it, a check function.
"""

from __future__ import annotations

from keepfast.audit.profile import Profile as Profile
from keepfast.audit.profile import choose_profiles as choose_profiles
from keepfast.audit.report import Result as Result
from keepfast.audit.report import examine as examine
from keepfast.audit.report import exit_code as exit_code
from keepfast.audit.rule import AuditRule as AuditRule
from keepfast.audit.rule import Finding as Finding
from keepfast.audit.rules import OWN as OWN
from keepfast.audit.schemas import SchemaFinding as SchemaFinding
from keepfast.audit.schemas import schema_findings as schema_findings
from keepfast.audit.subject import Subject as Subject

__all__ = [
    "OWN",
    "AuditRule",
    "Finding",
    "Profile",
    "Result",
    "SchemaFinding",
    "Subject",
    "choose_profiles",
    "examine",
    "exit_code",
    "schema_findings",
]

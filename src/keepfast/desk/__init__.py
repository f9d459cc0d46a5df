"""The desk: dead letters by cause and by case, what was done about them, and replays."""

from keepfast.desk.audit import Action, AuditedAction, AuditEntry, ControlAudit
from keepfast.desk.case_filter import CaseFilter
from keepfast.desk.cases import Case, CaseHistory, CasePage, CaseState, Summary
from keepfast.desk.causes import Cause
from keepfast.desk.cluster import DeskCluster
from keepfast.desk.desk import Desk, DeskOptions, Refreshed, default_index_dir
from keepfast.desk.facts import Mark, MarkKind, Outcome, RunFact, Sent
from keepfast.desk.index_writer import IndexWriter
from keepfast.desk.letters import StoredLetter
from keepfast.desk.plan import ReplayPlan, ReplayPolicy
from keepfast.desk.run import ReplayRun, RunProgress, Transform
from keepfast.desk.spooled import DeskSpool
from keepfast.desk.unresolved import UnresolvedCounter

__all__ = [
    "Action",
    "AuditEntry",
    "AuditedAction",
    "Case",
    "CaseFilter",
    "CaseHistory",
    "CasePage",
    "CaseState",
    "Cause",
    "ControlAudit",
    "Desk",
    "DeskCluster",
    "DeskOptions",
    "DeskSpool",
    "IndexWriter",
    "Mark",
    "MarkKind",
    "Outcome",
    "Refreshed",
    "ReplayPlan",
    "ReplayPolicy",
    "ReplayRun",
    "RunFact",
    "RunProgress",
    "Sent",
    "StoredLetter",
    "Summary",
    "Transform",
    "UnresolvedCounter",
    "default_index_dir",
]

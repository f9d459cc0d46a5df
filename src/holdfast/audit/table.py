"""All rules, in the order of their documents."""

from __future__ import annotations

from typing import Final

from holdfast.audit.clause import Clause
from holdfast.audit.clauses_fraud import FRAUD
from holdfast.audit.clauses_loop import LOOP
from holdfast.audit.clauses_pattern import PATTERN
from holdfast.audit.clauses_pattern_operating import PATTERN_OPERATING
from holdfast.audit.clauses_spring import SPRING
from holdfast.audit.clauses_standard import STANDARD
from holdfast.audit.clauses_standard_operating import STANDARD_OPERATING

CLAUSES: Final[tuple[Clause, ...]] = (
    *STANDARD,
    *STANDARD_OPERATING,
    *LOOP,
    *PATTERN,
    *PATTERN_OPERATING,
    *FRAUD,
    *SPRING,
)

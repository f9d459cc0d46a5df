"""All rules, in the order of their documents."""

from __future__ import annotations

from typing import Final

from keepfast.audit.clause import Clause
from keepfast.audit.clauses_fraud import FRAUD
from keepfast.audit.clauses_loop import LOOP
from keepfast.audit.clauses_pattern import PATTERN
from keepfast.audit.clauses_pattern_operating import PATTERN_OPERATING
from keepfast.audit.clauses_spring import SPRING
from keepfast.audit.clauses_standard import STANDARD
from keepfast.audit.clauses_standard_operating import STANDARD_OPERATING

CLAUSES: Final[tuple[Clause, ...]] = (
    *STANDARD,
    *STANDARD_OPERATING,
    *LOOP,
    *PATTERN,
    *PATTERN_OPERATING,
    *FRAUD,
    *SPRING,
)

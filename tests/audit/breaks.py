"""Breaks of keepfast, a few for each evidence of a rule: one text of its code, and what is put in its place.

A break must not keep the module from being imported: it has to be noticed by what a test asserts.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.audit.breaks_around import AROUND
from tests.audit.breaks_of_the_engine import ENGINE
from tests.audit.one_break import Break

BREAKS: Mapping[str, tuple[Break, ...]] = {**ENGINE, **AROUND}
"""By the name of the evidence in `evidence`."""

"""`keepfast new`: a package for a consumer, with tests, an image and a README, from templates beside this file."""

from __future__ import annotations

from keepfast.scaffold.naming import Names as Names
from keepfast.scaffold.project import Project as Project
from keepfast.scaffold.project import planned as planned

__all__ = ["Names", "Project", "planned"]

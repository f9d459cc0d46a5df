"""`holdfast new`: a package for a consumer, with tests, an image and a README, from templates beside this file."""

from __future__ import annotations

from holdfast.scaffold.naming import Names as Names
from holdfast.scaffold.project import Project as Project
from holdfast.scaffold.project import planned as planned

__all__ = ["Names", "Project", "planned"]

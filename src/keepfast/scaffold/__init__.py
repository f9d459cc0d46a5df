"""`keepfast new`: a package for a consumer, with tests, an image and a README, from templates beside this file."""

from __future__ import annotations

from keepfast.scaffold.naming import ProjectNames as ProjectNames
from keepfast.scaffold.project import Project as Project
from keepfast.scaffold.project import planned as planned
from keepfast.scaffold.wheel import Wheel as Wheel
from keepfast.scaffold.wheel import wheel_at as wheel_at

__all__ = ["Project", "ProjectNames", "Wheel", "planned", "wheel_at"]

"""`keepfast new`: a project for a consumer, with tests, a Dockerfile and a README, rendered from templates."""

from __future__ import annotations

from keepfast.scaffold.naming import ProjectNames as ProjectNames
from keepfast.scaffold.project import Project as Project
from keepfast.scaffold.project import render as render
from keepfast.scaffold.wheel import Wheel as Wheel
from keepfast.scaffold.wheel import wheel_at as wheel_at

__all__ = ["Project", "ProjectNames", "Wheel", "render", "wheel_at"]

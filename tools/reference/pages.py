"""All pages of the reference, by their place in the documentation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tools.reference import api, commands, errors, events, health, letters, metrics, project, rules, settings

PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "reference/settings.md": settings.page,
    "reference/cli.md": commands.page,
    "reference/api.md": api.page,
    "reference/errors.md": errors.page,
    "reference/letters.md": letters.page,
    "reference/metrics.md": metrics.page,
    "reference/health.md": health.page,
    "reference/events.md": events.page,
    "reference/project.md": project.page,
    "reference/rules.md": rules.page,
}

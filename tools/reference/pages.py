"""All pages of the reference, by their place in the documentation, and what is derived and committed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tools.reference import api, commands, errors, events, health, letters, metrics, options, project, rules, settings

ROOT: Final = Path(__file__).resolve().parents[2]

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

COMMITTED: Final[Mapping[str, Callable[[], str]]] = {
    options.MODULE: lambda: options.with_options((ROOT / options.MODULE).read_text()),
}
"""Files of the project that `make reference` writes."""

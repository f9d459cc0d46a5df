"""What is derived from the code and committed: the pages of the reference, and the options of consumers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tools.reference import api, commands, errors, events, health, letters, metrics, options, project, rules, settings

ROOT: Final = Path(__file__).resolve().parents[2]

PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "docs/reference/settings.md": settings.page,
    "docs/reference/cli.md": commands.page,
    "docs/reference/api.md": api.page,
    "docs/reference/errors.md": errors.page,
    "docs/reference/letters.md": letters.page,
    "docs/reference/metrics.md": metrics.page,
    "docs/reference/health.md": health.page,
    "docs/reference/events.md": events.page,
    "docs/reference/project.md": project.page,
    "docs/reference/rules.md": rules.page,
}

COMMITTED: Final[Mapping[str, Callable[[], str]]] = {
    **PAGES,
    options.MODULE: lambda: options.with_options((ROOT / options.MODULE).read_text()),
}
"""Files of the project that `make reference` writes."""

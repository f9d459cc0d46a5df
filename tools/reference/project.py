"""What `keepfast new` writes, from its templates."""

from __future__ import annotations

from pathlib import PurePosixPath

from keepfast import __version__
from keepfast.scaffold import ProjectNames, Wheel, render
from tools.reference.markdown import MADE, fence

INTRODUCTION = """# A new project

What `keepfast new payments --topic orders.payment.v1` writes. Its tests pass and its types are checked as it stands.
Every file is yours to change; nothing of keepfast depends on the layout.
"""
_WHEEL = Wheel(f"keepfast-{__version__}-py3-none-any.whl", b"")
"""Stands for the wheel, whose hash changes with every change of the code."""
_LANGUAGES = {".py": "python", ".toml": "toml", ".yaml": "yaml", ".sql": "sql", ".md": "markdown", ".service": "ini"}


def page() -> str:
    parts = [MADE + INTRODUCTION]
    for path, text in render(ProjectNames.of("payments", "orders.payment.v1"), _WHEEL).files.items():
        if text.strip():
            parts.append(f"## {path}\n\n{fence(text, _language(path), ticks=4)}")
    return "\n".join(parts)


def _language(path: PurePosixPath) -> str:
    return "dockerfile" if path.name == "Dockerfile" else _LANGUAGES.get(path.suffix, "text")

"""What the project consists of, as the tests of its conventions see it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src" / "keepfast"

_CACHES = {"__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".import_linter_cache", ".hypothesis"}
_MADE = {".git", "build", "dist", *_CACHES}


def project_files() -> list[Path]:
    """Every file that is or could be under version control; in a copy without git, all but what tools leave behind."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    if (ROOT / ".git").exists():
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]
    return sorted(_walk(ROOT))


def project_texts() -> Iterator[tuple[str, str]]:
    """Name (relative to the root) and content of every text file of the project."""
    for path in project_files():
        try:
            yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue


def _walk(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.name in _MADE or path.name.startswith(".venv") or path.suffix == ".egg-info":
            continue
        if path.is_dir():
            yield from _walk(path)
        else:
            yield path

"""What this package depends on: in a checkout of keepfast on that checkout, elsewhere on a release."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class DependencyHook(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        checkout = Path(self.root).resolve().parents[1]
        metadata["dependencies"] = [f"keepfast @ {checkout.as_uri()}" if _is_keepfast(checkout) else "keepfast>=0.1.0"]


def _is_keepfast(folder: Path) -> bool:
    project = folder / "pyproject.toml"
    return project.is_file() and tomllib.loads(project.read_text()).get("project", {}).get("name") == "keepfast"

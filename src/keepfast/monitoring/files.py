"""What is written, and writing it: a file is there as a whole or not at all."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from keepfast.core.errors import ConfigError
from keepfast.monitoring.alerts import alerts_of
from keepfast.monitoring.dashboard import dashboard_of
from keepfast.monitoring.rules import rules_file
from keepfast.settings import Settings


def planned(settings: Settings, *, made_from: str) -> dict[str, str]:
    """Name of the file → its text. Raises ConfigError."""
    app = settings.app.name
    return {
        f"{app}.rules.yml": rules_file(alerts_of(settings), made_from=made_from),
        f"{app}.dashboard.json": json.dumps(dashboard_of(settings), indent=2, ensure_ascii=False) + "\n",
    }


def write(files: Mapping[str, str], folder: Path) -> None:
    """Older files of these names are replaced. Raises ConfigError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            handle, draft = tempfile.mkstemp(prefix=f".{name}-", dir=folder)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            Path(draft).chmod(0o644)
            Path(draft).replace(folder / name)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written: {error.strerror}. Choose another place with -o.") from error

"""Alerts and a dashboard for an app, generated from its settings and the catalogue of metrics."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from keepfast.core.errors import ConfigError
from keepfast.monitoring.alerts import Alert, alerts_of, rules_file
from keepfast.monitoring.dashboard import dashboard_of
from keepfast.settings import Settings

__all__ = ["Alert", "alerts_of", "dashboard_of", "monitoring_files", "rules_file", "write_files"]


def monitoring_files(settings: Settings, *, target: str) -> dict[str, str]:
    """File name → content. Raises ConfigError."""
    app = settings.app.name
    return {
        f"{app}.rules.yml": rules_file(alerts_of(settings), target=target),
        f"{app}.dashboard.json": json.dumps(dashboard_of(settings), indent=2, ensure_ascii=False) + "\n",
    }


def write_files(files: Mapping[str, str], folder: Path) -> None:
    """Existing files are replaced, each atomically. Raises ConfigError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            handle, draft = tempfile.mkstemp(prefix=f".{name}-", dir=folder)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            Path(draft).chmod(0o644)
            Path(draft).replace(folder / name)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written: {error.strerror}. Choose another folder with -o.") from error

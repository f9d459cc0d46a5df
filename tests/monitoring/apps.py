"""The settings of an app to make alerts for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keepfast.settings import AppSpec, Settings, load

CHARGE = {"topics": "orders.payment.v1", "retry": "financial"}


def settings_of(
    *, environ: Mapping[str, str] | None = None, app: Mapping[str, Any] | None = None, **consumers: Mapping[str, Any]
) -> Settings:
    spec = AppSpec(name="payments", settings=app or {}, consumers=consumers or {"charge": CHARGE})
    return load(spec, environ=environ or {}, cwd=Path("/nonexistent"))

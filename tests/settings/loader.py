"""A loader for tests: what stands in which source, and what comes out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from keepfast.core.errors import ConfigError
from keepfast.settings import AppSpec, ConsumerSettings, Settings, load


class Loader:
    """Loads the app `shop` with one consumer, `charge` by default."""

    def __init__(self, cwd: Path) -> None:
        self.cwd = cwd

    def load(
        self,
        environ: Mapping[str, str] | None = None,
        *,
        dotenv: str | None = None,
        toml: str | None = None,
        settings: Mapping[str, object] | None = None,
        consumers: Mapping[str, Mapping[str, object]] | None = None,
        **charge: Any,
    ) -> Settings:
        for name, text in ((".env", dotenv), ("keepfast.toml", toml)):
            if text is not None:
                (self.cwd / name).write_text(text, encoding="utf-8")
        own = consumers if consumers is not None else {"charge": {"topics": "orders.payment.v1", **charge}}
        spec = AppSpec(name="shop", settings=settings or {}, consumers=own)
        return load(spec, environ=environ or {}, cwd=self.cwd)

    def charge(self, environ: Mapping[str, str] | None = None, **more: Any) -> ConsumerSettings:
        return self.load(environ, **more).consumers["charge"]

    def problems(self, environ: Mapping[str, str] | None = None, **more: Any) -> tuple[str, ...]:
        with pytest.raises(ConfigError) as caught:
            self.load(environ, **more)
        return caught.value.problems

    def problem(self, environ: Mapping[str, str] | None = None, **more: Any) -> str:
        (only,) = self.problems(environ, **more)
        return only

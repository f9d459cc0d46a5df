"""One setting by the environment alone, for values that are made outside of `load`."""

from __future__ import annotations

from collections.abc import Mapping

from keepfast.core.errors import ConfigError
from keepfast.settings import catalogue
from keepfast.settings.kinds import InvalidValue
from keepfast.settings.shape import variable


def from_environment(section: str, name: str, environ: Mapping[str, str]) -> object:
    """What the first of its variables says, else its default. Raises ConfigError."""
    setting = catalogue.BY_NAME[section].find(name)
    if setting is None:
        raise KeyError(f"{section}.{name}")
    for one in (variable(section, name), *setting.aliases):
        text = environ.get(one, "").strip()
        if text:
            try:
                return setting.kind.parse(text)
            except InvalidValue as unfit:
                raise ConfigError(f"environment variable {one}: {unfit}. Put it right or remove it.") from None
    return setting.default

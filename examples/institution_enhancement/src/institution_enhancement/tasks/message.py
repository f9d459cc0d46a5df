"""What the topic carries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True)
class InstitutionUpsertedMessage:
    """`version` counts the changes of an institution; a replayed letter is older than what is stored."""

    bacen_cod_inst: str
    cnpj: str
    name: str
    version: int = 0

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Raises ValueError: then the record is final."""
        missing = [name for name in ("bacen_cod_inst", "cnpj", "name") if not data.get(name)]
        if missing:
            raise ValueError(f"missing: {', '.join(missing)}")
        if not str(data["cnpj"]).isdigit():
            raise ValueError("cnpj must be digits")
        return cls(str(data["bacen_cod_inst"]), str(data["cnpj"]), str(data["name"]), int(data.get("version", 0)))

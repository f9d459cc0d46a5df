"""What the topic brings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True)
class InstitutionUpserted:
    bacen_cod_inst: str
    cnpj: str
    name: str

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Raises ValueError: then the record is final."""
        missing = [name for name in ("bacen_cod_inst", "cnpj", "name") if not data.get(name)]
        if missing:
            raise ValueError(f"missing: {', '.join(missing)}")
        if not str(data["cnpj"]).isdigit():
            raise ValueError("cnpj must be digits")
        return cls(str(data["bacen_cod_inst"]), str(data["cnpj"]), str(data["name"]))

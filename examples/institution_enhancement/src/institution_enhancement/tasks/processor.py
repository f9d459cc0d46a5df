"""The work: ask the registry for the parent company, and store it. Twice is as good as once."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from institution_enhancement.tasks import cnpja, db_connection
from institution_enhancement.tasks.message import InstitutionUpsertedMessage
from keepfast import upsert

UPDATED = ("cnpj", "name", "parent_name", "enhanced_at")


def process_message(message: InstitutionUpsertedMessage) -> dict[str, Any]:
    """`success`, and the error if there is one: the runner tells those that may pass from those that do not."""
    try:
        parent = cnpja.parent_of(message.cnpj)
        row = {
            "bacen_cod_inst": message.bacen_cod_inst,
            "cnpj": message.cnpj,
            "name": message.name,
            "parent_name": parent,
            "version": message.version,
            "enhanced_at": datetime.now(UTC),
        }
        # A letter that is replayed late changes nothing newer.
        statement = upsert("institution", row, key="bacen_cod_inst", update=UPDATED, newer="version")
        with db_connection.transaction() as cursor:
            cursor.execute(*statement)
    except Exception as error:  # noqa: BLE001 - it becomes the outcome
        return {"success": False, "error": error}
    return {"success": True, "error": None}

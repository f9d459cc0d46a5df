"""The work: ask the registry for the parent company, and store it. Twice is as good as once."""

from __future__ import annotations

from typing import Any

from institution_enhancement.tasks import cnpja, db_connection
from institution_enhancement.tasks.message import InstitutionUpsertedMessage

UPSERT = """
    INSERT INTO institution (bacen_cod_inst, cnpj, name, parent_name, version) VALUES (%s, %s, %s, %s, %s)
    ON CONFLICT (bacen_cod_inst) DO UPDATE SET
        cnpj = EXCLUDED.cnpj, name = EXCLUDED.name, parent_name = EXCLUDED.parent_name,
        version = EXCLUDED.version, enhanced_at = now()
    WHERE institution.version <= EXCLUDED.version -- a letter that is replayed late changes nothing newer
"""


def process_message(message: InstitutionUpsertedMessage) -> dict[str, Any]:
    """`success`, and the error if there is one: the runner tells those that may pass from those that do not."""
    try:
        parent = cnpja.parent_of(message.cnpj)
        row = (message.bacen_cod_inst, message.cnpj, message.name, parent, message.version)
        with db_connection.transaction() as cursor:
            cursor.execute(UPSERT, row)
    except Exception as error:  # noqa: BLE001 - it becomes the outcome
        return {"success": False, "error": error}
    return {"success": True, "error": None}

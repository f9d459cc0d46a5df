"""The work: ask the registry for the parent company, and keep it. Twice is as good as once."""

from __future__ import annotations

from typing import Any, Protocol

from psycopg2.pool import AbstractConnectionPool

from examples.institution_enhancement.message import InstitutionUpserted

_UPSERT = """
    INSERT INTO institution (bacen_cod_inst, cnpj, name, parent_name) VALUES (%s, %s, %s, %s)
    ON CONFLICT (bacen_cod_inst) DO UPDATE SET
        cnpj = EXCLUDED.cnpj, name = EXCLUDED.name, parent_name = EXCLUDED.parent_name, enhanced_at = now()
"""


class Companies(Protocol):
    def parent_of(self, cnpj: str) -> str: ...


class Institutions(Protocol):
    def keep(self, institution: InstitutionUpserted, parent: str) -> None: ...


class PooledInstitutions:
    """In PostgreSQL, with connections of a pool; one that broke does not go back into it."""

    def __init__(self, pool: AbstractConnectionPool) -> None:
        self._pool = pool

    def keep(self, institution: InstitutionUpserted, parent: str) -> None:
        connection: Any = self._pool.getconn()
        try:
            with connection, connection.cursor() as cursor:  # a transaction
                cursor.execute(_UPSERT, (institution.bacen_cod_inst, institution.cnpj, institution.name, parent))
        finally:
            self._pool.putconn(connection, close=bool(connection.closed))


class Processor:
    def __init__(self, registry: Companies, institutions: Institutions) -> None:
        self._registry = registry
        self._institutions = institutions

    def __call__(self, message: InstitutionUpserted) -> dict[str, Any]:
        """`success`, and the error if there is one: the runner tells those that may pass from those that do not."""
        try:
            parent = self._registry.parent_of(message.cnpj)
            self._institutions.keep(message, parent)
        except Exception as error:  # noqa: BLE001 - it becomes the outcome
            return {"success": False, "error": error}
        return {"success": True, "error": None}

"""The work: ask the registry for the parent company, and keep it. Twice is as good as once."""

from __future__ import annotations

import threading
from typing import Any, Protocol

from psycopg2.pool import AbstractConnectionPool, ThreadedConnectionPool

from examples.institution_enhancement.config import DATABASE_S, Config
from examples.institution_enhancement.message import InstitutionUpserted

_UPSERT = """
    INSERT INTO institution (bacen_cod_inst, cnpj, name, parent_name) VALUES (%s, %s, %s, %s)
    ON CONFLICT (bacen_cod_inst) DO UPDATE SET
        cnpj = EXCLUDED.cnpj, name = EXCLUDED.name, parent_name = EXCLUDED.parent_name, enhanced_at = now()
"""


class Companies(Protocol):
    def parent_of(self, cnpj: str) -> str: ...
    def close(self) -> None: ...


class Institutions(Protocol):
    def keep(self, institution: InstitutionUpserted, parent: str) -> None: ...
    def close(self) -> None: ...


class PooledInstitutions:
    """In PostgreSQL, with connections of a pool; one that broke does not go back into it. Any thread.

    The pool is opened by the first institution: where there is no database, records are tried again instead of the
    start failing.
    """

    def __init__(self, config: Config, *, timeout_s: int = DATABASE_S) -> None:
        self._config = config
        self._timeout_s = timeout_s
        self._opening = threading.Lock()
        self._pool: AbstractConnectionPool | None = None

    def keep(self, institution: InstitutionUpserted, parent: str) -> None:
        pool = self._opened()
        connection: Any = pool.getconn()
        try:
            with connection, connection.cursor() as cursor:  # a transaction
                cursor.execute(_UPSERT, (institution.bacen_cod_inst, institution.cnpj, institution.name, parent))
        finally:
            pool.putconn(connection, close=bool(connection.closed))

    def close(self) -> None:
        with self._opening:
            if self._pool is not None:
                self._pool.closeall()

    def _opened(self) -> AbstractConnectionPool:
        config = self._config
        with self._opening:
            if self._pool is None:
                self._pool = ThreadedConnectionPool(
                    config.pool_min,
                    config.pool_max,
                    host=config.postgres_host,
                    port=config.postgres_port,
                    dbname=config.postgres_db,
                    user=config.postgres_user,
                    password=config.postgres_password,
                    connect_timeout=self._timeout_s,
                    options=f"-c statement_timeout={self._timeout_s}s",
                )
            return self._pool


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

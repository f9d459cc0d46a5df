"""The PostgreSQL that a command connects to: from --dsn, the environment, or the settings of an app."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from keepfast.cli.connection import settings_for
from keepfast.core.errors import ConfigError, StartError

if TYPE_CHECKING:
    from keepfast.settings import Settings


def database_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options --app, --dsn and --debug, and the app as an argument, as other commands take it: `target` is
    either.
    """

    @wraps(command)
    def with_app(*, app: str | None, target: str | None, **options: Any) -> None:
        if app is not None and target is not None:
            raise click.UsageError(f"Name the app once: {app}, or --app {target}.")
        command(target=app or target, **options)

    for option in (
        click.option("--debug", is_flag=True, help="Show tracebacks."),
        click.option(
            "--dsn",
            metavar="URL",
            help="The database; overrides POSTGRES_URL, POSTGRES_HOST, … and the app's settings. Needed for an app"
            " whose lifespan makes its pool from other variables.",
        ),
        click.option("--app", "target", metavar="MODULE:APP", help="Read the settings of this app."),
        click.argument("app", metavar="[MODULE:APP]", required=False),
    ):
        with_app = option(with_app)
    return with_app


@contextmanager
def database(target: str | None, dsn: str | None, known: Settings | None = None) -> Iterator[tuple[Any, Settings]]:
    """An open connection in autocommit, and the settings: those that are known, or of the app. Raises ConfigError or
    StartError.
    """
    from keepfast.inbox.postgres import connection_to, conninfo_of, drivers, first_line

    psycopg, _ = drivers()
    settings = known or settings_for(target)
    try:
        conninfo = dsn or conninfo_of(settings.postgres)
    except ConfigError as error:
        raise ConfigError(f"{error} Or name it with --dsn.") from error
    try:
        with connection_to(conninfo) as connection:
            yield connection, settings
    except psycopg.ProgrammingError as error:
        if isinstance(error, psycopg.errors.UndefinedTable):
            raise ConfigError(
                "The tables are not there; make them with `keepfast inbox migrate`, or name another database with"
                " --dsn."
            ) from error
        raise
    except psycopg.OperationalError as error:
        raise StartError(f"PostgreSQL does not accept a connection: {first_line(error)}.") from error

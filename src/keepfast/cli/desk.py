"""`keepfast desk`: the page of the dead-letter desk, and its tokens."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from keepfast.cli.connection import CONNECT_TIMEOUT_S, connect, connection_for, connection_options
from keepfast.cli.dlq_options import spool_of
from keepfast.cli.errors import report_errors
from keepfast.core.errors import ConfigError, KeepfastError
from keepfast.telemetry.clean import clean_text

if TYPE_CHECKING:
    from keepfast.core.records import RecordPlace
    from keepfast.desk.letters import ValueReader
    from keepfast.desk.trials import TrialReport, Trier
    from keepfast.desk_page.access import Network
    from keepfast.desk_page.processes import Processes
    from keepfast.desk_page.server import DeskServer
    from keepfast.kafka.config import Connection
    from keepfast.settings import Settings

PORT = 8484
TRY_TIMEOUT_S = 90.0
"""For a handler that is tried from the page: its own time, and that of the start."""
SUFFIXES = (".dlq", ".dlt", "-dlq", "-dlt", "_dlq", "_dlt")
ROLES = ("viewer", "replayer", "admin")
OPEN_WARNING = (
    "Warning: the desk answers on {host} without TLS, so tokens and what records contain can be read on the way. Put a"
    " proxy with TLS in front of it and start it with --https, or leave out --host."
)


class NetworkType(click.ParamType):  # type: ignore[type-arg]
    """An IP address, or a network such as 10.0.0.0/8."""

    name = "address"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Network:
        try:
            return ip_network(value)
        except ValueError as error:
            self.fail(f"{value!r} is no IP address or network: {error}.", param, ctx)


tokens_option = click.option(
    "--tokens",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="KEEPFAST_DESK_TOKENS",
    help="File of stored tokens; the default is desk-tokens.json in your configuration directory.",
)


@click.group(invoke_without_command=True, short_help="Serve the page of the dead-letter desk.")
@click.option("--topic", "topics", multiple=True, help="A dead-letter topic. Default: those of --app, or all *.dlq.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="0: any free port.")
@click.option("--allow-host", "hosts", multiple=True, metavar="NAME", help="A host name that browsers may use.")
@click.option("--https", is_flag=True, help="It is served through a proxy with TLS: cookies are Secure.")
@click.option(
    "--proxy",
    "proxies",
    multiple=True,
    metavar="ADDRESS",
    type=NetworkType(),
    help="Address or network of that proxy: its X-Forwarded-For is believed.",
)
@click.option("--process", "urls", multiple=True, metavar="URL", help="Health server of a running app.")
@click.option("--archive", metavar="URL", default="", help="A folder or fsspec URL that admins may archive letters to.")
@click.option(
    "--transform", "transforms", multiple=True, metavar="MODULE:FUNCTION", help="A transform that replays may use."
)
@click.option("--index", type=click.Path(file_okay=False, path_type=Path), help="Directory of the index.")
@tokens_option
@connection_options
@click.pass_context
def desk(ctx: click.Context, /, *, target: str | None, brokers: str | None, debug: bool, **options: Any) -> None:
    """Serve a page that shows why records were dead-lettered, and gets them through.

    It listens on this host only, and prints an address with a token that is valid until it stops. Others get tokens of
    their own: `keepfast desk token add NAME --role viewer|replayer|admin`. A viewer reads masked data, a replayer
    replays, discards and restores, an admin may also reveal values, edit and send, try today's handler (of --app),
    archive, purge and control consumers.

    \b
      keepfast desk --app app:app
      keepfast desk --brokers kafka:9092 --topic orders.payment.dlq
      keepfast desk --process http://127.0.0.1:8080      also pause, release and dead-letter there
      keepfast desk --app app:app --archive /srv/letters --transform repair:add_currency
    """
    if ctx.invoked_subcommand is not None:
        return
    with report_errors(debug=debug):
        connection, settings = connection_for(target, brokers)
        trier = None if target is None else SubprocessTrier(target, ",".join(connection.brokers))
        reach = command_options(target or "", () if target and not brokers else connection.brokers)
        server, close = desk_server(connection, settings, trier=trier, reach=reach, **options)
        try:
            server.bind()
            if not server.is_local and not options["https"]:
                click.echo(OPEN_WARNING.format(host=clean_text(options["host"])), err=True)
            click.echo(f"The desk: {server.url}", err=True)
            server.serve()
        finally:
            close()


def desk_server(
    connection: Connection,
    settings: Settings,
    *,
    topics: Sequence[str],
    urls: Sequence[str],
    index: Path | None,
    tokens: Path | None,
    host: str = "127.0.0.1",
    port: int = PORT,
    hosts: Sequence[str] = (),
    https: bool = False,
    proxies: Sequence[Network] = (),
    archive: str = "",
    transforms: Sequence[str] = (),
    trier: Trier | None = None,
    reach: tuple[str, ...] = (),
) -> tuple[DeskServer, Callable[[], None]]:
    """The server, not started, and what closes its clients. Raises ConfigError and StartError."""
    require_extra()
    from keepfast.cli.dlq_replay import load_transform
    from keepfast.desk.desk import Desk, DeskOptions, default_index_dir
    from keepfast.desk_page.server import DeskServer, DeskServerOptions
    from keepfast.desk_page.tokens import default_path

    named = tuple(topics) or tuple(
        sorted({one for own in settings.consumers.values() for one in own.dead_letter_topics.values()})
    )
    admin = connect(connection)
    found = named or letter_topics(admin.names(CONNECT_TIMEOUT_S))
    options = DeskOptions(
        topics=found,
        by="desk",
        desk_topic=settings.desk.topic,
        replay_limit=settings.desk.replay_limit,
        index_dir=index or default_index_dir(),
        via="page",
    )
    made = Desk(connection, options, spool=spool_of(settings) if settings.consumers else None)
    clients = ExitStack()
    clients.callback(made.close)
    server = DeskServer(
        made,
        _processes(settings, urls),
        DeskServerOptions(
            host=host,
            port=port,
            hosts=tuple(hosts),
            tokens=tokens or default_path(),
            https=https,
            proxies=tuple(proxies),
            archive=archive,
            transforms={name: load_transform(name) for name in transforms},
            trier=trier,
            command_options=reach,
            reader=_reader_of(settings, clients),
        ),
        discover=None if named else lambda: letter_topics(made.cluster.names()),
    )
    return server, clients.close


def _processes(settings: Settings, urls: Sequence[str]) -> Processes:
    """Those of --process, or else the app's own."""
    from keepfast.desk_page.processes import Processes

    token = settings.control.token
    return Processes(tuple(urls) or _own_process(settings), token.reveal() if token else "")


def _reader_of(settings: Settings, clients: ExitStack) -> ValueReader | None:
    """Reads values by the registry, whose client is closed with the others; None without one."""
    from keepfast.app.schemas import source_of
    from keepfast.cli.dlq_view import reading_of

    if settings.registry.url is None:
        return None
    source = source_of(settings.registry, at_once=True)
    clients.callback(source.close)
    return partial(reading_of, source=source)


def command_options(target: str, brokers: Sequence[str]) -> tuple[str, ...]:
    """The options with which a command reaches the cluster of a desk."""
    return (*(("--app", target) if target else ()), *(("--brokers", ",".join(brokers)) if brokers else ()))


def _own_process(settings: Settings) -> tuple[str, ...]:
    """The app's own port on this host."""
    health = settings.health
    served = health.enabled and health.port and not health.host.startswith("unix:")
    return (f"http://127.0.0.1:{health.port}",) if served else ()


def letter_topics(names: set[str]) -> tuple[str, ...]:
    """Those that are called like dead-letter topics."""
    return tuple(sorted(name for name in names if name.lower().endswith(SUFFIXES)))


def require_extra() -> None:
    """Raises ConfigError if the extra `desk` is not installed."""
    from importlib.util import find_spec

    missing = [name for name in ("jinja2", "python_multipart", "starlette", "uvicorn") if find_spec(name) is None]
    if missing:
        raise ConfigError(f"The desk needs {', '.join(missing)}: pip install {' '.join(missing)}.")


class SubprocessTrier:
    """Implements `desk.trials.Trier` with `keepfast dlq try` in a process of its own: the code is that of now, and what
    a handler does to its process does not harm the desk. That process writes the audit, unless it is killed: because it
    takes longer than `TRY_TIMEOUT_S`, or by the handler or the system.
    """

    def __init__(self, target: str, brokers: str, **environ: str) -> None:
        self._target = target
        self._brokers = brokers
        self._environ = {**os.environ, **environ}

    def __call__(self, place: RecordPlace, by: str) -> TrialReport:
        from keepfast.desk.trials import CapturedSend, TrialKilled, TrialReport

        options = ["--app", self._target, "--brokers", self._brokers, "--by", by, "--yes", "--json"]
        where = ["dlq", "try", place.topic, f"{place.partition}:{place.offset}"]
        try:
            done = subprocess.run(
                [sys.executable, "-P", "-m", "keepfast", *where, *options],
                env=self._environ,
                capture_output=True,
                stdin=subprocess.DEVNULL,
                text=True,
                timeout=TRY_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise TrialKilled(f"The handler did not end within {TRY_TIMEOUT_S:g} s and was killed.") from error
        if done.returncode < 0:
            raise TrialKilled(f"The process of the handler was killed by signal {-done.returncode}.")
        try:
            fields = json.loads(done.stdout.splitlines()[-1])
            return TrialReport(**{**fields, "sent": [CapturedSend(**one) for one in fields["sent"]]})
        except (IndexError, KeyError, TypeError, ValueError):
            lines = [line for line in done.stderr.splitlines() if line.strip()]
            why = clean_text(lines[-1], 500) if lines else f"exit code {done.returncode}"
            raise KeepfastError(f"The handler could not be tried: {why}") from None


def desk_beside(
    connection: Connection, *, urls: Sequence[str], token: str, target: str = "", trier: Trier | None = None
) -> AbstractContextManager[DeskServer] | str:
    """A desk for `dev` and `demo`, on any free port, without stored tokens; or why there is none. `target`: the app."""
    try:
        require_extra()
    except ConfigError as error:
        return str(error)
    from keepfast.desk_page.server import beside

    reach = command_options(target, connection.brokers)
    return beside(connection, urls=urls, token=token, discover=letter_topics, trier=trier, command_options=reach)


@desk.group(short_help="Make, list and remove tokens.")
def token() -> None:
    """Tokens for the page and the API. Each has a name, which is what the audit records, and a role."""


@token.command(short_help="Make a token.")
@click.argument("name")
@click.option("--role", type=click.Choice(ROLES), default="viewer", show_default=True, help="What it may do.")
@tokens_option
def add(name: str, *, role: Any, tokens: Path | None) -> None:
    """Make a token for NAME and print it. It is not stored, only its hash is: keep it."""
    with report_errors(debug=False):
        click.echo(_file(tokens).add(name, role))


@token.command("list", short_help="List names and roles.")
@tokens_option
def list_tokens(*, tokens: Path | None) -> None:
    """List the names and roles of stored tokens."""
    with report_errors(debug=False):
        for one in _file(tokens).tokens():
            click.echo(f"{one.name}  {one.role}  {one.created_at}")


@token.command(short_help="Remove a token.")
@click.argument("name")
@tokens_option
def remove(name: str, *, tokens: Path | None) -> None:
    """Remove the token of NAME. Its sessions end at once."""
    with report_errors(debug=False):
        if not _file(tokens).remove(name):
            raise ConfigError(f"There is no token for {name}; `keepfast desk token list` shows them.")
        click.echo(f"Removed: {name}.")


def _file(path: Path | None) -> Any:
    from keepfast.desk_page.tokens import TokenFile, default_path

    return TokenFile(path or default_path())

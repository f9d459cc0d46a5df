"""The cluster that a command connects to: from --brokers, the environment, a running `keepfast dev`, or an app."""

from __future__ import annotations

import difflib
import getpass
import os
import shlex
import socket
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from keepfast.core.errors import ConfigError, SourceError, StartError
from keepfast.kafka.admin import KafkaAdmin
from keepfast.kafka.config import Connection, admin_properties
from keepfast.telemetry.clean import mask_with

if TYPE_CHECKING:
    from keepfast.cli.dev_registry import DevBroker
    from keepfast.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])

CONNECT_TIMEOUT_S = 10.0
EXIT_INTERRUPTED = 130


brokers_option = click.option(
    "--brokers",
    "--bootstrap",
    "brokers",
    metavar="HOST:PORT,…",
    help="Overrides KAFKA_BROKERS, a running `keepfast dev` and the app's brokers.",
)


def connection_options(command: F) -> F:
    """Add the options --app, --brokers and --debug."""
    for option in (
        click.option("--debug", is_flag=True, help="Show tracebacks."),
        brokers_option,
        click.option("--app", "target", metavar="MODULE:APP", help="Read brokers and topics from this app."),
    ):
        command = option(command)
    return command


def connection_for(target: str | None, brokers: str | None) -> tuple[Connection, Settings]:
    """Connection and settings from --app and --brokers, or the environment alone. Raises ConfigError or LoadError."""
    from keepfast.wiring.clients import connection_of

    settings = settings_for(target)
    mask_with(settings.masking.rules)
    connection = connection_of(settings.kafka)
    if brokers is not None:
        connection = replace(connection, brokers=addresses_of(brokers))
    elif (near := dev_broker(target, settings.origins.get("kafka.brokers", ""), choose="--brokers")) is not None:
        click.echo(f"Using the broker of `keepfast dev {near.app}`, {near.address}.", err=True)
        connection = Connection(brokers=(near.address,), client_id=connection.client_id)
    # The client's own lines on standard error would mix with ours and say less.
    return replace(connection, properties={"log_level": 0, **connection.properties}), settings


def reach_options() -> str:
    """The options with which the running command has found its cluster, for a command that it suggests: each after
    a space.
    """
    given = click.get_current_context().params
    named = [("--app", given.get("target")), ("--brokers", given.get("brokers"))]
    return "".join(f" {option} {shlex.quote(value)}" for option, value in named if value)


def addresses_of(brokers: str) -> tuple[str, ...]:
    """The addresses that --brokers names. Raises ConfigError if it names none."""
    addresses = tuple(part.strip() for part in brokers.split(",") if part.strip())
    if not addresses:
        raise ConfigError("--brokers is empty; write HOST:PORT, or several with commas.")
    return addresses


def dev_broker(target: str | None, origin: str, *, choose: str) -> DevBroker | None:
    """The broker of a running `keepfast dev`, or None. `origin` is where the setting comes from that names a broker,
    or a port, otherwise; `choose` is the option that does.

    Brokers named by the environment win. A `keepfast dev` of this directory takes precedence over brokers from files
    and code, as it does for the app itself; one of another directory is used only if no brokers are configured.
    Raises ConfigError if several qualify.
    """
    from keepfast.cli.dev_registry import running

    if origin.startswith("environment"):
        return None
    found = running()
    near = [one for one in found if one.is_near(Path.cwd())] or ([] if origin else found)
    of_this_app = [one for one in near if one.app == target]
    near = of_this_app or near
    if len(near) > 1:
        names = " and ".join(map(str, near))
        raise ConfigError(f"Several brokers of `keepfast dev` are running: {names}. Choose one with {choose}.")
    return near[0] if near else None


def dev_app() -> str | None:
    """The app of the `keepfast dev` that runs in this directory; None if there is none, or more than one."""
    from keepfast.cli.dev_registry import running

    here = [one.app for one in running() if one.folder == str(Path.cwd())]
    return here[0] if len(here) == 1 else None


def connect(connection: Connection) -> KafkaAdmin:
    """An admin client of a cluster that has answered. Raises StartError, at once if the connection is refused."""
    admin = KafkaAdmin(admin_properties(connection), fail_fast=True)
    with as_start_error():
        admin.check(CONNECT_TIMEOUT_S)
    return admin


def missing_topic(topic: str, existing: Collection[str], hint: str) -> str:
    """The error message for a missing topic; suggests an existing one with a similar name."""
    near = difflib.get_close_matches(topic, existing, n=1)
    return f"There is no topic {topic}. {f'Did you mean {near[0]}? ' if near else ''}{hint}"


@contextmanager
def as_start_error() -> Iterator[None]:
    """Raise a SourceError from within as StartError (exit code 3)."""
    try:
        yield
    except SourceError as error:
        raise StartError(str(error)) from error


@contextmanager
def exit_on_interrupt() -> Iterator[None]:
    """Exit with code 130 on Ctrl-C, without a message."""
    try:
        yield
    except KeyboardInterrupt:
        raise click.exceptions.Exit(EXIT_INTERRUPTED) from None


def settings_for(target: str | None) -> Settings:
    """The settings of an app or runner, or of the environment if `target` is None. Raises ConfigError or LoadError."""
    from keepfast.settings import AppSpec, load

    if target is not None:
        from keepfast.cli.app_loader import load_app_or_runner

        return load_app_or_runner(target, cwd=Path.cwd()).settings()
    # Without the app its consumers are unknown, so their variables cannot be validated.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("KEEPFAST_CONSUMERS_")}
    try:
        return load(AppSpec(name="keepfast"), environ=environ, cwd=Path.cwd())
    except ConfigError as error:
        *others, last = error.problems
        raise ConfigError(*others, f"{last} (If these settings belong to an app, name it with --app.)") from error


def acting_user() -> str:
    """Who runs this command, for the audit: `user@host`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid()) if hasattr(os, "getuid") else "unknown"
    return f"{user}@{socket.gethostname()}"

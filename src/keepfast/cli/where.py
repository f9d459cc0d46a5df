"""Where a command looks: the brokers of an app, of the environment, or those that are named."""

from __future__ import annotations

import difflib
import os
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
    from keepfast.cli.announced import DevBroker
    from keepfast.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])

REACH_S = 10.0
EXIT_INTERRUPTED = 130


brokers_option = click.option(
    "--brokers",
    "--bootstrap",
    "brokers",
    metavar="HOST:PORT,…",
    help="Instead of KAFKA_BROKERS, of a `keepfast dev` that runs, or of the app's.",
)


def where_options(command: F) -> F:
    """--app, --brokers, --debug."""
    for option in (
        click.option("--debug", is_flag=True, help="Show tracebacks."),
        brokers_option,
        click.option("--app", "target", metavar="MODULE:APP", help="Take brokers and topics from this app."),
    ):
        command = option(command)
    return command


def connection_for(target: str | None, brokers: str | None) -> tuple[Connection, Settings]:
    """From --app and --brokers; without an app, from the environment alone. Raises ConfigError or LoadError."""
    from keepfast.wiring.clients import connection_of

    settings = settings_for(target)
    mask_with(settings.masking.rules)
    connection = connection_of(settings.kafka)
    if brokers is not None:
        addresses = tuple(part.strip() for part in brokers.split(",") if part.strip())
        if not addresses:
            raise ConfigError("--brokers is empty; write HOST:PORT, or several with commas.")
        connection = replace(connection, brokers=addresses)
    elif (near := _dev_broker(target, settings.origins.get("kafka.brokers", ""))) is not None:
        click.echo(f"On the broker of `keepfast dev {near.app}`, {near.address}.", err=True)
        connection = Connection(brokers=(near.address,), client_id=connection.client_id)
    # The client's own words on standard error would come between ours, and say less.
    return replace(connection, properties={"log_level": 0, **connection.properties}), settings


def _dev_broker(target: str | None, told: str) -> DevBroker | None:
    """The broker of a `keepfast dev` that runs, unless the environment names brokers. One of this folder goes before
    what files and code say, as it does for the app itself; one of another folder is taken where nobody says anything.
    """
    from keepfast.cli.announced import running

    if told.startswith("environment"):
        return None
    found = running()
    near = [one for one in found if one.is_near(Path.cwd())] or ([] if told else found)
    of_this_app = [one for one in near if one.app == target]
    near = of_this_app or near
    if len(near) > 1:
        names = " and ".join(map(str, near))
        raise ConfigError(f"Several brokers of `keepfast dev` run: {names}. Choose one with --brokers.")
    return near[0] if near else None


def reached(connection: Connection) -> KafkaAdmin:
    """A cluster that answers. Raises StartError, sooner where nobody listens."""
    admin = KafkaAdmin(admin_properties(connection), hurried=True)
    with told_as_start_error():
        admin.check(REACH_S)
    return admin


def no_topic(topic: str, there: Collection[str], hint: str) -> str:
    """The sentence about a topic that is not among those that are there; one that is spelled alike goes first."""
    near = difflib.get_close_matches(topic, there, n=1)
    return f"There is no topic {topic}. {f'Did you mean {near[0]}? ' if near else ''}{hint}"


@contextmanager
def told_as_start_error() -> Iterator[None]:
    """The cluster is needed and does not serve: exit code 3."""
    try:
        yield
    except SourceError as error:
        raise StartError(str(error)) from error


@contextmanager
def interrupted_quietly() -> Iterator[None]:
    """Ctrl-C while looking: exit code 130, no words."""
    try:
        yield
    except KeyboardInterrupt:
        raise click.exceptions.Exit(EXIT_INTERRUPTED) from None


def settings_for(target: str | None) -> Settings:
    """Of an app or a runner, or of the environment alone. Raises ConfigError or LoadError."""
    from keepfast.settings import AppSpec, load

    if target is not None:
        from keepfast.cli.loading import load_app_or_runner

        return load_app_or_runner(target, cwd=Path.cwd()).settings()
    # Without the app its consumers are not known, so what the environment says about them is not for us.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("KEEPFAST_CONSUMERS_")}
    try:
        return load(AppSpec(name="keepfast"), environ=environ, cwd=Path.cwd())
    except ConfigError as error:
        *others, last = error.problems
        raise ConfigError(*others, f"{last} (If these settings belong to an app, name it with --app.)") from error

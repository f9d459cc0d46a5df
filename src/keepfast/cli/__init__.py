"""The `keepfast` command line: one module per sub-command, imported only when that sub-command runs."""

from __future__ import annotations

import difflib
import importlib
import os
import signal
from typing import Final

import click

from keepfast import __version__
from keepfast.core import checks

COMMANDS: Final = {
    "run": "Run the consumers of an app until a signal stops them.",
    "dev": "Run your app on a broker of its own and restart it when the code changes.",
    "new": "Create a project for a consumer, with tests and a Dockerfile.",
    "doctor": "Check the environment, brokers, topics and permissions of an app.",
    "check": "Check an app against the rules of the consumer standard.",
    "top": "Show a live view of a running app.",
    "ctl": "Inspect and control a running app: pause, resume, release, log level.",
    "lag": "Show the lag of groups in records and seconds, and whether they progress.",
    "offsets": "Show the committed offsets of a group, and reset those of a stopped one.",
    "replay-from": "Process a range of records again, with a group of its own.",
    "dlq": "Inspect and replay dead letters.",
    "desk": "Serve the page of the dead-letter desk.",
    "spool": "Inspect and publish dead letters that Kafka did not accept.",
    "inbox": "Create the tables of inboxes, show and clean what they hold.",
    "outbox": "Show events that are not sent yet, and send them.",
    "monitoring": "Write alerts for Prometheus and a dashboard for Grafana.",
    "asyncapi": "Print the AsyncAPI 3 document of an app.",
    "schema": "Show and compare schemas of the registry.",
    "send": "Produce records to a topic.",
    "broker": "Run a Kafka broker for development.",
    "demo": "Run a demonstration that needs no installation.",
    "explain": "Show how an exception is classified, and by which rule.",
}
"""Name → description. The module `keepfast.cli.<name>` defines the command as `<name>`, with `_` for `-`."""


class LazyGroup(click.Group):
    """Imports a command only when it is invoked, so that `--help` is fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        name = cmd_name.replace("-", "_")
        command = getattr(importlib.import_module(f"keepfast.cli.{name}"), name)
        if not isinstance(command, click.Command):
            raise TypeError(f"keepfast.cli.{cmd_name}:{cmd_name} must be a click command; it is {command!r}")
        return command

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # before the command handles signals itself; click would exit with 1
            click.echo("Stopped.", err=True)
            raise click.exceptions.Exit(128 + signal.SIGINT) from None

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        for argument in args:
            if not checks.is_utf8(argument):  # neither Kafka nor a terminal takes it
                raise click.UsageError(f"The argument {argument!r} is not UTF-8 text.", ctx)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            if not near or "Did you mean" in error.message:
                raise
            raise click.UsageError(f"{error.message} Did you mean {near[0]!r}?", ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's shape
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="See `keepfast COMMAND --help` for details of a command.",
)
@click.version_option(__version__, prog_name="keepfast", message="%(prog)s %(version)s")
@click.pass_context
def main(ctx: click.Context) -> None:
    """A Kafka consumer runtime: write one function, lose no record.

    \b
    Start with:
      keepfast demo          see what it does
      keepfast dev app:app   your own app, without a broker to install
      keepfast run app:app   the same app on your brokers
    """
    if os.environ.get("NO_COLOR"):
        ctx.color = False

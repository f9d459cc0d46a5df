"""`keepfast dev`: an app of one's own on a broker that needs no installation, started anew when the code changes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from keepfast.cli.broker import MAX_PARTITIONS, BrokerStopped, ignore_signals, stop_on_signals
from keepfast.cli.errors import said_plainly
from keepfast.cli.run import LogFormat, RunOptions, consumer_options
from keepfast.core.exit_codes import EXIT_DEADLINE

if TYPE_CHECKING:
    from keepfast.cli.dev_child import Bench
    from keepfast.supervisor import ChildPlace

EMBEDDED_PARTITIONS = 4


@click.command(short_help="Your app on a broker of its own, started anew when the code changes.")
@click.argument("target", metavar="[MODULE:APP]", default="app:app")
@click.option("--kafka", is_flag=True, help="On a real Kafka (needs Java and Maven) instead of the embedded broker.")
@click.option(
    "--partitions",
    type=click.IntRange(1, MAX_PARTITIONS),
    default=EMBEDDED_PARTITIONS,
    show_default=True,
    help="Of each topic that is made; the embedded broker always has 4.",
)
@consumer_options
def dev(
    target: str,
    *,
    kafka: bool,
    partitions: int,
    consumers: tuple[str, ...],
    log_level: str | None,
    log_format: LogFormat | None,
    debug: bool,
) -> None:
    """Run your app on a broker that is started for it, with its topics made, and start it anew when its code changes.

    MODULE:APP is as for `keepfast run`; without it, app:app. Brokers and logins in your settings are not used. The
    broker stays while the code changes, also while the code is broken; it ends with this command, and its records with
    it.

    \b
    In one terminal:
      keepfast dev app:app
    \b
    In another; they find the broker by themselves:
      keepfast send orders.payment.v1 '{"id": "a1", "amount": 12}'
      keepfast dlq list orders.payment.dlq
    """
    if partitions != EMBEDDED_PARTITIONS and not kafka:
        raise click.UsageError("The embedded broker has 4 partitions a topic: leave out --partitions, or add --kafka.")
    options = RunOptions(
        target=target, consumers=consumers, wait=False, log_level=log_level, log_format=log_format, debug=debug
    )
    with said_plainly(debug=debug):
        code = _dev(options, kafka=kafka, partitions=partitions)
    sys.exit(code)


def _dev(options: RunOptions, *, kafka: bool, partitions: int) -> int:
    from keepfast.cli.loading import must_be_there
    from keepfast.cli.reload import Reloader

    must_be_there(options.target, cwd=Path.cwd())
    stop_on_signals()
    try:
        with ExitStack() as stack:
            bench, died = _start(stack, kafka=kafka, partitions=partitions)
            _announce(stack, bench, options.target)

            def command(place: ChildPlace) -> Sequence[str]:
                kind = ["--dev-embedded"] if bench.embedded else []
                mine = ["--dev-at", bench.address, "--dev-partitions", str(bench.partitions), *kind]
                return options.command("--tether", str(place.tether_fd), *mine)

            code = Reloader(command, root=Path.cwd(), died=died).run()
            ignore_signals()
    except BrokerStopped:
        code = 0
    click.echo(last_words(code), err=True)
    return code


def last_words(code: int) -> str:
    """What is left, by the exit code of the app."""
    late = "Not everything was finished in time: see deadline_passed above. " if code == EXIT_DEADLINE else ""
    return f"{late}Stopped; the broker and its records are gone."


def _start(stack: ExitStack, *, kafka: bool, partitions: int) -> tuple[Bench, Callable[[], str]]:
    from keepfast.cli.broker import started_kafka
    from keepfast.cli.dev_child import Bench

    if kafka:
        running, died = started_kafka(stack)
        click.echo(f"Apache Kafka for this session: {running.bootstrap}", err=True)
        return Bench(address=running.bootstrap, embedded=False, partitions=partitions), died
    from keepfast.testing.embedded import EmbeddedBroker

    embedded = stack.enter_context(EmbeddedBroker())
    click.echo(f"Embedded broker, in memory (--kafka starts a real one): {embedded.bootstrap}", err=True)
    return Bench(address=embedded.bootstrap, embedded=True, partitions=EMBEDDED_PARTITIONS), str


def _announce(stack: ExitStack, bench: Bench, target: str) -> None:
    from keepfast.cli.announced import DevBroker, announced

    try:
        stack.enter_context(announced(DevBroker(address=bench.address, app=target, folder=str(Path.cwd()))))
    except OSError as error:
        text = f"Other commands cannot find this broker ({error}): give them --brokers {bench.address}."
        click.echo(text, err=True)

"""`keepfast dev`: runs an app on a broker that needs no installation, and restarts it when the code changes."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from keepfast.cli.broker import MAX_PARTITIONS, BrokerStopped, ignore_signals, stop_on_signals
from keepfast.cli.errors import report_errors
from keepfast.cli.run import LogFormat, RunOptions, consumer_options
from keepfast.core.exit_codes import EXIT_DEADLINE

if TYPE_CHECKING:
    from keepfast.cli.dev_environment import DevEnvironment
    from keepfast.supervisor import ChildSpec

EMBEDDED_PARTITIONS = 4


@click.command(short_help="Run your app on a broker of its own and restart it when the code changes.")
@click.argument("target", metavar="[MODULE:APP]", default="app:app")
@click.option("--kafka", is_flag=True, help="Use a real Kafka (needs Java and Maven) instead of the embedded broker.")
@click.option(
    "--partitions",
    type=click.IntRange(1, MAX_PARTITIONS),
    default=EMBEDDED_PARTITIONS,
    show_default=True,
    help="Partitions of each created topic; the embedded broker always has 4.",
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
    """Run your app on a broker that is started for it, create its topics, and restart the app when its code changes.

    MODULE:APP is as for `keepfast run`; the default is app:app. Brokers and credentials in your settings are ignored.
    The broker keeps running while the app restarts, or while its code is broken; it ends with this command, and its
    records are deleted.

    \b
    In one terminal:
      keepfast dev app:app
    \b
    In another, which finds the broker by itself:
      keepfast send orders.payment.v1 '{"id": "a1", "amount": 12}'
      keepfast dlq causes orders.payment.dlq
    """
    if partitions != EMBEDDED_PARTITIONS and not kafka:
        raise click.UsageError("The embedded broker has 4 partitions per topic: omit --partitions, or add --kafka.")
    options = RunOptions(
        target=target, consumers=consumers, wait=False, log_level=log_level, log_format=log_format, debug=debug
    )
    with report_errors(debug=debug):
        code = _dev(options, kafka=kafka, partitions=partitions)
    sys.exit(code)


def _dev(options: RunOptions, *, kafka: bool, partitions: int) -> int:
    from keepfast.cli.app_loader import require_module
    from keepfast.cli.reload import Reloader, require_watchfiles

    require_watchfiles()
    require_module(options.target, cwd=Path.cwd())
    stop_on_signals()
    try:
        with ExitStack() as stack:
            dev_env, died = _start(stack, kafka=kafka, partitions=partitions)
            token = os.environ.setdefault("KEEPFAST_CONTROL_TOKEN", secrets.token_urlsafe(24))
            _register(stack, dev_env, options.target, token)
            _start_desk(stack, dev_env, options.target, token)

            def command(spec: ChildSpec) -> Sequence[str]:
                kind = ["--dev-embedded"] if dev_env.embedded else []
                mine = ["--dev-at", dev_env.address, "--dev-partitions", str(dev_env.partitions), *kind]
                mine += ["--dev-health-port", str(dev_env.health_port)]
                return options.command("--parent-fd", str(spec.parent_fd), *mine)

            code = Reloader(command, root=Path.cwd(), died=died).run()
            ignore_signals()
    except BrokerStopped:
        code = 0
    click.echo(closing_message(code), err=True)
    return code


def closing_message(code: int) -> str:
    """The last line, by the exit code of the app."""
    late = "Not everything finished in time: see deadline_passed above. " if code == EXIT_DEADLINE else ""
    return f"{late}Stopped; the broker and its records are deleted."


def _start(stack: ExitStack, *, kafka: bool, partitions: int) -> tuple[DevEnvironment, Callable[[], str]]:
    from keepfast.cli.broker import start_kafka
    from keepfast.cli.dev_environment import DevEnvironment, free_health_port

    port = {"health_port": free_health_port()}
    if kafka:
        running, died = start_kafka(stack)
        click.echo(f"Apache Kafka for this session: {running.bootstrap}", err=True)
        return DevEnvironment(address=running.bootstrap, embedded=False, partitions=partitions, **port), died
    from keepfast.testing.embedded import EmbeddedBroker

    embedded = stack.enter_context(EmbeddedBroker())
    click.echo(f"Embedded broker, in memory (--kafka starts a real one): {embedded.bootstrap}", err=True)
    return DevEnvironment(address=embedded.bootstrap, embedded=True, partitions=EMBEDDED_PARTITIONS, **port), str


def _start_desk(stack: ExitStack, dev_env: DevEnvironment, target: str, token: str) -> None:
    """The desk of this broker, if its packages are installed."""
    from keepfast.cli.desk import SubprocessTrier, desk_beside
    from keepfast.kafka.config import Connection

    dev_env.create_desk_topics()
    connection = Connection(brokers=(dev_env.address,), properties={"log_level": 0})
    trier = SubprocessTrier(target, dev_env.address, KAFKA_BROKERS=dev_env.address)
    url = f"http://127.0.0.1:{dev_env.health_port}"
    made = desk_beside(connection, urls=[url], token=token, target=target, trier=trier)
    if isinstance(made, str):
        click.echo(f"Without the desk: {made}", err=True)
        return
    click.echo(f"Dead letters: {stack.enter_context(made).url}", err=True)


def _register(stack: ExitStack, dev_env: DevEnvironment, target: str, token: str) -> None:
    """So that commands in another terminal find the broker, and the control API of the app."""
    from keepfast.cli.dev_registry import DevBroker, register

    port = dev_env.health_port
    broker = DevBroker(address=dev_env.address, app=target, folder=str(Path.cwd()), health_port=port, token=token)
    try:
        stack.enter_context(register(broker))
    except OSError as error:
        text = f"Other commands cannot find this broker ({error}): pass them --brokers {dev_env.address}."
        click.echo(text, err=True)

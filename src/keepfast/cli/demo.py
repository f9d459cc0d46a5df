"""`keepfast demo`: a demonstration that needs no installation."""

from __future__ import annotations

import json
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from keepfast.cli.connection import EXIT_INTERRUPTED
from keepfast.cli.errors import report_errors
from keepfast.cli.terminal import console

if TYPE_CHECKING:
    from collections.abc import Mapping

    from keepfast.demo.reconcile import Account
    from keepfast.demo.screen import ScreenView

EXIT_WRONG = 1


@click.command(short_help="Run a demonstration that needs no installation.")
@click.option("--records", type=click.IntRange(100, 50_000), default=4_000, show_default=True, help="Orders to send.")
@click.option("--seed", type=int, default=7, show_default=True, help="Seed of the generated orders.")
@click.option("--kafka", is_flag=True, help="Use a real Kafka (needs Java and Maven) instead of the embedded broker.")
@click.option("--stay", is_flag=True, help="Keep broker and consumer running at the end, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print the account as JSON; all else goes to standard error.")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
@click.option("--svg", type=click.Path(dir_okay=False), hidden=True, help="Save the screen as a picture.")
@click.option("--shop", metavar="MODULE:APP", hidden=True, help="Another shop, for tests of the demo.")
@click.option("--calm", is_flag=True, hidden=True, help="No outage and no crash, for tests of the demo.")
def demo(*, debug: bool, **options: Any) -> None:
    """Process the orders of a small shop with a real consumer, while things go wrong.

    Some orders fail for a while, some can never be shipped, the carrier has an outage, and one order kills the process
    that handles it. The demo shows why orders were dead-lettered, deploys a fix and replays them. At the end, another
    process reads the topics and accounts for every order by its id.

    \b
      keepfast demo
      keepfast demo --kafka --records 20000
      keepfast demo --stay     then, in another terminal: keepfast dlq causes shop.order.dlq --brokers …

    \b
    Exit codes: 0 every order is accounted for, 1 orders are lost or wrong, 3 the broker did not start,
    130 Ctrl-C.
    """
    with report_errors(debug=debug), _exit_on_signals():
        account = _play(options)
        if options["as_json"]:
            click.echo(json.dumps(asdict(account), indent=2))
    sys.exit(0 if account.is_right else EXIT_WRONG)


def _play(options: dict[str, Any]) -> Account:
    from keepfast.demo.orders import OrderPlan
    from keepfast.demo.story import SHOP, Stage, play

    begun_at = time.monotonic()
    view = _view(options)
    temporary = tempfile.TemporaryDirectory(prefix="keepfast-demo-")
    health = _health() if options["stay"] else {}
    with temporary as folder, view, _broker(kafka=options["kafka"]) as (brokers, kind, settings):
        stage = Stage(
            brokers=brokers,
            kind=kind,
            plan=OrderPlan(options["records"], options["seed"], calm=options["calm"]),
            view=view,
            folder=Path(folder),
            begun_at=begun_at,
            settings={**settings, **health},
            target=options["shop"] or SHOP,
        )

        def then(account: Account) -> None:
            view.account(account)
            if options["stay"]:
                _stay(brokers, health, kafka=options["kafka"], as_json=options["as_json"])

        return play(stage, then)


def _health() -> dict[str, str]:
    """Settings of a consumer that the desk can see and control."""
    from keepfast.testing.loopback import free_ports

    return {
        "KEEPFAST_HEALTH_ENABLED": "true",
        "KEEPFAST_HEALTH_HOST": "127.0.0.1",
        "KEEPFAST_HEALTH_PORT": str(free_ports(1)[0]),
        "KEEPFAST_CONTROL_TOKEN": secrets.token_urlsafe(24),
    }


@contextmanager
def _broker(*, kafka: bool) -> Iterator[tuple[str, str, Mapping[str, str]]]:
    """Start a broker; yields its address, its description and the settings that a consumer needs on it.

    Raises StartError.
    """
    from keepfast.demo.story import EMBEDDED, topics
    from keepfast.testing import EmbeddedBroker, KafkaBroker
    from keepfast.testing.embedded import PARTITIONS
    from keepfast.testing.jars import KAFKA_VERSION

    if kafka:
        with KafkaBroker() as broker:
            for topic in topics():
                broker.create_topic(topic, partitions=PARTITIONS)
            yield broker.bootstrap, f"a real Apache Kafka {KAFKA_VERSION}", {}
        return
    with EmbeddedBroker() as embedded:
        for topic in topics():
            embedded.create_topic(topic)
        yield embedded.bootstrap, "embedded in this process: no Java, no Docker", EMBEDDED


def _view(options: dict[str, Any]) -> ScreenView:
    from keepfast.demo.screen import WIDTH, ScreenView

    screen = console(stderr=options["as_json"])
    if options["svg"]:
        screen.width = WIDTH  # a picture has a fixed width, independent of the terminal
    return ScreenView(screen, picture=options["svg"])


def _stay(brokers: str, health: Mapping[str, str], *, kafka: bool, as_json: bool) -> None:
    """Wait for Ctrl-C or SIGTERM, which end the demo as requested. The desk is served meanwhile."""
    with ExitStack() as stack:
        _wait(brokers, _desk(stack, brokers, health, kafka=kafka), as_json=as_json)


def _desk(stack: ExitStack, brokers: str, health: Mapping[str, str], *, kafka: bool) -> str:
    """What to say about the desk."""
    from keepfast.cli.desk import desk_beside
    from keepfast.core.replays import DESK_TOPIC
    from keepfast.kafka.config import Connection
    from keepfast.testing.embedded import make_topics

    if not kafka:
        make_topics(brokers, [DESK_TOPIC, f"{DESK_TOPIC}.audit"])
    connection = Connection(brokers=tuple(brokers.split(",")), properties={"log_level": 0})
    url = f"http://127.0.0.1:{health['KEEPFAST_HEALTH_PORT']}"
    made = desk_beside(connection, urls=(url,), token=health["KEEPFAST_CONTROL_TOKEN"])
    return f"Without the desk: {made}" if isinstance(made, str) else f"Dead letters: {stack.enter_context(made).url}"


def _wait(brokers: str, desk: str, *, as_json: bool) -> None:
    write = partial(click.echo, err=as_json)
    write(f"\nBroker and consumer keep running at {brokers} until Ctrl-C.")
    write(desk)
    write("In another terminal:")
    write(f"  keepfast dlq causes shop.order.dlq --brokers {brokers}")
    order = '{"id": "mine", "name": "Ada", "city": "Oslo"}'
    write(f"  keepfast send shop.order.v1 '{order}' --key me --brokers {brokers}")
    try:
        while True:
            signal.pause()
    except _Interrupted:
        write("Stopping.")


class _Interrupted(BaseException):
    """A signal arrived. Not an Exception, so that no handler treats it as a failure."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.code = EXIT_INTERRUPTED if number == signal.SIGINT else 128 + number


@contextmanager
def _exit_on_signals() -> Iterator[None]:
    """Exit on the first SIGINT or SIGTERM after a full cleanup; further signals are ignored."""

    def on_signal(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of signal handlers
        for one in before:
            signal.signal(one, signal.SIG_IGN)
        raise _Interrupted(number)

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except _Interrupted as interrupted:
        click.echo("Stopped.", err=True)
        sys.exit(interrupted.code)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

"""`keepfast broker`: a Kafka for development, in the foreground."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import click

from keepfast.cli.errors import said_plainly
from keepfast.core.errors import StartError

if TYPE_CHECKING:
    from keepfast.testing.broker import KafkaBroker

MAX_PARTITIONS = 10_000


class TopicSpec(click.ParamType[tuple[str, int]]):
    """NAME or NAME:PARTITIONS."""

    name = "NAME[:PARTITIONS]"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        if isinstance(value, tuple):
            return value
        topic, colon, count = str(value).partition(":")
        if not topic or (colon and not (count.isascii() and count.isdigit() and 0 < int(count) <= MAX_PARTITIONS)):
            self.fail(f"{value!r} is not NAME or NAME:PARTITIONS with 1 to {MAX_PARTITIONS} partitions", param, ctx)
        return topic, int(count) if colon else 1


@click.command()
@click.option("--port", type=click.IntRange(1, 65_535), help="Of the first node; without it a free one is chosen.")
@click.option("--nodes", type=click.Choice(["1", "3"]), default="1", show_default=True, help="How many nodes.")
@click.option("--data", type=click.Path(file_okay=False, path_type=Path), help="Keep the data in this folder.")
@click.option("--topic", "topics", type=TopicSpec(), multiple=True, help="Make this topic; may be repeated.")
@click.option("--embedded", is_flag=True, help="The small cluster inside librdkafka: needs no Java, has limits.")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
def broker(
    port: int | None, nodes: str, data: Path | None, topics: tuple[tuple[str, int], ...], *, embedded: bool, debug: bool
) -> None:
    """Run a Kafka broker for development until Ctrl-C.

    The first line on standard output is its address and nothing else; hints go to standard error.
    """
    if embedded and (port is not None or data is not None):
        raise click.UsageError("--embedded chooses its own port and keeps no data: leave out --port and --data.")
    stop_on_signals()
    try:
        with said_plainly(debug=debug), ExitStack() as stack:
            if embedded:
                died = _run_embedded(stack, int(nodes), topics)
            else:
                died = _run_kafka(stack, int(nodes), port, data, topics)
            _wait(died)
    except BrokerStopped:
        click.echo("Stopped.", err=True)


def started_kafka(
    stack: ExitStack, *, nodes: int = 1, port: int | None = None, data: Path | None = None
) -> tuple[KafkaBroker, Callable[[], str]]:
    """A broker that ends with the stack, and what tells when a node of it has ended by itself. Raises StartError."""
    # Java and the client load only now: `keepfast --help` stays quick.
    from keepfast.testing.broker import KafkaBroker
    from keepfast.testing.jars import KAFKA_VERSION, is_cached

    if not is_cached():
        click.echo(f"Fetching Apache Kafka {KAFKA_VERSION} through Maven, once (45 MB) …", err=True)
    running = stack.enter_context(KafkaBroker(nodes=nodes, port=port, data_dir=data))

    def died() -> str:
        gone = [node for node in running.nodes if not node.running]
        return "\n".join(f"Kafka node {n.number} ended by itself. The end of its log:\n{n.last_words()}" for n in gone)

    return running, died


def _run_kafka(
    stack: ExitStack, nodes: int, port: int | None, data: Path | None, topics: tuple[tuple[str, int], ...]
) -> Callable[[], str]:
    from keepfast.testing.jars import KAFKA_VERSION

    running, died = started_kafka(stack, nodes=nodes, port=port, data=data)
    there = set(running.admin.list_topics(timeout=10).topics) if topics else set()
    for name, partitions in topics:
        if name not in there:
            running.create_topic(name, partitions=partitions)
    click.echo(f"Apache Kafka {KAFKA_VERSION}, {nodes} node(s), logs and data in {running.folder}.", err=True)
    click.echo("Ctrl-C ends it" + (" and deletes the data." if data is None else "; the data stays."), err=True)
    click.echo(running.bootstrap)  # last, so that whoever waits for it has been told everything
    return died


def _run_embedded(stack: ExitStack, nodes: int, topics: tuple[tuple[str, int], ...]) -> Callable[[], str]:
    from keepfast.testing.embedded import LIMITS, PARTITIONS, EmbeddedBroker

    wrong = [name for name, partitions in topics if partitions not in (1, PARTITIONS)]
    running = stack.enter_context(EmbeddedBroker(nodes=nodes))
    click.echo("The cluster inside librdkafka. Its limits:", err=True)
    for limit in LIMITS:
        click.echo(f"  - {limit}", err=True)
    if wrong:
        click.echo(f"So these topics get {PARTITIONS} partitions: {', '.join(wrong)}.", err=True)
    for name, _ in topics:
        running.create_topic(name)
    click.echo(running.bootstrap)
    return str  # nothing of it can die before this process does


class BrokerStopped(BaseException):
    """A signal came. Not an Exception, so that nothing on the way takes it for a failure."""


def stop_on_signals() -> None:
    """From now on SIGINT or SIGTERM raises Stopped, once; later ones do not disturb the cleaning up."""

    def came(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as signal.signal wants it
        ignore_signals()
        raise BrokerStopped

    signal.signal(signal.SIGINT, came)
    signal.signal(signal.SIGTERM, came)


def ignore_signals() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _wait(died: Callable[[], str]) -> NoReturn:
    """Until a signal comes; raises StartError as soon as `died` has something to say."""
    while not (why := died()):
        time.sleep(0.5)
    raise StartError(why)

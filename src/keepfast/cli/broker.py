"""`keepfast broker`: runs a Kafka broker for development in the foreground."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import click

from keepfast.cli.errors import report_errors
from keepfast.core.errors import StartError
from keepfast.core.names import topic_problem

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
        problem = topic_problem(topic)
        if problem is not None:
            self.fail(f"NAME {problem}", param, ctx)
        return topic, int(count) if colon else 1


@click.command()
@click.option("--port", type=click.IntRange(1, 65_535), help="Port of the first node.  [default: a free one]")
@click.option("--nodes", type=click.Choice(["1", "3"]), default="1", show_default=True, help="Number of nodes.")
@click.option("--data", type=click.Path(file_okay=False, path_type=Path), help="Keep the data in this folder.")
@click.option("--topic", "topics", type=TopicSpec(), multiple=True, help="Create this topic. Repeatable.")
@click.option("--embedded", is_flag=True, help="Use librdkafka's mock cluster: needs no Java, has limits.")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
def broker(
    port: int | None, nodes: str, data: Path | None, topics: tuple[tuple[str, int], ...], *, embedded: bool, debug: bool
) -> None:
    """Run a Kafka broker for development until Ctrl-C.

    The first line on standard output is its address and nothing else; hints go to standard error.
    """
    if embedded and (port is not None or data is not None):
        raise click.UsageError("--embedded chooses its own port and stores no data: omit --port and --data.")
    stop_on_signals()
    try:
        with report_errors(debug=debug), ExitStack() as stack:
            if embedded:
                died = _run_embedded(stack, int(nodes), topics)
            else:
                died = _run_kafka(stack, int(nodes), port, data, topics)
            _wait(died)
    except BrokerStopped:
        click.echo("Stopped.", err=True)


def start_kafka(
    stack: ExitStack, *, nodes: int = 1, port: int | None = None, data: Path | None = None
) -> tuple[KafkaBroker, Callable[[], str]]:
    """Start a broker that stops with the stack. Raises StartError.

    Also returns a function that describes the nodes that have ended by themselves, or returns an empty string.
    """
    # Imported only now, so that `keepfast --help` stays fast.
    from keepfast.testing.broker import KafkaBroker
    from keepfast.testing.jars import KAFKA_VERSION, is_cached

    if not is_cached():
        click.echo(f"Downloading Apache Kafka {KAFKA_VERSION} with Maven, once (45 MB) …", err=True)
    running = stack.enter_context(KafkaBroker(nodes=nodes, port=port, data_dir=data))

    def died() -> str:
        gone = [node for node in running.nodes if not node.running]
        return "\n".join(f"Kafka node {n.number} ended by itself. The end of its log:\n{n.log_tail()}" for n in gone)

    return running, died


def _run_kafka(
    stack: ExitStack, nodes: int, port: int | None, data: Path | None, topics: tuple[tuple[str, int], ...]
) -> Callable[[], str]:
    from keepfast.testing.jars import KAFKA_VERSION

    running, died = start_kafka(stack, nodes=nodes, port=port, data=data)
    existing = set(running.admin.list_topics(timeout=10).topics) if topics else set()
    for name, partitions in topics:
        if name not in existing:
            running.create_topic(name, partitions=partitions)
    click.echo(f"Apache Kafka {KAFKA_VERSION}, {nodes} node(s), logs and data in {running.folder}.", err=True)
    click.echo("Ctrl-C stops it" + (" and deletes the data." if data is None else "; the data stays."), err=True)
    click.echo(running.bootstrap)  # last, so that a reader that waits for it has seen everything else
    return died


def _run_embedded(stack: ExitStack, nodes: int, topics: tuple[tuple[str, int], ...]) -> Callable[[], str]:
    from keepfast.testing.embedded import LIMITS, PARTITIONS, EmbeddedBroker

    wrong = [name for name, partitions in topics if partitions not in (1, PARTITIONS)]
    running = stack.enter_context(EmbeddedBroker(nodes=nodes))
    click.echo("This is librdkafka's mock cluster. Its limits:", err=True)
    for limit in LIMITS:
        click.echo(f"  - {limit}", err=True)
    if wrong:
        click.echo(f"So these topics get {PARTITIONS} partitions: {', '.join(wrong)}.", err=True)
    for name, _ in topics:
        running.create_topic(name)
    click.echo(running.bootstrap)
    return str  # it runs in this process, so it cannot end earlier


class BrokerStopped(BaseException):
    """A signal arrived. Not an Exception, so that no handler treats it as a failure."""


def stop_on_signals() -> None:
    """From now on SIGINT or SIGTERM raises BrokerStopped, once; later signals do not disturb the cleanup."""

    def on_signal(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of signal handlers
        ignore_signals()
        raise BrokerStopped

    signal.signal(signal.SIGINT, on_signal)
    signal.signal(signal.SIGTERM, on_signal)


def ignore_signals() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _wait(died: Callable[[], str]) -> NoReturn:
    """Wait for a signal; raises StartError as soon as `died` returns a failure."""
    while not (why := died()):
        time.sleep(0.5)
    raise StartError(why)

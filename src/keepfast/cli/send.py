"""`keepfast send`: produces records from the command line and waits for their acknowledgements."""

from __future__ import annotations

import json
import shlex
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, Any, TypeAlias

import click

from keepfast.cli.connection import (
    CONNECT_TIMEOUT_S,
    EXIT_INTERRUPTED,
    as_start_error,
    connect,
    connection_for,
    connection_options,
    missing_topic,
)
from keepfast.cli.errors import report_errors
from keepfast.cli.terminal import Progress
from keepfast.core.errors import ConfigError, SinkError, StartError
from keepfast.core.records import Outgoing, Receipt
from keepfast.kafka.config import sink_properties
from keepfast.kafka.sink import KafkaSink
from keepfast.wiring.cluster import create_hint

EXIT_PARTIAL = 1
MAX_IN_FLIGHT = 10_000
"""How many records may wait for their acknowledgement at the same time."""

REPLY_TIMEOUT_S = 60.0
"""How long to wait for the last acknowledgements."""

NUMBER = "{n}"
Numbered: TypeAlias = Iterator[tuple[int, Outgoing]]
"""Records with their line number, or counted from 1."""


@click.command()
@click.argument("topic")
@click.argument("value", required=False)
@click.option(
    "--file", "lines", type=click.File("rb"), help="One record per line, instead of VALUE; - is standard input."
)
@click.option(
    "--count",
    type=click.IntRange(min=1),
    default=1,
    help="Send it this many times; {n} in value and key is the number.",
)
@click.option("--key", help="The key of each record.")
@click.option("--header", "headers", metavar="NAME=VALUE", multiple=True, help="A header. Repeatable.")
@click.option("--partition", type=click.IntRange(min=0), help="Overrides the partition chosen by the key.")
@click.option("--null", is_flag=True, help="A tombstone: a record without a value.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@connection_options
def send(topic: str, value: str | None, lines: IO[bytes] | None, **options: Any) -> None:
    """Produce records to a topic and wait until all in-sync replicas have acknowledged each of them.

    \b
    Examples:
      keepfast send orders.payment.v1 '{"id": "a1", "amount": 12}' --key a1
      keepfast send orders.payment.v1 '{"id": "p{n}", "amount": 1}' --key '{n}' --count 1000
      keepfast send orders.payment.v1 --file payments.jsonl
      keepfast send orders.payment.v1 --key a1 --null
    """
    with report_errors(debug=options["debug"]):
        records = _records(topic, value, lines, options)
        total = None if lines is not None else options["count"]
        connection, _ = connection_for(options["target"], options["brokers"])
        admin = connect(connection)
        with as_start_error():
            facts = admin.topics([topic], CONNECT_TIMEOUT_S)[topic]
        if facts is None:
            raise StartError(missing_topic(topic, admin.names(CONNECT_TIMEOUT_S), create_hint(admin, topic)))
        partition = options["partition"]
        if partition is not None and partition >= facts.partitions:
            count = f"{facts.partitions} partition{'s' * (facts.partitions != 1)}"
            raise ConfigError(f"{topic} has {count}, from 0; there is no partition {partition}.")
        sending = SendProgress(KafkaSink(sink_properties(connection)))
        stopped = sending.run(records, Progress(total, done="sent") if total else None)
        _print(sending, topic, as_json=options["as_json"])
    if stopped:
        file = None if lines is None else lines.name
        click.echo(resume_hint(sending.last, topic, total=total, file=file), err=True)
        raise click.exceptions.Exit(EXIT_INTERRUPTED)
    if sending.failed:
        raise click.exceptions.Exit(EXIT_PARTIAL)


def _records(topic: str, value: str | None, lines: IO[bytes] | None, options: dict[str, Any]) -> Numbered:
    if sum((value is not None, lines is not None, options["null"])) != 1:
        raise ConfigError("Name exactly one of VALUE, --file, or --null for a record without a value.")
    if lines is not None and options["count"] > 1:
        raise ConfigError("--count repeats a VALUE; a --file is sent once, line by line.")
    headers = tuple(_header(text) for text in options["headers"])
    key, partition = options["key"], options["partition"]

    def record(number: int, content: bytes | None) -> tuple[int, Outgoing]:
        text = None if key is None else key.replace(NUMBER, str(number)).encode()
        return number, Outgoing(topic, content, text, headers, partition)

    if lines is not None:
        return (record(number, line.rstrip(b"\r\n")) for number, line in enumerate(lines, 1) if line.strip())
    numbers = range(1, options["count"] + 1)
    if value is None:
        return (record(number, None) for number in numbers)
    return (record(number, value.replace(NUMBER, str(number)).encode()) for number in numbers)


def _header(text: str) -> tuple[str, bytes]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ConfigError(f"--header {text!r} has no name; write NAME=VALUE.")
    return name, value.encode()


@dataclass(slots=True)
class SendProgress:
    """Sends records and counts acknowledgements. The caller runs `run`; the sink's thread updates the counts."""

    sink: KafkaSink
    acknowledged: int = 0
    partitions: Counter[int] = field(default_factory=Counter)
    failed: list[SinkError] = field(default_factory=list)
    last: int = 0
    """The number of the last record that was sent."""
    _sent: int = 0
    _room: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(MAX_IN_FLIGHT))

    def run(self, records: Numbered, progress: Progress | None) -> bool:
        """Send all records and wait for their acknowledgements. Returns whether Ctrl-C stopped the sending."""
        stopped = False
        try:
            for number, record in records:
                self._room.acquire()
                self.sink.send(record, self._delivered)
                # Counted after sending, so that Ctrl-C neither misses a record nor waits for one that was not sent.
                self._sent += 1
                self.last = number
                if progress is not None:
                    progress(self.acknowledged)
        except KeyboardInterrupt:
            stopped = True
        deadline = time.monotonic() + REPLY_TIMEOUT_S
        while self.acknowledged + len(self.failed) < self._sent and time.monotonic() < deadline:
            time.sleep(0.005)
        self.sink.close(0.0 if time.monotonic() >= deadline else 1.0)
        if progress is not None:
            progress.end(self.acknowledged)
        return stopped

    def _delivered(self, outcome: Receipt | SinkError) -> None:
        if isinstance(outcome, Receipt):
            self.partitions[outcome.partition] += 1
            self.acknowledged += 1
        else:
            self.failed.append(outcome)
        self._room.release()


def resume_hint(last: int, topic: str, *, total: int | None, file: str | None) -> str:
    """The message after Ctrl-C: how many were sent, and how to send the rest."""
    if file is None:
        return f"Stopped by Ctrl-C: {last:,} of {total or last:,} were sent."
    if file in ("-", "<stdin>"):
        return f"Stopped by Ctrl-C after line {last:,} of standard input; continue with line {last + 1:,}."
    rest = f"tail -n +{last + 1} {shlex.quote(file)} | keepfast send {shlex.quote(topic)} --file -"
    return f"Stopped by Ctrl-C after line {last:,} of {file}. To continue with the same options: {rest}"


def _print(sending: SendProgress, topic: str, *, as_json: bool) -> None:
    where = dict(sorted(sending.partitions.items()))
    if as_json:
        fields = {"topic": topic, "sent": sending.acknowledged, "failed": len(sending.failed), "partitions": where}
        click.echo(json.dumps(fields))
    else:
        places = ", ".join(f"{count:,} in partition {partition}" for partition, count in where.items())
        records = "1 record" if sending.acknowledged == 1 else f"{sending.acknowledged:,} records"
        click.echo(f"Sent {records} to {topic}{': ' + places if places else ''}.")
    if sending.failed:
        click.echo(f"{len(sending.failed):,} were not acknowledged: {sending.failed[0]}", err=True)

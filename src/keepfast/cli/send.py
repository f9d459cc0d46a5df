"""`keepfast send`: records from the command line into a topic, each acknowledged."""

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

from keepfast.cli.errors import said_plainly
from keepfast.cli.progress import Progress
from keepfast.cli.where import (
    EXIT_INTERRUPTED,
    REACH_S,
    connection_for,
    no_topic,
    reached,
    told_as_start_error,
    where_options,
)
from keepfast.core.errors import ConfigError, SinkError, StartError
from keepfast.core.records import Outgoing, Receipt
from keepfast.kafka.config import sink_properties
from keepfast.kafka.sink import KafkaSink

EXIT_PARTIAL = 1
UNDER_WAY = 10_000
"""Records that may wait for their acknowledgement at the same time."""

REPLY_TIMEOUT_S = 60.0
"""How long the last acknowledgements are waited for."""

NUMBER = "{n}"
HINT = "`keepfast dev` makes the topics of an app."
Numbered: TypeAlias = Iterator[tuple[int, Outgoing]]
"""Records, each with the number of its line, or counted from 1."""


@click.command()
@click.argument("topic")
@click.argument("value", required=False)
@click.option(
    "--file", "lines", type=click.File("rb"), help="One record a line, instead of VALUE; - is standard input."
)
@click.option("--count", type=click.IntRange(min=1), default=1, help="Send it so often; {n} in value and key counts.")
@click.option("--key", help="The key of each record.")
@click.option("--header", "headers", metavar="NAME=VALUE", multiple=True, help="A header; may be given several times.")
@click.option("--partition", type=click.IntRange(min=0), help="Instead of the one that the key says.")
@click.option("--null", is_flag=True, help="A tombstone: a record without a value.")
@click.option("--json", "as_json", is_flag=True, help="Say the outcome as JSON.")
@where_options
def send(topic: str, value: str | None, lines: IO[bytes] | None, **options: Any) -> None:
    """Produce records, to feed a consumer. Every one is acknowledged by all in-sync replicas before this ends.

    \b
    Examples:
      keepfast send orders.payment.v1 '{"id": "a1", "amount": 12}' --key a1
      keepfast send orders.payment.v1 '{"id": "p{n}", "amount": 1}' --key '{n}' --count 1000
      keepfast send orders.payment.v1 --file payments.jsonl
      keepfast send orders.payment.v1 --key a1 --null
    """
    with said_plainly(debug=options["debug"]):
        records = _records(topic, value, lines, options)
        total = None if lines is not None else options["count"]
        connection, _ = connection_for(options["target"], options["brokers"])
        admin = reached(connection)
        with told_as_start_error():
            facts = admin.topics([topic], REACH_S)[topic]
        if facts is None:
            raise StartError(no_topic(topic, admin.names(REACH_S), HINT))
        partition = options["partition"]
        if partition is not None and partition >= facts.partitions:
            raise ConfigError(f"{topic} has {facts.partitions} partitions, from 0; there is no partition {partition}.")
        sending = SendProgress(KafkaSink(sink_properties(connection)))
        stopped = sending.run(records, Progress(total, done="sent") if total else None)
        _say(sending, topic, as_json=options["as_json"])
    if stopped:
        file = None if lines is None else lines.name
        click.echo(where_to_go_on(sending.last, topic, total=total, file=file), err=True)
        raise click.exceptions.Exit(EXIT_INTERRUPTED)
    if sending.failed:
        raise click.exceptions.Exit(EXIT_PARTIAL)


def _records(topic: str, value: str | None, lines: IO[bytes] | None, options: dict[str, Any]) -> Numbered:
    if sum((value is not None, lines is not None, options["null"])) != 1:
        raise ConfigError("Say what to send, in one way: a VALUE, --file, or --null for a record without a value.")
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
    """Counts what was acknowledged. `run` is the caller's; the counts are written by the sink's thread."""

    sink: KafkaSink
    acknowledged: int = 0
    partitions: Counter[int] = field(default_factory=Counter)
    failed: list[SinkError] = field(default_factory=list)
    last: int = 0
    """The number of the last record that was sent."""
    _sent: int = 0
    _room: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(UNDER_WAY))

    def run(self, records: Numbered, progress: Progress | None) -> bool:
        """Send all, wait for all. Whether Ctrl-C ended it before; what was sent by then is still waited for."""
        stopped = False
        try:
            for number, record in records:
                self._room.acquire()
                self.sink.send(record, self._delivered)
                # Counted when it is sent: Ctrl-C in between must not leave one out, nor wait for one that never went.
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


def where_to_go_on(last: int, topic: str, *, total: int | None, file: str | None) -> str:
    """After Ctrl-C: how far it came, and how to send the rest."""
    if file is None:
        return f"Stopped by Ctrl-C: {last:,} of {total or last:,} were sent."
    if file in ("-", "<stdin>"):
        return f"Stopped by Ctrl-C after line {last:,} of standard input; the next to send is line {last + 1:,}."
    rest = f"tail -n +{last + 1} {shlex.quote(file)} | keepfast send {shlex.quote(topic)} --file -"
    return f"Stopped by Ctrl-C after line {last:,} of {file}. To go on, with the same options: {rest}"


def _say(sending: SendProgress, topic: str, *, as_json: bool) -> None:
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

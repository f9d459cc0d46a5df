"""Runs workloads on a broker of its own and prints each contender beside the first: the raw client's loop, or keepfast
itself without what is to be priced.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any

import confluent_kafka
from fastavro import parse_schema, schemaless_writer

from bench import cards, rolling
from bench.contenders import AVRO, OUTPUT, POSTGRES, proto_class
from bench.delay import delaying
from bench.measure import Measured
from keepfast.testing import KafkaBroker
from keepfast.testing.loopback import free_ports
from tests.support.postgres import running


@dataclass(frozen=True, slots=True)
class Row:
    """One contender of a workload. `target`: what its ratio to the baseline should reach; `delayed_target`: with
    `--delay`. `most_cpu`: how many times the baseline's CPU time per record it may take, without a delay.
    """

    contender: str
    topic: str
    records: int
    target: float | None = None
    most_cpu: float | None = None
    delayed_target: float | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """The first row is the baseline."""

    name: str
    what: str
    rows: tuple[Row, ...]


W1 = Workload(
    "w1",
    "500,000 JSON records of 200 bytes, 4 partitions, no-op handler, interval commits",
    (
        Row("raw_consume", "small", 500_000),
        Row("raw_default", "small", 500_000),
        Row("keepfast_partition", "small", 500_000, 0.6),
        Row("keepfast_key", "small", 500_000, 0.35),
    ),
)
SEE = Workload(
    "see",
    "W1 without metrics and logs, beside it with both (scraped 5 times a second; JSON, default level), and with traces",
    (
        Row("keepfast_partition", "small", 500_000),
        Row("keepfast_seen", "small", 500_000, 0.95),
        Row("keepfast_traced", "small", 30_000),
    ),
)
MIDDLEWARE = Workload(
    "middleware",
    "W1 beside it with one middleware, and with one middleware and one provider that yields",
    (
        Row("keepfast_partition", "small", 500_000),
        Row("keepfast_middleware", "small", 500_000),
        Row("keepfast_provider", "small", 500_000),
    ),
)
SCHEMAS = tuple(
    Workload(
        "schemas",
        f"100,000 records of {name} with a schema id, 4 partitions, {what} for each; the same deserializer in both",
        (Row(f"raw_{topic}", topic, 100_000), Row(f"keepfast_{topic}", topic, 100_000, 0.85)),
    )
    for topic, name, what in (
        ("avro", "Avro", "a dataclass"),
        ("json", "JSON Schema", "a dataclass"),
        ("proto", "Protobuf", "a message"),
    )
)
W2_ONE = Workload(
    "w2",
    "commit after every record, confirmed; 1 partition",
    (Row("raw_commit_each", "one", 5_000), Row("keepfast_each", "one", 5_000, 0.85, most_cpu=1.6, delayed_target=0.97)),
)
W2_FOUR = Workload(
    "w2",
    "commit after every record, confirmed; 4 partitions",
    (Row("raw_commit_each", "four", 5_000), Row("keepfast_each", "four", 5_000, 2.8, delayed_target=3.5)),
)
W3 = Workload(
    "w3",
    "20,000 records, 1,000 keys, 4 partitions, handler waits 5 ms, order per key",
    (
        Row("raw_serial", "keys", 1_000),
        Row("keepfast_async", "keys", 20_000, 80.0),
        Row("keepfast_threads", "keys", 20_000),
    ),
)
ONCE = Workload(
    "once",
    "50,000 records, an output for each: acknowledged before the commit, beside it in one transaction with it",
    (Row("keepfast_sends", "small", 50_000), Row("keepfast_once", "small", 50_000)),
)
PARSED = parse_schema(json.loads(AVRO))
W6 = Workload(
    "w6",
    "a row for each record in PostgreSQL, with its identity, in one transaction a record; 1 partition",
    (Row("raw_inbox", "one", 5_000), Row("keepfast_inbox", "one", 5_000, 0.8)),
)
W6_BATCH = Workload(
    "w6",
    "the same with batches of 100, beside one by one",
    (Row("keepfast_inbox", "one", 5_000), Row("keepfast_inbox_batch", "one", 50_000, 5.0)),
)
QUEUE = Workload(
    "queue",
    "50,000 JSON records of 200 bytes, 4 partitions, no-op handler: a plain group without order beside a share group",
    (
        Row("keepfast_none", "small", 50_000),
        Row("raw_share", "small", 50_000),
        Row("keepfast_queue", "small", 50_000),
    ),
)
QUEUE_WAITS = Workload(
    "queue",
    "5,000 records, 4 partitions, handler waits 5 ms, 32 threads: a plain group without order beside a share group",
    (Row("keepfast_none_waits", "four", 5_000), Row("keepfast_queue_waits", "four", 5_000)),
)
KEYS = {"small": 1000, "keys": 1000, "avro": 1000, "json": 1000, "proto": 1000}
COUNTS = (1, 2, 4, 16, 128, 512)
PARTITIONS = tuple(
    Workload(
        "partitions",
        f"W1 with {count} partition{'' if count == 1 else 's'}",
        (
            Row("raw_consume", f"of-{count}", 500_000),
            Row("keepfast_partition", f"of-{count}", 500_000, 0.6),
        ),
    )
    for count in COUNTS
)
WORKLOADS = (W1, SEE, MIDDLEWARE, *SCHEMAS, *PARTITIONS, W2_ONE, W2_FOUR, W3, W6, W6_BATCH, ONCE, QUEUE, QUEUE_WAITS)


def main() -> int:
    """Command line: which workloads, how often."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "workloads",
        nargs="*",
        help="w1, see, middleware, schemas, partitions, w2, w3, w6, w7, once, queue, cards; none: all",
    )
    parser.add_argument("--repeat", type=int, default=3, help="runs of each contender; medians are shown (default 3)")
    parser.add_argument("--json", action="store_true", help="one JSON line per contender")
    parser.add_argument(
        "--python", default=sys.executable, help="w7: the interpreter of the members, of another version"
    )
    parser.add_argument(
        "--delay", type=_seconds, default=0.0, help="a network between client and broker: 0.5ms is added each way"
    )
    arguments = parser.parse_args()
    known = {workload.name for workload in WORKLOADS} | {"cards", "w7"}
    unknown = [name for name in arguments.workloads if name not in known]
    if unknown:
        parser.error(f"no workload named {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    chosen = [workload for workload in WORKLOADS if not arguments.workloads or workload.name in arguments.workloads]
    missed = []
    if "cards" in (arguments.workloads or known):  # needs no broker
        missed += cards.run(as_json=arguments.json)
    if chosen:
        if arguments.delay:
            chosen = [_delayed(workload) for workload in chosen]
        needs_database = any(workload.name == "w6" for workload in chosen)
        with _broker(arguments.delay) as (broker, bootstrap), _database(needed=needs_database):
            _fill(broker, _sizes(chosen))
            for workload in chosen:
                missed += _run(workload, bootstrap, arguments.repeat, as_json=arguments.json)
    if "w7" in (arguments.workloads or known):
        missed += rolling.run(as_json=arguments.json, python=arguments.python)
    for miss in missed:
        print(f"below target: {miss}", file=sys.stderr)
    return 1 if missed else 0


def _seconds(text: str) -> float:
    """From a text such as `0.5ms`."""
    if not text.endswith("ms"):
        raise argparse.ArgumentTypeError(f"{text!r}: write milliseconds, such as 0.5ms")
    return float(text.removesuffix("ms")) / 1000


def _delayed(workload: Workload) -> Workload:
    """The workload with the targets for a client behind a network."""
    rows = (replace(row, target=row.delayed_target, most_cpu=None) for row in workload.rows)
    return replace(workload, rows=tuple(rows))


@contextmanager
def _broker(delay_s: float) -> Iterator[tuple[KafkaBroker, str]]:
    """A broker, and the address for contenders: with a delay it leads through a proxy, as the broker's own does."""
    if not delay_s:
        with KafkaBroker() as broker:
            yield broker, broker.bootstrap
        return
    port, broker_port = free_ports(2)
    advertised = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    with delaying(port, broker_port, delay_s), KafkaBroker(port=broker_port, config=advertised) as broker:
        yield broker, f"127.0.0.1:{port}"


@contextmanager
def _database(*, needed: bool) -> Iterator[None]:
    """A PostgreSQL for contenders, if they need one."""
    if not needed:
        yield
        return
    with running() as url:
        os.environ[POSTGRES] = url
        yield
        del os.environ[POSTGRES]


def _sizes(workloads: list[Workload]) -> dict[str, int]:
    """Each topic with the number of records that the longest row needs."""
    sizes: dict[str, int] = {}
    for row in (row for workload in workloads for row in workload.rows):
        sizes[row.topic] = max(sizes.get(row.topic, 0), row.records)
    return sizes


def _fill(broker: KafkaBroker, sizes: dict[str, int]) -> None:
    broker.create_topic(OUTPUT, partitions=4)
    for topic, count in sorted(sizes.items()):
        broker.create_topic(topic, partitions=_partitions(topic))
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": broker.bootstrap, "linger.ms": 20, "batch.size": 1_000_000}
        )
        for number, (key, value) in enumerate(_records(topic, count)):
            producer.produce(topic, value, key)
            if number % 10_000 == 0:
                producer.flush()
        producer.flush()


def _partitions(topic: str) -> int:
    kind, _, count = topic.partition("-")
    return int(count) if kind == "of" else 1 if topic == "one" else 4


def _records(topic: str, count: int) -> Iterator[tuple[bytes, bytes]]:
    keys = KEYS.get(topic, 10_000 if topic.startswith("of-") else 100)  # keys enough for 512 partitions
    write = _writer(topic)
    for number in range(count):
        key = f"key-{number % keys}"
        yield key.encode(), write({"key": key, "n": number, "pad": "x" * 160})


def _writer(topic: str) -> Callable[[dict[str, Any]], bytes]:
    """Records with a schema have the id 1."""
    frame, message = b"\0\0\0\0\1", proto_class()

    def avro(fields: dict[str, Any]) -> bytes:
        stream = BytesIO(frame)
        stream.seek(len(frame))
        schemaless_writer(stream, PARSED, fields)
        return stream.getvalue()

    def plain(fields: dict[str, Any]) -> bytes:
        return json.dumps(fields).encode()

    match topic:
        case "avro":
            return avro
        case "json":
            return lambda fields: frame + plain(fields)
        case "proto":
            return lambda fields: frame + b"\0" + message(**fields).SerializeToString()  # the first message
        case _:
            return plain


def _run(workload: Workload, brokers: str, repeat: int, *, as_json: bool) -> list[str]:
    """Contenders take turns, in one order and then in the other, so that what disturbs the machine disturbs them all.
    The ratio is the median of those of each turn.
    """
    runs: dict[str, list[Measured]] = {row.contender: [] for row in workload.rows}
    for turn in range(repeat):
        for row in workload.rows if turn % 2 == 0 else reversed(workload.rows):
            runs[row.contender].append(_measure(row, brokers))
    if not as_json:
        print(f"\n{workload.name.upper()}: {workload.what}")
    base = runs[workload.rows[0].contender]
    missed = []
    for row in workload.rows:
        pairs = zip(runs[row.contender], base, strict=True)
        ratio = statistics.median(one.rate / beside.rate for one, beside in pairs)
        cpu_ratio = statistics.median(
            one.cpu_us / beside.cpu_us for one, beside in zip(runs[row.contender], base, strict=True)
        )
        _print(workload, row, runs[row.contender], ratio, cpu_ratio, as_json=as_json)
        if row.most_cpu is not None and cpu_ratio > row.most_cpu:
            missed.append(f"{workload.name} {row.contender}: {cpu_ratio:.2f} x the CPU, at most {row.most_cpu:g}")
        violations = sum(one.order_violations for one in runs[row.contender])
        if (row.target is not None and ratio < row.target) or violations:
            missed.append(
                f"{workload.name} {row.contender}: {ratio:.2f}, target {row.target}; {violations} order violations"
            )
    return missed


def _print(
    workload: Workload, row: Row, runs: list[Measured], ratio: float, cpu_ratio: float, *, as_json: bool
) -> None:
    rate, cpu_us = statistics.median(one.rate for one in runs), statistics.median(one.cpu_us for one in runs)
    peak_mb, violations = max(one.peak_mb for one in runs), sum(one.order_violations for one in runs)
    if as_json:
        fields = {
            "workload": workload.name,
            "contender": row.contender,
            "topic": row.topic,
            "rate": rate,
            "ratio": ratio,
        }
        print(
            json.dumps(
                fields
                | {
                    "cpu_us": cpu_us,
                    "cpu_ratio": cpu_ratio,
                    "peak_mb": peak_mb,
                    "order_violations": violations,
                    "target": row.target,
                }
            )
        )
        return
    target = "" if row.target is None else f"  target {row.target:g}"
    print(
        f"  {row.contender:20} {rate:>10,.0f} records/s  ratio {ratio:6.2f}"
        f"  {cpu_us:6.1f} µs CPU/record ({cpu_ratio:.2f} x)  {peak_mb:5.0f} MB  order violations {violations}{target}"
    )


def _measure(row: Row, brokers: str) -> Measured:
    command = [sys.executable, "-m", "bench.contenders", row.contender, brokers, row.topic, str(row.records)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{row.contender} failed:\n{done.stderr[-4000:]}")
    return Measured(**json.loads(done.stdout.strip().splitlines()[-1]))


if __name__ == "__main__":
    sys.exit(main())

"""The loops that are compared. Each runs in a process of its own: `python -m bench.contenders NAME BROKERS TOPIC
RECORDS`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import confluent_kafka
import msgspec
import psycopg

from bench.measure import Measured, OrderCheck, Stopwatch
from keepfast import App, Avro, BatchContext, Context, JsonSchema, PostgresInbox, Protobuf, Provide
from keepfast.app.assembly import assemble_app, decoding_of, specs_of
from keepfast.app.inboxes import AppInboxes
from keepfast.app.schemas import AppSchemas
from keepfast.core.policies import CommitPolicy
from keepfast.core.schemas import Schema
from keepfast.http.client import fetch
from keepfast.http.local_app import AppServer
from keepfast.inbox import tables
from keepfast.inbox.postgres import INSERT_ONE
from keepfast.kafka import KafkaAdmin
from keepfast.kafka.registry import Registry, RegistryConnection
from keepfast.telemetry import logs
from keepfast.wiring.assembly import Assembly

HANDLER_S = 0.005
QUEUE_WORKERS = 32
POSTGRES = "BENCH_POSTGRES"
"""The variable with the address of the database of W6."""
EFFECTS = "CREATE TABLE IF NOT EXISTS effects (run text, number bigint)"
INSERT_EFFECT = "INSERT INTO effects VALUES (%s, %s)"
INSERT_EFFECTS = "INSERT INTO effects SELECT %s, unnest(%s::bigint[])"
POLL_INTERVAL_S, MAX_POLL_INTERVAL_S = 0.005, 0.1
SCRAPE_S = 0.2
OUTPUT = "output"


def no_op(value: bytes | None) -> None:
    """The handler of W1 and W2."""


def _client(brokers: str, *, tuned: bool) -> confluent_kafka.Consumer:
    properties: dict[str, Any] = {
        "bootstrap.servers": brokers,
        "group.id": f"bench-{uuid.uuid4()}",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }
    return confluent_kafka.Consumer(properties | ({"fetch.queue.backoff.ms": 2} if tuned else {}))


def raw_consume(brokers: str, topic: str, records: int, *, tuned: bool = True) -> Measured:
    """`consume(1000)` and a call per value; one commit at the end."""
    client, watch, seen = _client(brokers, tuned=tuned), Stopwatch(), 0
    client.subscribe([topic])
    while seen < records:
        batch = client.consume(1000, 0.1)
        if batch and not watch.running:
            watch.start()
        for message in batch:
            if message.error() is None:
                no_op(message.value())
                seen += 1
    client.commit(asynchronous=False)
    measured = watch.stop(records)
    client.close()
    return measured


def raw_default(brokers: str, topic: str, records: int) -> Measured:
    """The same with the client's defaults."""
    return raw_consume(brokers, topic, records, tuned=False)


def raw_commit_each(brokers: str, topic: str, records: int) -> Measured:
    """Poll, handle, commit synchronously, one by one."""
    with _polling(brokers, topic) as client:
        watch = Stopwatch()
        for message in _polled(client, records, watch):
            no_op(message.value())
            client.commit(message=message, asynchronous=False)
        return watch.stop(records)


def raw_serial(brokers: str, topic: str, records: int) -> Measured:
    """Handlers of 5 ms, one after another."""
    with _polling(brokers, topic) as client:
        watch = Stopwatch()
        for _ in _polled(client, records, watch):
            time.sleep(HANDLER_S)
        client.commit(asynchronous=False)
        return watch.stop(records)


@contextlib.contextmanager
def _polling(brokers: str, topic: str) -> Iterator[confluent_kafka.Consumer]:
    client = _client(brokers, tuned=True)
    client.subscribe([topic])
    try:
        yield client
    finally:
        client.close()


def _polled(client: confluent_kafka.Consumer, records: int, watch: Stopwatch) -> Iterator[confluent_kafka.Message]:
    """So many records, one by one; the watch starts with the first."""
    seen = 0
    while seen < records:
        message = client.poll(1.0)
        if message is None or message.error() is not None:
            continue
        if not watch.running:
            watch.start()
        yield message
        seen += 1


def keepfast_partition(brokers: str, topic: str, records: int) -> Measured:
    return _keepfast(brokers, topic, records, no_op, commit=CommitPolicy(mode="interval"), idempotent=True)


def keepfast_seen(brokers: str, topic: str, records: int) -> Measured:
    """As `keepfast_partition`, with its server, which is asked for all metrics as often as no Prometheus would, and
    with logs as `keepfast run` writes them without a terminal.
    """
    logs.configure(format="json")
    return _keepfast(
        brokers, topic, records, no_op, scraped=True, commit=CommitPolicy(mode="interval"), idempotent=True
    )


def keepfast_traced(brokers: str, topic: str, records: int) -> Measured:
    """As `keepfast_partition`, with a span for each record and no exporter: the cost of the spans themselves."""
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

    class DiscardingExporter(SpanExporter):
        def export(self, spans: object) -> SpanExportResult:  # noqa: ARG002 - its shape
            return SpanExportResult.SUCCESS

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(DiscardingExporter()))
    trace.set_tracer_provider(provider)
    return _keepfast(brokers, topic, records, no_op, traced=True, commit=CommitPolicy(mode="interval"), idempotent=True)


def around() -> Iterator[None]:
    """A middleware that does nothing."""
    yield


def session() -> Iterator[int]:
    """A provider that has nothing to clean up."""
    yield 1


def no_op_with_session(value: bytes | None, given: Annotated[int, Provide(session)]) -> None:
    """As `no_op`."""


def keepfast_middleware(brokers: str, topic: str, records: int) -> Measured:
    """As `keepfast_partition`, with one middleware."""
    commit = CommitPolicy(mode="interval")
    return _keepfast(brokers, topic, records, no_op, commit=commit, idempotent=True, middleware=[around])


def keepfast_provider(brokers: str, topic: str, records: int) -> Measured:
    """As `keepfast_middleware`, with one provider as well."""
    commit = CommitPolicy(mode="interval")
    return _keepfast(brokers, topic, records, no_op_with_session, commit=commit, idempotent=True, middleware=[around])


@dataclass
class Small:
    """What the records of the topics `avro` and `json` become."""

    key: str
    n: int
    pad: str


AVRO = json.dumps(
    {
        "type": "record",
        "name": "Small",
        "fields": [
            {"name": "key", "type": "string"},
            {"name": "n", "type": "long"},
            {"name": "pad", "type": "string"},
        ],
    }
)
REGISTRY = "mock://bench"


def take_small(value: Small) -> None:
    """The handler of records with a schema."""


JSON_SCHEMA = json.dumps(
    {
        "type": "object",
        "title": "Small",
        "properties": {"key": {"type": "string"}, "n": {"type": "integer"}, "pad": {"type": "string"}},
        "required": ["key", "n", "pad"],
    }
)


def proto_class() -> Any:
    """As generated for `message Small {string key = 1; int64 n = 2; string pad = 3;}`."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="small.proto", package="bench", syntax="proto3")
    message = file.message_type.add(name="Small")
    for number, (name, kind) in enumerate((("key", "STRING"), ("n", "INT64"), ("pad", "STRING")), start=1):
        message.field.add(name=name, number=number, type=f"TYPE_{kind}", label="LABEL_OPTIONAL")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("bench.Small"))


def _registry(schema: Schema) -> Registry:
    """In memory, with the schema under the id that the records have: 1."""
    registry = Registry(RegistryConnection(url=REGISTRY, register=True))
    if isinstance(schema, Protobuf):
        registry.serializer("proto", schema)
    else:
        registry.put(f"{schema.format}-value", schema.text() or "", schema.format)
    return registry


def _raw_schema(brokers: str, topic: str, records: int, schema: Schema, kind: Any) -> Measured:
    """`consume(1000)`, the client's deserializer, and the same type; one commit at the end."""
    own = schema.message if isinstance(schema, Protobuf) else None
    read = _registry(schema).deserializer(schema, own)
    convert = _as_it_is if own is not None else functools.partial(msgspec.convert, type=kind)
    client, watch, seen = _client(brokers, tuned=True), Stopwatch(), 0
    client.subscribe([topic])
    while seen < records:
        batch = client.consume(1000, 0.1)
        if batch and not watch.running:
            watch.start()
        for message in batch:
            value = message.value()
            if message.error() is None and value is not None:
                take_small(convert(read(value, topic, ())))
                seen += 1
    client.commit(asynchronous=False)
    measured = watch.stop(records)
    client.close()
    return measured


def _as_it_is(value: Any) -> Any:
    return value


def _keepfast_schema(brokers: str, topic: str, records: int, schema: Schema, kind: Any) -> Measured:
    """The same with `schema=…`."""
    _registry(schema)

    def take(value: Any) -> None: ...

    take.__annotations__["value"] = kind
    commit = CommitPolicy(mode="interval")
    return _keepfast(brokers, topic, records, take, schema=schema, commit=commit, idempotent=True)


def raw_avro(brokers: str, topic: str, records: int) -> Measured:
    return _raw_schema(brokers, topic, records, Avro(AVRO), Small)


def keepfast_avro(brokers: str, topic: str, records: int) -> Measured:
    return _keepfast_schema(brokers, topic, records, Avro(AVRO), Small)


def raw_json(brokers: str, topic: str, records: int) -> Measured:
    return _raw_schema(brokers, topic, records, JsonSchema(JSON_SCHEMA), Small)


def keepfast_json(brokers: str, topic: str, records: int) -> Measured:
    return _keepfast_schema(brokers, topic, records, JsonSchema(JSON_SCHEMA), Small)


def raw_proto(brokers: str, topic: str, records: int) -> Measured:
    kind = proto_class()
    return _raw_schema(brokers, topic, records, Protobuf(kind), kind)


def keepfast_proto(brokers: str, topic: str, records: int) -> Measured:
    kind = proto_class()
    return _keepfast_schema(brokers, topic, records, Protobuf(kind), kind)


def keepfast_key(brokers: str, topic: str, records: int) -> Measured:
    return _keepfast(brokers, topic, records, no_op, order="key", commit=CommitPolicy(mode="interval"), idempotent=True)


def raw_share(brokers: str, topic: str, records: int) -> Measured:
    """A share group with the client alone: poll, call and acknowledge each record of it."""
    group = f"bench-{uuid.uuid4()}"
    properties: dict[str, Any] = {"bootstrap.servers": brokers}
    KafkaAdmin(properties).configure_group(group, {"share.auto.offset.reset": "earliest"}, 10.0)
    explicit = {"group.id": group, "share.acknowledgement.mode": "explicit", "max.poll.records": QUEUE_WORKERS}
    client, watch, seen = confluent_kafka.ShareConsumer(properties | explicit), Stopwatch(), 0
    client.subscribe([topic])
    while seen < records:
        batch = list(client.poll(1.0))
        if batch and not watch.running:
            watch.start()
        for message in batch:
            no_op(message.value())
            client.acknowledge(message)
            seen += 1
    client.commit_sync(10.0)
    measured = watch.stop(records)
    client.close()
    return measured


def _wait(value: bytes) -> None:  # noqa: ARG001 - as any handler
    time.sleep(HANDLER_S)


def keepfast_none(brokers: str, topic: str, records: int) -> Measured:
    """A plain group with the order of a queue."""
    options: dict[str, Any] = {"order": "none", "concurrency": QUEUE_WORKERS, "commit": "interval", "idempotent": True}
    return _keepfast(brokers, topic, records, no_op, **options)


def keepfast_none_waits(brokers: str, topic: str, records: int) -> Measured:
    options: dict[str, Any] = {"order": "none", "concurrency": QUEUE_WORKERS, "commit": "interval", "idempotent": True}
    return _keepfast(brokers, topic, records, _wait, **options)


def keepfast_queue(brokers: str, topic: str, records: int) -> Measured:
    return _keepfast(brokers, topic, records, no_op, order="queue", concurrency=QUEUE_WORKERS, configure_group=True)


def keepfast_queue_waits(brokers: str, topic: str, records: int) -> Measured:
    return _keepfast(brokers, topic, records, _wait, order="queue", concurrency=QUEUE_WORKERS, configure_group=True)


def keepfast_each(brokers: str, topic: str, records: int) -> Measured:
    return _keepfast(brokers, topic, records, no_op)


def keepfast_async(brokers: str, topic: str, records: int) -> Measured:
    check = OrderCheck()

    async def wait(value: dict[str, Any], context: Context) -> None:
        await asyncio.sleep(HANDLER_S)
        check.saw(context.key or b"", value["n"])

    return _keepfast(
        brokers, topic, records, wait, check=check, order="key", concurrency=1000, commit="interval", idempotent=True
    )


def keepfast_threads(brokers: str, topic: str, records: int) -> Measured:
    check = OrderCheck()

    def wait(value: dict[str, Any], context: Context) -> None:
        time.sleep(HANDLER_S)
        check.saw(context.key or b"", value["n"])

    return _keepfast(
        brokers, topic, records, wait, check=check, order="key", concurrency=64, commit="interval", idempotent=True
    )


def keepfast_sends(brokers: str, topic: str, records: int) -> Measured:
    """One output for each record, acknowledged before its offset is committed."""
    return _keepfast(brokers, topic, records, _transform, order="key", commit="interval", idempotent=True)


def keepfast_once(brokers: str, topic: str, records: int) -> Measured:
    """One output for each record, in the transaction that commits its offset."""
    return _keepfast(brokers, topic, records, _transform, order="key", exactly_once=True)


async def _transform(value: dict[str, Any], context: Context) -> None:
    context.send(OUTPUT, value, key=context.key)


def raw_inbox(brokers: str, topic: str, records: int) -> Measured:
    """The same writes by hand: identity and effect in one transaction a record; one commit of offsets at the end."""
    client, watch, seen = _client(brokers, tuned=True), Stopwatch(), 0
    group, effect = str(uuid.uuid4()), str(uuid.uuid4())
    with psycopg.connect(os.environ[POSTGRES], autocommit=True) as connection:
        tables.migrate(connection, outbox=False)
        connection.execute(EFFECTS)
        client.subscribe([topic])
        while seen < records:
            for message in client.consume(1000, 0.1):
                if not watch.running:
                    watch.start()
                with connection.transaction():
                    connection.execute(INSERT_ONE, (group, topic, message.partition(), message.offset()))
                    connection.execute(INSERT_EFFECT, (effect, seen))
                seen += 1
                if seen == records:
                    break
        client.commit(asynchronous=False)
    measured = watch.stop(records)
    client.close()
    return measured


def keepfast_inbox(brokers: str, topic: str, records: int) -> Measured:
    def handle(value: bytes, tx: psycopg.Connection, context: Context) -> None:  # noqa: ARG001 - the record is what counts
        tx.execute(INSERT_EFFECT, (context.group, context.offset))

    return _keepfast(brokers, topic, records, handle, inbox=PostgresInbox(), order="partition")


def keepfast_inbox_batch(brokers: str, topic: str, records: int) -> Measured:
    """100 records in one transaction, with one insert of ours, and one statement of the handler."""

    def handle(values: list[bytes], tx: psycopg.Connection, context: BatchContext) -> None:  # noqa: ARG001 - as above
        tx.execute(INSERT_EFFECTS, (context.group, [one.offset for one in context]))

    return _keepfast(brokers, topic, records, handle, inbox=PostgresInbox(), order="partition")


def _keepfast(
    brokers: str,
    topic: str,
    records: int,
    handler: Callable[..., Any],
    *,
    check: OrderCheck | None = None,
    scraped: bool = False,
    traced: bool = False,
    **options: Any,
) -> Measured:
    serves = {"port": 0, "enabled": scraped}
    app = App("bench", kafka={"brokers": brokers}, registry=REGISTRY, health=serves, tracing={"enabled": traced})
    app.consumer(topic, name="bench", group=f"bench-{uuid.uuid4()}", **options)(handler)
    settings = app.settings(environ={"POSTGRES_URL": os.environ[POSTGRES]} if POSTGRES in os.environ else {})
    chosen, inboxes = app.chosen(), AppInboxes(settings)
    schemas = AppSchemas(settings, app.schemas, [decoding_of(consumer, settings) for consumer in chosen])
    specs = specs_of(chosen, settings, inboxes=inboxes, schemas=schemas)
    inboxes.open()
    assembled = assemble_app(specs, settings, wait=False)
    measured: list[Measured] = []
    threading.Thread(target=_watch, args=(assembled, records, check, measured), daemon=True).start()
    with AppServer(settings) as serving:
        serving.attach(assembled)
        if serving.url:
            threading.Thread(target=_scrape, args=(serving.url,), daemon=True).start()
        code = assembled.run()
    inboxes.close()
    if code != 0 or not measured:
        raise RuntimeError(f"keepfast ended with {code}")
    return measured[0]


def _watch(assembled: Assembly, records: int, check: OrderCheck | None, measured: list[Measured]) -> None:
    """Reads the loop's counters from outside, as a scrape would; seldom, so as not to disturb it."""
    loop, watch = assembled.threads[0].loop, Stopwatch()
    while not loop.processed:
        time.sleep(POLL_INTERVAL_S)
    watch.start()
    begun = time.monotonic()
    while (processed := loop.processed) < records:  # most of the time it sleeps for half of what is left
        left_s = (records - processed) * (time.monotonic() - begun) / processed
        time.sleep(min(MAX_POLL_INTERVAL_S, max(POLL_INTERVAL_S, left_s / 2)))
    assembled.stop()
    while any(loop.committer.has_pending(partition) for partition in loop.ownership):
        time.sleep(0.0005)
    notes = {"commits": float(loop.committer.commits)}
    measured.append(watch.stop(records, order_violations=check.violations if check else 0, notes=notes))


def _scrape(url: str) -> None:
    while True:
        with contextlib.suppress(OSError):
            fetch(url, "/metrics", headers={"Accept": "application/openmetrics-text"})
        time.sleep(SCRAPE_S)


CONTENDERS = {
    function.__name__: function
    for function in (
        raw_consume,
        raw_default,
        raw_commit_each,
        raw_serial,
        keepfast_partition,
        keepfast_seen,
        keepfast_traced,
        keepfast_middleware,
        keepfast_provider,
        raw_avro,
        keepfast_avro,
        raw_json,
        keepfast_json,
        raw_proto,
        keepfast_proto,
        keepfast_key,
        keepfast_each,
        keepfast_async,
        keepfast_threads,
        keepfast_sends,
        keepfast_once,
        raw_inbox,
        keepfast_inbox,
        keepfast_inbox_batch,
        raw_share,
        keepfast_none,
        keepfast_none_waits,
        keepfast_queue,
        keepfast_queue_waits,
    )
}

if __name__ == "__main__":
    name, brokers, topic, records = sys.argv[1:5]
    print(CONTENDERS[name](brokers, topic, int(records)).to_json(), flush=True)

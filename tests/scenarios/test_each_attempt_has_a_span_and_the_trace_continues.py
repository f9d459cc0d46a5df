"""Tracing on: a span for each attempt, child of or linked to the record's own trace; verdicts as events; the context
continues through what handlers send, retry topics and dead letters. Nothing of the record is in any span.
"""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from keepfast import App, Context, Reject, RetryPolicy, RetryTopics
from keepfast.testing import KafkaBroker
from keepfast.testing.pytest_plugin import TopicFactory
from tests.support.broker_client import Client, NewRecord
from tests.support.running_app import RunningApp
from tests.support.waiting import wait_until

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = ("traceparent", f"00-{TRACE}-{SPAN}-01".encode())
SECRET = "4111-1111"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """A provider as the user's own code would have set it."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    return exporter


def events_of(span: ReadableSpan) -> list[str]:
    return [event.name for event in span.events]


def attribute(span: ReadableSpan, name: str) -> Any:
    return (span.attributes or {})[name]


def trace_of(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"{span.context.trace_id:032x}"


@pytest.mark.parametrize("relation", ["parent", "link"])
def test_attempts_verdicts_and_what_is_passed_on(
    kafka: KafkaBroker, topic: TopicFactory, spans: InMemorySpanExporter, relation: str
) -> None:
    name, out = topic(), topic(suffix=".out")
    app = App("traced", kafka={"brokers": kafka.bootstrap}, tracing={"enabled": True, "relation": relation})

    @app.consumer(
        name,
        retry=RetryPolicy(max_retries=1, initial_delay_ms=10, jitter=False),
        retry_topics=RetryTopics(delays=("1s",), allow_reorder=True),
        dead_letter=f"{name}.dlq",
    )
    def charge(value: bytes, ctx: Context) -> None:
        if value.startswith(b"down"):
            raise ConnectionError(SECRET)
        if value.startswith(b"bad"):
            raise Reject(SECRET)
        ctx.send(out, b"done")
        ctx.send(out, b"own", headers={"traceparent": b"mine"})

    client = Client(kafka)
    with RunningApp(app) as running:
        running.wait_assigned(2)
        sent = [NewRecord(value + SECRET.encode(), headers=[PARENT]) for value in (b"good", b"down", b"bad")]
        client.produce(name, sent)
        wait_until(lambda: client.committed("traced.charge", name)[0] == 3, "all left the topic")
        wait_until(lambda: len(client.read(f"{name}.dlq", 2)) == 2, "both letters")
    found = spans.get_finished_spans()
    by_offset = {
        number: [one for one in found if attribute(one, "messaging.kafka.offset") == number] for number in range(3)
    }
    assert {one.name for one in found} == {f"process {name}"}
    assert [events_of(one) for one in by_offset[0]] == [[]]
    assert [events_of(one)[-1] for one in by_offset[1]] == [
        "retry_scheduled",
        "moving_to_retry_topic",
        "dead_lettering",
    ]
    assert [attribute(one, "keepfast.attempt") for one in by_offset[1]] == [1, 2, 3]
    assert [events_of(one) for one in by_offset[2]] == [["exception", "dead_lettering"]]
    assert SECRET not in "".join(one.to_json() for one in found)
    for one in found:
        if relation == "parent":
            assert one.parent is not None
            assert (trace_of(one), f"{one.parent.span_id:016x}") == (TRACE, SPAN)
        else:
            assert one.parent is None
            assert [f"{link.context.trace_id:032x}" for link in one.links] == [TRACE]

    first, second = client.read(out, 2)
    [good] = by_offset[0]
    assert good.context is not None
    [(header, passed)] = first.headers()
    assert header == "traceparent"
    assert passed.startswith(f"00-{trace_of(good)}-{good.context.span_id:016x}-".encode())
    assert second.headers() == [("traceparent", b"mine")]
    for letter in client.read(f"{name}.dlq", 2):
        assert PARENT in letter.headers()

"""Spans, without a broker: batches, bounds, and what it costs where it is off."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from keepfast.core import verdicts
from keepfast.core.errors import ConfigError
from keepfast.core.events import RecordFailed
from keepfast.core.records import Message, TopicPartition
from keepfast.core.runs import Partition, Run, SelectedRecords
from keepfast.settings import AppSpec, Settings, load
from keepfast.telemetry import tracing
from keepfast.telemetry.tracing import Tracing, tracing_from
from keepfast.testing.fakes.log import FakeMessage

PLACE = TopicPartition("orders", 0)
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def settings_with(**environ: str) -> Settings:
    return load(AppSpec(name="shop"), environ=environ, cwd=Path("/nonexistent"))


def traced() -> tuple[Tracing, InMemorySpanExporter]:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Tracing(provider.get_tracer("test"), relation="parent", provider=provider), exporter


def messages(count: int, *headers: tuple[str, bytes | None]) -> list[Any]:
    return [FakeMessage(PLACE, number, key=None, value=b"v", headers=headers) for number in range(count)]


def run_of(found: list[Any]) -> Run:
    return Run(Partition(PLACE, epoch=1, start=0), found, range(len(found)), {})


def test_a_batch_is_one_span_linked_to_all_of_its_records() -> None:
    own, exporter = traced()
    found = messages(3, ("traceparent", f"00-{TRACE}-00f067aa0ba902b7-01".encode()))
    for error in (None, ValueError("4111")):
        own.end(own.begin_batch(SelectedRecords(found, [1, 2, 3]), run_of(found), "g"), error)
    good, bad = exporter.get_finished_spans()
    assert [f"{link.context.trace_id:032x}" for link in good.links] == [TRACE] * 3
    assert (good.attributes or {})["messaging.batch.message_count"] == 3
    assert not good.status.description
    assert (bad.status.is_ok, "4111" in bad.to_json()) == (False, False)


def decided(message: Message, group: str) -> RecordFailed:
    return RecordFailed(
        "c",
        group,
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
        attempt=1,
        error=None,
        error_type="ValueError",
        kind="retryable",
        code="UNKNOWN",
        rule="unknown",
        verdict=verdicts.RetryAfter(0.25),
    )


@pytest.mark.parametrize("header", [b"00-0-0-01", b"\xff\xfe", None, b"x" * 1000])
def test_a_header_that_names_no_trace_begins_one(header: bytes | None) -> None:
    own, exporter = traced()
    found = messages(1, ("traceparent", header))
    own.end(own.begin(found[0], run_of(found), "g"), None)
    [span] = exporter.get_finished_spans()
    assert span.parent is None


def test_a_failed_attempt_ends_with_what_was_decided_and_open_ones_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tracing, "MAX_OPEN", 3)
    own, exporter = traced()
    found = messages(5)
    for message in found:
        own.end(own.begin(message, run_of([message]), "g"), ValueError("4111"))
    assert len(exporter.get_finished_spans()) == 2, "the oldest are let go"
    own.on_event(decided(found[4], "another group"))
    assert len(exporter.get_finished_spans()) == 2, "that is another consumer's attempt at the same record"
    own.on_event(decided(found[4], "g"))
    own.on_event(decided(found[4], "g"))
    last = exporter.get_finished_spans()[-1]
    assert [event.name for event in last.events] == ["exception", "retry_scheduled"]
    assert (last.events[-1].attributes or {})["keepfast.backoff_delay_ms"] == 250
    own.stop()
    assert len(exporter.get_finished_spans()) == 5


def test_where_it_is_off_nothing_of_opentelemetry_is_loaded() -> None:
    assert tracing_from(settings_with()) is None
    script = "import sys, keepfast.app.assembly; assert not [n for n in sys.modules if n.startswith('opentelemetry')]"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_without_an_exporter_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "nowhere")
    monkeypatch.setattr(trace, "get_tracer_provider", trace.ProxyTracerProvider)
    with pytest.raises(ConfigError, match="no exporter 'nowhere'"):
        tracing_from(settings_with(KEEPFAST_TRACING_ENABLED="true"))

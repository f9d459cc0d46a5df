"""Spans of handler calls through OpenTelemetry (extra `tracing`). If it is off, none of this is called.

A span is one attempt at a record or a batch, named `process <topic>` as in the messaging conventions. The verdict on a
failed attempt is an event of its span. The loop decides it, so the worker leaves the span of a failed attempt open and
the loop ends it. Of a record a span contains only topic, partition and offset, and of an error only its type.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, assert_never

from keepfast.core import verdicts
from keepfast.core.errors import ConfigError, error_type
from keepfast.core.events import Event, RecordFailed
from keepfast.core.ports import Delivery, Sink
from keepfast.core.records import Headers, Message, Outgoing, read_headers
from keepfast.core.retry_topics import original
from keepfast.core.runs import NotBegun, Run, SelectedRecords
from keepfast.settings import Settings
from keepfast.telemetry.otel import ExporterKind, load_exporter

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, Tracer

Relation = Literal["parent", "link"]
Attempted = tuple[str, str, int, int]
"""Group, topic, partition and offset."""

EXPORTERS: Final = ExporterKind("OTEL_TRACES_EXPORTER", "opentelemetry_traces_exporter")
CONTEXT_HEADERS: Final = ("traceparent", "tracestate", "baggage")
MAX_LINKS: Final = 128
MAX_OPEN: Final = 10_000
"""Failed attempts without a verdict yet; there is none if the partition was lost meanwhile."""
SHUTDOWN_TIMEOUT_S: Final = 1.0


class OpenSpan(NamedTuple):
    """The span of an attempt. `message` is None for a batch."""

    span: Span
    token: Any
    run: Run
    group: str
    message: Message | None = None


class Tracing:
    """Creates the spans. Any thread.

    `relation`: whether the span of a record is a child of the span in its `traceparent`, or linked to it. `provider`:
    the provider that `stop` shuts down; None if it is the user's.
    """

    wants: frozenset[type[Event]] = frozenset({RecordFailed})
    keeps_errors = False

    def __init__(self, tracer: Tracer, *, relation: Relation, provider: TracerProvider | None = None) -> None:
        self._tracer = tracer
        self._parent = relation == "parent"
        self._provider = provider
        self._otel = _otel()
        self._open: dict[Attempted, Span] = {}

    def begin(self, message: Message, run: Run, group: str) -> OpenSpan:
        """Start the span of an attempt at a record; it is the current span until `end`, on the same thread or task."""
        headers = read_headers(message)
        context = _context_in(headers) if headers else None
        place: dict[str, str | int] = {
            "messaging.destination.partition.id": str(message.partition()),
            "messaging.kafka.offset": message.offset(),
        }
        span = self._started([context] if context else [], message.topic(), run, group, place, parent=self._parent)
        return OpenSpan(span, self._attached(span), run, group, message)

    def begin_batch(self, selection: SelectedRecords, run: Run, group: str) -> OpenSpan:
        """Start the span of an attempt at a batch, linked to the spans of its records; see `begin`."""
        messages = selection.messages
        found = [context for one in messages[:MAX_LINKS] if (context := _context_in(read_headers(one))) is not None]
        size: dict[str, str | int] = {"messaging.batch.message_count": len(messages)}
        span = self._started(found, original(messages[0]).topic(), run, group, size, parent=False)
        return OpenSpan(span, self._attached(span), run, group)

    def end(self, opened: OpenSpan, error: BaseException | None) -> None:
        """The attempt is over. The span of a failed attempt at a record stays open until its verdict."""
        span, token, run, group, message = opened
        self._otel.detach(token)
        if error is not None and not isinstance(error, NotBegun):  # else the handler was not called
            _failed(span, error)
            if message is not None and not run.abandoned:  # else its verdict was a timeout
                self._leave_open(message, group, span)
                return
        span.end()

    def sink(self, sink: Sink) -> Sink:
        """A sink that adds the current trace context to what handlers send, unless they set one themselves."""
        return _ContextSink(sink)

    def with_context(self, outgoing: Outgoing) -> Outgoing:
        """The record with the current trace context, unless it has one."""
        return _with_context(outgoing)

    def on_event(self, event: Event) -> None:
        """Implements `core.events.Observer`: the verdict on a failed attempt ends its span."""
        if not isinstance(event, RecordFailed):
            return
        span = self._open.pop((event.group, event.topic, event.partition, event.offset), None)
        if span is None:  # it timed out and its handler is still running, or it is part of a batch
            return
        name, fields = _event(event.verdict)
        span.add_event(name, {"keepfast.retry_count": max(0, event.attempt - 1), **fields})
        span.end()

    def stop(self) -> None:
        """Call it when all loops have ended. Records without a verdict are redelivered elsewhere."""
        while self._open:
            self._open.popitem()[1].end()
        if self._provider is not None:
            # If the collector cannot be reached, an exporter blocks for half a minute.
            shutdown = threading.Thread(target=self._provider.shutdown, name="keepfast-spans", daemon=True)
            shutdown.start()
            shutdown.join(SHUTDOWN_TIMEOUT_S)

    def _attached(self, span: Span) -> Any:
        """Make it the current span; returns the token to detach it."""
        return self._otel.attach(self._otel.set_span_in_context(span))

    def _started(
        self,
        contexts: Sequence[Context],
        topic: str,
        run: Run,
        group: str,
        more: dict[str, str | int],
        *,
        parent: bool,
    ) -> Span:
        otel = self._otel
        return self._tracer.start_span(
            f"process {topic}",
            context=contexts[0] if parent and contexts else otel.nothing,
            kind=otel.consumer,
            links=[] if parent else [otel.link(otel.current_span(one).get_span_context()) for one in contexts],
            attributes={
                "messaging.system": "kafka",
                "messaging.operation.name": "process",
                "messaging.operation.type": "process",
                "messaging.destination.name": topic,
                "messaging.consumer.group.name": group,
                "keepfast.attempt": run.attempt,
                **more,
            },
        )

    def _leave_open(self, message: Message, group: str, span: Span) -> None:
        record = original(message)
        place = (group, record.topic(), record.partition(), record.offset())
        for old in (place, *([next(iter(self._open))] if len(self._open) >= MAX_OPEN else [])):
            forgotten = self._open.pop(old, None)
            if forgotten is not None:
                forgotten.end()
        self._open[place] = span


@dataclass(frozen=True, slots=True)
class _ContextSink:
    """A sink that adds the context of the current span."""

    inner: Sink

    def send(self, outgoing: Outgoing, delivered: Delivery) -> None:
        self.inner.send(_with_context(outgoing), delivered)

    def close(self, timeout_s: float) -> None:
        self.inner.close(timeout_s)


def _with_context(outgoing: Outgoing) -> Outgoing:
    if any(name in CONTEXT_HEADERS for name, _ in outgoing.headers):
        return outgoing
    carrier: dict[str, str] = {}
    _otel().inject(carrier)
    added = tuple((name, value.encode()) for name, value in carrier.items())
    return replace(outgoing, headers=(*outgoing.headers, *added))


@dataclass(frozen=True, slots=True)
class _Otel:
    """The functions of OpenTelemetry that are used for each record, looked up once."""

    attach: Any
    detach: Any
    set_span_in_context: Any
    current_span: Any
    link: Any
    extract: Any
    inject: Any
    consumer: Any
    nothing: Context
    """A context without a span, so that the worker's own context is not the parent."""


@cache
def _otel() -> _Otel:
    from opentelemetry import context, propagate, trace

    return _Otel(
        attach=context.attach,
        detach=context.detach,
        set_span_in_context=trace.set_span_in_context,
        current_span=trace.get_current_span,
        link=trace.Link,
        extract=propagate.extract,
        inject=propagate.inject,
        consumer=trace.SpanKind.CONSUMER,
        nothing=context.Context(),
    )


def _context_in(headers: Headers) -> Context | None:
    """The trace context in the headers of a record; None if there is no valid one."""
    carrier = {
        name: value.decode("ascii", "replace")
        for name, value in headers
        if name in CONTEXT_HEADERS and value is not None
    }
    if not carrier:
        return None
    otel = _otel()
    found: Context = otel.extract(carrier, context=otel.nothing)
    return found if otel.current_span(found).get_span_context().is_valid else None


def _failed(span: Span, error: BaseException) -> None:
    """Set the type of the error, and not its message, which may contain data of the record."""
    from opentelemetry.trace import Status, StatusCode

    name = error_type(error)
    span.set_attribute("error.type", name)
    span.add_event("exception", {"exception.type": name})
    span.set_status(Status(StatusCode.ERROR, name))


def _event(verdict: verdicts.Verdict | None) -> tuple[str, dict[str, str | int]]:
    match verdict:
        case None:
            return "retry_held", {}
        case verdicts.RetryAfter(delay_s=delay_s):
            return "retry_scheduled", {"keepfast.backoff_delay_ms": round(delay_s * 1000)}
        case verdicts.Move(delay_s=delay_s):
            return "moving_to_retry_topic", {"keepfast.backoff_delay_ms": round(delay_s * 1000)}
        case verdicts.DeadLetter(code=code):
            return "dead_lettering", {"keepfast.code": code}
        case verdicts.DiscardRecord():
            return "record_discarded", {}
        case verdicts.HaltConsumer():
            return "halting", {}
        case verdicts.Done():
            return "done", {}
        case other:
            assert_never(other)


def tracing_from(settings: Settings) -> Tracing | None:
    """Tracing as the settings and the OTEL_* variables configure it; a provider that the user's code has set is used.

    None if it is off. Raises ConfigError if a package is missing.
    """
    if not settings.tracing.enabled:
        return None
    try:
        from opentelemetry import trace
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise ConfigError(
            "tracing needs OpenTelemetry: install opentelemetry-sdk, and an exporter such as"
            " opentelemetry-exporter-otlp-proto-http."
        ) from error
    relation, version = settings.tracing.relation, settings.app.version
    known = trace.get_tracer_provider()
    if not isinstance(known, trace.ProxyTracerProvider):
        return Tracing(known.get_tracer("keepfast"), relation=relation)
    provider = TracerProvider(
        resource=Resource.create(
            {"service.name": settings.app.name, **({"service.version": version} if version else {})}
        )
    )
    provider.add_span_processor(BatchSpanProcessor(load_exporter("tracing", os.environ, EXPORTERS)))
    trace.set_tracer_provider(provider)  # so that spans of handlers are exported, too
    return Tracing(provider.get_tracer("keepfast"), relation=relation, provider=provider)

"""Spans of what handlers do, through OpenTelemetry (extra `tracing`). Where it is off, nothing of this is called.

A span is one attempt at one record, or at one batch: `process <topic>`, as the conventions for messaging name it. What
is decided about a failed attempt is an event of its span; the decision is the loop's, so the worker leaves the span of
a failed attempt open, and the loop ends it. Nothing of a record is in a span but where it is, and of an error its type.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, assert_never

from keepfast.core import verdicts
from keepfast.core.errors import ConfigError
from keepfast.core.events import Event, RecordFailed
from keepfast.core.ports import Delivery, Sink
from keepfast.core.records import Headers, Message, Outgoing, read_headers
from keepfast.core.retry_topics import original
from keepfast.core.runs import NotBegun, Run, Selection
from keepfast.settings import Settings

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, Tracer

Relation = Literal["parent", "link"]
Attempted = tuple[str, str, int, int]
"""Group, topic, partition and offset."""

GROUP: Final = "opentelemetry_traces_exporter"
OURS: Final = ("traceparent", "tracestate", "baggage")
MAX_LINKS: Final = 128
MAX_OPEN: Final = 10_000
"""Failed attempts whose decision has not come; it never does for a partition that was lost meanwhile."""
LAST_WORD_S: Final = 1.0


class OpenSpan(NamedTuple):
    """The span of an attempt. `message` is None for a batch."""

    span: Span
    token: Any
    run: Run
    group: str
    message: Message | None = None


class Tracing:
    """Any thread. `relation`: whether the span of a record is a child of the one that its `traceparent` names, or only
    linked to it. `stop` flushes what was made here.
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
        """An attempt at a record begins: its span is the current one until `end`, on the same thread or task."""
        headers = read_headers(message)
        context = _context_in(headers) if headers else None
        place: dict[str, str | int] = {
            "messaging.destination.partition.id": str(message.partition()),
            "messaging.kafka.offset": message.offset(),
        }
        span = self._started([context] if context else [], message.topic(), run, group, place, parent=self._parent)
        return OpenSpan(span, self._attached(span), run, group, message)

    def begin_batch(self, selection: Selection, run: Run, group: str) -> OpenSpan:
        """An attempt at a batch begins; its span is linked to those of its records."""
        messages = selection.messages
        found = [context for one in messages[:MAX_LINKS] if (context := _context_in(read_headers(one))) is not None]
        size: dict[str, str | int] = {"messaging.batch.message_count": len(messages)}
        span = self._started(found, original(messages[0]).topic(), run, group, size, parent=False)
        return OpenSpan(span, self._attached(span), run, group)

    def end(self, opened: OpenSpan, error: BaseException | None) -> None:
        """The attempt is over. The span of a failed attempt at a record stays open until it is decided about."""
        span, token, run, group, message = opened
        self._otel.detach(token)
        if error is not None and not isinstance(error, NotBegun):  # else nothing was tried
            _failed(span, error)
            if message is not None and not run.abandoned:  # else it was decided about long ago
                self._leave_open(message, group, span)
                return
        span.end()

    def sink(self, sink: Sink) -> Sink:
        """What handlers send carries the context of the span that they run in, unless they give one themselves."""
        return _Passing(sink)

    def on_event(self, event: Event) -> None:
        """Implements `core.events.Observer`: the loop has decided about a failed attempt, which ends its span."""
        if not isinstance(event, RecordFailed):
            return
        span = self._open.pop((event.group, event.topic, event.partition, event.offset), None)
        if span is None:  # it timed out, and its handler still runs; or it is one of a batch
            return
        name, fields = _event(event.verdict)
        span.add_event(name, {"keepfast.retry_count": max(0, event.attempt - 1), **fields})
        span.end()

    def stop(self) -> None:
        """All loops have ended; what was not decided about comes again elsewhere."""
        while self._open:
            self._open.popitem()[1].end()
        if self._provider is not None:
            # An exporter that reaches nobody takes half a minute to say so, and there is a moment only.
            last_word = threading.Thread(target=self._provider.shutdown, name="keepfast-spans", daemon=True)
            last_word.start()
            last_word.join(LAST_WORD_S)

    def _attached(self, span: Span) -> Any:
        """The token to detach it with."""
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
class _Passing:
    """A sink that adds the context of the current span."""

    inner: Sink

    def send(self, outgoing: Outgoing, delivered: Delivery) -> None:
        if not any(name in OURS for name, _ in outgoing.headers):
            carrier: dict[str, str] = {}
            _otel().inject(carrier)
            added = tuple((name, value.encode()) for name, value in carrier.items())
            outgoing = replace(outgoing, headers=(*outgoing.headers, *added))
        self.inner.send(outgoing, delivered)

    def close(self, timeout_s: float) -> None:
        self.inner.close(timeout_s)


@dataclass(frozen=True, slots=True)
class _Otel:
    """What is used of OpenTelemetry for each record, looked up once."""

    attach: Any
    detach: Any
    set_span_in_context: Any
    current_span: Any
    link: Any
    extract: Any
    inject: Any
    consumer: Any
    nothing: Context
    """A context without a span: a worker's own is nobody's parent."""


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
    """What the record's headers name; None if they name nothing that is well-formed."""
    carrier = {name: value.decode("ascii", "replace") for name, value in headers if name in OURS and value is not None}
    if not carrier:
        return None
    otel = _otel()
    found: Context = otel.extract(carrier, context=otel.nothing)
    return found if otel.current_span(found).get_span_context().is_valid else None


def _failed(span: Span, error: BaseException) -> None:
    """Its type, and not its text, which may hold what was in the record."""
    from opentelemetry.trace import Status, StatusCode

    name = type(error).__name__
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
    """By the settings, and the variables of OpenTelemetry; a provider that the user's code has set is taken as it is.

    None if it is off. Raises ConfigError that says what to install.
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
    provider.add_span_processor(BatchSpanProcessor(_exporter()))
    trace.set_tracer_provider(provider)  # spans that handlers make go the same way
    return Tracing(provider.get_tracer("keepfast"), relation=relation, provider=provider)


def _exporter() -> Any:
    name = os.environ.get("OTEL_TRACES_EXPORTER", "otlp").split(",")[0].strip() or "otlp"
    listed = entry_points(group=GROUP)
    found = [one for one in listed if one.name in (name, f"{name}_proto_http", f"{name}_proto_grpc")]
    if not found:
        known = ", ".join(sorted(one.name for one in listed)) or "none"
        raise ConfigError(
            f"tracing has no exporter {name!r} (OTEL_TRACES_EXPORTER); installed: {known}. Install one, such as"
            " opentelemetry-exporter-otlp-proto-http."
        )
    return found[0].load()()

"""A handler's call with spans around it, where tracing is on; else the call as it is."""

from __future__ import annotations

from dataclasses import replace

from keepfast.core.ports import Sink
from keepfast.engine.batch_handler import BatchHandler
from keepfast.engine.batch_walk import AsyncBatchCall, BatchCall
from keepfast.engine.handler import Handler
from keepfast.engine.walk import AsyncCall, Call
from keepfast.telemetry.tracing import Tracing


def handler_call(handler: Handler | BatchHandler, sink: Sink, tracing: Tracing | None, group: str) -> Call | BatchCall:
    if tracing is None:
        return handler.call(sink)
    call = handler.call(tracing.sink(sink))
    if isinstance(call, BatchCall):
        return replace(call, call=tracing.traced_batch(call.call, group))
    return tracing.traced(call, group)


def handler_call_async(
    handler: Handler | BatchHandler, sink: Sink, tracing: Tracing | None, group: str
) -> AsyncCall | AsyncBatchCall:
    if tracing is None:
        return handler.call_async(sink)
    call = handler.call_async(tracing.sink(sink))
    if isinstance(call, AsyncBatchCall):
        return replace(call, call=tracing.traced_batch_async(call.call, group))
    return tracing.traced_async(call, group)

"""From an app's functions and settings to its consumers, assembled."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from keepfast.app.inboxes import AppInboxes
from keepfast.app.options import Consumer
from keepfast.app.schemas import AppSchemas
from keepfast.core.errors import ConfigError
from keepfast.core.events import Observer
from keepfast.core.names import expand
from keepfast.core.ports import Sink
from keepfast.core.topic_patterns import matching
from keepfast.decode.choice import Decoding
from keepfast.engine.calls import Handler
from keepfast.engine.hooks import Hook
from keepfast.engine.middleware import Around, Overrides
from keepfast.engine.plan import Plan
from keepfast.engine.workers import HandlerLoop
from keepfast.settings import Settings
from keepfast.telemetry.tracing import Tracing
from keepfast.wiring.assembly import Assembly, assemble, connect
from keepfast.wiring.consumers import AnyCall, ConsumerSpec

THREADS, COROUTINES = 32, 256
"""Records that are processed at the same time, unless settings say otherwise."""


def assemble_app(
    specs: list[ConsumerSpec],
    settings: Settings,
    *,
    wait: bool,
    events: HandlerLoop | None = None,
    reserved_s: float = 0.0,
    abandoned: Callable[[], bool] = lambda: False,
    leave: Callable[[int], None] = os._exit,
    supervisor_stops: Callable[[], bool] = lambda: False,
    observers: Sequence[Observer] = (),
    hooks: Sequence[Hook] = (),
) -> Assembly:
    """Everything of an app, not yet started; see `wiring.assembly.assemble`. Raises ConfigError or StartError.

    `abandoned`: whether the start is given up, while the broker is waited for.
    """
    clients = partial(connect, specs, settings, wait=wait, abandoned=abandoned)
    return assemble(
        specs,
        settings,
        clients,
        events=events,
        reserved_s=reserved_s,
        leave=leave,
        supervisor_stops=supervisor_stops,
        observers=observers,
        hooks=hooks,
    )


def specs_of(
    consumers: list[Consumer],
    settings: Settings,
    resources: Any = None,
    *,
    inboxes: AppInboxes | None = None,
    overrides: Overrides | None = None,
    schemas: AppSchemas | None = None,
) -> list[ConsumerSpec]:
    """Each consumer's function, ready to be called. `resources` is what the app's lifespan yielded, or LATER to check
    what can be checked before it is entered; `overrides` are functions in place of providers; `schemas` is what values
    are decoded and sent with; inboxes are bound in `inboxes`, whose owner opens them. Raises ConfigError with every
    problem.
    """
    inboxes = inboxes or AppInboxes(settings)
    specs: list[ConsumerSpec] = []
    problems: list[str] = []
    for consumer in consumers:
        own = settings.consumers[consumer.name]
        try:
            handler = Handler(
                consumer.function,
                consumer.shape,
                order=own.order,
                tombstones=own.tombstones,
                group=own.group,
                sensitive=consumer.sensitive,
                around=Around(
                    consumer.middleware, resources, overrides or {}, inboxes.of(consumer, own.group, resources)
                ),
                passes=consumer.filter,
                decoding=replace(decoding_of(consumer, settings), source=schemas.source if schemas else None),
                encode=schemas.encode if schemas is not None and schemas.sends else None,
                exactly_once=own.exactly_once,
                max_deliveries=own.max_deliveries if own.order == "queue" else None,
            )
        except ConfigError as error:
            problems.extend(f"{_place(consumer)}{problem}" for problem in error.problems)
            continue
        specs.append(
            ConsumerSpec(
                settings=own,
                handler=f"{consumer.function.__module__}:{consumer.shape.name}",
                call=partial(_call, handler),
                capacity=COROUTINES if consumer.shape.is_async else THREADS,
                is_async=consumer.shape.is_async,
                takes_lists=consumer.shape.batch,
                schema_of=handler.ref_of,
            )
        )
    if problems:
        raise ConfigError(*problems)
    return specs


def decoding_of(consumer: Consumer, settings: Settings) -> Decoding:
    """With what the settings say."""
    own, decoding = settings.consumers[consumer.name], consumer.decoding
    names = {"env": settings.app.env}
    models = {expand(topic, names): model for topic, model in decoding.models.items()}
    schemas = {expand(topic, names): schema for topic, schema in decoding.schemas.items()}
    keys = {expand(topic, names): schema for topic, schema in decoding.keys.items()}
    topics = own.topics  # and those that a pattern may find
    if own.pattern is not None:
        topics = (*topics, *matching(own.pattern, {*schemas, *keys}, (), topics))
    return replace(decoding, models=models, schemas=schemas, keys=keys, unknown_types=own.unknown_types, topics=topics)


def _call(handler: Handler, plan: Plan, sink: Sink, tracing: Tracing | None) -> AnyCall:
    make = handler.call_async if handler.shape.is_async else handler.call
    return make(sink, tracing=tracing, retry_topics=plan.tiers is not None)


def _place(consumer: Consumer) -> str:
    """`file:line: ` of the handler, where that is known: instances have none."""
    code = getattr(inspect.unwrap(consumer.function), "__code__", None)
    return f"{Path(code.co_filename).name}:{code.co_firstlineno}: " if code else ""

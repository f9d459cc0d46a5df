"""What a harness runs: an app with its consumers, or a `KafkaConsumerRunner` with its hooks."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, get_args, get_origin

from keepfast.app.application import App
from keepfast.app.assembly import assemble_app, decoding_of, specs_of
from keepfast.app.inboxes import AppInboxes
from keepfast.app.instance import AppInstance, StartOptions
from keepfast.app.schemas import AppSchemas
from keepfast.app.sends import AppSends
from keepfast.core.errors import ConfigError
from keepfast.core.events import Observer
from keepfast.core.ports import Delivery, Sink
from keepfast.core.records import Headers
from keepfast.core.schemas import AnySchema, DeclaredSchemas, Protobuf
from keepfast.deadletters.letter import Letter
from keepfast.decode.annotation import members_of
from keepfast.decode.protobuf import is_message
from keepfast.decode.signature import handler_name, inspect_provider
from keepfast.engine.context import Encoded, to_bytes
from keepfast.engine.hooks import Hook
from keepfast.engine.middleware import Overrides, providers_in
from keepfast.engine.workers import HandlerLoop
from keepfast.runner import KafkaConsumerRunner
from keepfast.runner.assembly import build, settings_of, spec_of
from keepfast.runner.publishing import HookLetter, HookPublisher
from keepfast.settings import Settings
from keepfast.wiring.assembly import Assembly
from keepfast.wiring.consumers import ConsumerSpec


class Tested(Protocol):
    """Owner: the harness."""

    settings: Settings
    noted: list[Letter]
    """Records published by the user's own publisher, in the form of our letters."""
    specs: list[ConsumerSpec]
    """For the engine in memory."""
    hooks: Sequence[Hook]
    inboxes: AppInboxes | None
    """Bound, and not open yet."""

    def assembled(self, settings: Settings, observers: Sequence[Observer], events: HandlerLoop) -> Assembly:
        """The same on a broker, with these settings in place of its own, and coroutines on this event loop. Raises
        ConfigError or StartError.
        """
        ...

    def encode(self, topic: str, value: Any, key: Any, headers: Headers) -> Encoded:
        """What the test sends, as the app's own `send` would."""
        ...

    def started(self, sink: Sink) -> AbstractContextManager[object]:
        """A block in which the user's code finds the app started, and sends with `sink`."""
        ...


class TestedApp:
    __test__ = False

    def __init__(
        self, app: App, *, environ: Mapping[str, str], cwd: Path, resources: object, overrides: Overrides
    ) -> None:
        self._app = app
        self.settings = _in_memory(app.settings(environ=environ, cwd=cwd, for_tests=True), environ)
        self.noted: list[Letter] = []
        self.hooks: Sequence[Hook] = app.hooks
        self._consumers = app.chosen()
        self._resources = resources
        self._overrides = overrides
        self._check_overrides()
        self.inboxes: AppInboxes | None = AppInboxes(self.settings)
        self._schemas = self._schemas_of(app)
        self.specs = self._specs(self.settings)

    def _specs(self, settings: Settings) -> list[ConsumerSpec]:
        return specs_of(
            self._consumers,
            settings,
            self._resources,
            inboxes=self.inboxes,
            overrides=self._overrides,
            schemas=self._schemas,
        )

    def _schemas_of(self, app: App) -> AppSchemas:
        """Also of topics that the app only reads: the test sends to them."""
        decodings = [(one, decoding_of(one, self.settings)) for one in self._consumers]
        declared = dict(app.schemas.values)
        for consumer, decoding in decodings:
            for topic in decoding.topics:
                schema = decoding.schema_of(topic)
                if schema is not None:
                    declared[topic] = _sendable(schema, decoding.models.get(topic, consumer.shape.annotation))
        schemas = AppSchemas(
            self.settings, replace(app.schemas, values=declared), [decoding for _, decoding in decodings], at_once=True
        )
        schemas.open()
        return schemas

    def _check_overrides(self) -> None:
        """An override without effect is a mistake: the test would use the real one."""
        around = [one for consumer in self._consumers for one in consumer.middleware]
        around += [inspect_provider(one, "provider") for one in self._overrides.values()]
        parameters = [parameter for consumer in self._consumers for parameter in consumer.shape.parameters]
        known = providers_in([*parameters, *(parameter for one in around for parameter in one.parameters)])
        problems = [
            f"overrides: no handler or middleware takes what {handler_name(one)}() provides; name the function that"
            " stands in Provide(…)"
            for one in self._overrides
            if one not in known
        ]
        if problems:
            raise ConfigError(*problems)

    def assembled(self, settings: Settings, observers: Sequence[Observer], events: HandlerLoop) -> Assembly:
        specs = self._specs(settings)
        return assemble_app(
            specs, settings, wait=False, events=events, leave=_stay, observers=observers, hooks=self.hooks
        )

    def started(self, sink: Sink) -> AbstractContextManager[object]:
        return self._app.held_by(TestInstance(self.settings, sink, self._resources, self._schemas))

    def encode(self, topic: str, value: Any, key: Any, headers: Headers) -> Encoded:
        return self._schemas.encode(topic, value, key, headers)


class TestInstance(AppInstance):
    """An app that a harness has started: it is neither started nor stopped by the test."""

    __test__ = False

    def __init__(self, settings: Settings, sink: Sink, resources: object, schemas: AppSchemas) -> None:
        super().__init__(settings, [], schemas=DeclaredSchemas(), lifespan=None, hooks=(), options=StartOptions())
        self.schemas = schemas
        self.sends = AppSends(sink)
        self._given = resources

    @property
    def resources(self) -> Any:
        return self._given


class TestedRunner:
    """Hooks for records are called as by `run`; hooks of start and shutdown and `producer_factory` are not. A
    consumer created by the factory is closed at once.
    """

    __test__ = False
    hooks: Sequence[Hook] = ()
    inboxes: AppInboxes | None = None

    def __init__(self, runner: KafkaConsumerRunner, *, environ: Mapping[str, str], cwd: Path) -> None:
        self.noted: list[Letter] = []
        self._blueprint = replace(runner.blueprint, producer_factory=None, serves=False, noted=self.noted.append)
        self.settings, self._made = settings_of(self._blueprint, environ=environ, cwd=cwd, for_tests=True)
        self.specs = [spec_of(self._blueprint, self._made, self.settings, InlinePublisher)]

    def assembled(self, settings: Settings, observers: Sequence[Observer], events: HandlerLoop) -> Assembly:  # noqa: ARG002 - it has no coroutines
        return build(self._blueprint, self._made, settings, _stay, observers)

    def encode(self, topic: str, value: Any, key: Any, headers: Headers) -> Encoded:  # noqa: ARG002 - it has no schemas
        return to_bytes(value), to_bytes(key), headers

    def started(self, sink: Sink) -> AbstractContextManager[object]:
        return nullcontext(sink)


class InlinePublisher(HookPublisher):
    """Calls the user's publisher on the calling thread: in memory there are no threads."""

    def hand_over(self, letter: HookLetter, delivered: Delivery) -> None:
        delivered(self.outcome(letter))


def tested(
    subject: App | KafkaConsumerRunner,
    *,
    environ: Mapping[str, str],
    cwd: Path,
    resources: object,
    overrides: Overrides,
) -> Tested:
    """Raises ConfigError."""
    if isinstance(subject, KafkaConsumerRunner):
        if resources is not None or overrides:
            raise ConfigError("resources and overrides are for apps; a KafkaConsumerRunner has neither.")
        return TestedRunner(subject, environ=environ, cwd=cwd)
    return TestedApp(subject, environ=environ, cwd=cwd, resources=resources, overrides=overrides)


def _in_memory(settings: Settings, environ: Mapping[str, str]) -> Settings:
    """With a registry of its own that takes every schema, unless the test names one."""
    if {"KEEPFAST_REGISTRY_URL", "SCHEMA_REGISTRY_URL"} & environ.keys():
        return settings
    registry = replace(settings.registry, url=f"mock://{uuid.uuid4()}", register=True)
    return replace(settings, registry=registry)


def _sendable(schema: AnySchema, annotation: Any) -> AnySchema:
    """A schema without its text is found in the registry, and a class of Protobuf in the annotation."""
    element = get_args(annotation)[0] if get_origin(annotation) is list else annotation
    kind = next((member for member in members_of(element) if is_message(member)), None)
    return Protobuf(kind) if isinstance(schema, Protobuf) and schema.message is None else schema


def _stay(code: int) -> None:
    """A deadline that has passed does not end the test's process."""

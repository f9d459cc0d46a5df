"""Which decoder a record gets where the handler's annotation alone does not say: by its topic, by a header that names
its type or its content type, or a function of the user's.

Chosen once, when the consumer is built. What depends on the value alone stays a function of the value.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Optional, TypeAlias

from keepfast.core.errors import ConfigError, DecodeError, Discard
from keepfast.core.records import Message, read_headers
from keepfast.core.schemas import (
    AnySchema,
    CloudEvents,
    DeclaredSchemas,
    JsonSchema,
    Protobuf,
    RecordPart,
    Schema,
    SchemaRef,
)
from keepfast.decode.annotation import (
    Decoder,
    Tombstones,
    custom_decoder,
    decoder_for,
    members_of,
    on_null,
    takes_bytes,
    type_name,
)
from keepfast.decode.cloudevents import CloudEventDecoder, data_of
from keepfast.decode.failures import CONTENT_TYPE_UNKNOWN, MISSING_REQUIRED_FIELD, UNKNOWN_TYPE
from keepfast.decode.schemas import FileDecoder, SchemaDecoder, SchemaSource
from keepfast.decode.signature import is_plain

ValueDecoder: TypeAlias = Callable[[bytes], Any]
"""A decoder of the user's. It is never called with a null value. What it raises makes the record undecodable, which is
final; RetryLater, Reject, Discard and Halt are what they are in a handler."""

ByContentType: TypeAlias = Mapping[str, ValueDecoder | None]
"""By the record's content type; None: as the annotation says. `*` is for all others, records without a content type
included; without it those are decoded as the annotation says."""

RecordDecoder: TypeAlias = Callable[[Message], Any]
"""As `Decoder`, of a record with its topic and headers."""

UnknownTypes: TypeAlias = Literal["dead-letter", "discard"]

ANY = "*"
_CONTENT_TYPE = frozenset({"content-type", "contenttype"})
_ANYTHING = (Any, object, inspect.Parameter.empty)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """What a consumer and its app say about decoding beside the annotation.

    `models`: the type of each topic's records. `types`: the type of a record by the value of its header `type_header`.
    `registered`: the app's decoders, by type. `topics`: all topics of the consumer, by the settings. `schemas`: the
    schema of each topic's values, `schema` that of all others, `keys` those of keys; `source` is where schemas are
    fetched from.
    """

    models: Mapping[str, Any] = field(default_factory=dict)
    types: Mapping[str, Any] = field(default_factory=dict)
    type_header: str = "type"
    decoder: ValueDecoder | ByContentType | None = None
    registered: Mapping[Any, ValueDecoder] = field(default_factory=dict)
    unknown_types: UnknownTypes = "dead-letter"
    topics: tuple[str, ...] = ()
    schemas: Mapping[str, AnySchema] = field(default_factory=dict)
    schema: AnySchema | None = None
    keys: Mapping[str, Schema] = field(default_factory=dict)
    source: SchemaSource | None = None

    def within(self, *, registered: Mapping[Any, ValueDecoder], schemas: DeclaredSchemas) -> Decoding:
        """With what the app declares; the consumer's own schemas go before."""
        declared = {} if self.schema is not None else schemas.values
        return replace(self, registered=registered, schemas={**declared, **self.schemas}, keys=schemas.keys)

    def schema_of(self, topic: str) -> AnySchema | None:
        return self.schemas.get(topic, self.schema)

    @property
    def has_schemas(self) -> bool:
        """Whether some topic of the consumer has one."""
        return self.schema is not None or any(topic in self.schemas for topic in self.topics)

    @property
    def has_events(self) -> bool:
        """Whether some topic has CloudEvents."""
        return any(isinstance(one, CloudEvents) for one in (self.schema, *self.schemas.values()))

    @property
    def needs_registry(self) -> bool:
        used = [self.schema, *(of.get(topic) for of in (self.schemas, self.keys) for topic in self.topics)]
        return any(one is not None and one.registry for one in used)

    def example(self, annotation: Any, topic: str) -> tuple[Any, Mapping[str, str]]:
        """The type of an example record of this topic, and the headers that it needs. Its type is `bytes` where only a
        function of the user's knows what to write.
        """
        if self.types:
            tag, kind = next(iter(self.types.items()))
        else:
            tag, kind = "", self.models.get(topic, annotation)
        if (
            self.decoder is not None
            or self.needs_registry
            or any(member in self.registered for member in members_of(kind))
        ):
            kind = bytes
        return kind, {self.type_header: tag} if tag else {}


@dataclass(frozen=True, slots=True)
class ChosenDecoder:
    """A decoder of the value, or of the record as a whole (`by_record`). `as_is`: what it does with a value that is not
    null is to return it.
    """

    decode: Callable[[Any], Any]
    by_record: bool = False
    as_is: bool = False
    ref_of: Callable[[Message], SchemaRef | None] | None = None
    """The registered schema of a record, where its topic has one."""
    ensure: Callable[[Message], None] | None = None
    """Raises SchemaPending if a record cannot be decoded yet."""
    keys: KeyDecoder | None = None
    """Of the keys, where some topic has a schema of them."""


def choose(annotation: Any, decoding: Decoding, *, tombstones: Tombstones, where: str = "") -> ChosenDecoder:
    """The decoder of a consumer; `annotation` is that of one record. Raises ConfigError with what to write instead."""
    problem = next(_problems(annotation, decoding), None)
    if problem is not None:
        raise ConfigError(f"{where}: {problem}" if where else problem)
    decoders = _Decoders(annotation, decoding, tombstones, where)
    chosen = _chosen(annotation, decoding, decoders)
    return replace(chosen, keys=KeyDecoder(decoders)) if decoding.keys else chosen


def _chosen(annotation: Any, decoding: Decoding, decoders: _Decoders) -> ChosenDecoder:
    own = decoding.decoder
    if decoding.has_schemas and (not takes_bytes(annotation) or decoding.has_events):
        by_schema = _BySchema(decoders)
        return ChosenDecoder(by_schema.decode, by_record=True, ref_of=by_schema.ref, ensure=by_schema.ensure)
    if decoding.models or decoding.types:
        by_record = decoders.by_topic() if decoding.models else decoders.by_type()
        return ChosenDecoder(decoders.by_content_type(own, by_record) if isinstance(own, Mapping) else by_record, True)
    if isinstance(own, Mapping):
        return ChosenDecoder(decoders.by_content_type(own, decoders.as_annotated(own)), by_record=True)
    as_is = own is None and takes_bytes(annotation) and bytes not in decoding.registered
    return ChosenDecoder(decoders.of(annotation, own), as_is=as_is)


@dataclass(frozen=True, slots=True)
class _Decoders:
    """Makes the decoders of one consumer."""

    annotation: Any
    decoding: Decoding
    tombstones: Tombstones
    where: str

    def of(self, kind: Any, function: ValueDecoder | None = None) -> Decoder:
        """By this function, by the one that is registered for the type, or as the type says."""
        kinds = [member for member in members_of(kind) if member is not type(None)]
        if function is None and len(kinds) == 1:
            function = self.decoding.registered.get(kinds[0])
        if function is not None:
            return custom_decoder(function, kind, tombstones=self.tombstones)
        return decoder_for(
            kind,
            tombstones=self.tombstones,
            discard_unknown=self.decoding.unknown_types == "discard",
            where=self.where,
        )

    def of_schema(
        self, topic: str, schema: Schema, kind: Any, *, part: RecordPart = "value"
    ) -> FileDecoder | SchemaDecoder:
        if isinstance(schema, JsonSchema) and not schema.registry:
            return FileDecoder(topic, schema, kind, tombstones=self.tombstones, where=self.where)
        if self.decoding.source is None:
            raise ConfigError(
                f"the topic {topic} has a schema of a registry: set registry.url (KEEPFAST_REGISTRY_URL), or write"
                " JsonSchema(…, registry=False) for a file"
            )
        return SchemaDecoder(
            topic,
            schema,
            kind,
            source=self.decoding.source,
            tombstones=self.tombstones,
            discard_unknown=self.decoding.unknown_types == "discard",
            where=self.where,
            part=part,
        )

    def as_annotated(self, own: ByContentType) -> RecordDecoder | None:
        """For records whose content type has no function of its own; None if every record has one."""
        if ANY in own and all(own.values()):
            return None
        return _of_value(self.of(self.annotation))

    def by_topic(self) -> RecordDecoder:
        optional = type(None) in members_of(self.annotation)
        known = {
            topic: self.of(Optional[model] if optional else model)  # noqa: UP045 - `|` fails for some kinds of types
            for topic, model in self.decoding.models.items()
        }

        def decode(message: Message) -> Any:
            decoder = known.get(message.topic())
            if decoder is None:  # out of a retry topic, by headers of another program
                raise DecodeError(f"no type is known for the topic {message.topic()}", code=UNKNOWN_TYPE)
            return decoder(message.value())

        return decode

    def by_type(self) -> RecordDecoder:
        known = {tag.encode(): self.of(kind) for tag, kind in self.decoding.types.items()}
        header, null = self.decoding.type_header, on_null(self.annotation, self.tombstones)
        unknown = f"the header {header!r} names none of the types {', '.join(self.decoding.types)}"
        discard = self.decoding.unknown_types == "discard"

        def decode(message: Message) -> Any:
            value = message.value()
            if value is None:
                return null()
            tag = next((found for name, found in reversed(read_headers(message)) if name == header), None)
            if tag is None:
                raise DecodeError(f"the header {header!r} is missing: it names the type", code=MISSING_REQUIRED_FIELD)
            decoder = known.get(tag)
            if decoder is not None:
                return decoder(value)
            raise Discard(unknown) if discard else DecodeError(unknown, code=UNKNOWN_TYPE)

        return decode

    def by_content_type(self, own: ByContentType, otherwise: RecordDecoder | None) -> RecordDecoder:
        known: dict[str, RecordDecoder | None] = {
            name.lower(): otherwise if function is None else _of_value(self.of(self.annotation, function))
            for name, function in own.items()
        }
        null, listed = on_null(self.annotation, self.tombstones), ", ".join(own)

        def decode(message: Message) -> Any:
            if message.value() is None:
                return null()
            name = content_type(message)
            decoder = known.get(name) or known.get(ANY) or (None if name else otherwise)
            if decoder is None:
                raise DecodeError(f"no decoder takes its content type, only {listed}", code=CONTENT_TYPE_UNKNOWN)
            return decoder(message)

        return decode


class _BySchema:
    """The decoder of each topic, made at the start; of topics that a pattern finds later, with their first record. A
    topic without a schema is decoded as its type says.
    """

    def __init__(self, decoders: _Decoders) -> None:
        self._decoders = decoders
        self._known: dict[str, RecordDecoder] = {topic: self._of(topic) for topic in decoders.decoding.topics}

    def decode(self, message: Message) -> Any:
        return self._decoder(message.topic())(message)

    def ensure(self, message: Message) -> None:
        decoder = self._decoder(message.topic())
        if isinstance(decoder, SchemaDecoder) and (value := message.value()) is not None:
            decoder.ensure(value, read_headers(message))
        elif isinstance(decoder, CloudEventDecoder) and isinstance(decoder.inner, SchemaDecoder):
            try:
                data = data_of(message)
            except Exception:  # noqa: BLE001 - of whatever kind: it is no event, as decoding will say
                return
            decoder.inner.ensure(data, read_headers(message))

    def ref(self, message: Message) -> SchemaRef | None:
        decoder = self._decoder(message.topic())
        if isinstance(decoder, CloudEventDecoder) and isinstance(decoder.inner, SchemaDecoder):
            with suppress(Exception):  # it is no event
                return decoder.inner.ref(data_of(message), read_headers(message))
            return None
        return decoder.ref(message.value(), read_headers(message)) if isinstance(decoder, SchemaDecoder) else None

    def _decoder(self, topic: str) -> RecordDecoder:
        found = self._known.get(topic)
        return found if found is not None else self._known.setdefault(topic, self._of(topic))

    def _of(self, topic: str) -> RecordDecoder:
        decoders, decoding = self._decoders, self._decoders.decoding
        kind, optional = decoding.models.get(topic, decoders.annotation), type(None) in members_of(decoders.annotation)
        if topic in decoding.models and optional:
            kind = Optional[kind]  # noqa: UP045 - `|` fails for some kinds of types
        schema = decoding.schema_of(topic)
        if isinstance(schema, CloudEvents):
            data = None if takes_bytes(kind) else schema.data
            inner: Any = None if data is None else decoders.of_schema(topic, data, kind)
            return CloudEventDecoder(kind, tombstones=decoders.tombstones, where=decoders.where, inner=inner)
        if schema is None or takes_bytes(kind):
            return _of_value(decoders.of(kind))
        return decoders.of_schema(topic, schema, kind)


class KeyDecoder:
    """Decodes the keys of topics that have a schema of them. Any thread."""

    def __init__(self, decoders: _Decoders) -> None:
        self._decoders = decoders
        self._known: dict[str, FileDecoder | SchemaDecoder | None] = {
            topic: self._of(topic) for topic in decoders.decoding.topics
        }

    def __call__(self, message: Message) -> Any:
        """Plain data, or a message of Protobuf; the bytes, if its topic has no schema of keys. Raises DecodeError and
        SchemaPending.
        """
        key, decoder = message.key(), self._decoder(message.topic())
        if key is None or decoder is None:
            return key
        try:
            return decoder.read(key, read_headers(message))
        except DecodeError as error:
            failure = DecodeError(f"its key cannot be decoded: {error}", code=error.code)
        raise failure

    def ensure(self, message: Message) -> None:
        """Raises SchemaPending if the key cannot be decoded yet, and nothing else."""
        key, decoder = message.key(), self._decoder(message.topic())
        if key is not None and isinstance(decoder, SchemaDecoder):
            decoder.ensure(key, read_headers(message))

    def _decoder(self, topic: str) -> FileDecoder | SchemaDecoder | None:
        return self._known[topic] if topic in self._known else self._known.setdefault(topic, self._of(topic))

    def _of(self, topic: str) -> FileDecoder | SchemaDecoder | None:
        schema = self._decoders.decoding.keys.get(topic)
        if schema is None:
            return None
        kind = schema.message if isinstance(schema, Protobuf) and schema.message is not None else Any
        return self._decoders.of_schema(topic, schema, kind, part="key")


def _of_value(decode: Decoder) -> RecordDecoder:
    return lambda message: decode(message.value())


def content_type(message: Message) -> str:
    """As the header `content-type` (or `contentType`) says, in lower case and without parameters; empty without it."""
    for name, value in reversed(read_headers(message)):
        if name.lower() in _CONTENT_TYPE and value:
            return value.decode("latin-1").partition(";")[0].strip(' "').lower()
    return ""


# -- what cannot be


def _problems(annotation: Any, decoding: Decoding) -> Iterator[str]:
    own = decoding.decoder
    if isinstance(own, Mapping):
        functions = {name: function for name, function in own.items() if function is not None}
    else:
        functions = {} if own is None else {"decoder": own}
    for name, function in functions.items():
        if not is_plain(function):
            yield f"{name}: {function!r} is no decoder; a decoder is a plain function of the bytes"
    if decoding.models and decoding.types:
        yield "its topics have a type each, so types= has no effect; leave one of them out"
    if callable(own) and (decoding.models or decoding.types):
        yield (
            "decoder= decodes every record, so the types by topic or by header have no effect; leave one of them out,"
            " or register a decoder for a type: app.decoder(Model, function)"
        )
    if decoding.has_schemas and (own is not None or decoding.types):
        yield (
            "schema= says how its records are decoded, so decoder= and types= have no effect; leave one of them out (a"
            " union as annotation takes several types: the name in the schema chooses)"
        )
    without = [topic for topic in decoding.topics if decoding.models and topic not in decoding.models]
    if without:
        yield f"no type is given for the topic {without[0]}; add it to the topics of @app.consumer({{topic: type}})"
    yield from _misfits(annotation, decoding.models, "the topic")
    yield from _misfits(annotation, decoding.types, "the type")


def _misfits(annotation: Any, kinds: Mapping[str, Any], of: str) -> Iterator[str]:
    members = [member for member in members_of(annotation) if member is not type(None)]
    if not kinds or any(member in _ANYTHING for member in members):
        return
    wanted = " | ".join(dict.fromkeys(map(type_name, kinds.values())))
    for name, kind in kinds.items():
        if not any(_fits(kind, member) for member in members):
            yield f"records of {of} {name} become {type_name(kind)}, which the annotation does not take; write {wanted}"
    for member in members:
        if not any(_fits(kind, member) for kind in kinds.values()):
            yield f"no record becomes {type_name(member)}, which the annotation takes; write {wanted}"


def _fits(kind: Any, member: Any) -> bool:
    return kind == member or (isinstance(kind, type) and isinstance(member, type) and issubclass(kind, member))

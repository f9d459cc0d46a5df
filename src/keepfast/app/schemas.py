"""The schemas of an app's topics, from its code and settings to what decodes and encodes."""

from __future__ import annotations

import datetime
import decimal
import json
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from keepfast.core.errors import ConfigError, DecodeError, Fault, RegistryError, StartError
from keepfast.core.names import expand
from keepfast.core.records import Headers
from keepfast.core.schemas import (
    ID_HEADERS,
    AnySchema,
    CloudEvents,
    DeclaredSchemas,
    JsonSchema,
    Protobuf,
    RecordPart,
    Schema,
)
from keepfast.decode.choice import Decoding
from keepfast.decode.cloudevents import event_writer, is_event, is_event_header
from keepfast.decode.failures import describe_invalid
from keepfast.decode.protobuf import is_message
from keepfast.decode.schemas import FileDecoder, SchemaSource, declared_names
from keepfast.engine.context import Encoded, to_bytes
from keepfast.settings import RegistrySettings, Settings
from keepfast.telemetry.logs import get_logger

log = get_logger("keepfast.start")

CONNECT_TIMEOUT_S: Final = 30.0
PAUSE_S: Final = 1.0
NATIVE: Final = (
    bytes,
    bytearray,
    datetime.datetime,
    datetime.date,
    datetime.time,
    datetime.timedelta,
    uuid.UUID,
    decimal.Decimal,
)
"""What Avro takes as it is."""

Serialize = Callable[[Any, list[tuple[str, Any]]], bytes]


class AppSchemas:
    """What consumers decode with, and what sends are encoded with. Owner: one start of an app. `source` is None where
    no topic needs a registry.

    `declared` are the schemas of `app.schema`. Raises ConfigError.
    """

    def __init__(
        self,
        settings: Settings,
        declared: DeclaredSchemas,
        decodings: Iterable[Decoding] = (),
        *,
        at_once: bool = False,
    ) -> None:
        names = {"env": settings.app.env}
        sent: dict[str, AnySchema] = {
            expand(topic, names): schema
            for topic, schema in declared.values.items()
            if not isinstance(schema, CloudEvents) or schema.sends
        }
        keys = {expand(topic, names): schema for topic, schema in declared.keys.items()}
        self._declared = DeclaredSchemas(sent, keys)
        needed = any(schema.registry for schema in (*sent.values(), *keys.values()))
        needed = needed or any(decoding.needs_registry for decoding in decodings)
        self.source = source_of(settings.registry, at_once=at_once) if needed else None
        self._encoder: SchemaEncoder | None = None

    def open(self, *, wait: bool = False, abandoned: Callable[[], bool] = lambda: False) -> None:
        """Reach the registry, and ask it for all that sending needs. `wait`: without end for one that is down. Raises
        StartError.
        """
        begun = time.monotonic()
        while True:
            try:
                if self.source is not None:
                    self.source.registry.check()
                self._encoder = prepared(self._declared, self.source)
                return
            except RegistryError as error:
                waited_s = time.monotonic() - begun
                if abandoned() or error.fault is not Fault.RETRY or (waited_s >= CONNECT_TIMEOUT_S and not wait):
                    raise StartError(_remedy(error)) from error
                log.warning("waiting_for_registry", waited_s=round(waited_s), error=str(error))
            time.sleep(PAUSE_S)

    @property
    def sends(self) -> bool:
        """Whether some topic is sent to in a schema."""
        return bool(self._declared.values or self._declared.keys)

    def encode(self, topic: str, value: Any, key: Any, headers: Headers) -> Encoded:
        """See `engine.context.Encode`."""
        encoder = self._encoder
        if encoder is None:
            return to_bytes(value), to_bytes(key), headers
        data, headers = encoder.encode(topic, value, headers)
        own_key, headers = encoder.encode(topic, key, headers, "key")
        return data, own_key, headers

    def close(self) -> None:
        if self.source is not None:
            self.source.close()


def source_of(settings: RegistrySettings, *, at_once: bool = False) -> SchemaSource:
    """What fetches from the registry that the settings name. Raises ConfigError."""
    from keepfast.kafka.registry import OAuthClient, Registry, RegistryConnection

    if settings.url is None:
        raise ConfigError(
            "A topic has a schema of a registry, and there is none: set registry.url (KEEPFAST_REGISTRY_URL)."
        )
    oauth: OAuthClient | None = None
    if settings.oauth_token_url is not None:
        if settings.oauth_client_id is None or settings.oauth_client_secret is None:
            raise ConfigError(
                "registry.oauth_token_url needs registry.oauth_client_id and registry.oauth_client_secret."
            )
        oauth = OAuthClient(
            settings.oauth_token_url,
            settings.oauth_client_id,
            settings.oauth_client_secret.reveal(),
            scope=settings.oauth_scope or "",
            cluster=settings.oauth_cluster or "",
        )
    connection = RegistryConnection(
        url=settings.url,
        oauth=oauth,
        username=settings.username,
        password=settings.password.reveal() if settings.password else None,
        ssl_ca_location=settings.ssl_ca_location,
        ssl_certificate_location=settings.ssl_certificate_location,
        ssl_key_location=settings.ssl_key_location,
        ssl_key_password=settings.ssl_key_password.reveal() if settings.ssl_key_password else None,
        timeout_s=settings.timeout_s,
        subjects=settings.subjects,
        ids=settings.ids,
        register=settings.register,
    )
    return SchemaSource(Registry(connection), at_once=at_once)


def _remedy(error: RegistryError) -> str:
    if error.fault is Fault.MISSING:
        return f"{error}. Register the schema first, or let the app do it: registry.register = true."
    return str(error)


class SchemaEncoder:
    """Encodes values and keys of the topics that have a schema of them. Made by `prepared`; any thread."""

    def __init__(self, serializers: Mapping[tuple[RecordPart, str], tuple[AnySchema, Serialize]]) -> None:
        self._serializers = serializers

    def encode(
        self, topic: str, value: Any, headers: Headers, part: RecordPart = "value"
    ) -> tuple[bytes | None, Headers]:
        """A value or a key, and the headers with that of its schema; those that describe another record's, from which
        headers are often passed on, are left out. Bytes and None are taken as they are, with all headers. Raises
        ValueError, without the value in it, for one that does not fit the schema, and TypeError.
        """
        if value is None or isinstance(value, bytes):
            return value, headers
        if (part, topic) not in self._serializers:
            return to_bytes(value), headers
        schema, serialize = self._serializers[part, topic]
        added: list[tuple[str, Any]] = []
        try:
            data = serialize(plain(value, schema), added)
        except Exception as error:  # noqa: BLE001 - whatever the serializer says of the value
            failure = _refused(topic, schema, error, part)
        else:
            event = isinstance(schema, CloudEvents)
            kept = (one for one in headers if one[0] != ID_HEADERS[part] and not (event and is_event_header(one[0])))
            return data, (*kept, *added)
        raise failure  # outside, because the library's error quotes the value


def prepared(schemas: DeclaredSchemas, source: SchemaSource | None) -> SchemaEncoder:
    """Blocks. Raises RegistryError: with the fault MISSING, a schema is not registered; and ConfigError."""
    found: dict[tuple[RecordPart, str], tuple[AnySchema, Serialize]] = {}
    parts: tuple[tuple[RecordPart, Mapping[str, AnySchema]], ...] = (("value", schemas.values), ("key", schemas.keys))
    for part, declared in parts:
        for topic, schema in declared.items():
            if source is not None or not schema.registry:
                found[part, topic] = schema, _serialize(topic, schema, source, part)
    return SchemaEncoder(found)


def _serialize(topic: str, schema: AnySchema, source: SchemaSource | None, part: RecordPart = "value") -> Serialize:
    if isinstance(schema, CloudEvents):
        return _in_events(topic, schema, source)
    if isinstance(schema, JsonSchema) and not schema.registry:
        return _validated(topic, schema)
    assert source is not None, "a registry is needed"
    return _of_registry(topic, schema, source, part)


def _in_events(topic: str, schema: CloudEvents, source: SchemaSource | None) -> Serialize:
    write, inner = event_writer(schema), schema.data
    encode = None if inner is None else _serialize(topic, inner, source)

    def serialize(data: Any, headers: list[tuple[str, Any]]) -> bytes:
        if not is_event(data):
            data = plain(data, inner or JsonSchema({}))
            data = data if encode is None else encode(data, headers)
        return write(data, headers)

    return serialize


def _of_registry(topic: str, schema: Schema, source: SchemaSource, part: RecordPart) -> Serialize:
    """A schema that the code does not have need not be registered before something is sent."""
    if isinstance(schema, Protobuf) and schema.message is None:
        return _not_sendable(f"name the class to send to {topic}: Protobuf(Invoice)")
    try:
        return source.registry.serializer(topic, schema, part)
    except RegistryError as error:
        if error.fault is not Fault.MISSING or isinstance(schema, Protobuf) or schema.schema is not None:
            raise
    return _not_sendable(f"the registry had no schema of {topic} when the app started, and the code has none")


def _not_sendable(why: str) -> Serialize:
    def serialize(data: Any, headers: list[tuple[str, Any]]) -> bytes:  # noqa: ARG001 - as all
        raise DecodeError(why)

    return serialize


def plain(value: Any, schema: AnySchema) -> Any:
    """What serializers take: a message of Protobuf as it is, everything else as dicts, lists and numbers."""
    if is_message(type(value)) or isinstance(schema, CloudEvents):
        return value
    text_of: Callable[[Any], str] | None = None
    if hasattr(value, "model_dump"):
        value, text_of = value.model_dump(mode="json" if schema.format == "json" else "python"), str  # URLs and such
    return msgspec.to_builtins(value, builtin_types=() if schema.format == "json" else NATIVE, enc_hook=text_of)


def _validated(topic: str, schema: JsonSchema) -> Serialize:
    read = FileDecoder(topic, schema, dict[str, Any], tombstones="dead-letter").read

    def serialize(data: Any, headers: list[tuple[str, Any]]) -> bytes:  # noqa: ARG001 - as all
        value = json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()
        read(value)
        return value

    return serialize


def _refused(topic: str, schema: AnySchema, error: Exception, part: RecordPart) -> ValueError:
    invalid: Any = error.__context__
    why = type(error).__name__
    if isinstance(error, DecodeError):
        why = str(error)
    elif type(invalid).__module__.startswith("jsonschema."):
        declared = frozenset(declared_names(invalid.schema))
        why = str(describe_invalid(invalid, schema="its JSON Schema", declared=declared))
    return ValueError(f"a {part} that was sent to {topic} does not fit its {schema.format} schema: {why}")

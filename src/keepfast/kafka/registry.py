"""The adapter for a schema registry with Confluent's API, with the client and the serializers of
confluent-kafka (extra `schemas`). Foreign errors are translated here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, Final, Literal
from uuid import UUID

from keepfast.core.errors import ConfigError, Fault, RegistryError
from keepfast.core.records import Headers
from keepfast.core.schemas import (
    GUID_BYTES,
    ID_BYTES,
    Avro,
    JsonSchema,
    Protobuf,
    RecordPart,
    Schema,
    SchemaFormat,
    SchemaRef,
    id_header,
    id_in,
    name_of,
)

UNKNOWN: Final = frozenset({40400, 40401, 40402, 40403, 40408})
"""Codes with which a registry says that it does not have what was asked for."""
NO_SUCH_PATH: Final = "404"
"""Our code where a 404 has none of these: a wrong URL, a proxy, or a question that this registry does not know."""
MAX_ID: Final = (1 << 31) - 1
MAX_TEXT: Final = 200
"""Of what a registry, or a proxy before it, says."""
STRATEGIES: Final = {"topic": "TOPIC", "record": "RECORD", "topic-record": "TOPIC_RECORD"}
FORMATS: Final[Mapping[str, SchemaFormat]] = {"AVRO": "avro", "PROTOBUF": "protobuf", "JSON": "json"}
FORMS: Final[Mapping[SchemaFormat, str]] = {"protobuf": "serialized"}
"""In which form deserializers ask for schemas. The client's cache does not distinguish forms, so it is ours, too."""
TYPES: Final = {ours: theirs for theirs, ours in FORMATS.items()}

Deserialize = Callable[[bytes, str, Headers], Any]
"""From a value, its topic and its headers to plain data, or to a message of Protobuf."""
Parse = Callable[[bytes], Any]
"""The same, from a value that begins with the id of its schema."""


@dataclass(frozen=True, slots=True)
class OAuthClient:
    """Who asks where for the tokens that the registry takes."""

    token_url: str
    client_id: str
    secret: str = field(repr=False)
    scope: str = ""
    cluster: str = ""

    def properties(self) -> dict[str, Any]:
        return {
            "bearer.auth.credentials.source": "OAUTHBEARER",
            "bearer.auth.issuer.endpoint.url": self.token_url,
            "bearer.auth.client.id": self.client_id,
            "bearer.auth.client.secret": self.secret,
            "bearer.auth.scope": self.scope,
            "bearer.auth.logical.cluster": self.cluster,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryConnection:
    """How to reach the registry, and how subjects are named."""

    url: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    oauth: OAuthClient | None = None
    ssl_ca_location: str | None = None
    ssl_certificate_location: str | None = None
    ssl_key_location: str | None = None
    ssl_key_password: str | None = field(default=None, repr=False)
    timeout_s: float = 5.0
    subjects: Literal["topic", "record", "topic-record"] = "topic"
    ids: Literal["value", "header"] = "value"
    register: bool = False

    def properties(self) -> dict[str, Any]:
        """As the client takes them. It does not retry: who asks does, and reports it meanwhile."""
        given = {
            "ssl.ca.location": self.ssl_ca_location,
            "ssl.certificate.location": self.ssl_certificate_location,
            "ssl.key.location": self.ssl_key_location,
            "ssl.key.password": self.ssl_key_password,
        }
        found: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        if all(url.strip().startswith(("http://", "mock://")) for url in self.url.split(",")):
            found["ssl.ca.location"] = False  # nothing is encrypted, and to load certificates takes a while
        if self.oauth is not None:
            found |= self.oauth.properties()
        elif self.username is not None:
            found["basic.auth.user.info"] = f"{self.username}:{self.password or ''}"
        return {"url": self.url, "timeout": self.timeout_s, "max.retries": 0, **found}


@dataclass(frozen=True, slots=True)
class Registered:
    """A version of a subject."""

    ref: SchemaRef
    text: str
    references: tuple[tuple[str, str, int], ...] = ()
    """Name, subject and version of each."""
    has_rules: bool = False
    """Values are not only what they were written as: encrypted, migrated or checked by rules."""


_mocks: dict[str, Any] = {}
"""Registries in memory: one for each `mock://name` of this process."""


class Registry:
    """One registry. Its methods block, and raise RegistryError; any thread may call them."""

    def __init__(self, connection: RegistryConnection) -> None:
        self.connection = connection
        try:
            from confluent_kafka.schema_registry import SchemaRegistryClient
        except ImportError as error:
            raise ConfigError(
                f"Schemas of a registry need more of the client ({error}):"
                " pip install 'confluent-kafka[avro,json,protobuf,schemaregistry]'."
            ) from error
        self.in_memory = connection.url.startswith("mock://")
        try:
            if self.in_memory:
                made = _mocks.get(connection.url) or SchemaRegistryClient.new_client(connection.properties())
                self.client = _mocks.setdefault(connection.url, made)
            else:
                self.client = SchemaRegistryClient(connection.properties())
        except (ValueError, TypeError, OSError) as error:
            raise ConfigError(f"registry: {error}. Fix the settings of [registry].") from error

    def close(self) -> None:
        if self.in_memory:
            return
        self.client.close()
        tokens: Any = getattr(getattr(self.client, "_rest_client", None), "bearer_field_provider", None)
        if hasattr(tokens, "client"):  # which the client leaves open
            tokens.client.close()

    def check(self) -> None:
        """It answers, and takes the credentials."""
        if self.in_memory:
            return
        try:
            self.ask(self.client.get_schema_types)
        except RegistryError as error:
            if error.fault is not Fault.MISSING:  # one that does not know this question has answered
                raise

    def ask(self, question: Callable[..., Any], *given: Any, **named: Any) -> Any:
        """Call a method of the client."""
        try:
            return question(*given, **named)
        except Exception as error:
            raise translated(error, self.connection.url) from error

    def trouble(self, error: Exception) -> RegistryError | None:
        """What an error of a deserializer says about the registry; None if it is about the value."""
        from confluent_kafka.schema_registry.error import OAuthTokenError

        foreign = hasattr(error, "http_status_code") or isinstance(error, OAuthTokenError)
        foreign = foreign or type(error).__module__.partition(".")[0] in ("httpx", "httpx2")
        return translated(error, self.connection.url) if foreign else None

    # -- subjects

    def subject_of(self, topic: str, name: str | None, part: RecordPart = "value") -> str:
        """The subject of a topic's values or keys; `name` is that of the record in the schema."""
        match self.connection.subjects:
            case "record":
                return name or ""
            case "topic-record":
                return f"{topic}-{name}" if name else ""
            case _:
                return f"{topic}-{part}"

    def version(
        self, subject: str, version: int | Literal["latest"] = "latest", *, form: str | None = None
    ) -> Registered:
        """A version of a subject. `form`: see FORMS. RegistryError with the fault MISSING: there is none."""
        return _registered(self.ask(self.client.get_version, subject, version, fmt=form))

    def latest(self, topic: str, format: SchemaFormat) -> Registered:  # noqa: A002 - what it is
        """The latest schema of a topic's values, in the form of deserializers. Raises RegistryError with the fault
        MISSING where the subject is not named by the topic alone.
        """
        subject = self.subject_of(topic, None)
        if not subject:
            raise RegistryError("The topic does not name its subject; the record does.", fault=Fault.MISSING)
        return _registered(self.ask(self.client.get_latest_version, subject, FORMS.get(format)))

    def by_id(self, schema_id: int, subject: str | None = None, *, form: str | None = None) -> Registered:
        """The schema with this id, in this subject if that has it. `form`: see FORMS."""
        found = self.ask(self.client.get_schema, schema_id, subject, form)
        places = self._places(schema_id, subject, found)
        place = next((one for one in places if one.subject == subject), places[0] if places else None)
        ref = SchemaRef(
            format=_format(found),
            subject=(place.subject if place else "") or "",
            id=schema_id,
            version=place.version if place else None,
        )
        return _as_registered(ref, found)

    def of_frame(
        self,
        frame: bytes,
        topic: str,
        format: SchemaFormat,  # noqa: A002 - what it is
        part: RecordPart = "value",
    ) -> Registered:
        """The schema that the frame of a value or key names. It is in the client's cache then, for the deserializer."""
        subject = self.subject_of(topic, None, part) or None
        schema_id = id_in(frame)
        if schema_id is not None and schema_id > MAX_ID:  # registries answer as if the path were wrong
            raise RegistryError(f"{schema_id} is no id of a schema: it is too large", fault=Fault.MISSING)
        if schema_id is not None:
            return self.by_id(schema_id, subject, form=FORMS.get(format))
        schema = self._by_guid(str(UUID(bytes=frame[1:GUID_BYTES])), FORMS.get(format))
        found = self._name(self.client.lookup_schema, subject, schema) if subject else None
        ref = SchemaRef(
            format=_format(schema),
            subject=subject or "",
            id=found.schema_id if found else None,
            version=found.version if found else None,
        )
        return _as_registered(ref, schema)

    def _by_guid(self, guid: str, form: str | None) -> Any:
        try:
            return self.ask(self.client.get_schema_by_guid, guid, form)
        except RegistryError as error:
            if error.code != NO_SUCH_PATH:
                raise
            self.check()  # it answers, and has no GUIDs: before Confluent's version 8
            raise RegistryError(f"{error}; it has no GUIDs", fault=Fault.MISSING) from error

    def indexes_of(self, value: bytes, headers: Headers) -> tuple[int, ...]:
        """Where the message of a value in Protobuf is in its schema: its number there, and those of messages within
        that. Raises what the client raises for a value that is none.
        """
        from confluent_kafka.schema_registry import dual_schema_id_deserializer
        from confluent_kafka.schema_registry.serde import SchemaId
        from confluent_kafka.serialization import MessageField, SerializationContext

        found = SchemaId("PROTOBUF")
        dual_schema_id_deserializer(value, SerializationContext("", MessageField.VALUE, list(headers)), found)
        return tuple(found.message_indexes or (0,))

    def _places(self, schema_id: int, subject: str | None, schema: Any) -> list[Any]:
        """Subjects and versions that have it."""
        if not self.in_memory:
            return list(self._name(self.client.get_schema_versions, schema_id) or ())
        found = self._name(self.client.lookup_schema, subject, schema) if subject else None
        return [] if found is None else [found]

    def _name(self, question: Callable[..., Any], *given: Any) -> Any:
        """Where a schema is that the registry has just given. None if it does not know this question, refuses it, or
        does not know: the schema can be used without.
        """
        try:
            return self.ask(question, *given)
        except RegistryError as error:
            if error.fault is Fault.RETRY and error.code != NO_SUCH_PATH:
                raise
        return None

    def is_compatible(self, subject: str, text: str, format: SchemaFormat) -> bool:  # noqa: A002 - what it is
        """Whether the registry would take it as the next version."""
        return bool(self.ask(self.client.test_compatibility, subject, _schema(text, format)))

    def compatibility(self, subject: str) -> str:
        """The level that holds for the subject: BACKWARD, FULL, …"""
        try:
            return str(self.ask(self.client.get_compatibility, subject))
        except RegistryError as error:
            if error.fault is not Fault.MISSING:
                raise
        return str(self.ask(self.client.get_compatibility))

    def put(self, subject: str, text: str, format: SchemaFormat) -> SchemaRef:  # noqa: A002 - what it is
        """Register it, or find it if it is registered already."""
        found = self.ask(self.client.register_schema_full_response, subject, _schema(text, format))
        return SchemaRef(format=format, subject=subject, id=found.schema_id, version=found.version)

    # -- serializers

    def deserializer(self, schema: Schema, message: type[Any] | None, part: RecordPart = "value") -> Deserialize:
        """Reads values or keys of one kind. Asks the registry nothing once it has read one with the same schema."""
        from confluent_kafka.serialization import MessageField, SerializationContext

        read, field_of = self._deserializer(schema, message), MessageField(part)
        plain: dict[str, Any] = {}  # contexts without headers: most records have their id in the value

        def deserialize(data: bytes, topic: str, headers: Headers) -> Any:
            if headers and len(data) <= ID_BYTES:  # which the client refuses, even if a header has the id
                data, headers = (id_header(headers, part) or b"") + data, ()
            if headers:
                return read(data, SerializationContext(topic, field_of, list(headers)))
            context = plain.get(topic)
            if context is None:
                context = plain[topic] = SerializationContext(topic, field_of)
            return read(data, context)

        return deserialize

    def parser(self, found: Registered, schema: Schema, message: type[Any] | None) -> Parse | None:
        """What reads values of this schema as its deserializer does, with the library that it uses, without what it
        looks for in each record again. None where that may matter: for rules, and for schemas that refer to others. If
        it raises anything, the deserializer decides.
        """
        if found.has_rules or found.references or found.ref.format != schema.format:
            return None
        match schema:
            case Avro():
                return _avro_parser(found.text, schema.text())
            case JsonSchema():
                return _json_parser(schema.text() or found.text)
            case Protobuf():
                return None if message is None else _protobuf_parser(message)

    def _deserializer(self, schema: Schema, message: type[Any] | None) -> Any:
        conf = {"subject.name.strategy.type": STRATEGIES[self.connection.subjects]}
        text = schema.text()
        match schema:
            case Avro():
                from confluent_kafka.schema_registry.avro import AvroDeserializer

                return AvroDeserializer(self.client, text, conf=conf)  # pyright: ignore[reportCallIssue]
            case JsonSchema():
                from confluent_kafka.schema_registry.json_schema import JSONDeserializer

                return JSONDeserializer(text, schema_registry_client=self.client, conf=conf)  # pyright: ignore[reportCallIssue]
            case Protobuf():
                from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer

                return ProtobufDeserializer(message, conf, self.client)  # pyright: ignore[reportCallIssue]

    def serializer(
        self, topic: str, schema: Schema, part: RecordPart = "value"
    ) -> Callable[[Any, list[tuple[str, Any]]], bytes]:
        """Writes values or keys of a topic, and the header with the id, if it goes there. Everything that it needs of
        the registry is asked for here: RegistryError with the fault MISSING if the schema is not registered.
        """
        from confluent_kafka.serialization import MessageField, SerializationContext

        write, field_of = self._serializer(topic, schema, part), MessageField(part)

        def serialize(data: Any, headers: list[tuple[str, Any]]) -> bytes:
            return bytes(write(data, SerializationContext(topic, field_of, headers)))

        if isinstance(schema, Protobuf) and schema.message is not None:
            self.ask(_try, serialize, schema.message())
        return serialize

    def _serializer(self, topic: str, schema: Schema, part: RecordPart) -> Any:
        from confluent_kafka.schema_registry import header_schema_id_serializer, prefix_schema_id_serializer

        text = schema.text()
        conf: dict[str, Any] = {
            "auto.register.schemas": self.connection.register and (text is not None or isinstance(schema, Protobuf)),
            "use.latest.version": text is None and not isinstance(schema, Protobuf),
            "subject.name.strategy.type": STRATEGIES[self.connection.subjects],
            "schema.id.serializer": (
                header_schema_id_serializer if self.connection.ids == "header" else prefix_schema_id_serializer
            ),
        }
        match schema:
            case Avro():
                from confluent_kafka.schema_registry.avro import AvroSerializer

                self._prepare(topic, text, "avro", part)
                return AvroSerializer(self.client, text, conf=conf)  # pyright: ignore[reportCallIssue]
            case JsonSchema():
                from confluent_kafka.schema_registry.json_schema import JSONSerializer

                self._prepare(topic, text, "json", part)
                return JSONSerializer(text, self.client, conf=conf)  # pyright: ignore[reportCallIssue]
            case Protobuf():
                from confluent_kafka.schema_registry.protobuf import ProtobufSerializer

                return ProtobufSerializer(schema.message, self.client, conf)  # pyright: ignore[reportCallIssue]

    def _prepare(self, topic: str, text: str | None, format: SchemaFormat, part: RecordPart) -> None:  # noqa: A002 - what it is
        """The serializer finds the answers in the client's cache."""
        if text is None:
            self.ask(self.client.get_latest_version, self.subject_of(topic, None, part))
            return
        subject, schema = self.subject_of(topic, name_of(text, format), part), _schema(text, format)
        if self.connection.register:
            self.ask(self.client.register_schema_full_response, subject, schema)
        else:
            self.ask(self.client.lookup_schema, subject, schema)


def translated(error: Exception, url: str) -> RegistryError:
    """A foreign error as one of ours; `fault` says what to do about it."""
    status, code = getattr(error, "http_status_code", None), getattr(error, "error_code", None)
    if status is None:
        why = type(error).__name__
        return RegistryError(f"The schema registry {url} does not answer ({why}).", fault=Fault.RETRY, code=why)
    text = f"The schema registry {url} answers {status}: {str(getattr(error, 'error_message', ''))[:MAX_TEXT]}"
    if status in (401, 403):
        return RegistryError(
            f"{text}. Set registry.username and registry.password, or registry.oauth_…, or ask for the right.",
            fault=Fault.REFUSED,
        )
    if status == 404:
        known = code in UNKNOWN
        return RegistryError(
            text, fault=Fault.MISSING if known else Fault.RETRY, code=str(code) if known else NO_SUCH_PATH
        )
    if status < 400 or status in (408, 429) or status >= 500:  # below 400: a proxy
        return RegistryError(text, fault=Fault.RETRY, code=str(code))
    return RegistryError(text, fault=Fault.FATAL, code=str(code))


def _try(serialize: Callable[[Any, list[tuple[str, Any]]], bytes], message: Any) -> None:
    """The serializer asks the registry before it looks at the message, which may lack what it requires."""
    from google.protobuf.message import EncodeError

    with suppress(EncodeError):
        serialize(message, [])


def _format(schema: Any) -> SchemaFormat:
    kind = schema.schema_type or "AVRO"
    if kind not in FORMATS:
        raise RegistryError(f"Schemas of the type {kind} are not read", fault=Fault.MISSING)
    return FORMATS[kind]


def _schema(text: str, format: SchemaFormat) -> Any:  # noqa: A002 - what it is
    from confluent_kafka.schema_registry import Schema as ClientSchema

    if format == "avro":  # exactly as its serializer asks for it: the client's cache goes by the text
        text = text.strip()
        text = f'{{"type":{text}}}' if text[:1] == '"' else text
    return ClientSchema(text, TYPES[format])


def _as_registered(ref: SchemaRef, schema: Any) -> Registered:
    references = tuple((one.name, one.subject, one.version) for one in schema.references or ())
    return Registered(ref, schema.schema_str, references, has_rules=schema.rule_set is not None)


def _avro_parser(written: str, wanted: str | None) -> Parse | None:
    from fastavro import parse_schema, schemaless_reader

    writer = parse_schema(json.loads(written))
    reader = writer if wanted is None else parse_schema(json.loads(wanted))
    if writer == "bytes" or (isinstance(writer, dict) and writer.get("type") == "bytes"):
        return None  # which serializers write as they are, without their length

    def parse(value: bytes) -> Any:
        return schemaless_reader(BytesIO(value[ID_BYTES:]), writer, reader, False)

    return parse


def _json_parser(text: str) -> Parse:
    from jsonschema.validators import validator_for
    from referencing import Registry as References

    content = json.loads(text)
    kind = validator_for(content)
    kind.check_schema(content)
    errors = kind(content, registry=References()).iter_errors  # of itself: nothing is fetched

    def parse(value: bytes) -> Any:
        data = json.loads(value[ID_BYTES:])
        for error in errors(data):
            raise error
        return data

    return parse


def _protobuf_parser(message: type[Any]) -> Parse:
    from google.protobuf.message_factory import GetMessageClass

    read = GetMessageClass(message.DESCRIPTOR).FromString

    def parse(value: bytes) -> Any:
        if value[ID_BYTES] != 0:
            raise ValueError("not the first message of its schema")
        return read(value[ID_BYTES + 1 :])

    return parse


def _registered(found: Any) -> Registered:
    schema = found.schema
    ref = SchemaRef(
        format=_format(schema),
        subject=found.subject or "",
        id=found.schema_id,
        version=found.version,
    )
    return _as_registered(ref, schema)

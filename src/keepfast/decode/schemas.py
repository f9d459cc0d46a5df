"""Decodes records of topics that have a schema, and fetches schemas from the registry.

A record is decoded without a call of the registry: the first record with an id waits (`SchemaPending`) while a thread
fetches its schema. So neither the loop nor an event loop ever waits for the registry, and records wait for a registry
without an answer instead of failing.
"""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from keepfast.core.errors import ConfigError, DecodeError, Discard, Fault, RegistryError, SchemaPending, Signal
from keepfast.core.records import Headers, Message, read_headers
from keepfast.core.schemas import (
    ID_BYTES,
    JsonSchema,
    Protobuf,
    RecordPart,
    Schema,
    SchemaRef,
    frame_of,
    id_header,
    id_in,
    name_of,
)
from keepfast.decode.annotation import Tombstones, converter_for, members_of, on_null, type_name
from keepfast.decode.failures import (
    DECODE_FAILED,
    SCHEMA_ID_MISSING,
    SCHEMA_UNKNOWN,
    UNKNOWN_TYPE,
    Names,
    describe,
    describe_invalid,
)
from keepfast.decode.protobuf import is_message, name_at
from keepfast.telemetry.logs import get_logger

if TYPE_CHECKING:
    from keepfast.kafka.registry import Deserialize, Registered, Registry  # loads the client

log = get_logger("keepfast.registry")

UNKNOWN_FOR_S: Final = 60.0
"""How long an id that the registry did not know is not asked for again."""
MAX_UNKNOWN: Final = 1_000
RETRY_S, MAX_RETRY_S = 0.2, 5.0
"""Waits between questions to a registry that does not answer."""

Read = Callable[[bytes, Headers], Any]
Convert = tuple[Callable[[Any], Any], Names]


class SchemaFetcher:
    """Asks the registry, on a thread of its own, until it answers. Any thread may ask; nothing here blocks.

    `at_once`: on the thread that asks, for a registry in memory and for tests without threads.
    """

    def __init__(self, *, at_once: bool = False) -> None:
        self._at_once = at_once
        self._changed = threading.Condition()
        self._wanted: OrderedDict[Hashable, Callable[[], None]] = OrderedDict()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._release: Callable[[], None] = lambda: None
        self.away: str = ""
        """Why the registry does not answer; empty while it does."""

    def ask(self, key: Hashable, fetch: Callable[[], None]) -> None:
        """Call `fetch` until it raises no RegistryError, once for a key at a time."""
        if self._at_once:
            fetch()
            return
        with self._changed:
            if key in self._wanted or self._closed:
                return
            self._wanted[key] = fetch
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="keepfast-registry", daemon=True)
                self._thread.start()
            self._changed.notify()

    def answered(self, key: Hashable) -> bool:
        return key not in self._wanted

    def close(self, release: Callable[[], None]) -> None:
        """End the thread, without waiting for the answer to what it asks; `release` what it asks with after that."""
        with self._changed:
            self._closed = True
            if self._thread is not None:
                self._release = release
                self._changed.notify()
                return
        release()

    def _run(self) -> None:
        self._fetch_until_closed()
        self._release()

    def _fetch_until_closed(self) -> None:
        wait_s = RETRY_S
        while True:
            with self._changed:
                while not (self._wanted or self._closed):
                    self._changed.wait()
                if self._closed:
                    return
                key, fetch = next(iter(self._wanted.items()))
            try:
                fetch()
            except Exception as error:  # noqa: BLE001 - the thread's edge: records wait for it, and see why
                self._note(str(error) or type(error).__name__)
                with self._changed:
                    self._wanted.move_to_end(key)  # the others may be answered; `answered` looks meanwhile
                    self._changed.wait(wait_s)
                wait_s = min(MAX_RETRY_S, 2 * wait_s)
                continue
            wait_s = RETRY_S
            self._note("")
            with self._changed:
                self._wanted.pop(key, None)

    def _note(self, away: str) -> None:
        if away and not self.away:
            log.error("registry_away", error=away)
        elif self.away and not away:
            log.info("registry_back")
        self.away = away


class SchemaSource:
    """A registry and what fetches from it: one for all consumers of an app. Owner: the app; it must be closed."""

    def __init__(self, registry: Registry, *, at_once: bool = False) -> None:
        self.registry = registry
        self.fetcher = SchemaFetcher(at_once=at_once or registry.in_memory)

    def close(self) -> None:
        self.fetcher.close(self.registry.close)


class SchemaDecoder:
    """Decodes the values of one topic by the schemas of the registry, into what the annotation says. A `RecordDecoder`;
    any thread. `annotation` may be a union: the name of the record in its schema chooses the member. `part`: those of
    the keys, which are given to `read` and `ensure`.
    """

    def __init__(
        self,
        topic: str,
        schema: Schema,
        annotation: Any,
        *,
        source: SchemaSource,
        tombstones: Tombstones = "dead-letter",
        discard_unknown: bool = False,
        where: str = "",
        part: RecordPart = "value",
    ) -> None:
        self._topic = topic
        self._part: RecordPart = part
        self._schema = schema
        self._registry = source.registry
        self._fetcher = source.fetcher
        self._null = on_null(annotation, tombstones)
        self._discard_unknown = discard_unknown
        self._kinds = [member for member in members_of(annotation) if member is not type(None)]
        self._wanted = " | ".join(map(type_name, self._kinds))
        self._targets = {_last(_name(kind)): self._target(kind, where) for kind in self._kinds}
        if isinstance(schema, Protobuf) and len(self._targets) < len(self._kinds):
            raise ConfigError(f"{where}: the name of a message chooses its class, and {self._wanted} have one name")
        self._readers: dict[bytes, Read] = {}
        self._quick: dict[bytes, Read] = {}  # for values that begin with the id, where there is a parser
        self._refs: dict[bytes, SchemaRef] = {}
        self._unknown: dict[bytes, tuple[float, str]] = {}

    def __call__(self, message: Message) -> Any:
        value = message.value()
        if value is None:
            return self._null()
        return self.read(value, read_headers(message))

    def read(self, value: bytes, headers: Headers) -> Any:
        """Raises DecodeError, Discard and SchemaPending."""
        if not headers or id_header(headers, self._part) is None:
            read = self._quick.get(value[:ID_BYTES])
            if read is not None:
                return read(value, headers)
        frame = frame_of(value, headers, self._part)
        read = self._readers.get(frame or b"")
        if read is None:
            read = self._missing(frame, value, headers)
        return read(value, headers)

    def ensure(self, value: bytes, headers: Headers) -> None:
        """Raises SchemaPending if the value cannot be decoded yet, and nothing else."""
        frame = frame_of(value, headers, self._part)
        if frame is not None and frame not in self._readers:
            with suppress(DecodeError):  # decoding raises it, too, in its place
                self._missing(frame, value, headers)

    def ref(self, value: bytes | None, headers: Headers) -> SchemaRef | None:
        """The schema of a value, as far as it is known; None if the record does not name one. Never blocks."""
        frame = None if value is None else frame_of(value, headers, self._part)
        if frame is None:
            return None
        subject = self._registry.subject_of(self._topic, None, self._part)
        return self._refs.get(frame) or SchemaRef(format=self._schema.format, subject=subject, id=id_in(frame))

    def _missing(self, frame: bytes | None, value: bytes, headers: Headers) -> Read:
        if frame is None:
            raise DecodeError(
                f"the {self._part} does not begin with the id of a schema, and no header has one; its producer does not"
                " use a serializer of the registry",
                code=SCHEMA_ID_MISSING,
            )
        self._refuse_unknown(frame)
        key = (id(self), frame)
        self._fetcher.ask(key, partial(self._fetch, frame, value, headers))
        read = self._readers.get(frame)
        if read is not None:  # fetched at once
            return read
        self._refuse_unknown(frame)
        away = self._fetcher.away
        raise SchemaPending(
            f"the schema of the record is being fetched{f': {away}' if away else ''}",
            partial(self._fetcher.answered, key),
        )

    def _refuse_unknown(self, frame: bytes) -> None:
        until, why = self._unknown.get(frame, (0.0, ""))
        if time.monotonic() < until:
            raise DecodeError(why, code=SCHEMA_UNKNOWN)

    # -- on the fetcher's thread

    def _fetch(self, frame: bytes, value: bytes, headers: Headers) -> None:
        """Raises RegistryError if the registry does not answer."""
        try:
            found = self._registry.of_frame(frame, self._topic, self._schema.format, self._part)
            read, quick = self._readers_of(found, value, headers)
        except RegistryError as error:
            if error.fault is not Fault.MISSING:
                raise
            self._note_unknown(frame, f"the registry does not have its schema: {error}")
            return
        except Exception as error:  # noqa: BLE001 - a schema that cannot be used becomes an outcome
            self._note_unknown(frame, f"its schema cannot be used ({type(error).__name__})")
            return
        self._refs[frame] = found.ref
        self._readers[frame] = read
        if quick is not None and id_in(frame) is not None:
            self._quick[frame] = quick
        log.info("schema_fetched", topic=self._topic, schema=str(found.ref))

    def _note_unknown(self, frame: bytes, why: str) -> None:
        if len(self._unknown) >= MAX_UNKNOWN:
            self._unknown.clear()
        self._unknown[frame] = (time.monotonic() + UNKNOWN_FOR_S, why)

    def _readers_of(self, found: Registered, value: bytes, headers: Headers) -> tuple[Read, Read | None]:
        """What reads values of a schema, and for those that begin with the id something quicker, if there is."""
        deserialize, target = self._chosen(found, value, headers)
        if deserialize is not None:  # once here, so that what the schema refers to is in the client's cache
            try:
                deserialize(value, self._topic, headers)
            except Exception as error:
                away = self._registry.trouble(error)
                if away is not None:  # else it is about the value: decoding it again will tell
                    raise away from error
        by_message = found.ref.format == "protobuf" and len(self._targets) > 1
        if by_message:
            return self._by_message(found), None
        read = self._reader(found.ref, deserialize, target)
        if deserialize is None:
            return read, None
        return read, self._reader(found.ref, self._parsing(found, deserialize), target)

    def _parsing(self, found: Registered, deserialize: Deserialize) -> Deserialize:
        """As `deserialize`, for values that begin with the id: by a parser, if there is one."""
        parse = None
        with suppress(Exception):  # a schema that its own library refuses: the deserializer has the words
            parse = self._registry.parser(found, self._schema, self._message_of(self._kinds[0]))
        if parse is None:
            return deserialize

        def parsing(value: bytes, topic: str, headers: Headers) -> Any:
            try:
                return parse(value)
            except Exception:  # noqa: BLE001 - any error that the bytes cause
                return deserialize(value, topic, headers)

        return parsing

    def _message_of(self, kind: Any) -> type[Any] | None:
        return kind if is_message(kind) else self._schema.message if isinstance(self._schema, Protobuf) else None

    def _chosen(self, found: Registered, value: bytes, headers: Headers) -> tuple[Deserialize | None, Convert | None]:
        """What reads records like this one; None: the handler takes none of its name."""
        if len(self._targets) == 1:
            return next(iter(self._targets.values()))
        name = name_of(found.text, found.ref.format) or ""
        if found.ref.format == "protobuf":
            with suppress(Exception):  # reading the value tells what is wrong with it
                name = name_at(found.text, self._registry.indexes_of(value, headers))
        return self._targets.get(_last(name), (None, None))

    def _by_message(self, found: Registered) -> Read:
        """A schema of Protobuf may have several messages: each value says which one it is."""
        readers: dict[tuple[int, ...], Read] = {}

        def read(value: bytes, headers: Headers) -> Any:
            try:
                indexes = self._registry.indexes_of(value, headers)
                chosen = readers.get(indexes)
                if chosen is None:
                    target = self._targets.get(_last(name_at(found.text, indexes)), (None, None))
                    chosen = readers[indexes] = self._reader(found.ref, *target)
            except Exception as error:  # noqa: BLE001 - any error that the bytes cause becomes an outcome
                failure = _described(error, value, found.ref, self._wanted, frozenset)
            else:
                return chosen(value, headers)
            raise failure  # outside, because the library's error quotes the payload

        return read

    def _reader(self, ref: SchemaRef, deserialize: Deserialize | None, target: Convert | None) -> Read:
        if deserialize is None:
            return self._refuse_type(ref)
        topic, wanted = self._topic, self._wanted
        convert, names = target if target is not None else (None, frozenset)

        def read(value: bytes, headers: Headers) -> Any:
            try:
                data = deserialize(value, topic, headers)
                return data if convert is None else convert(data)
            except (Signal, MemoryError):
                raise
            except Exception as error:  # noqa: BLE001 - any error that the bytes cause becomes an outcome
                failure = _described(error, value, ref, wanted, names)
            raise failure  # outside, because the library's error quotes the payload

        return read

    def _refuse_type(self, ref: SchemaRef) -> Read:
        why = f"its schema {ref} is that of none of the types {self._wanted}"

        def read(value: bytes, headers: Headers) -> Any:  # noqa: ARG001 - as all
            raise Discard(why) if self._discard_unknown else DecodeError(why, code=UNKNOWN_TYPE)

        return read

    # -- at the start

    def _target(self, kind: Any, where: str) -> tuple[Deserialize, Convert | None]:
        """Raises ConfigError."""
        if not isinstance(self._schema, Protobuf):
            convert, names = converter_for(kind, where=where)
            return self._registry.deserializer(self._schema, None, self._part), (convert, names)
        message = self._message_of(kind)
        if message is None:
            raise ConfigError(
                f"{where}: annotate the generated class of Protobuf, or name it, as in schema=Protobuf(Invoice)"
            )
        deserialize = self._registry.deserializer(self._schema, message, self._part)
        return deserialize, None if is_message(kind) else _from_message(kind, where)


class FileDecoder:
    """Validates plain JSON by one JSON Schema, and decodes it by the annotation. A `RecordDecoder`; any thread."""

    def __init__(
        self, topic: str, schema: JsonSchema, annotation: Any, *, tombstones: Tombstones, where: str = ""
    ) -> None:
        try:
            from jsonschema.validators import validator_for
        except ImportError as error:
            raise ConfigError("JSON Schema needs jsonschema: pip install jsonschema.") from error
        text = schema.text() or "{}"
        content = json.loads(text)
        kind = validator_for(content)
        try:
            kind.check_schema(content)
        except Exception as error:
            raise ConfigError(f"the schema of the topic {topic} is no JSON Schema: {error.message}") from error  # type: ignore[attr-defined] # jsonschema's
        self._find = kind(content, registry=_references(topic, content, kind)).iter_errors
        self._declared = frozenset(declared_names(content))
        self._null = on_null(annotation, tombstones)
        self._convert, self._names = converter_for(annotation, where=where)
        self._wanted = type_name(annotation)

    def __call__(self, message: Message) -> Any:
        value = message.value()
        return self._null() if value is None else self.read(value)

    def read(self, value: bytes, headers: Headers = ()) -> Any:  # noqa: ARG002 - as of `SchemaDecoder`
        """Raises DecodeError."""
        from jsonschema.exceptions import best_match

        try:
            data = json.loads(value)
            wrong = best_match(self._find(data))
            if wrong is None:
                return self._convert(data)
            failure = describe_invalid(wrong, schema="its JSON Schema", declared=self._declared)
        except (Signal, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001 - any error that the bytes cause becomes an outcome
            wanted = "JSON" if isinstance(error, json.JSONDecodeError) else self._wanted
            failure = describe(error, value, wanted=wanted, names=self._names)
        raise failure  # outside, because the library's error quotes the payload


def _references(topic: str, schema: Any, kind: Any) -> Any:
    """What a schema may refer to: itself, and those of JSON Schema. Nothing is fetched. Raises ConfigError."""
    from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped] # it has none
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import specification_with

    root: Any = specification_with(kind.ID_OF(kind.META_SCHEMA)).create_resource(schema)
    parts: list[tuple[Any, Any]] = [(root, REGISTRY.resolver_with_root(root))]
    for part, resolver in parts:  # which grows
        reference = part.contents.get("$ref") if isinstance(part.contents, dict) else None
        try:
            if isinstance(reference, str):
                resolver.lookup(reference)
        except Unresolvable as error:
            raise ConfigError(
                f"the schema of the topic {topic} refers to {reference}, which is not in it; move it there, to $defs"
            ) from error
        parts += [(one, resolver.in_subresource(one)) for one in part.subresources()]
    return REGISTRY


def declared_names(schema: Any) -> Iterable[str]:
    """The names of properties that a JSON Schema declares, anywhere in it."""
    if isinstance(schema, Mapping):
        for key, part in schema.items():
            if key == "properties" and isinstance(part, Mapping):
                yield from map(str, part)
            yield from declared_names(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from declared_names(part)


def _from_message(kind: Any, where: str) -> Convert:
    from google.protobuf.json_format import MessageToDict

    convert, names = converter_for(kind, where=where)
    if isinstance(convert, partial):  # numbers of 64 bits are texts in the JSON of Protobuf
        convert = partial(convert, strict=False)

    def converted(message: Any) -> Any:
        fields = MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
        return convert(fields)

    return converted, names


def _described(error: Exception, value: bytes, ref: SchemaRef, wanted: str, names: Names) -> DecodeError:
    """Without the payload, which the libraries quote."""
    invalid = error.__context__
    if type(invalid).__module__.startswith("jsonschema.") and hasattr(invalid, "absolute_path"):
        declared = frozenset(declared_names(getattr(invalid, "schema", {})))
        return describe_invalid(invalid, schema=str(ref), declared=declared)
    if type(error).__module__.partition(".")[0] in ("msgspec", "pydantic_core"):
        return describe(error, value, wanted=wanted, names=names)
    return DecodeError(f"the value cannot be read by its schema {ref} ({type(error).__name__})", code=DECODE_FAILED)


def _name(kind: Any) -> str:
    return kind.DESCRIPTOR.full_name if is_message(kind) else type_name(kind)


def _last(name: str) -> str:
    return name.rpartition(".")[2]

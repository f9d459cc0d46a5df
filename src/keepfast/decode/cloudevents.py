"""CloudEvents, structured and binary, read and written with the official SDK (extra `cloudevents`)."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from keepfast.core.errors import ConfigError, DecodeError, SchemaPending, Signal
from keepfast.core.records import Headers, Message, read_headers
from keepfast.core.schemas import CloudEvents
from keepfast.decode.annotation import Tombstones, converter_for, on_null, takes_bytes, type_name
from keepfast.decode.failures import DECODE_FAILED, SCHEMA_INVALID, Names, describe

CONTENT_TYPES: Final = {"json": "application/json", "avro": "application/avro", "protobuf": "application/protobuf"}


class CloudEventDecoder:
    """The data of an event, as the annotation says, or as `inner` reads its bytes. A `RecordDecoder`; any thread."""

    def __init__(
        self, annotation: Any, *, tombstones: Tombstones, where: str = "", inner: DataDecoder | None = None
    ) -> None:
        _sdk()
        self.inner = inner
        self._null = on_null(annotation, tombstones)
        self._bytes = takes_bytes(annotation)
        self._wanted = type_name(annotation)
        self._text = annotation is str
        self._convert: Callable[[Any], Any] | None = None
        self._names: Names = frozenset
        if not (self._bytes or self._text or inner is not None):
            self._convert, self._names = converter_for(annotation, where=where)

    def __call__(self, message: Message) -> Any:
        value = message.value()
        if value is None:
            return self._null()
        try:
            if self.inner is not None:
                return self.inner.read(data_of(message), read_headers(message))
            return self._given(event_of(message).get_data())
        except (Signal, DecodeError, SchemaPending, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001 - any error that the bytes cause becomes an outcome
            failure = self._described(error, value)
        raise failure  # outside, because the library's error quotes the payload

    def _given(self, data: Any) -> Any:
        if self._bytes:
            return data.encode() if isinstance(data, str) else data
        if self._convert is not None:
            return self._convert(data)
        return data.decode() if isinstance(data, bytes) else str(data)

    def _described(self, error: Exception, value: bytes) -> DecodeError:
        home = type(error).__module__.partition(".")[0]
        if home in ("msgspec", "pydantic_core"):
            return describe(error, value, wanted=self._wanted, names=self._names)
        code = SCHEMA_INVALID if home == "cloudevents" else DECODE_FAILED
        return DecodeError(f"the record is no CloudEvent ({type(error).__name__})", code=code)


class DataDecoder(Protocol):
    """Reads the bytes of an event's data: see `decode.schemas.SchemaDecoder`."""

    def read(self, value: bytes, headers: Headers) -> Any: ...


def data_of(message: Message) -> bytes:
    """The data of a record's event as bytes. Raises what the SDK raises."""
    if any(name.lower().startswith("ce_") for name, _ in read_headers(message)):
        event_of(message)  # it is one
        return message.value() or b""
    data = event_of(message).get_data()
    return data if isinstance(data, bytes) else json.dumps(data).encode()


def event_writer(schema: CloudEvents) -> Callable[[Any, list[tuple[str, Any]]], bytes]:
    """Writes events: of data, or those of the SDK. Adds the headers. Raises ConfigError without the SDK."""
    kafka, json_format = _sdk()
    from cloudevents.core.v1.event import CloudEvent

    write, format_ = (kafka.to_binary if schema.mode == "binary" else kafka.to_structured), json_format()
    content = CONTENT_TYPES[schema.data.format if schema.data is not None else "json"]
    attributes = {"source": schema.source, "type": schema.type, "specversion": "1.0", "datacontenttype": content}

    def serialize(data: Any, headers: list[tuple[str, Any]]) -> bytes:
        event = data
        if not is_event(data):
            event = CloudEvent({**attributes, "id": str(uuid.uuid4()), "time": datetime.now(UTC)}, data)
        written = write(event, format_)
        headers += written.headers.items()
        return bytes(written.value)

    return serialize


def is_event(value: Any) -> bool:
    """Whether it is an event of the SDK, of whichever version."""
    return hasattr(value, "get_attributes") and hasattr(value, "get_data")


def is_event_header(name: str) -> bool:
    """Whether an event is described by it. The SDK takes all headers for text, and others may be bytes."""
    return name.lower().startswith("ce_") or name.lower() == "content-type"


def event_of(message: Message) -> Any:
    """The event of a record: binary if it has headers `ce_…`, else structured. Raises what the SDK raises."""
    kafka, json_format = _sdk()
    headers = {name: value for name, value in read_headers(message) if value is not None and is_event_header(name)}
    return kafka.from_kafka(kafka.KafkaMessage(headers=headers, key=None, value=message.value() or b""), json_format())


def _sdk() -> tuple[Any, Any]:
    try:
        from cloudevents.core.bindings import kafka
        from cloudevents.core.formats.json import JSONFormat
    except ImportError as error:
        raise ConfigError(f"CloudEvents need the SDK ({error}); pip install 'cloudevents>=2.0'.") from error
    return kafka, JSONFormat

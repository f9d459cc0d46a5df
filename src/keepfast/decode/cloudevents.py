"""CloudEvents, structured and binary, unwrapped with the official SDK (extra `cloudevents`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from keepfast.core.errors import ConfigError, DecodeError, Signal
from keepfast.core.records import Message, read_headers
from keepfast.decode.annotation import Tombstones, converter_for, on_null, takes_bytes, type_name
from keepfast.decode.failures import DECODE_FAILED, SCHEMA_INVALID, Names, describe


class CloudEventDecoder:
    """The data of an event, as the annotation says. A `RecordDecoder`; any thread."""

    def __init__(self, annotation: Any, *, tombstones: Tombstones, where: str = "") -> None:
        _sdk()
        self._null = on_null(annotation, tombstones)
        self._bytes = takes_bytes(annotation)
        self._wanted = type_name(annotation)
        self._text = annotation is str
        self._convert: Callable[[Any], Any] | None = None
        self._names: Names = frozenset
        if not (self._bytes or self._text):
            self._convert, self._names = converter_for(annotation, where=where)

    def __call__(self, message: Message) -> Any:
        value = message.value()
        if value is None:
            return self._null()
        try:
            data = event_of(message).get_data()
            return self._given(data)
        except (Signal, DecodeError, MemoryError):
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


def event_of(message: Message) -> Any:
    """The event of a record: binary if it has headers `ce_…`, else structured. Raises what the SDK raises."""
    kafka, json_format = _sdk()
    headers = {name: value for name, value in read_headers(message) if value is not None}
    return kafka.from_kafka(kafka.KafkaMessage(headers=headers, key=None, value=message.value() or b""), json_format())


def _sdk() -> tuple[Any, Any]:
    try:
        from cloudevents.core.bindings import kafka
        from cloudevents.core.formats.json import JSONFormat
    except ImportError as error:
        raise ConfigError(f"CloudEvents need the SDK ({error}); install keepfast[cloudevents].") from error
    return kafka, JSONFormat

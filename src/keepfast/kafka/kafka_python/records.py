"""Adapts kafka-python's records to `core.records.Message`, with their original bytes.

The library reads a batch with a generator that also deserialises. If that raises, as it does for a header name that is
not UTF-8 or for a deserialiser that gets unexpected bytes, the generator is closed, and the next `poll` loops forever
(measured; kafka-python 3.0.12). So neither may happen there: `RawRecords` returns plain bytes and puts a placeholder
where a header name cannot be decoded.
"""

from __future__ import annotations

from typing import Any

from kafka.consumer.fetcher import Fetcher
from kafka.record.default_records import DefaultRecord, DefaultRecordBatch
from kafka.record.util import decode_varint

from keepfast.core.records import UNREADABLE_NAME, Headers


class PythonMessage:
    """A record of kafka-python with the methods of `core.records.Message`. Immutable; any thread may read it."""

    __slots__ = ("_record",)

    def __init__(self, record: Any) -> None:
        self._record = record

    def topic(self) -> str:
        return str(self._record.topic)

    def partition(self) -> int:
        return int(self._record.partition)

    def offset(self) -> int:
        return int(self._record.offset)

    def key(self) -> bytes | None:
        key: bytes | None = self._record.key
        return key

    def value(self) -> bytes | None:
        value: bytes | None = self._record.value
        return value

    def headers(self) -> Headers | None:
        return self._record.headers or None

    def timestamp(self) -> tuple[int, int]:
        """Its kind (0 none, 1 of creation, 2 of the log) and the milliseconds, as the other client has it."""
        timestamp_ms = self._record.timestamp
        return (0, -1) if timestamp_ms < 0 else (self._record.timestamp_type + 1, timestamp_ms)

    def leader_epoch(self) -> int | None:
        epoch: int = self._record.leader_epoch
        return epoch if epoch >= 0 else None

    def __len__(self) -> int:
        value = self._record.value
        return 0 if value is None else len(value)


class RawRecords(Fetcher.PartitionRecords):  # type: ignore[misc]  # the library brings no types
    """Records of one partition, as bytes, whatever deserialisers the consumer was made with."""

    def _unpack_records(self, tp: Any, records: Any, *_: Any) -> Any:
        return super()._unpack_records(tp, _Batches(records), None, None)  # pyright: ignore[reportAttributeAccessIssue]


class _Batches:
    """The batches of a fetch; header names that are not UTF-8 are tolerated."""

    __slots__ = ("_records",)

    def __init__(self, records: Any) -> None:
        self._records = records

    def next_batch(self) -> Any:
        batch = self._records.next_batch()
        if type(batch) is DefaultRecordBatch:  # older formats have no headers
            batch.__class__ = _Batch
        return batch


class _Batch(DefaultRecordBatch):  # type: ignore[misc]
    __slots__ = ()

    def _read_msg(self, *_: Any) -> Any:
        try:
            return super()._read_msg()  # pyright: ignore[reportAttributeAccessIssue]
        except UnicodeDecodeError:  # of a header's name; nothing has been consumed yet
            return self._read_lenient()

    def _read_lenient(self) -> Any:
        """One record by the format's definition: length, attributes, two deltas, key, value, headers."""
        buffer = self._buffer  # pyright: ignore[reportAttributeAccessIssue]
        length, start = decode_varint(buffer, self._pos)  # type: ignore[has-type]
        _, pos = decode_varint(buffer, start)
        timestamp_delta, pos = decode_varint(buffer, pos)
        offset_delta, pos = decode_varint(buffer, pos)
        key, pos = _bytes(buffer, pos)
        value, pos = _bytes(buffer, pos)
        count, pos = decode_varint(buffer, pos)
        headers = []
        for _ in range(count):
            name, pos = _bytes(buffer, pos)
            content, pos = _bytes(buffer, pos)
            headers.append((_name(name or b""), content))
        self._pos = start + length  # type: ignore[misc]  # a slot of the library's class
        by_log = self.timestamp_type == self.LOG_APPEND_TIME
        timestamp_ms = self.max_timestamp if by_log else self.first_timestamp + timestamp_delta
        offset = self.base_offset + offset_delta
        return DefaultRecord(length, offset, timestamp_ms, self.timestamp_type, key, value, headers)


def _bytes(buffer: Any, pos: int) -> tuple[bytes | None, int]:
    length, pos = decode_varint(buffer, pos)
    return (None, pos) if length < 0 else (bytes(buffer[pos : pos + length]), pos + length)


def _name(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        return UNREADABLE_NAME

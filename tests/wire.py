"""One produce request written by hand: for bytes that no client library would send, such as header names that are not
UTF-8. Brokers do not look into them.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Sequence

RawHeaders = Sequence[tuple[bytes, bytes | None]]


def produce_raw(
    bootstrap: str, topic: str, value: bytes | None, *, key: bytes | None = None, headers: RawHeaders = ()
) -> int:
    """Write one record into partition 0; returns its offset."""
    host, _, port = bootstrap.partition(",")[0].rpartition(":")
    batch = _batch(value, key, headers)
    body = struct.pack(">hhi", -1, -1, 10_000)  # no transaction, acks=all, time-out
    body += struct.pack(">i", 1) + _text(topic) + struct.pack(">iii", 1, 0, len(batch)) + batch
    request = struct.pack(">hhi", 0, 3, 1) + _text("by-hand") + body  # Produce, version 3, correlation id 1
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        with connection.makefile("rb") as stream:
            (length,) = struct.unpack(">i", stream.read(4))
            answer = stream.read(length)
    at = 4 + 4 + 2 + len(topic) + 4 + 4  # correlation id, topics, name, partitions, partition number
    error, offset = struct.unpack_from(">hq", answer, at)
    assert error == 0, f"the broker refused the record: error {error}"
    return int(offset)


def _batch(value: bytes | None, key: bytes | None, headers: RawHeaders) -> bytes:
    now_ms = int(time.time() * 1000)
    record = b"\x00" + _varint(0) + _varint(0) + _bytes(key) + _bytes(value) + _varint(len(headers))
    for name, content in headers:
        record += _varint(len(name)) + name + _bytes(content)
    record = _varint(len(record)) + record
    checked = struct.pack(">hiqqqhii", 0, 0, now_ms, now_ms, -1, -1, -1, 1) + record
    head = struct.pack(">iBI", 0, 2, _crc32c(checked))  # leader epoch, format 2
    return struct.pack(">qi", 0, len(head) + len(checked)) + head + checked


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _bytes(content: bytes | None) -> bytes:
    return _varint(-1) if content is None else _varint(len(content)) + content


def _varint(number: int) -> bytes:
    """Zigzag, seven bits a byte."""
    rest = (number << 1) ^ (number >> 31)
    found = bytearray()
    while rest > 0x7F:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    found.append(rest)
    return bytes(found)


def _crc32c(content: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF

"""Writes one record to a broker by hand, for what no client library agrees to send."""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence

PRODUCE, VERSION = 0, 3


def write_record(bootstrap: str, topic: str, value: bytes, headers: Sequence[tuple[bytes, bytes]]) -> None:
    """One record to partition 0, acknowledged. Names of headers may be any bytes."""
    batch = _batch(_record(value, headers))
    body = struct.pack(">hhi", -1, -1, 10_000)  # no transactional id, acks=all, timeout in ms
    body += (
        struct.pack(">i", 1)
        + _string(topic.encode())
        + struct.pack(">ii", 1, 0)
        + struct.pack(">i", len(batch))
        + batch
    )
    request = struct.pack(">hhi", PRODUCE, VERSION, 1) + _string(b"by-hand") + body
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as line:
        line.sendall(struct.pack(">i", len(request)) + request)
        answer = line.recv(65_536)
    # size, correlation id, one topic, its name, one partition, its number, then the error
    (error,) = struct.unpack_from(">h", answer, 4 + 4 + 4 + 2 + len(topic.encode()) + 4 + 4)
    assert error == 0, f"the broker answered error {error}"


def _record(value: bytes, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    body = b"\x00" + _varint(0) + _varint(0) + _varint(-1) + _varint(len(value)) + value + _varint(len(headers))
    for name, content in headers:
        body += _varint(len(name)) + name + _varint(len(content)) + content
    return _varint(len(body)) + body


def _batch(record: bytes) -> bytes:
    now_ms = 4_102_444_800_000  # far ahead, so that no retention takes it
    checked = struct.pack(">hiqqqhii", 0, 0, now_ms, now_ms, -1, -1, -1, 1) + record
    after_length = struct.pack(">ib", -1, 2) + struct.pack(">I", _crc32c(checked)) + checked
    return struct.pack(">qi", 0, len(after_length)) + after_length


def _string(text: bytes) -> bytes:
    return struct.pack(">h", len(text)) + text


def _varint(number: int) -> bytes:
    zigzag = (number << 1) ^ (number >> 63)
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF

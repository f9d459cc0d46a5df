"""Requests written by hand: for bytes that no client library would send, such as header names that are not UTF-8
(brokers do not look into them), and for what it would not ask for.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Sequence

from tests.support.waiting import DEADLINE_S, wait_until

NOT_LEADER = 6
"""What a broker answers while it is becoming the leader of a new partition."""

RawHeaders = Sequence[tuple[bytes, bytes | None]]


def produce_raw(
    bootstrap: str, topic: str, value: bytes | None, *, key: bytes | None = None, headers: RawHeaders = ()
) -> int:
    """Write one record into partition 0; returns its offset."""
    batch = _batch(value, key, headers)
    body = struct.pack(">hhi", -1, -1, 10_000)  # no transaction, acks=all, time-out
    body += struct.pack(">i", 1) + _text(topic) + struct.pack(">iii", 1, 0, len(batch)) + batch
    at = 4 + 2 + len(topic) + 4 + 4  # topics, name, partitions, partition number

    def written() -> tuple[int, int] | None:
        error, offset = struct.unpack_from(">hq", _asked(bootstrap, 0, 3, body), at)
        return None if error == NOT_LEADER else (error, offset)

    error, offset = wait_until(written, "the partition has a leader") or (NOT_LEADER, -1)
    assert error == 0, f"the broker refused the record: error {error}"
    return offset


def evict(bootstrap: str, group: str, member: str) -> None:
    """Leave a group in the name of one of its members, who hears of it by its next heartbeat. The broker must be the
    group's coordinator.
    """
    answer = _asked(bootstrap, 13, 1, _text(group) + _text(member))
    (error,) = struct.unpack_from(">h", answer, 4)  # after the throttle time
    assert error == 0, f"the broker kept the member: error {error}"


def _asked(bootstrap: str, what: int, version: int, body: bytes) -> bytes:
    """The answer to one request, without its correlation id."""
    host, _, port = bootstrap.partition(",")[0].rpartition(":")
    request = struct.pack(">hhi", what, version, 1) + _text("by-hand") + body
    with socket.create_connection((host, int(port)), timeout=DEADLINE_S) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        with connection.makefile("rb") as stream:
            (length,) = struct.unpack(">i", stream.read(4))
            return stream.read(length)[4:]


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

"""The layout of a segment: one frame after the other, each with checksums, so that damage is detected and bounded.

    segment: MAGIC, then frames
    frame:   mark (4 bytes) · length (4, big-endian) · CRC-32 of these two (4) · digest of the payload (16) · payload

Mark and digest depend on the segment's salt, which is part of the file's name: no payload can be mistaken for a
frame when a reader searches for the next one after damage.

    gone:    offset of a frame (8) · digest of it (8), for each letter of the segment that needs no sending any more
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final
from zlib import crc32

MAGIC: Final = b"keepfast spool 1\n"
_HEAD: Final = struct.Struct(">4sII16s")
_GONE: Final = struct.Struct(">Q8s")
HEAD_BYTES: Final = _HEAD.size
SALT_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class Frame:
    """One letter in a segment: where its frame begins, and its bytes."""

    offset: int
    payload: bytes

    @property
    def size(self) -> int:
        return HEAD_BYTES + len(self.payload)


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes of a segment that are not a frame. `torn`: the end of a write that was cut short, so never acknowledged."""

    offset: int
    size: int
    torn: bool = False


def frame(payload: bytes, salt: bytes) -> bytes:
    """One frame."""
    return _HEAD.pack(_mark(salt), len(payload), _head_sum(salt, len(payload)), _digest(payload, salt)) + payload


def scan(data: bytes, salt: bytes) -> tuple[list[Frame], list[Damage]]:
    """The valid frames of a segment, and the damage between them."""
    frames: list[Frame] = []
    damages: list[Damage] = []
    at = len(MAGIC)
    if data[:at] != MAGIC:
        at = 0
    while at < len(data):
        payload = _payload_at(data, at, salt)
        if payload is not None:
            frames.append(Frame(at, payload))
            at += HEAD_BYTES + len(payload)
            continue
        following = next(_good_frames(data, at + 1, salt), len(data))
        torn = following == len(data) and _is_torn(data, at, salt)
        damages.append(Damage(at, following - at, torn))
        at = following
    return frames, damages


def payload_at(data: bytes, salt: bytes) -> bytes | None:
    """The payload of the one frame that these bytes are; None if they are not."""
    payload = _payload_at(data, 0, salt)
    return payload if payload is not None and HEAD_BYTES + len(payload) == len(data) else None


def gone(offset: int, salt: bytes) -> bytes:
    """An entry: the letter at this offset was sent."""
    return _GONE.pack(offset, _gone_digest(offset, salt))


def read_gone(data: bytes, salt: bytes) -> set[int]:
    """Offsets of letters that were sent. Unreadable entries are ignored: then a letter is sent once more."""
    found = set()
    at = 0
    while at + _GONE.size <= len(data):
        offset, digest = _GONE.unpack_from(data, at)
        good = digest == _gone_digest(offset, salt)
        if good:
            found.add(offset)
        at += _GONE.size if good else 1  # after a torn write, the next entry may begin anywhere
    return found


def _good_frames(data: bytes, start: int, salt: bytes) -> Iterator[int]:
    at = data.find(_mark(salt), start)
    while at >= 0:
        if _payload_at(data, at, salt) is not None:
            yield at
        at = data.find(_mark(salt), at + 1)


def _payload_at(data: bytes, at: int, salt: bytes) -> bytes | None:
    length = _length_at(data, at, salt)
    if length is None or at + HEAD_BYTES + length > len(data):
        return None
    digest = data[at + HEAD_BYTES - 16 : at + HEAD_BYTES]
    payload = data[at + HEAD_BYTES : at + HEAD_BYTES + length]
    return payload if digest == _digest(payload, salt) else None


def _length_at(data: bytes, at: int, salt: bytes) -> int | None:
    if at + HEAD_BYTES > len(data):
        return None
    mark, length, head_sum, _ = _HEAD.unpack_from(data, at)
    return length if mark == _mark(salt) and head_sum == _head_sum(salt, length) else None


def _is_torn(data: bytes, at: int, salt: bytes) -> bool:
    """Truncated inside its head or its payload; or zeros, as a file system leaves where a write was lost."""
    rest = data[at:]
    if not rest.strip(b"\0"):
        return True
    length = _length_at(data, at, salt)
    if length is not None:
        return at + HEAD_BYTES + length > len(data)
    return len(rest) < HEAD_BYTES and _mark(salt).startswith(rest[:4])


def _mark(salt: bytes) -> bytes:
    return salt[:4]


def _head_sum(salt: bytes, length: int) -> int:
    return crc32(salt + length.to_bytes(4, "big"))


def _digest(payload: bytes, salt: bytes) -> bytes:
    return blake2b(payload, digest_size=16, key=salt).digest()


def _gone_digest(offset: int, salt: bytes) -> bytes:
    return blake2b(offset.to_bytes(8, "big"), digest_size=8, key=salt).digest()

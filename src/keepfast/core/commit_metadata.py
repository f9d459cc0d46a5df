"""The completion map: which records above the committed offset are already finished, as text in the commit's metadata.

The text is `kf1;<base>;<topic id>;<partitions>;<guard>;<bits>;<crc>`: the committed offset it belongs to, the topic's
id (so that a recreated topic does not inherit it), how many partitions the topic had when the group started
at its end (0 where it started at the beginning; those from this number on were added later, and are read from their
beginning), the words of the crash guard (see `core.crash_guard`), a bitmap (bit i: offset base + i is finished) as
unpadded URL-safe base64 of little-endian bytes, and a CRC-32 of all before it. Whatever does not parse, does not match
or claims too much is ignored: finished records are then repeated, never skipped.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from zlib import crc32

WINDOW = 16_384
"""A record may start only within so many offsets of its partition's lowest unfinished one, so that the map always fits.
"""

METADATA_LIMIT = 4_096
"""What a broker takes as commit metadata by default (offset.metadata.max.bytes)."""

GUARD_LIMIT = 1_024
"""Characters kept free for the crash guard, which says little as long as no process has died."""

_VERSION = "kf1"
_FIELDS = 7
_COUNT_DIGITS = 9
_CRC_LENGTH = len(";00000000")


@dataclass(slots=True, unsafe_hash=True)
class CompletionMap:
    """Offsets at or above `base` that are finished. `bits` is little-endian: bit i of it stands for base + i. Never
    changed.
    """

    base: int
    bits: bytes = b""

    def __contains__(self, offset: int) -> bool:
        index = offset - self.base
        if not 0 <= index < len(self.bits) * 8:
            return False
        return bool(self.bits[index >> 3] >> (index & 7) & 1)

    def __bool__(self) -> bool:
        return bool(self.bits)

    @property
    def end(self) -> int:
        """No offset from here on is in the map."""
        return self.base + len(self.bits) * 8

    @classmethod
    def from_int(cls, base: int, bits: int) -> CompletionMap:
        return cls(base, bits.to_bytes((bits.bit_length() + 7) // 8, "little"))

    def to_int(self) -> int:
        return int.from_bytes(self.bits, "little")


@dataclass(frozen=True, slots=True)
class Origin:
    """What a commit was made for: the topic's id, and how many partitions it had when the group started at its end.
    None: unknown.
    """

    topic_id: str = ""
    partitions: int | None = None


def encode(
    finished: CompletionMap,
    *,
    topic_id: str = "",
    partitions: int | None = None,
    guard: str = "",
    limit: int = METADATA_LIMIT,
) -> str:
    """The metadata text for a commit at `finished.base`, of at most `limit` characters.

    Within METADATA_LIMIT there is room for everything while the window is kept. Where a broker takes less, the map ends
    earlier (what it leaves out is repeated, never skipped); where not even the rest fits, the text is empty.
    """
    head = f"{_VERSION};{finished.base};{topic_id};{'' if partitions is None else partitions};{guard};"
    room = limit - len(head) - _CRC_LENGTH
    if room < 0:
        return ""
    if finished.bits:
        head += urlsafe_b64encode(finished.bits[: room * 3 // 4]).rstrip(b"=").decode("ascii")
    return f"{head};{crc32(head.encode('ascii')):08x}"


def origin_of(metadata: str, *, offset: int) -> Origin:
    """What a commit at `offset` was made for, as far as its text says so credibly."""
    head, _, crc = metadata.rpartition(";")
    fields = head.split(";")
    if not metadata.isascii() or len(fields) != _FIELDS - 1 or fields[:2] != [_VERSION, str(offset)]:
        return Origin()
    if crc != f"{crc32(head.encode('ascii')):08x}":
        return Origin()
    count = fields[3]
    known = count.isdecimal() and len(count) <= _COUNT_DIGITS
    return Origin(fields[2], int(count) if known else None)


def decode(metadata: str, *, offset: int, topic_id: str = "") -> CompletionMap:
    """What `metadata`, found with a commit at `offset`, says is finished; an empty map where it cannot be trusted."""
    return read(metadata, offset=offset, topic_id=topic_id)[0]


def read(metadata: str, *, offset: int, topic_id: str = "") -> tuple[CompletionMap, str]:
    """As `decode`, and the crash guard's words; these are empty, too, where the text cannot be trusted."""
    nothing = CompletionMap(offset), ""
    if len(metadata) > METADATA_LIMIT or not metadata.isascii():
        return nothing
    fields = metadata.split(";")
    if len(fields) != _FIELDS or fields[0] != _VERSION or fields[1] != str(offset):
        return nothing
    head, _, crc = metadata.rpartition(";")
    if crc != f"{crc32(head.encode('ascii')):08x}":
        return nothing
    if topic_id and fields[2] and fields[2] != topic_id:
        return nothing
    try:
        bits = urlsafe_b64decode(fields[5] + "=" * (-len(fields[5]) % 4))
    except (binascii.Error, ValueError):
        return nothing
    if len(bits) * 8 > WINDOW:
        return nothing
    return CompletionMap(offset, bits), fields[4]

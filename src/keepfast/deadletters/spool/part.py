"""One process's share of a spool on disk: a locked folder with append-only segments."""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Callable, Iterator, Sequence

from keepfast.core.errors import SpoolError
from keepfast.deadletters.spool import frames
from keepfast.deadletters.spool.disk import Disk, Lock, Pen
from keepfast.deadletters.spool.frames import MAGIC, Damage
from keepfast.deadletters.spool.letters import Spooled, decode
from keepfast.deadletters.spool.store import Head

LOCK, ROOM = "lock", "room"
_SEGMENT = re.compile(r"(?P<number>\d{8})-(?P<salt>[0-9a-f]{16})\.letters")
LETTERS, GONE, DAMAGED = ".letters", ".gone", ".damaged"

Salts = Callable[[], bytes]


def new_salt() -> bytes:
    return secrets.token_bytes(frames.SALT_BYTES)


class Segment:
    """One file of letters. Only the newest of a part is written to, and only by the process that made it."""

    def __init__(self, folder: str, number: int, salt: bytes) -> None:
        self.stem = f"{folder}/{number:08d}-{salt.hex()}"
        self.number = number
        self.salt = salt
        self.size = 0
        self.live: dict[str, Head] = {}
        self.damages: list[Damage] = []

    @property
    def path(self) -> str:
        return self.stem + LETTERS

    @property
    def is_damaged(self) -> bool:
        return any(not damage.torn for damage in self.damages)

    def told_damages(self) -> list[str]:
        """One line each, for people."""
        return [
            f"{self.path}: {damage.size} bytes at {damage.offset} are no letter"
            for damage in self.damages
            if not damage.torn
        ]

    def ref(self, offset: int) -> str:
        part = self.stem.rsplit("/", 2)[-2]
        return f"{part}/{self.number:08d}/{offset}"

    def enter(self, offset: int, letter: Spooled, size: int) -> Head:
        head = Head(self.ref(offset), letter.topic, letter.identity, size, letter.at_ms)
        self.live[head.ref] = head
        return head


def offset_of(head: Head) -> int:
    return int(head.ref.rsplit("/", 1)[-1])


def read_segment(disk: Disk, folder: str, name: str) -> Segment | None:
    """A segment as it lies on the disk; None if the file is none. Needs no lock: what is being written is at the end.

    Raises OSError.
    """
    found = _SEGMENT.fullmatch(name)
    if found is None:
        return None
    segment = Segment(folder, int(found["number"]), bytes.fromhex(found["salt"]))
    data = disk.read(segment.path)
    segment.size = len(data)
    good, segment.damages = frames.scan(data, segment.salt)
    gone: set[int] = set()
    with contextlib.suppress(FileNotFoundError):
        gone = frames.read_gone(disk.read(segment.stem + GONE), segment.salt)
    for one in good:
        if one.offset in gone:
            continue
        try:
            segment.enter(one.offset, decode(one.payload), one.size)
        except SpoolError:
            segment.damages.append(Damage(one.offset, one.size))
    return segment


def letter_at(disk: Disk, segment: Segment, head: Head) -> Spooled:
    """Raises OSError, and SpoolError if the bytes are not what was written."""
    payload = frames.payload_at(disk.read(segment.path, offset_of(head), head.size), segment.salt)
    if payload is None:
        raise SpoolError(f"The spooled letter {head.ref} is damaged: its checksum does not fit.", damaged=True)
    return decode(payload)


class Part:
    """A folder that this process holds the lock of. Raises OSError; the store translates."""

    def __init__(self, disk: Disk, folder: str, lock: Lock, *, segment_bytes: int, salts: Salts = new_salt) -> None:
        self._disk = disk
        self._lock = lock
        self._segment_bytes = segment_bytes
        self._salts = salts
        self._pen: Pen | None = None
        self._current: Segment | None = None
        self._last = 0
        self.folder = folder
        self.segments: dict[int, Segment] = {}
        self.set_aside: list[str] = []

    def load(self) -> None:
        """Read what is there. Leftovers that hold no letter are cleared away."""
        names = self._disk.names(self.folder)
        self.set_aside = [f"{self.folder}/{name}" for name in names if name.endswith(DAMAGED)]
        for name in names:
            if _SEGMENT.fullmatch(name):  # who wrote it may have died before it was synced, or after a sync had failed
                self._disk.renew(f"{self.folder}/{name}")
            segment = read_segment(self._disk, self.folder, name)
            if segment is not None:
                self.segments[segment.number] = segment
                self._last = max(self._last, segment.number)
        stems = {segment.stem for segment in self.segments.values()}
        self._disk.remove(f"{self.folder}/{ROOM}")
        for name in names:
            if name.endswith(GONE) and f"{self.folder}/{name.removesuffix(GONE)}" not in stems:
                self._disk.remove(f"{self.folder}/{name}")
        for segment in list(self.segments.values()):
            if not segment.live:
                self._discard(segment)
        self._disk.sync_folder(self.folder)

    @property
    def heads(self) -> Iterator[Head]:
        for number in sorted(self.segments):
            yield from self.segments[number].live.values()

    def holds(self, head: Head) -> bool:
        segment = self.segments.get(_number(head))
        return segment is not None and head.ref in segment.live

    @property
    def held_bytes(self) -> int:
        return sum(segment.size for segment in self.segments.values())

    def append(self, letters: Sequence[tuple[Spooled, bytes]]) -> list[Head]:
        """Letters with their bytes: written and synced, the folder too when the file is new; or raises, and none of
        them counts.
        """
        segment = self._writable()
        pen = self._pen
        assert pen is not None
        written, offsets, at = bytearray() if segment.size else bytearray(MAGIC), [], segment.size or len(MAGIC)
        for _, payload in letters:
            one = frames.frame(payload, segment.salt)
            offsets.append((at, len(one)))
            written += one
            at += len(one)
        fresh = segment.size == 0
        try:
            pen.write(bytes(written))
            pen.sync()
            if fresh:
                self._disk.sync_folder(self.folder)
        except OSError:
            self._give_up(segment, pen)
            raise
        segment.size = at
        return [segment.enter(at, letter, size) for (at, size), (letter, _) in zip(offsets, letters, strict=True)]

    def try_room(self, size: int) -> None:
        """Write so many bytes beside the letters, sync them, and remove them."""
        path = f"{self.folder}/{ROOM}"
        pen = self._disk.append(path)
        try:
            pen.write(secrets.token_bytes(size))  # zeros would need no room where the file system compresses
            pen.sync()
        finally:
            pen.close()
            self._disk.remove(path)

    def read(self, head: Head) -> Spooled:
        """Raises SpoolError if the bytes are not what was written."""
        return letter_at(self._disk, self.segments[_number(head)], head)

    def remove(self, heads: Sequence[Head]) -> None:
        """Noted beside the segment, or the segment is removed when it holds nothing else."""
        for number in sorted({_number(head) for head in heads}):
            segment = self.segments.get(number)
            if segment is None:
                continue
            own = [head for head in heads if _number(head) == number and head.ref in segment.live]
            if len(own) == len(segment.live):
                self._discard(segment)
                segment.live.clear()
            elif own:
                self._note_gone(segment, own)
                for head in own:
                    del segment.live[head.ref]

    def close(self) -> None:
        if self._pen is not None:
            with contextlib.suppress(OSError):
                self._pen.close()
        self._pen = self._current = None
        self._lock.release()

    def _writable(self) -> Segment:
        """The segment to append to; a new one when there is none yet, or the last one is long enough."""
        if self._current is not None and self._current.size < self._segment_bytes:
            return self._current
        if self._pen is not None:
            self._pen.close()
            self._pen = self._current = None
        segment = Segment(self.folder, self._last + 1, self._salts())
        self._pen = self._disk.append(segment.path, new=True)
        self._last += 1
        self._current = self.segments[segment.number] = segment
        return segment

    def _give_up(self, segment: Segment, pen: Pen) -> None:
        """A write or a sync failed: nothing that is written to this file from now on could be trusted.

        What was synced before stays; the rest is cut off if the disk still lets us.
        """
        with contextlib.suppress(OSError):
            pen.truncate(segment.size)
        with contextlib.suppress(OSError):
            pen.close()
        self._pen = self._current = None
        if not segment.live:
            with contextlib.suppress(OSError):
                self._discard(segment)

    def _note_gone(self, segment: Segment, heads: Sequence[Head]) -> None:
        pen = self._disk.append(segment.stem + GONE)
        try:
            pen.write(b"".join(frames.gone(offset_of(head), segment.salt) for head in heads))
            pen.sync()
        finally:
            pen.close()

    def _discard(self, segment: Segment) -> None:
        """It holds no letter any more. What is damaged in it is kept aside, for people."""
        if segment is self._current:
            assert self._pen is not None
            self._pen.close()
            self._pen = self._current = None
        if segment.is_damaged:
            with contextlib.suppress(FileNotFoundError):  # a former try got that far
                self._disk.rename(segment.path, segment.stem + DAMAGED)
            self.set_aside.append(segment.stem + DAMAGED)
        else:
            self._disk.remove(segment.path)
        self._disk.remove(segment.stem + GONE)  # after the letters: they would come back otherwise
        self._disk.sync_folder(self.folder)
        del self.segments[segment.number]


def _number(head: Head) -> int:
    return int(head.ref.split("/")[-2])

"""A spool in a folder of the local disk. Several processes may use it: each writes to a part of its own.

A part is a locked folder with append-only segments.
"""

from __future__ import annotations

import contextlib
import errno
import re
import secrets
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import TypeVar

from keepfast.core.errors import SpoolError
from keepfast.deadletters.spool import frames
from keepfast.deadletters.spool.disk import AppendFile, Disk, Lock, RealDisk
from keepfast.deadletters.spool.frames import MAGIC, Damage
from keepfast.deadletters.spool.letters import SpooledLetter, decode, encode
from keepfast.deadletters.spool.store import Fill, Head, Wanted

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

    def damage_lines(self) -> list[str]:
        """One line each, for output."""
        return [
            f"{self.path}: {damage.size} bytes at {damage.offset} are not a letter"
            for damage in self.damages
            if not damage.torn
        ]

    def ref(self, offset: int) -> str:
        part = self.stem.rsplit("/", 2)[-2]
        return f"{part}/{self.number:08d}/{offset}"

    def enter(self, offset: int, letter: SpooledLetter, size: int) -> Head:
        head = Head(self.ref(offset), letter.topic, letter.identity, size, letter.at_ms)
        self.live[head.ref] = head
        return head


def offset_of(head: Head) -> int:
    return int(head.ref.rsplit("/", 1)[-1])


def read_segment(disk: Disk, folder: str, name: str) -> Segment | None:
    """Read a segment; None if the file is not one. Needs no lock: writes go to the end.

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


def letter_at(disk: Disk, segment: Segment, head: Head) -> SpooledLetter:
    """Raises OSError, and SpoolError if the checksum does not match."""
    payload = frames.payload_at(disk.read(segment.path, offset_of(head), head.size), segment.salt)
    if payload is None:
        raise SpoolError(f"The spooled letter {head.ref} is damaged: its checksum does not match.", damaged=True)
    return decode(payload)


class Part:
    """A folder locked by this process. Raises OSError; the store translates it."""

    def __init__(self, disk: Disk, folder: str, lock: Lock, *, segment_bytes: int, salts: Salts = new_salt) -> None:
        self._disk = disk
        self._lock = lock
        self._segment_bytes = segment_bytes
        self._salts = salts
        self._file: AppendFile | None = None
        self._current: Segment | None = None
        self._last = 0
        self.folder = folder
        self.segments: dict[int, Segment] = {}
        self.set_aside: list[str] = []

    def load(self) -> None:
        """Read its segments. Files without letters are removed."""
        names = self._disk.names(self.folder)
        self.set_aside = [f"{self.folder}/{name}" for name in names if name.endswith(DAMAGED)]
        for name in names:
            if _SEGMENT.fullmatch(name):  # its writer may have crashed before it was synced, or after a failed sync
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

    def append(self, letters: Sequence[tuple[SpooledLetter, bytes]]) -> list[Head]:
        """Letters with their bytes: written and synced, the folder too when the file is new; if it raises, none of
        them is stored.
        """
        segment = self._writable()
        file = self._file
        assert file is not None
        written, offsets, at = bytearray() if segment.size else bytearray(MAGIC), [], segment.size or len(MAGIC)
        for _, payload in letters:
            one = frames.frame(payload, segment.salt)
            offsets.append((at, len(one)))
            written += one
            at += len(one)
        fresh = segment.size == 0
        try:
            file.write(bytes(written))
            file.sync()
            if fresh:
                self._disk.sync_folder(self.folder)
        except OSError:
            self._give_up(segment, file)
            raise
        segment.size = at
        return [segment.enter(at, letter, size) for (at, size), (letter, _) in zip(offsets, letters, strict=True)]

    def try_room(self, size: int) -> None:
        """Write this many bytes beside the letters, sync and remove them."""
        path = f"{self.folder}/{ROOM}"
        file = self._disk.append(path)
        try:
            file.write(secrets.token_bytes(size))  # a compressing file system would store zeros in no space
            file.sync()
        finally:
            file.close()
            self._disk.remove(path)

    def read(self, head: Head) -> SpooledLetter:
        """Raises SpoolError if the checksum does not match."""
        return letter_at(self._disk, self.segments[_number(head)], head)

    def remove(self, heads: Sequence[Head]) -> None:
        """Remove the segments that hold nothing else, and record the rest beside their segments: on a full disk the
        former makes room for the latter.
        """
        rest: list[tuple[Segment, list[Head]]] = []
        for number in sorted({_number(head) for head in heads} & self.segments.keys()):
            segment = self.segments[number]
            own = [head for head in heads if _number(head) == number and head.ref in segment.live]
            if len(own) == len(segment.live):
                self._discard(segment)
                segment.live.clear()
            elif own:
                rest.append((segment, own))
        for segment, own in rest:
            self._note_gone(segment, own)
            for head in own:
                del segment.live[head.ref]

    def close(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
        self._file = self._current = None
        self._lock.release()

    def _writable(self) -> Segment:
        """The segment to append to; a new one when there is none yet, or the last one is long enough."""
        if self._current is not None and self._current.size < self._segment_bytes:
            return self._current
        if self._file is not None:
            self._file.close()
            self._file = self._current = None
        segment = Segment(self.folder, self._last + 1, self._salts())
        self._file = self._disk.append(segment.path, new=True)
        self._last += 1
        self._current = self.segments[segment.number] = segment
        return segment

    def _give_up(self, segment: Segment, file: AppendFile) -> None:
        """A write or a sync failed: later writes to this file cannot be trusted.

        Synced letters are kept; the rest is truncated if possible.
        """
        with contextlib.suppress(OSError):
            file.truncate(segment.size)
        with contextlib.suppress(OSError):
            file.close()
        self._file = self._current = None
        if not segment.live:
            with contextlib.suppress(OSError):
                self._discard(segment)

    def _note_gone(self, segment: Segment, heads: Sequence[Head]) -> None:
        file = self._disk.append(segment.stem + GONE)
        try:
            file.write(b"".join(frames.gone(offset_of(head), segment.salt) for head in heads))
            file.sync()
        finally:
            file.close()

    def _discard(self, segment: Segment) -> None:
        """Remove a segment without letters. Damaged bytes are set aside for inspection."""
        if segment is self._current:
            assert self._file is not None
            self._file.close()
            self._file = self._current = None
        if segment.is_damaged:
            with contextlib.suppress(FileNotFoundError):  # done by an earlier attempt
                self._disk.rename(segment.path, segment.stem + DAMAGED)
            self.set_aside.append(segment.stem + DAMAGED)
        else:
            self._disk.remove(segment.path)
        self._disk.remove(segment.stem + GONE)  # after the letters: they would reappear otherwise
        self._disk.sync_folder(self.folder)
        del self.segments[segment.number]


def _number(head: Head) -> int:
    return int(head.ref.split("/")[-2])


SEGMENT_BYTES = 8 * 1024 * 1024
ADOPT_AFTER_S, ADOPT_EVERY_S = 15.0, 30.0
"""Unlocked parts belong to processes that have ended: others adopt them and send their letters. Not at once, so that
processes that restart together find their own parts."""

_FULL = (errno.ENOSPC, errno.EDQUOT)
PART = re.compile(r"part-\d{4}")
T = TypeVar("T")


class FileStore:
    """Implements `store.Store`: `<folder>/part-0000/…`, each part held by a lock that ends with its process.

    `max_bytes` bounds what this process writes, files that wait for their last letter to be sent included.
    """

    def __init__(
        self,
        folder: str,
        *,
        max_bytes: int,
        disk: Disk | None = None,
        segment_bytes: int = SEGMENT_BYTES,
        salts: Salts = new_salt,
        adopt_after_s: float = ADOPT_AFTER_S,
    ) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._disk = disk or RealDisk()
        self._segment_bytes = segment_bytes
        self._salts = salts
        self._adopt_after_s = adopt_after_s
        self._adopt_at: float | None = None
        self._own: Part | None = None
        self._adopted: dict[str, Part] = {}
        self._identities: dict[bytes, int] = {}

    def open(self) -> None:
        def take() -> Part:
            self._disk.make_folder(self._folder)
            for number in count():
                part = self._hold(f"part-{number:04d}", make=True)
                if part is not None:
                    return part
            raise AssertionError

        self._own = self._translated("open it", take)

    def add(self, letters: Sequence[SpooledLetter]) -> list[Head]:
        own = self._opened()
        new = {letter.identity: letter for letter in letters if letter.identity not in self._identities}
        encoded = [(letter, encode(letter)) for letter in new.values()]
        self._check_room(own, sum(len(payload) for _, payload in encoded))
        heads = self._translated("write to it", lambda: own.append(encoded)) if encoded else []
        self._note(heads)
        return heads

    def try_room(self, size: int) -> None:
        own = self._opened()
        self._check_room(own, size)
        self._translated("write to it", partial(own.try_room, size))

    def heads(self, limit: int, wanted: Wanted) -> list[Head]:
        parts = [self._opened(), *self._adopted.values()]
        found: list[Head] = []
        for part in parts:
            mine = 0
            for head in part.heads:
                if mine >= limit:
                    break
                if wanted(head):
                    found.append(head)
                    mine += 1
        return sorted(found, key=lambda head: head.at_ms)[:limit]

    def read(self, head: Head) -> SpooledLetter:
        return self._translated("read it", partial(self._part_of(head).read, head))

    def remove(self, heads: Sequence[Head]) -> None:
        for part in (self._opened(), *list(self._adopted.values())):
            own = [head for head in heads if head.ref.startswith(f"{_name(part)}/")]
            if not own:
                continue
            known = [head for head in own if part.holds(head)]
            try:
                self._translated("remove from it", partial(part.remove, known))
            finally:
                for head in known:
                    if not part.holds(head):
                        self._forget(head)
        self._release_empty()

    def lead(self, now: float) -> bool:
        """Each process sends its own letters. From time to time it adopts parts of processes that have ended."""
        if self._adopt_at is None:
            self._adopt_at = now + self._adopt_after_s
        if now >= self._adopt_at:
            self._adopt_at = now + ADOPT_EVERY_S
            self._translated("look for unlocked parts", self._adopt)
        return True

    def identities(self) -> Collection[bytes]:
        return self._identities.keys()

    def fill(self) -> Fill:
        parts = [self._opened(), *self._adopted.values()]
        heads = [head for part in parts for head in part.heads]
        damaged = tuple(
            line for part in parts for segment in part.segments.values() for line in segment.damage_lines()
        ) + tuple(f"{path}: set aside" for part in parts for path in part.set_aside)
        return Fill(
            len(heads),
            sum(part.held_bytes for part in parts),
            min((head.at_ms for head in heads), default=None),
            damaged,
        )

    def close(self) -> None:
        for part in ([self._own] if self._own else []) + list(self._adopted.values()):
            part.close()
        self._own = None
        self._adopted.clear()

    def _check_room(self, own: Part, size: int) -> None:
        if own.held_bytes + size > self._max_bytes:
            raise SpoolError(
                f"The spool {self._folder} is full: it holds {own.held_bytes:,} of {self._max_bytes:,} bytes."
                " Restore Kafka so that the letters are sent, or raise spool.max_bytes.",
                full=True,
            )

    def _opened(self) -> Part:
        if self._own is None:
            raise SpoolError(f"The spool {self._folder} is closed.")
        return self._own

    def _hold(self, name: str, *, make: bool = False) -> Part | None:
        folder = f"{self._folder}/{name}"
        if make:
            self._disk.make_folder(folder)
        lock = self._disk.lock(f"{folder}/{LOCK}")
        if lock is None:
            return None
        part = Part(self._disk, folder, lock, segment_bytes=self._segment_bytes, salts=self._salts)
        try:
            part.load()
        except BaseException:
            part.close()
            raise
        self._note(part.heads)
        return part

    def _adopt(self) -> None:
        own = _name(self._opened())
        for name in self._disk.names(self._folder):
            if not PART.fullmatch(name) or name == own or name in self._adopted:
                continue
            part = self._hold(name)
            if part is not None:
                self._adopted[name] = part
        self._release_empty()

    def _release_empty(self) -> None:
        for name, part in list(self._adopted.items()):
            if not part.segments:
                part.close()
                del self._adopted[name]

    def _part_of(self, head: Head) -> Part:
        name = head.ref.split("/", 1)[0]
        own = self._opened()
        return own if name == _name(own) else self._adopted[name]

    def _note(self, heads: Iterable[Head]) -> None:
        for head in heads:
            self._identities[head.identity] = self._identities.get(head.identity, 0) + 1

    def _forget(self, head: Head) -> None:
        left = self._identities.get(head.identity, 0) - 1
        if left > 0:
            self._identities[head.identity] = left
        else:
            self._identities.pop(head.identity, None)

    def _translated(self, what: str, call: Callable[[], T]) -> T:
        try:
            return call()
        except OSError as error:
            full = error.errno in _FULL
            advice = "Free space on its disk." if full else "Check the disk and the permissions of the folder."
            text = f"The spool {self._folder}: could not {what}: {error.strerror or error}. {advice}"
            raise SpoolError(text, full=full) from error


class FileReader:
    """The folder's letters at one moment, without a lock, those of running processes included. Read-only.

    Raises SpoolError. A letter that is sent meanwhile may still be listed.
    """

    def __init__(self, folder: str, disk: Disk | None = None) -> None:
        self._folder = folder
        self._disk = disk or RealDisk()
        self._segments: list[Segment] = []
        self._set_aside: list[str] = []

    def open(self) -> None:
        try:
            parts = [name for name in self._disk.names(self._folder) if PART.fullmatch(name)]
        except FileNotFoundError:
            return  # nothing was ever stored there
        except OSError as error:
            raise self._unreadable(error) from error
        for part in parts:
            self._look_into(f"{self._folder}/{part}")

    def heads(self, limit: int, wanted: Wanted) -> list[Head]:
        found = [head for segment in self._segments for head in segment.live.values() if wanted(head)]
        return sorted(found, key=lambda head: head.at_ms)[:limit]

    def read(self, head: Head) -> SpooledLetter:
        segment = next(one for one in self._segments if head.ref in one.live)
        try:
            return letter_at(self._disk, segment, head)
        except FileNotFoundError as error:
            raise SpoolError(f"The letter {head.ref} has left the spool.") from error
        except OSError as error:
            raise self._unreadable(error) from error

    def fill(self) -> Fill:
        heads = self.heads(sys.maxsize, lambda _: True)
        damaged = (*(one for segment in self._segments for one in segment.damage_lines()), *self._set_aside)
        held_bytes = sum(segment.size for segment in self._segments)
        return Fill(len(heads), held_bytes, heads[0].at_ms if heads else None, damaged)

    def close(self) -> None: ...

    def _look_into(self, folder: str) -> None:
        try:
            names = self._disk.names(folder)
            for name in names:
                with contextlib.suppress(FileNotFoundError):  # its last letter was sent on just now
                    segment = read_segment(self._disk, folder, name)
                    if segment is not None:
                        self._segments.append(segment)
            self._set_aside += [f"{folder}/{name}: set aside" for name in names if name.endswith(DAMAGED)]
        except OSError as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: OSError) -> SpoolError:
        return SpoolError(f"The spool {self._folder}: could not read it: {error.strerror or error}.")


def _name(part: Part) -> str:
    return part.folder.rsplit("/", 1)[-1]

"""A spool in a folder of the local disk. Several processes may use it: each writes to a part of its own."""

from __future__ import annotations

import contextlib
import errno
import re
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from itertools import count
from typing import TypeVar

from keepfast.core.errors import SpoolError
from keepfast.deadletters.spool.disk import Disk, RealDisk
from keepfast.deadletters.spool.letters import Spooled, encode
from keepfast.deadletters.spool.part import DAMAGED, LOCK, Part, Salts, Segment, letter_at, new_salt, read_segment
from keepfast.deadletters.spool.store import Fill, Head, Wanted

SEGMENT_BYTES = 8 * 1024 * 1024
ADOPT_AFTER_S, ADOPT_EVERY_S = 15.0, 30.0
"""Parts that nobody holds belong to processes that have ended: others see to their letters. Not at once, so that
processes that start together find the parts they left."""

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

    def add(self, letters: Sequence[Spooled]) -> list[Head]:
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

    def read(self, head: Head) -> Spooled:
        return self._translated("read it", partial(self._part_of(head).read, head))

    def remove(self, heads: Sequence[Head]) -> None:
        for part in (self._opened(), *list(self._adopted.values())):
            own = [head for head in heads if head.ref.startswith(f"{_name(part)}/")]
            if not own:
                continue
            known = [head for head in own if part.holds(head)]
            self._translated("remove from it", partial(part.remove, known))
            for head in known:
                self._forget(head)
        self._release_empty()

    def lead(self, now: float) -> bool:
        """Everybody sees to what is theirs. Now and then, to what the dead have left."""
        if self._adopt_at is None:
            self._adopt_at = now + self._adopt_after_s
        if now >= self._adopt_at:
            self._adopt_at = now + ADOPT_EVERY_S
            self._translated("look for what others left in it", self._adopt)
        return True

    def identities(self) -> Collection[bytes]:
        return self._identities.keys()

    def fill(self) -> Fill:
        parts = [self._opened(), *self._adopted.values()]
        heads = [head for part in parts for head in part.heads]
        damaged = tuple(
            told for part in parts for segment in part.segments.values() for told in segment.told_damages()
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
                " Let Kafka take the letters, or raise spool.max_bytes.",
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
            advice = "Make room on its disk." if full else "Look at the disk and at the rights of the folder."
            text = f"The spool {self._folder}: could not {what}: {error.strerror or error}. {advice}"
            raise SpoolError(text, full=full) from error


class FileReader:
    """What lies in the folder at one moment, without a lock: what running processes hold as well. It changes nothing.

    Raises SpoolError. A letter that is sent on meanwhile may still be shown.
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
            return  # nothing was ever kept there
        except OSError as error:
            raise self._unreadable(error) from error
        for part in parts:
            self._look_into(f"{self._folder}/{part}")

    def heads(self, limit: int, wanted: Wanted) -> list[Head]:
        found = [head for segment in self._segments for head in segment.live.values() if wanted(head)]
        return sorted(found, key=lambda head: head.at_ms)[:limit]

    def read(self, head: Head) -> Spooled:
        segment = next(one for one in self._segments if head.ref in one.live)
        try:
            return letter_at(self._disk, segment, head)
        except FileNotFoundError as error:
            raise SpoolError(f"The letter {head.ref} has left the spool.") from error
        except OSError as error:
            raise self._unreadable(error) from error

    def fill(self) -> Fill:
        heads = self.heads(sys.maxsize, lambda _: True)
        damaged = (*(one for segment in self._segments for one in segment.told_damages()), *self._set_aside)
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

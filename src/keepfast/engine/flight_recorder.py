"""The flight recorder: which records this process has in flight, in a file that outlives it.

One memory-mapped file per process, `<state directory>/<token>.flight`, locked for as long as the process lives. Commits
carry the token with their lease, so the next owner of a partition looks for that file in its own state directory: it is
locked (the last owner lives), it says that the process ended on purpose, or it says which records the process had in
hand when it died. What is read there is not trusted: it only ever names offsets within the lease of the commit.

A worker owns one slot and stores into it without a lock. While no process has crashed over a partition, a run of
several records is noted once, as everything from its lowest offset on, because a store for each record would cost more
than a fast handler may; where a death has left a mark, for short runs, and in a queue, each record is noted. So the
records in flight at a second death are always known exactly.

The file is 64-bit words in the byte order of the machine: a header, the table of places (a digest of group, topic and
topic id; partition; epoch), the slots, and lists for batches.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import secrets
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import blake2b
from operator import methodcaller
from pathlib import Path
from typing import Any, Final, Literal, Protocol

from keepfast.core.crash_guard import NOT_DEAD, TOKEN, UNKNOWN, Fate, Spans, spans_of
from keepfast.core.records import TopicPartition
from keepfast.core.runs import Run
from keepfast.engine.mailbox import Ending
from keepfast.telemetry.logs import get_logger

log = get_logger("keepfast.guard")

SUFFIX: Final = ".flight"
KEPT_S: Final = 7 * 86_400.0
"""So long the file of a dead process is kept, from the first sweep that finds it."""
MAX_KEPT: Final = 64
"""And so many at most: a process that dies every few seconds must not fill the disk."""
MAX_FILE_BYTES: Final = 64 << 20
"""No file of ours is larger."""
SPARE_SLOTS: Final = 64
"""For workers that are started in place of hanging ones."""
SPARE_LISTS: Final = 64
"""For the same workers, where there are batches."""
MAX_SLOTS: Final = 20_000
MAX_LISTS: Final = 256 + SPARE_LISTS
PLACES: Final = 2_048
"""Partitions that a process can own in its life and have noted; for more, the guard works as without a recorder."""
SHORT_RUN: Final = 8
"""Runs below this length have each of their records noted."""

WORD: Final = 8
HEADER_WORDS, PLACE_WORDS, SLOT_WORDS, LIST_WORDS = 8, 4, 4, 1_024
MAGIC: Final = int.from_bytes(b"kfflight", "little")
VERSION: Final = 1
_MAGIC, _VERSION, _STATE, _PLACES, _SLOTS, _LISTS, _FOUND_DEAD = range(7)
"""Words of the header: three are how many of each there is room for; the last is when a sweep first found the process
dead, or 0.
"""
RUNNING, LEFT, INCOMPLETE = 0, 1, 2
"""The process is running; it ended in an orderly way; it has more workers or longer batches than fit."""
_OFFSET: Final = methodcaller("offset")
_KIND, _PLACE, _FIRST, _LAST = range(4)
"""Words of a slot. The kind is stored last when a run begins and first when it ends."""
NOTHING, EXACT, SPAN, LIST = 0, 1, 2, 3
"""Nothing is in flight; one record; all of a run from its lowest offset on, or up to its last; what the list says."""
OPEN: Final = -1
"""In place of a last offset: the run may grow, so everything up to the lease."""
SPANS_OF_A_LIST: Final = LIST_WORDS // 3

Words = memoryview
Content = bytes | Literal["alive"] | None
"""What an archive has under a token; "alive": its process lives. None: nothing, or nothing that can be read."""


class Archive(Protocol):
    """Where recorders are found by their tokens."""

    def find(self, token: str) -> Content: ...

    def tokens(self) -> Sequence[str]:
        """Of all recorders."""
        ...


def _nothing(message: Any, run: Run) -> None:
    """What a slot calls before its first run."""


class Slot:
    """What one worker has in flight. `begin` and `end` are the worker's."""

    __slots__ = ("_call", "_list", "_list_index", "_recorder", "_words")

    def __init__(self, recorder: FlightRecorder, words: Words) -> None:
        self._recorder = recorder
        self._words = words
        self._list: Words | None = None
        self._list_index = -1
        self._call: Callable[..., Any] = _nothing

    def begin(self, run: Run, call: Callable[..., Any]) -> Callable[..., Any]:
        """The worker is about to handle the records of the run. Returns what to call for each of them."""
        words, partition, messages = self._words, run.partition, run.messages
        try:
            first = messages[0].offset()
        except IndexError:  # the loop may take all of them back at any moment
            return call
        if partition.flight < 0:
            return call
        words[_PLACE] = partition.flight
        words[_FIRST] = first
        watch = partition.watch
        if len(messages) >= SHORT_RUN and watch is not None and not watch.marked:
            if run.keys and not isinstance(run.seqs, range):  # lane after lane, so perhaps not in order of offsets
                words[_FIRST] = min(map(_OFFSET, messages), default=first)
            words[_LAST] = OPEN
            words[_KIND] = SPAN
            return call
        words[_KIND] = EXACT
        self._call = call
        return self._noted

    def _noted(self, message: Any, run: Run) -> Any:
        """Of a run of which each record is noted: call the handler for this one."""
        self._words[_FIRST] = message.offset()
        return self._call(message, run)

    def begin_batch(self, run: Run) -> None:
        """The worker is about to handle the run in one call: all of it, or what of it is given to the handler."""
        words, spans = self._words, _spans_of_batch(run)
        if len(spans) == 1:
            words[_PLACE], words[_FIRST], words[_LAST] = spans[0]
            words[_KIND] = SPAN
        elif spans:
            if self._list is None:
                self._list_index, self._list = self._recorder.new_list()
            if self._list is None or len(spans) > SPANS_OF_A_LIST:
                self._recorder.incomplete()
                return
            for at, word in enumerate(word for span in spans for word in span):
                self._list[at] = word
            words[_PLACE], words[_FIRST] = self._list_index, len(spans)
            words[_KIND] = LIST

    def end(self) -> None:
        """Nothing is in flight any more."""
        self._words[_KIND] = NOTHING


class NoSlot(Slot):
    """Where there is no recorder."""

    __slots__ = ()

    def __init__(self) -> None:
        """It has nothing to write to."""

    def begin(self, run: Run, call: Callable[..., Any]) -> Callable[..., Any]:  # noqa: ARG002 - as of a slot
        return call

    def begin_batch(self, run: Run) -> None:
        """Nothing to do."""

    def end(self) -> None:
        """Nothing to do."""


NO_SLOT: Final = NoSlot()


def _spans_of_batch(run: Run) -> list[tuple[int, int, int]]:
    """Place, first and last offset of what goes out, part by part; of each record where a death has left a mark."""
    spans: list[tuple[int, int, int]] = []
    left, at = len(run.messages), 0
    given = None if run.given is None else frozenset(run.given)
    for part in run.parts:
        messages = part.messages[:left]
        offsets = [one.offset() for index, one in enumerate(messages, at) if given is None or index in given]
        left, at = left - len(messages), at + len(messages)
        place, watch = part.partition.flight, part.partition.watch
        if offsets and place >= 0:
            if watch is not None and watch.marked:
                ranges = spans_of((offset, offset + 1) for offset in offsets)
                spans += [(place, first, end - 1) for first, end in ranges]
            else:
                spans.append((place, min(offsets), max(offsets)))
        if left <= 0:
            break
    if len(spans) <= SPANS_OF_A_LIST:
        return spans
    reach: dict[int, tuple[int, int]] = {}
    for place, first, last in spans:
        low, high = reach.get(place, (first, last))
        reach[place] = min(low, first), max(high, last)
    return [(place, *ends) for place, ends in reach.items()]


class FlightRecorder:
    """Notes what the workers of a process have in flight. Any thread; workers write to their own slots only.

    `memory` has the size that `size_of` says. `archive` is where the recorders of others are looked for.
    """

    def __init__(self, token: str, memory: Any, archive: Archive, *, slots: int, lists: int = 0) -> None:
        self.token = token
        self._words = words = memoryview(memory).cast("q")
        self._archive = archive
        self._lock = threading.Lock()
        self._index: dict[tuple[bytes, int], int] = {}
        self._slots = self._lists = 0
        self._read: dict[str, dict[tuple[bytes, int], Spans] | None] = {}  # of the dead, which change no more
        words[_VERSION], words[_STATE] = VERSION, RUNNING
        words[_PLACES], words[_SLOTS], words[_LISTS] = PLACES, slots, lists
        words[_MAGIC] = MAGIC

    def place(self, group: str, place: TopicPartition, topic_id: str, epoch: int) -> int:
        """The place's number in the table, for a new epoch; -1 if there is no room."""
        key = digest(group, place.topic, topic_id), place.partition
        with self._lock:
            index = self._index.setdefault(key, len(self._index))
            if index >= PLACES:
                del self._index[key]
                return -1
            at = HEADER_WORDS + index * PLACE_WORDS
            self._words[at] = int.from_bytes(key[0][:WORD], "little", signed=True)
            self._words[at + 1] = int.from_bytes(key[0][WORD:], "little", signed=True)
            self._words[at + 2], self._words[at + 3] = place.partition, epoch
            return index

    def slot(self) -> Slot:
        """One more worker."""
        with self._lock:
            number, self._slots = self._slots, self._slots + 1
        if number >= self._words[_SLOTS]:
            self.incomplete()
            return NO_SLOT
        at = HEADER_WORDS + PLACES * PLACE_WORDS + number * SLOT_WORDS
        return Slot(self, self._words[at : at + SLOT_WORDS])

    def new_list(self) -> tuple[int, Words | None]:
        """Room for the batches of a worker."""
        with self._lock:
            number, self._lists = self._lists, self._lists + 1
        if number >= self._words[_LISTS]:
            return -1, None
        at = HEADER_WORDS + PLACES * PLACE_WORDS + self._words[_SLOTS] * SLOT_WORDS + number * LIST_WORDS
        return number, self._words[at : at + LIST_WORDS]

    def incomplete(self) -> None:
        """Something is in flight that is not noted: from now on the file says nothing about a death."""
        with self._lock:
            if self._words[_STATE] != RUNNING:
                return
            self._words[_STATE] = INCOMPLETE
        log.warning(
            "flight_recorder_incomplete",
            why="more workers, or larger batches, than its file has room for",
            consequence="after a crash, more records than were in flight may run one by one",
            what_to_do="restart the process if handlers hang; else lower the concurrency, or the size of batches",
        )

    def leave(self) -> None:
        """The process ends on purpose, now: what is in flight is not to blame. Safe in a signal handler."""
        self._words[_STATE] = LEFT

    def fate(self, token: str, group: str, place: TopicPartition, topic_id: str) -> Fate:
        """What became of the process that had the place under a lease with this token."""
        in_hand = self._found(token)
        if isinstance(in_hand, Fate):
            return in_hand
        ids = dict.fromkeys((topic_id, ""))  # it may not have known the id
        keys = [(digest(group, place.topic, one), place.partition) for one in ids]
        return Fate(dead=True, in_hand=spans_of(span for key in keys for span in in_hand.get(key, ())))

    def deaths(self, group: str, topic: str, topic_id: str) -> list[dict[int, Spans]]:
        """What processes of this host had in flight of this topic when they died, by partition: an entry for each that
        had something.
        """
        digests = [digest(group, topic, one) for one in dict.fromkeys((topic_id, ""))]
        found = [one for one in map(self._found, self._archive.tokens()) if not isinstance(one, Fate)]
        own = [{number: spans for (of, number), spans in one.items() if of in digests} for one in found]
        return [one for one in own if one]

    def _found(self, token: str) -> dict[tuple[bytes, int], Spans] | Fate:
        """What the process of this recorder had in flight when it died, by digest and partition; or that it did not, or
        that this is unknown.
        """
        if not TOKEN.fullmatch(token):
            return UNKNOWN
        if token == self.token:
            return NOT_DEAD
        if token not in self._read:
            content = self._archive.find(token)
            if content == "alive":
                return NOT_DEAD
            if content is None or (state := read_state(content)) not in (RUNNING, LEFT):
                return UNKNOWN
            while len(self._read) >= MAX_KEPT:
                del self._read[next(iter(self._read))]
            self._read[token] = read_in_hand(content) if state == RUNNING else None
        in_hand = self._read[token]
        return NOT_DEAD if in_hand is None else in_hand


def digest(group: str, topic: str, topic_id: str) -> bytes:
    """What stands for a topic of a group in the table of places."""
    return blake2b(f"{group}\0{topic}\0{topic_id}".encode(), digest_size=2 * WORD).digest()


def size_of(*, slots: int, lists: int = 0) -> int:
    """Bytes of a file with so many slots and lists."""
    return WORD * (HEADER_WORDS + PLACES * PLACE_WORDS + slots * SLOT_WORDS + lists * LIST_WORDS)


def read_state(content: bytes) -> int | None:
    """None: it is no file of ours, or it is damaged."""
    if len(content) < HEADER_WORDS * WORD or len(content) % WORD:
        return None
    words = memoryview(content).cast("q")
    if words[_MAGIC] != MAGIC or words[_VERSION] != VERSION or words[_PLACES] != PLACES:
        return None
    slots, lists = words[_SLOTS], words[_LISTS]
    if not (0 <= slots <= MAX_SLOTS and 0 <= lists <= MAX_LISTS) or len(content) != size_of(slots=slots, lists=lists):
        return None
    return words[_STATE]


def read_in_hand(content: bytes) -> dict[tuple[bytes, int], Spans]:
    """What was in flight by the file of a process that died, by digest and partition. Of content that `read_state`
    knows; what points outside of it is left out.
    """
    words = memoryview(content).cast("q")
    found: dict[tuple[bytes, int], list[tuple[int, int]]] = {}

    def add(place: int, first: int, last: int) -> None:
        if 0 <= place < PLACES and first >= 0:
            at = HEADER_WORDS + place * PLACE_WORDS
            key = content[at * WORD : (at + 2) * WORD], words[at + 2]
            found.setdefault(key, []).append((first, (1 << 62) if last == OPEN else last + 1))

    first_slot = HEADER_WORDS + PLACES * PLACE_WORDS
    first_list = first_slot + words[_SLOTS] * SLOT_WORDS
    for at in range(first_slot, first_list, SLOT_WORDS):
        kind, place, first, last = words[at : at + SLOT_WORDS]
        if kind == EXACT:
            add(place, first, first)
        elif kind == SPAN:
            add(place, first, last)
        elif kind == LIST and 0 <= place < words[_LISTS]:
            begin = first_list + place * LIST_WORDS
            for number in range(min(max(first, 0), SPANS_OF_A_LIST)):
                add(*words[begin + 3 * number : begin + 3 * number + 3])
    return {key: spans_of(ranges) for key, ranges in found.items()}


# -- the files


_own: dict[str, int] = {}
"""Tokens of this process, with its id: a forked child has none. Their files must not be opened here a second time:
closing any descriptor of a file takes this process's lock off it.
"""


class StateDirectory:
    """The directory with the recorders of this host, or of this container."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def open(cls, configured: str | None) -> StateDirectory:
        """The configured one, or one of our own in the temporary folder, which is made if it is missing. Raises OSError
        if it cannot be used.
        """
        if configured is not None:
            path = Path(configured)
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        else:
            path = default_directory()
            with suppress(FileExistsError):
                path.mkdir(mode=0o700)
            found = path.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
                raise PermissionError(f"{path} is not a directory that only this user can read and write")
        if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
            raise PermissionError(f"{path} cannot be written to")
        return cls(path)

    def create(self, token: str, size: int) -> tuple[int, mmap.mmap]:
        """A new file, locked and mapped. It has all its blocks: a write to a mapped page for which there is no room
        would end the process. Raises OSError.
        """
        path = self.path / f"{token}{SUFFIX}"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX)  # the sweep of another process may have it for a moment
            left = size
            while left > 0:
                left -= os.write(fd, bytes(min(left, 1 << 20)))
            return fd, mmap.mmap(fd, size)
        except OSError:
            os.close(fd)
            path.unlink(missing_ok=True)
            raise

    def find(self, token: str) -> Content:
        """Implements `Archive`."""
        if _own.get(token) == os.getpid():
            return "alive"
        try:
            fd = os.open(self.path / f"{token}{SUFFIX}", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return None
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_FILE_BYTES:
                return None
            if _is_locked(fd):
                return "alive"
            with os.fdopen(os.dup(fd), "rb") as file:
                return file.read(MAX_FILE_BYTES)
        except OSError:
            return None
        finally:
            os.close(fd)

    def tokens(self) -> list[str]:
        """Implements `Archive`."""
        try:
            return sorted(path.name.removesuffix(SUFFIX) for path in self.path.glob(f"*{SUFFIX}"))
        except OSError:
            return []

    def remove(self, token: str) -> None:
        with suppress(OSError):
            (self.path / f"{token}{SUFFIX}").unlink()

    def sweep(self, now: float) -> int:
        """Remove the files of the dead that are too old or too many; returns how many."""
        dead: list[tuple[float, float, str]] = []
        for path in self.path.glob(f"*{SUFFIX}"):
            token = path.name.removesuffix(SUFFIX)
            if not TOKEN.fullmatch(token) or _own.get(token) == os.getpid():
                continue
            with suppress(OSError):
                fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
                try:
                    if not _is_locked(fd):
                        changed = os.fstat(fd).st_mtime  # before the note, which moves it
                        dead.append((_found_dead(fd, now), changed, token))
                finally:
                    os.close(fd)
        dead.sort(reverse=True)
        over = [token for at, (found, _, token) in enumerate(dead) if at >= MAX_KEPT or now - found > KEPT_S]
        for token in over:
            self.remove(token)
        return len(over)


def default_directory() -> Path:
    """In the temporary folder, one for each user. Raises OSError if there is no such folder."""
    return Path(tempfile.gettempdir()) / f"keepfast-{os.geteuid()}"


def _is_locked(fd: int) -> bool:
    """Whether another process holds the file. Asked with a shared lock, so that two who ask do not see each other."""
    try:
        fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except PermissionError:  # what some systems say instead
        return True
    return False


def _found_dead(fd: int, now: float) -> float:
    """When a sweep first found the file without its process, which is noted in it. The time of its last change says
    less: on some file systems, stores into a mapped page do not move it.
    """
    at = _FOUND_DEAD * WORD
    noted = os.pread(fd, WORD, at)
    if len(noted) < WORD:  # its process died while it made the file
        return os.fstat(fd).st_mtime
    found = int.from_bytes(noted, sys.byteorder, signed=True)
    if found == 0:
        found = int(now)
        os.pwrite(fd, found.to_bytes(WORD, sys.byteorder, signed=True), at)
    return found


class RecorderFile(FlightRecorder):
    """The flight recorder of this process, in its file. `leave` before an end on purpose; `close` at the end."""

    def __init__(self, directory: StateDirectory, *, slots: int, lists: int = 0) -> None:
        """Raises OSError."""
        token = secrets.token_hex(8)
        slots, lists = min(slots, MAX_SLOTS), min(lists, MAX_LISTS)
        _own[token] = os.getpid()
        try:
            self._fd, memory = directory.create(token, size_of(slots=slots, lists=lists))
        except OSError:
            del _own[token]
            raise
        super().__init__(token, memory, directory, slots=slots, lists=lists)
        self._directory = directory

    def leaving(self, leave: Callable[[int], None]) -> Callable[[int], None]:
        """As `leave`, which ends the process on purpose; noted before."""

        def noted(code: int) -> None:
            self.leave()
            leave(code)

        return noted

    def end(self, endings: Sequence[Ending | None]) -> None:
        """All consumers have ended. A clean end removes the file; one with work left, or whose last commits may not say
        that it ended, says that it was on purpose.

        A loop that failed by an error of its own left its lease behind as a death does, and what its workers had in
        hand is finished by now: without the file, everything below the lease counts, as without a recorder.
        """
        clean = all(one is not None and one.complete and not one.unconfirmed for one in endings)
        crashed = any(one is None or one.crashed for one in endings)
        self.leave()
        self.close(remove=clean or crashed)

    def close(self, *, remove: bool) -> None:
        """The file stays mapped: workers that cannot be stopped may still write to it."""
        if remove:
            self._directory.remove(self.token)
        os.close(self._fd)
        _own.pop(self.token, None)


def open_recorder(configured: str | None, *, slots: int, lists: int = 0) -> RecorderFile | None:
    """The recorder of this process; None, and a line in the log, if the state directory cannot be used."""
    try:
        directory = StateDirectory.open(configured)
        recorder = RecorderFile(directory, slots=slots + SPARE_SLOTS, lists=lists + SPARE_LISTS if lists else 0)
    except OSError as error:
        log.warning(
            "flight_recorder_off",
            why=f"{type(error).__name__}: {error}",
            consequence="after a crash, more records than were in flight may run one by one",
            what_to_do="set KEEPFAST_STATE_DIR to a directory that this user can write to and that outlives a restart",
        )
        return None
    directory.sweep(time.time())
    return recorder

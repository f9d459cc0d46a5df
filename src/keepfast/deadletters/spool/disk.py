"""File operations of the spool: a port, so that the simulator can use a disk with torn writes, lost writes and no
space.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import Protocol

FILE_MODE, FOLDER_MODE = 0o600, 0o700
CHUNK_BYTES = 1 << 20


class AppendFile(Protocol):
    """A file open for appending. Raises OSError."""

    def write(self, data: bytes) -> None:
        """Write all of it, or raise; then part of it may be written."""

    def sync(self) -> None:
        """When this returns, all that was written survives a crash. After it has raised once, the state is unknown."""

    def truncate(self, size: int) -> None: ...
    def close(self) -> None: ...


class Lock(Protocol):
    def release(self) -> None: ...


class Disk(Protocol):
    """Paths are texts. Everything blocks, and raises OSError."""

    def make_folder(self, folder: str) -> None:
        """Create it with missing parents, durably."""

    def names(self, folder: str) -> list[str]: ...

    def size(self, path: str) -> int: ...

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes: ...

    def append(self, path: str, *, new: bool = False) -> AppendFile:
        """Open for appending, created if missing; `new`: it must not exist. Only the owner may read it."""
        ...

    def renew(self, path: str) -> None:
        """Write the file's contents once more in place, and sync. After a failed sync of another process, the page
        cache may have bytes that the disk lacks, and the next sync may succeed without writing them.
        """

    def sync_folder(self, folder: str) -> None:
        """When this returns, files created, renamed or removed in it survive a crash as such."""

    def remove(self, path: str) -> None: ...

    def rename(self, path: str, other: str) -> None: ...

    def lock(self, path: str) -> Lock | None:
        """Held until released or until the process ends in any way; None: another process holds it."""
        ...


class RealAppendFile:
    """Implements `AppendFile`."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._descriptor, view) :]

    def sync(self) -> None:
        os.fsync(self._descriptor)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def close(self) -> None:
        os.close(self._descriptor)


class RealLock:
    """Implements `Lock`; released when the process ends in any way."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        os.close(self._descriptor)


class RealDisk:
    """Implements `Disk`."""

    def make_folder(self, folder: str) -> None:
        path = Path(folder)
        missing = []
        while not path.exists():
            missing.append(path)
            path = path.parent
        for one in reversed(missing):
            one.mkdir(mode=FOLDER_MODE, exist_ok=True)
            self.sync_folder(str(one.parent))

    def names(self, folder: str) -> list[str]:
        return sorted(path.name for path in Path(folder).iterdir())

    def size(self, path: str) -> int:
        return Path(path).stat().st_size

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        with Path(path).open("rb") as file:
            file.seek(offset)
            return file.read(-1 if length is None else length)

    def append(self, path: str, *, new: bool = False) -> RealAppendFile:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        return RealAppendFile(os.open(path, flags | (os.O_EXCL if new else 0), FILE_MODE))

    def renew(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            at = 0
            while data := os.pread(descriptor, CHUNK_BYTES, at):
                at += os.pwrite(descriptor, data, at)  # the same bytes at the same place: nothing can be torn by it
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def sync_folder(self, folder: str) -> None:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def remove(self, path: str) -> None:
        Path(path).unlink(missing_ok=True)

    def rename(self, path: str, other: str) -> None:
        Path(path).rename(other)

    def lock(self, path: str) -> RealLock | None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError:
            os.close(descriptor)
            raise
        with contextlib.suppress(OSError):  # the disk may be full; it is for information only
            os.ftruncate(descriptor, 0)
            os.write(descriptor, str(os.getpid()).encode())
        return RealLock(descriptor)


PASSING = ("tmpfs", "ramfs", "devtmpfs", "overlay", "aufs", "squashfs")
"""File systems that do not survive the container or the machine."""


def file_system_of(path: Path, mounts: str | None = None) -> str:
    """The kind of file system that this path lies on, as the kernel names it; empty if unknown."""
    try:
        text = Path("/proc/self/mountinfo").read_text() if mounts is None else mounts
    except OSError:
        return ""
    best, found = -1, ""
    for line in text.splitlines():
        fields = line.split()
        if "-" not in fields or len(fields) < 5:
            continue
        point = fields[4].encode().decode("unicode_escape")  # a space in it is written \040
        kind = fields[fields.index("-") + 1]
        if len(point) >= best and (path == Path(point) or path.is_relative_to(point)):
            best, found = len(point), kind
    return found

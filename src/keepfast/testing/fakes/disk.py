"""A simulated disk: unsynced data may be lost, torn or zeroed after a power failure; writes and syncs may fail."""

from __future__ import annotations

import errno
from collections.abc import Callable
from enum import StrEnum
from random import Random

from keepfast.testing.fakes.clock import SimClock
from keepfast.testing.fakes.faults import Switch
from keepfast.testing.fakes.process import Process, ProcessDied
from keepfast.testing.fakes.trace import Trace


class DiskFault(StrEnum):
    """Faults of a disk."""

    FULL = "disk_full"
    """Part of a write succeeds, then the disk is full."""
    SYNC = "disk_sync_failed"
    """The sync fails and its data is lost, although a later sync succeeds."""


class _File:
    def __init__(self) -> None:
        self.data = bytearray()
        self.synced = 0
        self.doomed: list[tuple[int, int]] = []  # data lost by a failed sync

    def after_a_cut(self, rng: Random) -> None:
        size, end = len(self.data), rng.choice((self.synced, len(self.data), rng.randint(self.synced, len(self.data))))
        del self.data[end:]
        if rng.random() < 0.3:
            self.data += bytes(size - end)
        for start, stop in self.doomed:
            end = min(stop, len(self.data))
            self.data[start:end] = bytes(max(0, end - start))
        self.synced, self.doomed = len(self.data), []


class FakeDisk:
    """One disk for all processes of a world: one machine. See `of` for what a process gets."""

    def __init__(self, clock: SimClock, rng: Random, trace: Trace) -> None:
        self.rng = rng
        self.faults: Switch[DiskFault] = Switch(clock, trace)
        self.files: dict[str, _File] = {}
        self.folders: set[str] = set()
        self._durable: dict[str, _File] = {}  # names that survive a cut
        self._locks: dict[str, Process] = {}
        self._left: int | None = None
        self._end: Callable[[Process], None] | None = None
        self._writes = False

    def of(self, process: Process) -> ProcessDisk:
        return ProcessDisk(self, process)

    def arm(self, operations: int, end: Callable[[Process], None], *, writes: bool = False) -> None:
        """`end` is called in the middle of an operation: after this many more operations (`writes`: only these count).

        It kills the process that performs the operation.
        """
        self._left, self._end, self._writes = operations, end, writes

    def disarm(self) -> None:
        self._left = self._end = None

    def power_cut(self) -> None:
        """Unsynced data may be lost: ends of files, new files, removals. No process may be using it."""
        for name in sorted({*self.files, *self._durable}):
            now, then = self.files.get(name), self._durable.get(name)
            kept = now if now is then or self.rng.random() < 0.5 else then
            if kept is None:
                self.files.pop(name, None)
            else:
                kept.after_a_cut(self.rng)
                self.files[name] = kept
        self._durable = dict(self.files)
        self._locks.clear()

    def holds(self, data: bytes) -> bool:
        """Whether these bytes lie in any file."""
        return any(data in file.data for file in self.files.values())

    def operate(self, process: Process, *, write: bool = False) -> None:
        """One operation of a process, which may be its last one."""
        if not process.alive:
            raise ProcessDied(process.name)
        if self._left is not None and (write or not self._writes):
            self._left -= 1
            if self._left < 0 and self._end is not None:
                end = self._end
                self.disarm()
                end(process)
                raise ProcessDied(process.name)

    def sync_names(self, folder: str) -> None:
        for name in [name for name in {*self.files, *self._durable} if name.rpartition("/")[0] == folder]:
            if name in self.files:
                self._durable[name] = self.files[name]
            else:
                self._durable.pop(name, None)

    def rename(self, path: str, other: str) -> None:
        self.files[other] = self._durable[other] = self.files.pop(path)
        self._durable.pop(path, None)

    def take_lock(self, path: str, process: Process) -> bool:
        holder = self._locks.get(path)
        if holder is not None and holder.alive and holder is not process:
            return False
        self._locks[path] = process
        return True

    def drop_lock(self, path: str, process: Process) -> None:
        if self._locks.get(path) is process:
            del self._locks[path]


class _AppendFile:
    def __init__(self, disk: FakeDisk, file: _File, process: Process, *, calm: bool) -> None:
        self._disk = disk
        self._file = file
        self._process = process
        self._calm = calm

    def write(self, data: bytes) -> None:
        fault = None if self._calm else self._disk.faults.take(only=DiskFault.FULL)
        if fault is not None:
            self._file.data += data[: self._disk.rng.randrange(len(data) + 1)]
            raise OSError(errno.ENOSPC, "No space left on device")
        self._file.data += data
        self._disk.operate(self._process, write=True)  # after it: the end may come between a write and its sync

    def sync(self) -> None:
        self._disk.operate(self._process)
        file = self._file
        if not self._calm and self._disk.faults.take(only=DiskFault.SYNC) is not None:
            file.doomed.append((file.synced, len(file.data)))
            raise OSError(errno.EIO, "Input/output error")
        file.synced = len(file.data)

    def truncate(self, size: int) -> None:
        self._disk.operate(self._process)
        del self._file.data[size:]
        self._file.synced = min(self._file.synced, size)
        self._file.doomed = [(start, min(stop, size)) for start, stop in self._file.doomed if start < size]

    def close(self) -> None: ...


class _Lock:
    def __init__(self, disk: FakeDisk, path: str, process: Process) -> None:
        self._disk = disk
        self._path = path
        self._process = process

    def release(self) -> None:
        self._disk.drop_lock(self._path, self._process)


class ProcessDisk:
    """Implements `deadletters.spool.disk.Disk` for one process. `calm`: no injected faults."""

    def __init__(self, disk: FakeDisk, process: Process) -> None:
        self._disk = disk
        self._process = process
        self.calm = False

    def make_folder(self, folder: str) -> None:
        self._disk.folders.add(folder)

    def names(self, folder: str) -> list[str]:
        inside = {
            name.removeprefix(f"{folder}/").partition("/")[0] for name in self._disk.files if self._in(name, folder)
        }
        below = {
            name.removeprefix(f"{folder}/").partition("/")[0] for name in self._disk.folders if self._in(name, folder)
        }
        return sorted(inside | below)

    def size(self, path: str) -> int:
        return len(self._file(path).data)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        self._disk.operate(self._process)
        data = self._file(path).data
        return bytes(data[offset:] if length is None else data[offset : offset + length])

    def append(self, path: str, *, new: bool = False) -> _AppendFile:
        self._disk.operate(self._process)
        if new and path in self._disk.files:
            raise FileExistsError(errno.EEXIST, "File exists", path)
        file = self._disk.files.setdefault(path, _File())
        return _AppendFile(self._disk, file, self._process, calm=self.calm)

    def renew(self, path: str) -> None:
        self._disk.operate(self._process)
        file = self._file(path)
        if not self.calm and self._disk.faults.take(only=DiskFault.SYNC) is not None:
            file.doomed.append((file.synced, len(file.data)))  # the same bytes again: what the disk has, it keeps
            raise OSError(errno.EIO, "Input/output error")
        file.synced, file.doomed = len(file.data), []

    def sync_folder(self, folder: str) -> None:
        self._disk.operate(self._process)
        self._disk.sync_names(folder)

    def remove(self, path: str) -> None:
        self._disk.operate(self._process)
        self._disk.files.pop(path, None)

    def rename(self, path: str, other: str) -> None:
        self._disk.operate(self._process)
        self._file(path)
        self._disk.rename(path, other)

    def lock(self, path: str) -> _Lock | None:
        if not self._disk.take_lock(path, self._process):
            return None
        return _Lock(self._disk, path, self._process)

    @staticmethod
    def _in(name: str, folder: str) -> bool:
        return name.startswith(f"{folder}/")

    def _file(self, path: str) -> _File:
        if path not in self._disk.files:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return self._disk.files[path]

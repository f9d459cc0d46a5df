"""A spool on disk: rights, locks, crashes in the middle of a write, damage, and disks that fail."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from keepfast.core.errors import SpoolError
from keepfast.deadletters.spool.disk import AppendFile, RealAppendFile, RealDisk, file_system_of
from keepfast.deadletters.spool.files import FileStore
from keepfast.deadletters.spool.frames import HEAD_BYTES
from keepfast.deadletters.spool.store import Head
from tests.deadletters.spool.letters import letter
from tests.support.waiting import DEADLINE_S


def everything(head: Head) -> bool:
    return True


def opened(folder: Path, **options: object) -> FileStore:
    store = FileStore(str(folder), **({"max_bytes": 10**9} | options))  # type: ignore[arg-type]
    store.open()
    return store


def kept(store: FileStore) -> list[int]:
    """The letters that are there, by their numbers."""
    return [store.read(head).at_ms - 1_000 for head in store.heads(10_000, everything)]


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("part-*/*.letters"))


def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "spool"
    before = os.umask(0)
    try:
        store = opened(folder)
        store.add([letter(1), letter(2)])
        store.remove(store.heads(1, everything))
    finally:
        os.umask(before)
    files = [path for path in folder.rglob("*") if path.is_file()]
    folders = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
    assert len(files) == 3, "letters, what is gone of them, the lock"
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) for path in folders} == {0o700}


def test_each_process_writes_to_a_part_of_its_own(tmp_path: Path) -> None:
    first, second = opened(tmp_path), opened(tmp_path)
    first.add([letter(1)])
    second.add([letter(2)])
    assert (kept(first), kept(second)) == ([1], [2])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["part-0000", "part-0001"]
    first.close()
    third = opened(tmp_path)
    assert kept(third) == [1], "a part that nobody holds is taken over"


def test_what_a_former_process_wrote_is_written_once_more_before_it_counts(tmp_path: Path) -> None:
    """Its last sync may have failed: then the machine shows bytes that the disk does not have, and syncs no more."""

    class Watched(RealDisk):
        def renew(self, path: str) -> None:
            renewed.append((Path(path), Path(path).read_bytes()))
            super().renew(path)

    renewed: list[tuple[Path, bytes]] = []
    first = opened(tmp_path, segment_bytes=1)
    first.add([letter(1)])
    first.add([letter(2)])
    first.close()
    second = opened(tmp_path, disk=Watched())
    assert [path for path, _ in renewed] == segments(tmp_path)
    assert [data for _, data in renewed] == [path.read_bytes() for path in segments(tmp_path)]
    assert kept(second) == [1, 2]


def test_letters_of_processes_that_have_ended_are_found_after_a_while(tmp_path: Path) -> None:
    first, second, third = (opened(tmp_path) for _ in range(3))
    for number, store in enumerate((first, second, third)):
        store.add([letter(number)])
    second.close()
    first.lead(0.0)
    assert kept(first) == [0], "not at once: whoever starts again may want its part"
    first.lead(20.0)
    assert kept(first) == [0, 1], "what is held by another stays with it"
    third.close()
    first.lead(60.0)
    assert kept(first) == [0, 1, 2]
    first.remove(first.heads(10, lambda head: head.at_ms != 1_000))
    assert kept(first) == [0]
    again = opened(tmp_path)
    assert again.heads(10, everything) == [], "an emptied part is let go"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["part-0000", "part-0001", "part-0002"]


def test_a_torn_end_is_ignored_and_the_rest_is_kept(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.add([letter(1)])
    store.add([letter(2)])
    store.close()
    (segment,) = segments(tmp_path)
    data = segment.read_bytes()
    for cut in (1, 10, 100, 200):
        segment.write_bytes(data[:-cut])
        store = opened(tmp_path)
        assert kept(store) == [1]
        assert store.fill().damaged == ()
        store.add([letter(3)])
        assert kept(store) == [1, 3]
        store.remove(store.heads(10, lambda head: head.at_ms == 1_003))
        store.close()


def test_damage_in_the_middle_is_reported_and_the_letters_around_it_are_kept(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.add([letter(number) for number in range(5)])
    store.close()
    (segment,) = segments(tmp_path)
    data = bytearray(segment.read_bytes())
    size = (len(data) - 17) // 5
    data[17 + 2 * size + HEAD_BYTES + 40] ^= 0xFF
    segment.write_bytes(data)

    store = opened(tmp_path)
    assert kept(store) == [0, 1, 3, 4]
    (damaged,) = store.fill().damaged
    assert segment.name in damaged
    store.remove(store.heads(10, everything))
    store.close()
    assert segments(tmp_path) == []
    (aside,) = tmp_path.glob("part-0000/*.damaged")
    assert aside.read_bytes() == bytes(data), "what could not be read is kept for people"
    store = opened(tmp_path)
    assert len(store.fill().damaged) == 1, "and still told after a restart"
    assert kept(store) == []


def test_a_letter_that_was_damaged_under_a_running_process_is_refused(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.add([letter(1)])
    (segment,) = segments(tmp_path)
    with segment.open("r+b") as file:
        file.seek(100)
        file.write(b"\0\0\0\0")
    (head,) = store.heads(10, everything)
    with pytest.raises(SpoolError, match="damaged"):
        store.read(head)


def test_what_is_gone_stays_gone_after_a_crash(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.add([letter(number) for number in range(4)])
    store.remove(store.heads(10, lambda head: head.at_ms in (1_000, 1_002)))
    store._own._lock.release()  # type: ignore[union-attr] # as if the process had died
    store = opened(tmp_path)
    assert kept(store) == [1, 3]
    store.remove(store.heads(10, everything))
    assert [path.name for path in tmp_path.glob("part-0000/*")] == ["lock"], "nothing is left behind"


def test_segments_are_of_limited_size_and_go_one_by_one(tmp_path: Path) -> None:
    store = opened(tmp_path, segment_bytes=2_000)
    for number in range(10):
        store.add([letter(number, size=700)])
    assert 3 <= len(segments(tmp_path)) <= 10
    heads = store.heads(10, everything)
    before = store.fill().held_bytes
    store.remove(heads[:8])
    assert len(segments(tmp_path)) <= 2
    assert store.fill().held_bytes < before / 2
    assert kept(store) == [8, 9]


class FailingPen(RealAppendFile):
    def __init__(self, file: RealAppendFile, disk: FailingDisk) -> None:
        super().__init__(file._descriptor)
        self._disk = disk

    def write(self, data: bytes) -> None:
        if self._disk.fail == "write":
            super().write(data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write(data)

    def sync(self) -> None:
        if self._disk.fail == "sync":
            raise OSError(errno.EIO, "Input/output error")
        super().sync()


class FailingDisk(RealDisk):
    """Fails where `fail` says."""

    def __init__(self) -> None:
        self.fail = ""

    def append(self, path: str, *, new: bool = False) -> RealAppendFile:
        if self.fail == "create":
            raise OSError(errno.EROFS, "Read-only file system")
        return FailingPen(super().append(path, new=new), self)

    def sync_folder(self, folder: str) -> None:
        if self.fail == "folder":
            raise OSError(errno.EIO, "Input/output error")
        super().sync_folder(folder)


@pytest.mark.parametrize("fail", ["write", "sync", "create", "folder"])
@pytest.mark.parametrize("before", [0, 2])
def test_a_letter_that_the_disk_did_not_take_does_not_count_and_later_ones_do(
    tmp_path: Path, fail: str, before: int
) -> None:
    disk = FailingDisk()
    store = opened(tmp_path, disk=disk)
    for number in range(before):
        store.add([letter(number)])
    if fail in ("create", "folder"):
        store._own._segment_bytes = 1  # type: ignore[union-attr] # so that the next letter needs a new file
    disk.fail = fail
    with pytest.raises(SpoolError) as refused:
        store.add([letter(7)])
    assert refused.value.full == (fail == "write")
    assert letter(7).identity not in store.identities()
    assert kept(store) == list(range(before))
    disk.fail = ""
    store.add([letter(8)])
    expected = [*range(before), 8]
    assert kept(store) == expected
    store.close()
    assert kept(opened(tmp_path)) == expected, "and nothing of it comes up after a restart"


def test_after_a_failed_sync_nothing_more_is_written_to_that_file(tmp_path: Path) -> None:
    disk = FailingDisk()
    store = opened(tmp_path, disk=disk)
    store.add([letter(1)])
    (first,) = segments(tmp_path)
    disk.fail = "sync"
    with pytest.raises(SpoolError):
        store.add([letter(2)])
    disk.fail = ""
    size = first.stat().st_size
    store.add([letter(2)])
    assert len(segments(tmp_path)) == 2
    assert first.stat().st_size == size


@pytest.mark.parametrize("fail", ["write", "sync"])
def test_a_removal_that_the_disk_did_not_take_is_made_up_for(tmp_path: Path, fail: str) -> None:
    disk = FailingDisk()
    store = opened(tmp_path, disk=disk)
    store.add([letter(1), letter(2)])
    heads = store.heads(1, everything)
    disk.fail = fail
    with pytest.raises(SpoolError):
        store.remove(heads)
    disk.fail = ""
    store.remove(heads)
    assert kept(store) == [2]
    store.close()
    assert kept(opened(tmp_path)) == [2]


def test_on_a_full_disk_files_of_which_nothing_is_left_go_first(tmp_path: Path) -> None:
    disk = FailingDisk()
    store = opened(tmp_path, disk=disk, segment_bytes=2_000)
    for number in range(4):
        store.add([letter(number, size=400)])
    first, *others = store.heads(10, everything)
    assert len(segments(tmp_path)) == 2
    disk.fail = "write"
    with pytest.raises(SpoolError):
        store.remove(others)
    assert kept(store) == [0, 1]
    assert len(segments(tmp_path)) == 1
    assert letter(3).identity not in store.identities()
    assert store.add([letter(1, size=400)]) == []
    disk.fail = ""
    store.remove([first, *others])
    assert kept(store) == []


def test_a_folder_that_cannot_be_written_to_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SpoolError, match="could not open it"):
        opened(tmp_path / "file" / "spool")


WRITER = """
import sys
from keepfast.deadletters.spool.files import FileStore
from tests.deadletters.spool.letters import letter
store = FileStore(sys.argv[1], max_bytes=10**9, segment_bytes=20_000)
store.open()
number = 0
while True:
    number += 1
    store.add([letter(number, size=number * 37 % 3_000)])
    sys.stdout.write(f"{number}\\n")
    sys.stdout.flush()
    if number % 5 == 0:
        store.remove(store.heads(2, lambda head: head.at_ms % 2 == 0))
"""


def test_everything_acknowledged_is_there_after_kill_9(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    for turn in range(3):
        child = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path / str(turn))],
            stdout=subprocess.PIPE,
            text=True,
            cwd=root,
            env={**os.environ, "PYTHONPATH": f"{root / 'src'}:{root}"},
        )
        assert child.stdout is not None
        for line in child.stdout:
            if int(line) >= 60 + turn * 7:
                child.send_signal(signal.SIGKILL)
                break
        acknowledged = max(60 + turn * 7, *(int(line) for line in child.stdout.read().split()), 0)
        child.wait(DEADLINE_S)
        child.stdout.close()
        found = kept(opened(tmp_path / str(turn)))
        missing = set(range(1, acknowledged + 1)) - set(found)
        assert {number for number in missing if number % 2} == set(), "odd ones were never removed"
        assert set(found) <= set(range(1, acknowledged + 2))


def test_two_threads_race_for_a_part_and_one_gets_it(tmp_path: Path) -> None:
    barrier, stores = threading.Barrier(6), list[FileStore]()

    def take() -> None:
        barrier.wait()
        stores.append(opened(tmp_path))

    threads = [threading.Thread(target=take) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({store._own.folder for store in stores if store._own}) == 6


MOUNTS = r"""
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:26 / /dev/shm rw - tmpfs tmpfs rw
31 22 0:27 / /var/my\040spool rw - overlay overlay rw
32 31 0:28 / /var/my\040spool/kept rw shared:1 - xfs /dev/vdb rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib", "ext4"),
        ("/dev/shm/x", "tmpfs"),
        ("/dev/shmother", "ext4"),
        ("/var/my spool/a", "overlay"),
        ("/var/my spool/kept/a", "xfs"),
    ],
)
def test_the_file_system_of_a_folder_is_found(path: str, kind: str) -> None:
    assert file_system_of(Path(path), MOUNTS) == kind


def _is_a_pen(file: RealAppendFile) -> AppendFile:
    return file

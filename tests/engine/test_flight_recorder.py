"""Records in flight, noted so that the next owner can read them after a crash; and files of other programs."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast.core.batches import Batch
from keepfast.core.crash_guard import NOT_DEAD, UNKNOWN, CrashWatch, Fate, Guard
from keepfast.core.lanes import KeyLanes
from keepfast.core.records import TopicPartition
from keepfast.core.runs import Partition, Run, SelectedRecords
from keepfast.engine import flight_recorder
from keepfast.engine.calls import AsyncBatchCall, BatchCall
from keepfast.engine.flight_recorder import (
    KEPT_S,
    LEFT,
    MAX_KEPT,
    PLACES,
    SHORT_RUN,
    SPARE_LISTS,
    FlightRecorder,
    RecorderFile,
    StateDirectory,
    open_recorder,
    read_in_hand,
    read_state,
    size_of,
)
from keepfast.engine.mailbox import Ending
from keepfast.telemetry.metrics import Tally
from tests.support.messages import message as keyed_message

PLACE, OTHER = TopicPartition("orders", 3), TopicPartition("orders", 4)
TOKEN = "0123456789abcdef"
WITHIN = 1 << 62


class Shelf:
    """Recorders that have ended, by token."""

    def __init__(self) -> None:
        self.contents: dict[str, Any] = {}

    def find(self, token: str) -> Any:
        return self.contents.get(token)

    def tokens(self) -> list[str]:
        return list(self.contents)


class Noted:
    """A recorder in memory, and what somebody else would read of it after its death."""

    def __init__(self, *, slots: int = 4, lists: int = 2) -> None:
        self.memory = bytearray(size_of(slots=slots, lists=lists))
        self.shelf = Shelf()
        self.recorder = FlightRecorder(TOKEN, self.memory, self.shelf, slots=slots, lists=lists)

    def partition(self, place: TopicPartition = PLACE, *, marked: bool = False, topic_id: str = "one") -> Partition:
        partition = Partition(place, epoch=1, start=0)
        partition.watch = CrashWatch(Guard(mark=50 if marked else None), lambda: None)
        partition.flight = self.recorder.place("group", place, topic_id, 1)
        return partition

    def fate(self, place: TopicPartition = PLACE, *, group: str = "group", topic_id: str = "one") -> Fate:
        heir = FlightRecorder("f" * 16, bytearray(size_of(slots=1)), self.shelf, slots=1)
        self.shelf.contents[TOKEN] = bytes(self.memory)
        return heir.fate(TOKEN, group, place, topic_id)


def message(offset: int) -> Any:
    return SimpleNamespace(offset=lambda: offset)


def run_of(partition: Partition, *offsets: int) -> Run:
    return Run(partition, [message(offset) for offset in offsets], range(len(offsets)), {})


def nothing(*_: object) -> None: ...


def test_a_short_run_is_noted_record_by_record_and_its_end_as_well() -> None:
    noted = Noted()
    slot, run = noted.recorder.slot(), run_of(noted.partition(), 7, 9)
    assert noted.fate().in_hand == ()
    call = slot.begin(run, nothing)
    assert noted.fate().in_hand == ((7, 8),)
    call(run.messages[1], run)
    assert noted.fate().in_hand == ((9, 10),)
    slot.end()
    assert noted.fate() == Fate(dead=True, in_hand=())


def test_deaths_are_found_without_a_commit_that_names_them() -> None:
    """As a queue needs them, whose runs are noted record by record however long they are."""
    noted = Noted()
    partition = Partition(PLACE, epoch=1, start=0)
    partition.flight = noted.recorder.place("group", PLACE, "one", 1)
    run = run_of(partition, *range(20, 20 + SHORT_RUN))
    noted.recorder.slot().begin(run, nothing)(run.messages[3], run)
    noted.shelf.contents = {TOKEN: bytes(noted.memory), "a" * 16: "alive", "b" * 16: b"no file of ours"}
    heir = FlightRecorder("f" * 16, bytearray(size_of(slots=1)), noted.shelf, slots=1)
    assert heir.deaths("group", PLACE.topic, "one") == [{PLACE.partition: ((23, 24),)}]
    assert heir.deaths("group", PLACE.topic, "another") == heir.deaths("other", PLACE.topic, "one") == []


def test_a_long_run_is_noted_once_unless_a_death_has_left_a_mark() -> None:
    noted = Noted()
    slot = noted.recorder.slot()
    slot.begin(run_of(noted.partition(), *range(20, 20 + SHORT_RUN)), nothing)
    assert noted.fate().in_hand == ((20, WITHIN),), "it may grow"
    slot.end()
    run = run_of(noted.partition(marked=True), *range(20, 20 + SHORT_RUN))
    slot.begin(run, nothing)(run.messages[3], run)
    assert noted.fate().in_hand == ((23, 24),)


def test_a_bundle_of_keys_is_noted_from_its_lowest_offset_on() -> None:
    """What waited for its key is bundled lane after lane, so the first record need not have the lowest offset."""
    noted, lanes = Noted(), KeyLanes(keyed=True)
    partition = noted.partition()
    partition.lease_until(WITHIN, WITHIN)
    keys = [b"a", b"b"] * SHORT_RUN
    partition.feed([keyed_message(offset, key, place=PLACE) for offset, key in enumerate(keys)])
    lanes.ready(partition)
    a, b = lanes.take(2, 1)
    while lanes.take(1, 1):
        pass  # the others wait for their keys
    for run in (b, a):
        run.done = 1
        partition.finish(run)
        lanes.release(run)
    [bundle] = lanes.take(4, 64)
    assert [message.offset() for message in bundle.messages] == [*range(3, len(keys), 2), *range(2, len(keys), 2)]
    noted.recorder.slot().begin(bundle, nothing)
    assert noted.fate().in_hand == ((2, WITHIN),)


def test_a_run_whose_records_were_all_taken_back_has_nothing_in_hand() -> None:
    noted = Noted()
    assert noted.recorder.slot().begin(run_of(noted.partition()), nothing) is nothing
    assert noted.fate().in_hand == ()


@pytest.mark.parametrize("marked", [True, False])
def test_a_batch_is_noted_whole_over_its_partitions(marked: bool) -> None:
    noted = Noted()
    batch = Batch([run_of(noted.partition(marked=marked), 1, 5), run_of(noted.partition(OTHER, marked=marked), 8)])
    batch.muster(0.0)
    slot = noted.recorder.slot()
    slot.begin_batch(batch)
    assert noted.fate().in_hand == (((1, 2), (5, 6)) if marked else ((1, 6),))
    assert noted.fate(OTHER).in_hand == ((8, 9),)
    slot.end()
    assert noted.fate(OTHER).in_hand == ()


@pytest.mark.parametrize("threads", [True, False])
def test_what_a_batch_handler_does_not_get_is_in_hand_only_while_it_is_decoded(threads: bool) -> None:
    noted, seen = Noted(), []
    batch = Batch([run_of(noted.partition(marked=True), 1, 2, 3), run_of(noted.partition(OTHER, marked=True), 8)])
    batch.muster(0.0)

    def decode(one: Any) -> int:
        seen.append(noted.fate().in_hand)
        if one.offset() == 2:
            raise ValueError("not for this handler")
        return int(one.offset())

    def handle(selection: SelectedRecords, _: Run) -> None:
        seen.append(noted.fate().in_hand)
        assert selection.value() == [1, 3, 8]
        assert noted.fate(OTHER).in_hand == ((8, 9),)

    async def handle_async(selection: SelectedRecords, run: Run) -> None:
        handle(selection, run)

    slot = noted.recorder.slot()
    if threads:
        BatchCall(handle, decode, lambda _: None).walk(batch, Tally(), lambda: 0.0, slot)
    else:
        call = AsyncBatchCall(handle_async, decode, lambda _: None)
        asyncio.run(call.walk(batch, Tally(), lambda: 0.0, slot))
    assert batch.failure is None
    assert set(seen[:-1]) == {((1, 4),)}
    assert seen[-1] == ((1, 2), (3, 4))
    assert noted.fate().in_hand == ()


def test_only_the_same_group_topic_and_partition_are_meant() -> None:
    noted = Noted()
    noted.recorder.slot().begin(run_of(noted.partition(), 7), nothing)
    assert noted.fate(OTHER).in_hand == ()
    assert noted.fate(group="another").in_hand == ()
    assert noted.fate(topic_id="two").in_hand == (), "a topic recreated"
    unknown = Noted()
    unknown.recorder.slot().begin(run_of(unknown.partition(topic_id=""), 7), nothing)
    assert unknown.fate().in_hand == ((7, 8),), "the dead one had not learned the id"


def test_several_workers_have_several_records_in_hand() -> None:
    noted = Noted()
    for offset in (3, 9):
        noted.recorder.slot().begin(run_of(noted.partition(), offset), nothing)
    assert noted.fate().in_hand == ((3, 4), (9, 10))


def test_who_left_on_purpose_has_not_died() -> None:
    noted = Noted()
    noted.recorder.slot().begin(run_of(noted.partition(), 7), nothing)
    noted.recorder.leave()
    assert noted.fate() == NOT_DEAD


def test_with_more_workers_or_batches_than_fit_nothing_is_claimed() -> None:
    noted = Noted(slots=1)
    noted.recorder.slot()
    noted.recorder.slot().begin(run_of(noted.partition(), 7), nothing)
    assert noted.fate() == UNKNOWN
    lists = Noted(lists=0)
    batch = Batch([run_of(lists.partition(), 1), run_of(lists.partition(OTHER), 8)])
    batch.muster(0.0)
    lists.recorder.slot().begin_batch(batch)
    assert lists.fate() == UNKNOWN


def test_that_the_file_is_incomplete_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    noted = Noted(slots=1)
    for _ in range(4):
        noted.recorder.slot()
    assert len([line for line in caplog.messages if "flight_recorder_incomplete" in line]) == 1


def test_with_more_partitions_than_fit_those_beyond_are_not_noted() -> None:
    noted = Noted()
    numbers = [noted.recorder.place("group", TopicPartition("orders", n), "", 1) for n in range(PLACES + 2)]
    assert numbers[PLACES - 1 :] == [PLACES - 1, -1, -1]
    assert noted.recorder.place("group", TopicPartition("orders", 5), "", 2) == 5, "a new epoch of one that has a place"


def test_nothing_that_is_no_token_is_looked_for() -> None:
    noted = Noted()
    noted.shelf.contents = dict.fromkeys(("../../etc/passwd", "", "0123456789ABCDEF", TOKEN + "0"), b"")
    for token in noted.shelf.contents:
        assert noted.recorder.fate(token, "group", PLACE, "") == UNKNOWN
    assert noted.recorder.fate(TOKEN, "group", PLACE, "") == NOT_DEAD, "its own: it lives"


@given(st.binary(max_size=400) | st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20).map(repr).map(str.encode))
def test_foreign_content_says_nothing(content: bytes) -> None:
    assert read_state(content) is None


@given(st.lists(st.tuples(st.integers(0, size_of(slots=4, lists=2) // 8 - 1), st.integers(-(2**63), 2**63 - 1))))
def test_damaged_content_is_read_without_an_exception(damage: list[tuple[int, int]]) -> None:
    noted = Noted()
    noted.recorder.slot().begin(run_of(noted.partition(), 7), nothing)
    words = memoryview(noted.memory).cast("q")
    for at, value in damage:
        words[at] = value
    noted.fate()
    content = bytes(noted.memory)
    if read_state(content) is not None:
        for spans in read_in_hand(content).values():
            assert all(0 <= first < end for first, end in spans)


# -- the files


SLEEPER = """
import sys, time
from pathlib import Path
from tests.engine.test_flight_recorder import PLACE, Partition, nothing, run_of
from keepfast.engine.flight_recorder import RecorderFile, StateDirectory
recorder = RecorderFile(StateDirectory(Path(sys.argv[1])), slots=2)
partition = Partition(PLACE, epoch=1, start=0)
partition.flight = recorder.place("group", PLACE, "one", 1)
recorder.slot().begin(run_of(partition, 41), nothing)
print(recorder.token, flush=True)
time.sleep(600)
"""


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process with a record in flight, and its token."""
    process = subprocess.Popen([sys.executable, "-c", SLEEPER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_process_that_lives_is_distinguished_from_one_that_was_killed(
    tmp_path: Path, sleeper: tuple[subprocess.Popen[str], str]
) -> None:
    process, token = sleeper
    recorder = RecorderFile(StateDirectory(tmp_path), slots=1)
    assert recorder.fate(token, "group", PLACE, "one") == NOT_DEAD
    process.send_signal(signal.SIGSTOP)
    assert recorder.fate(token, "group", PLACE, "one") == NOT_DEAD, "it stands still, and lives"
    process.kill()
    process.wait()
    assert recorder.fate(token, "group", PLACE, "one") == Fate(dead=True, in_hand=((41, 42),))
    recorder.close(remove=True)


def test_a_process_of_which_no_file_is_found_counts_as_dead_with_whatever_its_lease_covers(tmp_path: Path) -> None:
    recorder = open_recorder(str(tmp_path), slots=1)
    assert recorder is not None
    assert recorder.fate("0" * 16, "g", TopicPartition("orders", 0), "") == UNKNOWN
    recorder.close(remove=True)


def test_a_recorder_of_the_same_process_lives_and_is_still_locked_afterwards(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path)
    one, other = (RecorderFile(directory, slots=1) for _ in range(2))
    assert other.fate(one.token, "group", PLACE, "") == NOT_DEAD
    look = "import sys; from pathlib import Path; from keepfast.engine.flight_recorder import StateDirectory as D;"
    look += "print(D(Path(sys.argv[1])).find(sys.argv[2]))"
    ask = [sys.executable, "-c", look, str(tmp_path), one.token]
    assert subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip() == "alive"
    for recorder in (one, other):
        recorder.close(remove=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("endings", "left"),
    [
        ([Ending("stopped")], None),
        ([Ending("stopped"), Ending("stopped", unfinished=1)], flight_recorder.LEFT),
        ([Ending("stopped", unconfirmed=1)], flight_recorder.LEFT),
        ([Ending("fenced")], flight_recorder.LEFT),
        ([Ending("halted")], flight_recorder.LEFT),
        ([Ending("failed")], flight_recorder.LEFT),
        ([Ending("stopped"), Ending("failed", crashed=True)], None),
    ],
)
def test_what_an_end_leaves_behind(tmp_path: Path, endings: list[Ending], left: int | None) -> None:
    recorder = RecorderFile(StateDirectory(tmp_path), slots=1)
    recorder.end(endings)
    files = list(tmp_path.iterdir())
    assert [read_state(path.read_bytes()) for path in files] == ([] if left is None else [left])


def test_who_ends_the_process_on_purpose_notes_it_before(tmp_path: Path) -> None:
    recorder, noted = open_recorder(str(tmp_path), slots=1), list[tuple[int, int | None]]()
    assert recorder is not None
    path = tmp_path / f"{recorder.token}.flight"
    recorder.leaving(lambda code: noted.append((code, read_state(path.read_bytes()))))(143)
    assert noted == [(143, LEFT)]
    recorder.close(remove=True)


def test_links_pipes_and_what_is_too_large_are_not_read(tmp_path: Path) -> None:
    directory, target = StateDirectory(tmp_path), tmp_path / "target"
    target.write_bytes(bytes(Noted().memory))
    (tmp_path / f"{'a' * 16}.flight").symlink_to(target)
    os.mkfifo(tmp_path / f"{'b' * 16}.flight")
    (tmp_path / f"{'c' * 16}.flight").mkdir()
    with (tmp_path / f"{'d' * 16}.flight").open("wb") as file:
        file.truncate(flight_recorder.MAX_FILE_BYTES + 1)
    assert [directory.find(letter * 16) for letter in "abcde"] == [None] * 5


@pytest.mark.parametrize("content", [b"", bytes(size_of(slots=1))])
def test_old_files_of_the_dead_go_and_those_of_the_living_stay(
    tmp_path: Path, sleeper: tuple[subprocess.Popen[str], str], content: bytes
) -> None:
    directory, now = StateDirectory(tmp_path), 10 * KEPT_S
    own = RecorderFile(directory, slots=1)
    dead = [f"{number:016x}" for number in range(MAX_KEPT + 5)]
    for age, token in enumerate(dead):
        path = tmp_path / f"{token}.flight"
        path.write_bytes(content)
        os.utime(path, (now - age, now - age))
    old, foreign = tmp_path / f"{'e' * 16}.flight", tmp_path / "somebody-elses.flight"
    old.write_bytes(content)
    foreign.write_bytes(b"")
    for path in (old, foreign, *(tmp_path / f"{token}.flight" for token in (own.token, sleeper[1]))):
        os.utime(path, (now - KEPT_S - 1, now - KEPT_S - 1))
    assert directory.sweep(now) == 5 + 1
    left = {path.name.removesuffix(".flight") for path in tmp_path.iterdir()}
    assert left == {*dead[:MAX_KEPT], own.token, sleeper[1], "somebody-elses"}
    own.close(remove=True)


def test_a_process_that_has_just_died_is_known_however_old_its_file_looks(
    tmp_path: Path, sleeper: tuple[subprocess.Popen[str], str]
) -> None:
    """Where stores into a mapped page do not move the time of the last change, that is the start of the process."""
    process, token = sleeper
    path = tmp_path / f"{token}.flight"
    started = time.time() - KEPT_S - 60
    os.utime(path, (started, started))
    process.kill()
    process.wait()
    recorder = open_recorder(str(tmp_path), slots=1)
    assert recorder is not None
    assert recorder.fate(token, "group", PLACE, "one") == Fate(dead=True, in_hand=((41, 42),))
    directory = StateDirectory(tmp_path)
    assert directory.sweep(time.time() + KEPT_S - 60) == 0
    assert directory.sweep(time.time() + KEPT_S + 60) == 1
    assert not path.exists()
    recorder.close(remove=True)


SHARED_LOCK = """
import fcntl, os, sys, time
fd = os.open(sys.argv[1], os.O_RDWR)
fcntl.lockf(fd, fcntl.LOCK_SH)
print("locked", flush=True)
time.sleep(1)
"""


def test_a_new_file_waits_for_the_sweep_of_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That one asks with a shared lock whether the file is locked, and may come between the making and the lock."""
    others: list[subprocess.Popen[str]] = []
    lockf = fcntl.lockf

    def after_another(fd: int, how: int) -> None:
        if not others:
            [path] = tmp_path.iterdir()
            others.append(
                subprocess.Popen([sys.executable, "-c", SHARED_LOCK, str(path)], stdout=subprocess.PIPE, text=True)
            )
            assert others[0].stdout is not None
            assert others[0].stdout.readline() == "locked\n"
        lockf(fd, how)

    monkeypatch.setattr(fcntl, "lockf", after_another)
    recorder = open_recorder(str(tmp_path), slots=1)
    for other in others:
        other.communicate()
    assert recorder is not None
    recorder.close(remove=True)


def test_workers_in_place_of_hanging_ones_have_lists_for_their_batches(tmp_path: Path) -> None:
    recorder = open_recorder(str(tmp_path), slots=1, lists=1)
    assert recorder is not None
    partitions = []
    for place in (PLACE, OTHER):
        partition = Partition(place, epoch=1, start=0)
        partition.flight = recorder.place("group", place, "one", 1)
        partitions.append(partition)
    [path] = tmp_path.iterdir()
    for _ in range(1 + SPARE_LISTS):
        batch = Batch([run_of(partition, 7) for partition in partitions])
        batch.muster(0.0)
        recorder.slot().begin_batch(batch)
    assert read_state(path.read_bytes()) == flight_recorder.RUNNING
    recorder.close(remove=True)


def test_the_default_directory_is_private_or_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = StateDirectory.open(None).path
    assert path.parent == tmp_path
    assert path.stat().st_mode & 0o777 == 0o700
    path.chmod(0o755)
    with pytest.raises(PermissionError):
        StateDirectory.open(None)
    path.rmdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PermissionError):
        StateDirectory.open(None)


def test_without_a_usable_directory_it_is_off_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    assert open_recorder(str(blocked), slots=1) is None
    assert [record.levelname for record in caplog.records if "flight_recorder_off" in record.message] == ["WARNING"]


def test_a_file_is_for_this_user_alone_and_has_all_its_blocks(tmp_path: Path) -> None:
    """A write to a mapped page for which the disk has no room would end the process."""
    recorder = open_recorder(str(tmp_path / "made"), slots=4, lists=2)
    assert recorder is not None
    [path] = (tmp_path / "made").iterdir()
    found = path.stat()
    assert found.st_mode & 0o777 == 0o600
    assert found.st_blocks * 512 >= found.st_size
    recorder.close(remove=True)

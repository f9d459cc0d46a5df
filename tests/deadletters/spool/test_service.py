"""The spool's thread: callers never wait, everybody is answered once, and its end is bounded."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from keepfast.core.errors import Fault, SpoolError
from keepfast.core.ports import Kept
from keepfast.deadletters.spool.files import FileStore
from keepfast.deadletters.spool.letters import SpooledLetter
from keepfast.deadletters.spool.memory import MemoryStore
from keepfast.deadletters.spool.service import SpoolService
from keepfast.deadletters.spool.store import Head
from keepfast.engine.clock import RealClock
from tests.deadletters.spool.letters import letter, numbers, outgoing
from tests.support.fakes import FakeSink, acknowledge, refuse
from tests.support.waiting import DEADLINE_S, wait_until

AWAY = refuse(Fault.RETRY)


class Slow(MemoryStore):
    """Takes a letter only when the gate is open, or fails in a way that nobody thought of."""

    def __init__(self) -> None:
        super().__init__(max_bytes=10**7)
        self.gate = threading.Event()
        self.gate.set()
        self.strange = False

    def add(self, letters: Sequence[SpooledLetter]) -> list[Head]:
        self.gate.wait(DEADLINE_S)
        if self.strange:
            raise ZeroDivisionError
        return super().add(letters)


def test_a_letter_is_taken_and_sent_on_when_kafka_answers(tmp_path: Path) -> None:
    sink = FakeSink(AWAY)
    service = SpoolService(FileStore(str(tmp_path), max_bytes=10**6), sink, RealClock())
    service.open()
    on_kept: list[Kept | SpoolError] = []
    service.keep(outgoing(1), on_kept.append)
    wait_until(lambda: on_kept)
    assert on_kept == [Kept()]
    assert service.has(outgoing(1))
    assert not service.has(outgoing(2))
    sink.decide = acknowledge
    wait_until(lambda: numbers(sink.sent)[-1:] == [1] and service.status.fill.letters == 0)
    assert service.has(outgoing(1)), "it was sent on just now"
    service.close(5.0)
    store = FileStore(str(tmp_path), max_bytes=10**6)
    store.open()
    assert store.fill().letters == 0


def test_letters_from_before_are_sent_on_by_themselves(tmp_path: Path) -> None:
    store = FileStore(str(tmp_path), max_bytes=10**6)
    store.open()
    store.add([letter(number) for number in range(5)])
    store.close()
    sink = FakeSink()
    service = SpoolService(FileStore(str(tmp_path), max_bytes=10**6), sink, RealClock())
    service.open()
    wait_until(lambda: len(sink.sent) == 5)
    assert numbers(sink.sent) == list(range(5))
    service.close(5.0)


@pytest.mark.timing
def test_callers_do_not_wait_for_the_disk() -> None:
    store = Slow()
    service = SpoolService(store, FakeSink(AWAY), RealClock())
    service.open()
    store.gate.clear()
    on_kept: list[Kept | SpoolError] = []
    began = time.monotonic()
    for number in range(100):
        service.keep(outgoing(number), on_kept.append)
    assert time.monotonic() - began < 1.0
    assert on_kept == []
    store.gate.set()
    wait_until(lambda: len(on_kept) == 100)
    assert set(map(type, on_kept)) == {Kept}
    service.close(5.0)


def test_whatever_goes_wrong_every_caller_is_answered_once() -> None:
    store = Slow()
    service = SpoolService(store, FakeSink(AWAY), RealClock())
    service.open()
    store.strange = True
    on_kept: list[Kept | SpoolError] = []
    for number in range(10):
        service.keep(outgoing(number), on_kept.append)
    wait_until(lambda: len(on_kept) == 10)
    assert {type(one) for one in on_kept} == {SpoolError}
    store.strange = False
    service.keep(outgoing(11), on_kept.append)
    wait_until(lambda: on_kept[10:] == [Kept()])
    service.close(5.0)


def test_after_the_end_a_letter_is_refused_and_what_came_before_is_kept() -> None:
    store = Slow()
    service = SpoolService(store, FakeSink(AWAY), RealClock())
    service.open()
    on_kept: list[Kept | SpoolError] = []
    service.keep(outgoing(1), on_kept.append)
    service.close(5.0)
    assert on_kept == [Kept()]
    service.keep(outgoing(2), on_kept.append)
    assert isinstance(on_kept[1], SpoolError)
    service.close(5.0)


@pytest.mark.timing
def test_the_end_does_not_wait_for_a_disk_that_hangs() -> None:
    store = Slow()
    service = SpoolService(store, FakeSink(AWAY), RealClock())
    service.open()
    store.gate.clear()
    service.keep(outgoing(1), lambda _: None)
    began = time.monotonic()
    service.close(0.3)
    assert time.monotonic() - began < 2.0
    store.gate.set()


def test_a_place_that_cannot_be_used_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    service = SpoolService(FileStore(str(tmp_path / "file" / "x"), max_bytes=10), FakeSink(), RealClock())
    with pytest.raises(SpoolError):
        service.open()

"""Plants in what becomes of letters that Kafka does not take."""

from __future__ import annotations

import contextlib
from typing import Any

from keepfast.core.errors import SinkError, SpoolError
from keepfast.core.ports import Kept
from keepfast.deadletters.spool import files, frames
from keepfast.deadletters.spool import worker as spool_worker
from keepfast.deadletters.spool.files import Part
from keepfast.deadletters.spool.letters import SpooledLetter
from keepfast.deadletters.spool.worker import SpoolWorker
from keepfast.engine.forwarding import ForwardedRecord, Forwarder, Settled
from simulation.plants.plant import Patch, plant


class Lazy:
    """Passes everything on but what a plant leaves out."""

    def __init__(self, inner: Any, **instead: Any) -> None:
        self._inner = inner
        self._instead = instead

    def __getattr__(self, name: str) -> Any:
        return self._instead.get(name) or getattr(self._inner, name)


def nothing(*_: Any) -> None: ...


@plant
def p27_swallows_that_a_letter_was_not_published(patch: Patch) -> None:
    def not_published(self: Forwarder, record: ForwardedRecord, error: SinkError, now: float) -> None:
        if record.kind == "dead-letter":
            self._done(record, "topic")
        else:
            before(self, record, error, now)

    before = patch.set(Forwarder, "_not_published", not_published)


@plant
def p41_takes_a_spool_that_is_full_for_one_that_has_the_letter(patch: Patch) -> None:
    def settled(self: Forwarder, answer: Settled, now: float) -> None:
        if isinstance(answer.outcome, SpoolError) and not answer.record.failed_record.dropped:
            self._done(answer.record, "spool")
        else:
            before(self, answer, now)

    before = patch.set(Forwarder, "settled", settled)


@plant
def p41_says_that_a_letter_is_kept_before_it_is_written(patch: Patch) -> None:
    def keep(self: SpoolWorker, keeps: Any) -> None:
        for one in keeps:
            one.answer(Kept())
        before(self, keeps)

    before = patch.set(SpoolWorker, "_keep", keep)


@plant
def p41_does_not_sync_the_file(patch: Patch) -> None:
    def writable(self: Part) -> Any:
        segment = before(self)
        self._file = Lazy(self._file, sync=nothing)
        return segment

    before = patch.set(Part, "_writable", writable)


@plant
def p41_does_not_sync_the_folder(patch: Patch) -> None:
    def append(self: Part, letters: Any) -> Any:
        disk, self._disk = self._disk, Lazy(self._disk, sync_folder=nothing)
        try:
            return before(self, letters)
        finally:
            self._disk = disk

    before = patch.set(Part, "append", append)


@plant
def p41_tries_a_sync_that_failed_once_more(patch: Patch) -> None:
    def writable(self: Part) -> Any:
        segment = before(self)
        file = self._file

        def sync() -> None:
            with contextlib.suppress(OSError):
                file.sync()  # type: ignore[union-attr]
                return
            file.sync()  # type: ignore[union-attr]

        self._file = Lazy(file, sync=sync)
        return segment

    before = patch.set(Part, "_writable", writable)


@plant
def p41_goes_on_behind_a_torn_write_and_reads_no_further_than_that(patch: Patch) -> None:
    def scan(data: bytes, salt: bytes) -> Any:
        found, damages = before(data, salt)
        first = damages[0].offset if damages else len(data)
        return [one for one in found if one.offset < first], []

    def give_up(self: Part, segment: Any, file: Any) -> None:
        segment.size = self._disk.size(segment.path)

    before = patch.set(frames, "scan", scan)
    patch.set(Part, "_give_up", give_up)


@plant
def p41_throws_a_torn_segment_away(patch: Patch) -> None:
    def read_segment(disk: Any, folder: str, name: str) -> Any:
        segment = before(disk, folder, name)
        if segment is not None and segment.damages:
            segment.live.clear()
        return segment

    before = patch.set(files, "read_segment", read_segment)


@plant
def p41_removes_a_letter_when_it_is_sent_on_and_not_when_it_is_acknowledged(patch: Patch) -> None:
    def send(self: SpoolWorker, sending: Any) -> None:
        before(self, sending)
        self._acknowledged[sending.head.ref] = sending.head

    before = patch.set(SpoolWorker, "_send", send)


@plant
def p41_sends_copies_of_a_letter_on_because_it_tells_them_apart_by_a_random_id(patch: Patch) -> None:
    count = 0

    def spooled(outgoing: Any, *, at_ms: int) -> SpooledLetter:
        nonlocal count
        count += 1
        letter: SpooledLetter = before(outgoing, at_ms=at_ms)
        fields = {name: getattr(letter, name) for name in SpooledLetter.__struct_fields__}
        return SpooledLetter(**fields | {"identity": count.to_bytes(16, "big")})

    before = patch.set(spool_worker, "spooled", spooled)

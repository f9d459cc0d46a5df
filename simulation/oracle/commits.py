"""Rules about commits: P1, P2, P5, and the size of what they carry."""

from __future__ import annotations

from keepfast.core.commit_metadata import GUARD_LIMIT, METADATA_LIMIT, origin_of
from keepfast.testing.fakes import trace
from simulation.oracle.book import Book
from simulation.oracle.cover import Cover
from simulation.oracle.violation import Blame


class CommitRules:
    """Looks at every commit that is sent, and at every one that the coordinator stores."""

    def __init__(self, book: Book, blame: Blame, *, window: int) -> None:
        self._book = book
        self._blame = blame
        self._window = window

    def sent(self, event: trace.CommitSent) -> None:
        key = (event.member, event.place)
        if key not in self._book.held or key not in self._book.epochs:
            self._blame("P5", f"{event.member} commits {event.place} at {event.offset}, which it does not own")
        cover = Cover(event.offset, event.metadata)
        if len(event.metadata) > METADATA_LIMIT or len(cover.guard) > GUARD_LIMIT:
            self._blame("map size", f"{event.member} commits {len(event.metadata)} characters with {event.place}")
        if event.metadata and not (
            cover.completion or cover.guard or origin_of(event.metadata, offset=event.offset).topic_id
        ):
            self._blame("map", f"{event.member} commits {event.place} with an invalid map")
        if cover.completion.to_int().bit_length() > self._window:
            self._blame("map size", f"{event.member} names offsets of {event.place} beyond the window: {cover}")

    def accepted(self, event: trace.CommitAccepted) -> None:
        cover = Cover(event.offset, event.metadata)
        today = self._book.is_of_today(event.place.topic, event.metadata, event.offset)
        if today:
            self._only_finished(event, cover)
        if event.late:
            return  # it may move backwards: in the end all is committed nevertheless
        epoch = self._book.commits.get((event.member, event.place))
        if epoch is None or epoch.accepted is None:
            return
        before = epoch.accepted
        if today and cover.offset < before.offset:  # else its topic is gone, and it reads the one in its place
            self._blame("P2", f"{event.member} moves the commit of {event.place} back from {before} to {cover}")
        records = self._book.records_of(event.place)
        forgotten = [offset for offset in before.named() if offset not in cover and records.exists(offset)]
        if forgotten:
            self._blame(
                "P2", f"{event.member} forgets finished offsets {forgotten} of {event.place}: {before} to {cover}"
            )

    def _only_finished(self, event: trace.CommitAccepted, cover: Cover) -> None:
        records = self._book.records_of(event.place)
        lowest = records.first_open()
        if lowest is not None and lowest.offset < cover.offset:
            self._blame(
                "P1",
                f"{event.member} commits {event.place} at {cover}, past record {lowest.number} at {lowest.offset},"
                f" which is not finished ({lowest.conduct})",
            )
        for offset in cover.named():
            entry = records.by_offset.get(offset)
            if entry is not None and entry.open and not entry.shadowed:
                self._blame("P1", f"{event.member} commits {event.place} at {cover}; {offset} is not finished")
            elif entry is None and offset >= records.floor:
                self._blame("P1", f"{event.member} commits {event.place} at {cover}; nothing was ever at {offset}")

"""Partitions whose records are not fetched, though there are some and nothing here holds them back.

Each partition from which nothing came for a moment is compared with its end, which the cluster is asked for: what the
client knows of a partition that it does not fetch does not change. The source reports the end that it has reached
behind the last record, so offsets that hold no record (markers of transactions, records of aborted ones, gaps of a
compaction) do not count; nor does an open transaction, as the end is that of the consumer's isolation level. A source
that reports no ends is compared by what its last fetch saw.

The clock of a partition is stopped where it is not known that the client should have its records: while those of
others wait in the client, as its own may wait behind them; while the leader does not return the end; while a broker
does not answer or throttles the client.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from keepfast.core.errors import SourceError
from keepfast.core.ports import AskEnds, Position, Source
from keepfast.core.records import TopicPartition
from keepfast.core.runs import Partition
from keepfast.engine.intake import Intake
from keepfast.engine.ownership import Ownership
from keepfast.engine.topic_ids import Identities
from keepfast.telemetry.logs import get_logger

log = get_logger("keepfast.loop")

CHECK_INTERVAL_S: Final = 1.0
"""How often the partitions are looked at."""
MAX_PASSED_S: Final = 2.0
"""Longest time that counts between two looks: in a longer one the loop did not run, or was in a callback."""
IDLE_S: Final = 3.0
"""A partition that has brought nothing for longer is compared with its end."""
ASK_S: Final = 5.0
"""How often the ends are asked for."""
OLD_ANSWERS: Final = 1.5
"""After so many times that an end is not known any more."""
THROTTLED_S: Final = 30.0
"""No time counts for so long after the client was throttled: one delay may last for several reports."""
REFETCH_S: Final = 10.0
"""A partition that is not fetched for longer is fetched again from its position, and is a reason in health."""
RENEW_S: Final = 20.0
"""If that does not help, the client is replaced after this time."""
RENEW_AGAIN_S, MAX_RENEW_AGAIN_S = 60.0, 600.0
"""Least time until the client is replaced once more, doubled each time that did not help."""
CONFIRMED: Final = 2
"""This many answers in a row must say that a position lies beyond the end: a new leader may be behind for a moment."""


@dataclass(slots=True)
class _Watched:
    """A partition that brings nothing: its epoch and the next offset, since when, and the end by the last answer,
    which came at `known_at`.

    `missing_s`: how long there have been records that are not fetched. `beyond`: number of answers in a row by which
    the position lies beyond the end.
    """

    epoch: int
    next_offset: int
    since: float
    end: int | None = None
    known_at: float = float("-inf")
    missing_s: float = 0.0
    refetched: bool = False
    beyond: int = 0

    def is_known(self, now: float) -> bool:
        """Whether the end is known: the leader returned it lately."""
        return now - self.known_at <= OLD_ANSWERS * ASK_S


@dataclass(frozen=True, slots=True)
class _Answer:
    """Ends by partition, for the next offsets that these had when the cluster was asked."""

    next_offsets: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]


class FetchWatch:
    """Owner: the loop thread. Without `ask_ends` nothing is known and nothing is done."""

    def __init__(
        self,
        name: str,
        source: Source,
        ownership: Ownership,
        *,
        intake: Intake,
        identities: Identities,
        ask_ends: AskEnds | None,
    ) -> None:
        self._name = name
        self._source = source
        self._ownership = ownership
        self._intake = intake
        self._identities = identities
        self._ask_ends = ask_ends
        self._watched: dict[TopicPartition, _Watched] = {}
        self._answer: _Answer | None = None  # written by any thread, as a whole
        self._looked_at = self._look_at = self._ask_at = float("-inf")
        self._disturbed_until = float("-inf")
        self._renew_at = float("-inf")
        self._renew_again_s = RENEW_AGAIN_S

    @property
    def ends(self) -> dict[TopicPartition, int]:
        """The ends by the last answers, of partitions that are paused or bring nothing."""
        return {place: one.end for place, one in self._watched.items() if one.end is not None}

    def missing_s(self, partition: Partition) -> float:
        """How long there have been records of the partition that are not fetched."""
        watched = self._watched.get(partition.place)
        return watched.missing_s if watched is not None and watched.epoch == partition.epoch else 0.0

    def is_beyond_end(self, partition: Partition) -> bool:
        """Whether the position of the partition lies beyond the end of its log."""
        watched = self._watched.get(partition.place)
        return watched is not None and watched.epoch == partition.epoch and watched.beyond >= CONFIRMED

    def disturb(self, now: float, *, throttled: bool) -> None:
        """The client may be unable to fetch: a broker does not answer, or throttles it. The time from the last look to
        the next one does not count, and some more where it is throttled.
        """
        self._disturbed_until = max(self._disturbed_until, now + (THROTTLED_S if throttled else 0.0))

    def step(self, now: float) -> None:
        """Look at the partitions if it is time to, outside callbacks, and fetch again what is not fetched."""
        if self._ask_ends is None or now < self._look_at:
            return
        emptied = self._intake.was_emptied()
        counts = emptied and self._disturbed_until < self._looked_at
        passed_s = min(now - self._looked_at, MAX_PASSED_S)
        self._looked_at, self._look_at = now, now + CHECK_INTERVAL_S
        if self._intake.closed:
            self._watched.clear()
            return
        self._take_answer(now)
        still, paused = self._still(now)
        self._measure(still, now, passed_s if counts else 0.0)
        if now >= self._ask_at and (still or paused):
            self._ask_at = now + ASK_S
            self._ask([*still, *paused])
        if counts:
            self._act(still, now)

    def _still(self, now: float) -> tuple[list[Partition], list[Partition]]:
        """The partitions that have brought nothing for a while, and those that are paused."""
        before, self._watched = self._watched, {}
        still, paused = [], []
        for partition in self._ownership:
            place, next_offset = partition.place, partition.ledger.next_offset
            watched = before.get(place)
            unchanged = watched is not None and (watched.epoch, watched.next_offset) == (partition.epoch, next_offset)
            if watched is None or not unchanged or partition.pauses or partition.closing:
                kept = watched.end if watched is not None and watched.epoch == partition.epoch else None
                watched = _Watched(partition.epoch, next_offset, now, kept if partition.pauses else None)
                if partition.pauses:
                    paused.append(partition)
            elif now - watched.since >= IDLE_S and not self._intake.keeps_records(partition):
                still.append(partition)
            self._watched[place] = watched
        return still, paused

    def _measure(self, still: list[Partition], now: float, passed_s: float) -> None:
        """Add the time that counts to what is missing; start again where that is not so any more."""
        waiting = [one for one in still if self._watched[one.place].end is not None]
        seen: dict[TopicPartition, int] = {}
        if waiting and not self._source.reports_ends:
            try:
                seen = self._source.seen_ends([one.place for one in waiting])
            except SourceError:
                return
        for partition in waiting:
            watched = self._watched[partition.place]
            fetched = max(watched.next_offset, seen.get(partition.place, 0), 0)
            if watched.end is None or watched.end <= fetched:
                watched.missing_s, watched.refetched = 0.0, False
            elif watched.is_known(now):
                watched.missing_s += passed_s

    def _ask(self, partitions: list[Partition]) -> None:
        next_offsets = {one.place: one.ledger.next_offset for one in partitions}

        def answered(ends: Mapping[TopicPartition, int]) -> None:
            self._answer = _Answer(next_offsets, ends)

        if self._ask_ends is not None:
            self._ask_ends(list(next_offsets), answered)

    def _take_answer(self, now: float) -> None:
        """Enter the ends of partitions that have brought nothing since they were asked for."""
        answer, self._answer = self._answer, None
        if answer is None:
            return
        suspicious = False
        for place, next_offset in answer.next_offsets.items():
            watched, end = self._watched.get(place), answer.ends.get(place)
            if end is None:
                suspicious = True  # the topic may be deleted: nothing else might say so for long
            elif watched is not None and watched.next_offset == next_offset:
                watched.end, watched.known_at = end, now
                watched.beyond = watched.beyond + 1 if end < next_offset else 0
                suspicious = suspicious or end < next_offset
        if suspicious:
            self._identities.suspect(now)

    def _act(self, still: list[Partition], now: float) -> None:
        known = [one for one in still if self._watched[one.place].is_known(now)]
        missing = [one for one in known if self._watched[one.place].missing_s >= REFETCH_S]
        for partition in missing:
            watched = self._watched[partition.place]
            if not watched.refetched:
                watched.refetched = True
                self._warn(partition, watched, "it is fetched again")
                self._refetch(partition)
        lasting = [one for one in missing if self._watched[one.place].missing_s >= RENEW_S]
        if lasting and now >= self._renew_at and self._source.renew():
            helped = now - self._renew_at > MAX_RENEW_AGAIN_S
            self._renew_again_s = RENEW_AGAIN_S if helped else min(MAX_RENEW_AGAIN_S, 2 * self._renew_again_s)
            self._renew_at = now + self._renew_again_s
            for partition in lasting:
                self._warn(partition, self._watched[partition.place], "the client is replaced")

    def _refetch(self, partition: Partition) -> None:
        try:
            self._source.refetch(Position(partition.place, partition.ledger.next_offset))
        except SourceError as error:  # a new client follows
            log.warning(
                "partition_not_refetched", consumer=self._name, partition=str(partition.place), error=str(error)
            )

    def _warn(self, partition: Partition, watched: _Watched, consequence: str) -> None:
        log.warning(
            "partition_not_fetched",
            consumer=self._name,
            **partition.place._asdict(),
            position=watched.next_offset,
            end=watched.end,
            for_s=round(watched.missing_s),
            consequence=consequence,
        )

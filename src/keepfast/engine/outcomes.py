"""What became of replayed records, reported to the desk before they are committed. Owner: the loop thread.

A replayed record is known by its last header (`core.replays`). To read headers costs every record something, so they
are looked at only where the desk's topic exists: without it nothing was ever replayed. A record that is reported is
finished when the desk's topic has the report, or after `TIMEOUT_S`: the desk never holds a record for longer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from logging import WARNING
from typing import Final

from keepfast.core.errors import SinkError
from keepfast.core.names import topic_problem
from keepfast.core.ports import AskExisting, Clock, Mailbox
from keepfast.core.records import Message, Outgoing, Receipt, read_headers
from keepfast.core.replays import OutcomeKind, ReplayMark, is_replayed, outcome_record, replay_topic
from keepfast.core.retry_topics import source_of
from keepfast.core.runs import FailedRecord, Partition
from keepfast.core.verdicts import DeadLetter, DiscardRecord, Move
from keepfast.telemetry.logs import get_logger

log = get_logger("keepfast.desk")

TIMEOUT_S: Final = 10.0
POLL_INTERVAL_S: Final = 30.0
"""How often the desk's topic, and topics for replays to this group alone, are looked for."""
SOON_S: Final = 5.0
"""How often the desk's topic is looked for while there are letters: the first replay waits until it is noticed."""
FILTERED: Final = "FILTERED"

Send = Callable[[Outgoing, Callable[[Receipt | SinkError], None]], None]


@dataclass(slots=True, eq=False)
class OutcomeReport:
    """A finished record whose outcome is on its way."""

    partition: Partition
    seq: int
    message: Message
    mark: ReplayMark
    kind: OutcomeKind
    code: str = ""
    until: float = 0.0


@dataclass(frozen=True, slots=True)
class OutcomeSettled:
    """The answer of the sink about a report."""

    report: OutcomeReport
    outcome: Receipt | SinkError


class PartitionReplays:
    """The replayed records of one partition that are not finished. Implements `core.runs.HeldReplays`."""

    __slots__ = ("_marks", "_partition", "_queue")

    def __init__(self, partition: Partition, queue: list[OutcomeReport]) -> None:
        self._partition = partition
        self._queue = queue
        self._marks: dict[int, ReplayMark] = {}  # by offset

    def expect(self, offset: int, mark: ReplayMark) -> None:
        self._marks[offset] = mark

    def hold_back(
        self, seqs: Sequence[int], messages: list[Message], filtered: Collection[int]
    ) -> tuple[Sequence[int], list[Message]]:
        if not self._marks:
            return seqs, messages
        kept: list[tuple[int, Message]] = []
        for position, (seq, message) in enumerate(zip(seqs, messages, strict=True)):
            mark = self._marks.pop(message.offset(), None)
            if mark is None:
                kept.append((seq, message))
            elif position in filtered:
                self._report(seq, message, mark, "discarded", FILTERED)
            else:
                self._report(seq, message, mark, "succeeded")
        return [seq for seq, _ in kept], [message for _, message in kept]

    def holds_back(self, failed_record: FailedRecord) -> bool:
        """A letter, and a record in a retry topic, carry the header on: nothing is reported of them."""
        mark = self._marks.pop(failed_record.message.offset(), None)
        if mark is None or isinstance(failed_record.verdict, DeadLetter | Move):
            return False
        if isinstance(failed_record.verdict, DiscardRecord):
            code = failed_record.found.code if failed_record.found is not None else ""
            self._report(failed_record.seq, failed_record.message, mark, "discarded", code)
        else:
            self._report(failed_record.seq, failed_record.message, mark, "succeeded")
        return True

    def _report(self, seq: int, message: Message, mark: ReplayMark, kind: OutcomeKind, code: str = "") -> None:
        self._partition.reporting += 1
        self._queue.append(OutcomeReport(self._partition, seq, message, mark, kind, code))


class OutcomeReporter:
    """The reports of one consumer. `finished` is called with a partition of which a record was finished."""

    def __init__(
        self,
        group: str,
        desk_topic: str,
        *,
        send: Send,
        ask: AskExisting | None,
        has_letters: Callable[[], bool],
        sources: Callable[[], Sequence[str]],
        mailbox: Mailbox,
        clock: Clock,
        finished: Callable[[Partition], None],
    ) -> None:
        self._group = group
        self._topic = desk_topic
        self._send = send
        self._ask = ask
        self._has_letters = has_letters
        self._sources = sources
        self._mailbox = mailbox
        self._clock = clock
        self._finished = finished
        self._queue: list[OutcomeReport] = []
        self._pending: dict[OutcomeReport, None] = {}
        self._look_at = self._asked_at = float("-inf")
        self.active = False
        """Whether the desk's topic exists, as far as is known."""
        self.replay_topics: frozenset[str] | None = None
        """Those of this group that exist; None: not known. Replaced as a whole."""
        self.lost = 0
        """Outcomes that could not be reported. Any thread may read."""

    @property
    def busy(self) -> bool:
        """Whether a report is on its way."""
        return bool(self._pending or self._queue)

    def note(self, partition: Partition, messages: Sequence[Message]) -> None:
        """Records were received: note those that were replayed for this group."""
        for message in messages:
            if is_replayed(message):
                mark = ReplayMark.of(read_headers(message), self._group)
                if mark is not None and mark.is_about(self._group, source_of(message)):
                    if partition.replays is None:
                        partition.replays = PartitionReplays(partition, self._queue)
                    if isinstance(partition.replays, PartitionReplays):
                        partition.replays.expect(message.offset(), mark)

    def step(self, now: float) -> None:
        """Send what is to be reported, give up what took too long, and look for the desk's topic now and then."""
        if now >= self._look_at:
            self._look_at = now + SOON_S
            self._look(now)
        if self._queue:
            queue = self._queue[:]
            self._queue.clear()
            for report in queue:
                self._begin(report, now)
        if self._pending:
            for report in [one for one in self._pending if now >= one.until]:
                self._give_up(report, f"no answer within {TIMEOUT_S:g} s")

    def settled(self, answer: OutcomeSettled) -> None:
        if answer.report not in self._pending:
            return
        if isinstance(answer.outcome, SinkError):
            self._give_up(answer.report, str(answer.outcome))
        else:
            self._finish(answer.report)

    def _look(self, now: float) -> None:
        soon = self.replay_topics is None if self.active else self._has_letters()
        if self._ask is None or (not soon and now - self._asked_at < POLL_INTERVAL_S):
            return
        self._asked_at = now
        names = [replay_topic(source, self._group) for source in self._sources()] if self.active else []
        wanted = [name for name in names if topic_problem(name) is None]
        self._ask([self._topic, *wanted], lambda found: self._found(found, wanted))

    def _found(self, found: Mapping[str, bool], wanted: Collection[str]) -> None:
        """From any thread."""
        if wanted:
            self.replay_topics = frozenset(name for name in wanted if found.get(name))
        self.active = found.get(self._topic, self.active)

    def _begin(self, report: OutcomeReport, now: float) -> None:
        report.until = now + TIMEOUT_S
        self._pending[report] = None
        at_ms = round(self._clock.wall() * 1000)
        record = outcome_record(self._topic, report.mark, report.kind, at_ms=at_ms, code=report.code)
        self._send(record, lambda outcome: self._mailbox.post(OutcomeSettled(report, outcome)))

    def _give_up(self, report: OutcomeReport, why: str) -> None:
        self.lost += 1
        log.sampled(
            WARNING,
            "outcome_not_reported",
            now=self._clock.monotonic(),
            key=(self._group,),
            topic=self._topic,
            case=report.mark.case,
            error=why,
            consequence="the record is finished; the desk shows it as being replayed",
        )
        self._finish(report)

    def _finish(self, report: OutcomeReport) -> None:
        self._pending.pop(report, None)
        report.partition.reporting -= 1
        if report.partition.live:
            report.partition.finish_reported(report.seq, report.message)
            self._finished(report.partition)

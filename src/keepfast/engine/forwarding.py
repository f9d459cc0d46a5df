"""Records on their way to another topic: sent, and sent again until it is a fact. Owner: the loop thread.

Records on their way to a retry topic: sent, and sent again until they are there. Owner: the loop thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, assert_never

from keepfast.core.errors import Fault, SinkError, SpoolError
from keepfast.core.ports import Kept, Mailbox, Spool
from keepfast.core.records import Outgoing, Receipt
from keepfast.core.retry_topics import Returned, Tiers, moved, original, shortened
from keepfast.core.runs import FailedRecord, OrderedSet
from keepfast.core.verdicts import Move
from keepfast.deadletters.publisher import Publisher
from keepfast.deadletters.spool.worker import changed
from keepfast.engine.timers import Timers
from keepfast.telemetry.logs import get_logger

log = get_logger("keepfast.consumer")

FIRST_BACKOFF_S, MAX_BACKOFF_S = 0.5, 30.0

Where = Literal["topic", "spool"]

PATIENCE = 2
"""With a spool: a letter goes there when publishing has failed so often for a reason that should pass. The client has
then tried for its whole delivery time-out each time. What does not pass by itself (no such topic, no right, too large)
is not waited for."""

SHUT_S = 30.0
"""With a spool: so long after a topic did not take a letter, others for it go to the spool at once."""


@dataclass(frozen=True, slots=True)
class Settled:
    """Word from the sink or the spool about a letter."""

    case: FailedRecord
    outcome: Receipt | SinkError | Kept | SpoolError


@dataclass(frozen=True, slots=True)
class DeadLetterStatus:
    """For health. `red`: letters that neither Kafka nor the spool takes hold up their lanes, uncommitted."""

    settling: int = 0
    refused: int = 0
    since: float | None = None
    """When the oldest of these was refused first, by the loop's clock."""
    why: str = ""
    record: str = ""
    """The oldest of these: topic, partition and offset."""

    @property
    def red(self) -> bool:
        return self.refused > 0


class DeadLetterForwarder:
    """Cases whose verdict is final: `case.outgoing` is what has to be somewhere else before the record is finished.

    `finished` is called when it is there, and told where, with its receipt if that came from a topic. Until then the
    case is in `settling`, and its handler does not run again. `smaller` has the shorter letters of cases
    whose own was too large.
    """

    def __init__(
        self,
        publisher: Publisher,
        mailbox: Mailbox,
        *,
        group: str,
        finished: Callable[[FailedRecord, Where, Receipt | None], None],
    ) -> None:
        self._publisher = publisher
        self._mailbox = mailbox
        self._group = group
        self._finished = finished
        self._spool = publisher.spool
        self.timers: Timers[FailedRecord] = Timers(lambda case: not case.dropped)
        self.smaller: dict[FailedRecord, Outgoing] = {}
        self._refused: dict[FailedRecord, tuple[float, str]] = {}  # since when, and why the last time
        self._shut: dict[str, float] = {}  # topic → until when it is not tried
        self.settling: OrderedSet[FailedRecord] = OrderedSet()
        self.failures = 0

    def begin(self, case: FailedRecord, now: float) -> None:
        """Send what `case.outgoing` holds, or keep it while its topic is known not to take anything."""
        outgoing = _letter_of(case)
        self.settling.add(case)
        case.publishes = 0
        if self._spool is not None:
            if self._spool.has(outgoing):  # from before a crash, or from a former owner of the partition
                self._done(case, "spool")
                return
            if now < self._shut.get(outgoing.topic, now):
                self._keep(case, self._spool)
                return
        self._publish(case)

    def drop(self, case: FailedRecord) -> None:
        """Its partition goes: word that still comes counts for nothing."""
        self.settling.discard(case)
        self.smaller.pop(case, None)
        self._refused.pop(case, None)

    def step(self, now: float) -> None:
        """Send again what has waited long enough."""
        for case in self.timers.due(now):
            self._publish(case)

    def next_in(self, now: float) -> float:
        """Seconds until something is due."""
        return self.timers.next_in(now)

    def status(self) -> DeadLetterStatus:
        """The loop thread's own view; a copy that others may look at."""
        return status_of(len(self.settling), self._refused)

    def settled(self, word: Settled, now: float) -> None:
        """The sink or the spool answered: finished, or go on trying; the handler does not run again."""
        case = word.case
        if case.dropped:
            return
        match word.outcome:
            case Receipt() as receipt:
                self._shut.pop(receipt.topic, None)
                self._done(case, "topic", receipt)
            case SinkError() as error:
                self._not_published(case, error, now)
            case Kept():
                self._done(case, "spool")
            case SpoolError() as error:
                self._wait(case, error, now, "letter_not_spooled", full=error.full)
            case other:
                assert_never(other)

    def _publish(self, case: FailedRecord) -> None:
        mailbox = self._mailbox
        outgoing = self.smaller.get(case) or _letter_of(case)
        self._publisher.send(outgoing, lambda outcome: mailbox.post(Settled(case, outcome)))

    def _keep(self, case: FailedRecord, spool: Spool) -> None:
        """The whole letter: what had to be cut for Kafka is not lost here."""
        mailbox = self._mailbox
        spool.keep(_letter_of(case), lambda outcome: mailbox.post(Settled(case, outcome)))

    def _not_published(self, case: FailedRecord, error: SinkError, now: float) -> None:
        self.failures += 1
        outgoing = self.smaller.get(case) or _letter_of(case)
        other = changed(outgoing, error)
        if other is not None:
            log.warning("letter_changed", **told(case, self._group), fault=error.fault, error=str(error))
            self.smaller[case] = other
            self._publish(case)
            return
        case.publishes += 1
        if error.fault is Fault.MISSING:
            self.smaller.pop(case, None)  # with the topic, its partitions come back
            if self._publisher.missing is not None:
                self._publisher.missing(outgoing.topic)
        passing = error.fault is Fault.RETRY and case.publishes < PATIENCE
        if self._spool is None or passing:
            self._wait(case, error, now, "letter_not_published", fault=error.fault)
            return
        if error.fault is not Fault.TOO_LARGE:
            self._shut[outgoing.topic] = now + SHUT_S
        self._say_refused("letter_not_published", case, error, fault=error.fault)
        self._keep(case, self._spool)

    def _wait(
        self, case: FailedRecord, error: SinkError | SpoolError, now: float, event: str, **fields: object
    ) -> None:
        since, _ = self._refused.get(case, (now, ""))
        self._refused[case] = (since, str(error))
        delay_s = min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2 ** min(max(0, case.publishes - 1), 10))
        self._say_refused(event, case, error, **fields, backoff_delay_ms=round(delay_s * 1000))
        self.timers.add(now + delay_s, case)

    def _say_refused(self, event: str, case: FailedRecord, error: SinkError | SpoolError, **fields: object) -> None:
        log.error(event, **told(case, self._group), error=str(error), **fields)

    def _done(self, case: FailedRecord, where: Where, receipt: Receipt | None = None) -> None:
        self.drop(case)
        self._finished(case, where, receipt)


def status_of(settling: int, refused: Mapping[FailedRecord, tuple[float, str]]) -> DeadLetterStatus:
    """`refused`: since when, and why the last time."""
    if not refused:
        return DeadLetterStatus(settling)
    case, (since, why) = min(refused.items(), key=lambda item: item[1])
    record = original(case.message)
    return DeadLetterStatus(
        settling, len(refused), since, why, f"{record.topic()}[{record.partition()}] offset {record.offset()}"
    )


def told(case: FailedRecord, group: str) -> dict[str, object]:
    """What every line of the log says about a case: what it failed with, what the rules made of it, and where it is:
    where it came from, wherever it waited.
    """
    record, found = original(case.message), case.found
    known = {} if found is None else {"error_classification": found.kind, "code": found.code, "rule": found.rule}
    waited = {} if record is case.message else {"retry_topic": case.partition.place.topic}
    return {
        "retry_count": max(0, case.failures - 1),
        "error_type": case.attempts[-1].error_type if case.attempts else "",
        **known,
        **waited,
        "consumer_group": group,
        "topic": record.topic(),
        "partition": record.partition(),
        "offset": record.offset(),
    }


def _letter_of(case: FailedRecord) -> Outgoing:
    if case.outgoing is None:
        raise RuntimeError("a case is being buried without a letter")
    return case.outgoing


class RetryForwarder:
    """Cases whose verdict is Move. Until its copy is acknowledged a case is in `settling`, as one that is buried.

    `finished` is called when it is: if the process dies before the commit that follows, the record is moved once more.
    `stay` is called for a record that is too large for its retry topic.
    """

    def __init__(
        self,
        tiers: Tiers | None,
        publisher: Publisher,
        mailbox: Mailbox,
        settling: OrderedSet[FailedRecord],
        *,
        finished: Callable[[FailedRecord], None],
        stay: Callable[[FailedRecord, float], None],
    ) -> None:
        self._tiers = tiers or Tiers(group="")
        self._publisher = publisher
        self._mailbox = mailbox
        self._settling = settling
        self._finished = finished
        self._stay = stay
        self.timers: Timers[FailedRecord] = Timers(lambda case: not case.dropped)
        self._refused: dict[FailedRecord, tuple[float, str]] = {}  # since when, and why the last time
        self.failures = 0

    def way(self, case: FailedRecord) -> tuple[int, ...]:
        """The delays that this record may go through."""
        return () if case.stays else self._tiers.delays_s

    @staticmethod
    def behind(case: FailedRecord) -> int | None:
        """How many of them it has behind it; None if it is still where it came from."""
        return case.message.past.step if isinstance(case.message, Returned) else None

    def begin(self, case: FailedRecord, verdict: Move, wall_s: float) -> None:
        case.outgoing = moved(
            case.message,
            tiers=self._tiers,
            step=verdict.step,
            wall_s=wall_s,
            failures=case.failures,
            attempts=[(attempt.at, attempt.error_type) for attempt in case.attempts],
        )
        self._settling.add(case)
        self._publish(case)

    def step(self, now: float) -> None:
        """Send again what has waited long enough."""
        for case in self.timers.due(now):
            self._publish(case)

    def next_in(self, now: float) -> float:
        return self.timers.next_in(now)

    def drop(self, case: FailedRecord) -> None:
        """Its partition goes: word that still comes counts for nothing."""
        self._settling.discard(case)
        self._refused.pop(case, None)

    def status(self) -> DeadLetterStatus:
        """Records that their retry topic does not take, which hold up their lanes, uncommitted. For health."""
        return status_of(len(self._settling), self._refused)

    def _publish(self, case: FailedRecord) -> None:
        if case.outgoing is None:
            raise RuntimeError("a case is being moved without a record")
        mailbox = self._mailbox
        self._publisher.send(case.outgoing, lambda outcome: mailbox.post(Settled(case, outcome)))

    def settled(self, word: Settled, now: float) -> None:
        """The sink answered: finished, or try again; the handler does not run again meanwhile."""
        case = word.case
        if case.dropped:
            return
        match word.outcome:
            case Receipt():
                self.drop(case)
                self._finished(case)
            case SinkError() as error:
                self._failed(case, error, now)
            case _:
                raise RuntimeError("only letters go to the spool")

    def _failed(self, case: FailedRecord, error: SinkError, now: float) -> None:
        self.failures += 1
        case.publishes += 1
        delay_s = min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2 ** min(case.publishes - 1, 10))
        about = told(case, self._tiers.group) | {"fault": error.fault, "error": str(error)}
        if error.fault is Fault.TOO_LARGE and case.outgoing is not None:
            shorter = shortened(case.outgoing.headers)
            if shorter is case.outgoing.headers:
                self.drop(case)
                case.stays = True
                case.outgoing = None
                log.error("too_large_to_move", **about, consequence="it is tried once more in place, then buried")
                self._stay(case, now)
                return
            case.outgoing = replace(case.outgoing, headers=shorter)
            delay_s = 0.0
        since, _ = self._refused.get(case, (now, ""))
        self._refused[case] = (since, str(error))
        log.error("not_moved", **about, backoff_delay_ms=round(delay_s * 1000))
        self.timers.add(now + delay_s, case)

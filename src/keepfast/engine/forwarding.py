"""Failed records on their way to another topic, as dead letters or to a retry topic: published until acknowledged.

Owner: the loop thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, KeysView, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, assert_never

from keepfast.core.errors import Fault, SinkError, SpoolError
from keepfast.core.events import PublishFailed
from keepfast.core.ports import Kept, Mailbox
from keepfast.core.records import Outgoing, Output, Receipt
from keepfast.core.retry_topics import original, shortened
from keepfast.core.runs import FailedRecord
from keepfast.deadletters.publisher import Publisher
from keepfast.deadletters.writing import other_form
from keepfast.engine.events import Events, record_fields
from keepfast.engine.timers import Timers

FIRST_BACKOFF_S, MAX_BACKOFF_S = 0.5, 30.0

SPOOL_AFTER_FAILURES = 2
"""With a spool: a letter goes there after this many failed sends for a transient reason. The client has then tried for
its whole delivery timeout each time. Other reasons (no such topic, not authorised, too large) are not waited for."""

TOPIC_UNAVAILABLE_S = 30.0
"""With a spool: for this long after a topic did not accept a letter, other letters for it go to the spool at once."""

Kind = Literal["dead-letter", "move"]
Where = Literal["topic", "spool"]
TARGETS: Final[Mapping[Kind, Literal["dead-letter-topic", "retry-topic"]]] = {
    "dead-letter": "dead-letter-topic",
    "move": "retry-topic",
}


@dataclass(slots=True, eq=False)
class ForwardedRecord:
    """A failed record and what must be in another topic before it is finished: its dead letter, or its copy for a retry
    topic. Owner: the forwarder; others read it.
    """

    failed_record: FailedRecord
    kind: Kind
    whole: Outgoing
    """As it was built, once. The spool gets this form."""
    outgoing: Outgoing
    """As it is sent: `whole`, or a form of it that Kafka may accept instead."""
    failures: int = 0
    """Failed sends in a row."""
    refused_since: float | None = None
    """When neither the topic nor the spool accepted it first, by the loop's clock."""
    error: str = ""
    """Why it was not accepted the last time."""
    raised: BaseException | None = None
    """What the record failed with, where an observer needs it."""


@dataclass(frozen=True, slots=True)
class Settled:
    """The answer of the sink or the spool about a forwarded record."""

    record: ForwardedRecord
    outcome: Receipt | SinkError | Kept | SpoolError


@dataclass(frozen=True, slots=True)
class ForwardingStatus:
    """For health. `red`: records that are accepted nowhere block their lanes, uncommitted."""

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


@dataclass(frozen=True, slots=True)
class SendInstead:
    """Send it at once in another form."""

    outgoing: Outgoing


@dataclass(frozen=True, slots=True)
class BackOff:
    """Send it again later."""

    delay_s: float


@dataclass(frozen=True, slots=True)
class ToSpool:
    """Write it to the spool."""


@dataclass(frozen=True, slots=True)
class StayInPlace:
    """It never fits into its retry topic: retry it where it is."""


NextStep = SendInstead | BackOff | ToSpool | StayInPlace


def after_failure(
    kind: Kind, outgoing: Outgoing, error: SinkError, *, failures: int, has_spool: bool = False
) -> NextStep:
    """What to do after a send of `outgoing` failed; `failures` counts this one. Pure."""
    other = other_form(outgoing, error) if kind == "dead-letter" else _without_attempts(outgoing, error)
    if other is not None:
        return SendInstead(other)
    if kind == "move":
        return StayInPlace() if error.fault is Fault.TOO_LARGE else BackOff(backoff_s(failures))
    transient = error.fault is Fault.RETRY and failures < SPOOL_AFTER_FAILURES
    return ToSpool() if has_spool and not transient else BackOff(backoff_s(failures))


def backoff_s(failures: int) -> float:
    """The wait after so many failed sends in a row."""
    return min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2.0 ** min(max(0, failures - 1), 10))


def _without_attempts(outgoing: Outgoing, error: SinkError) -> Outgoing | None:
    if error.fault is not Fault.TOO_LARGE:
        return None
    shorter = shortened(outgoing.headers)
    return None if shorter is outgoing.headers else replace(outgoing, headers=shorter)


class Forwarder:
    """Publishes the dead letters and the moves of one consumer until each is acknowledged.

    `finished` is called when a record is in its topic, with the receipt, or in the spool (dead letters only). If the
    process dies before the commit that follows, the record is forwarded once more; with `in_transaction` it becomes
    part of that commit instead, and is finished at once. `stays` is called with a record that
    is too large for its retry topic, and is no longer forwarded. Until one of them is called the record is in
    `settling`, and its handler does not run again.
    """

    def __init__(
        self,
        publisher: Publisher,
        mailbox: Mailbox,
        *,
        finished: Callable[[ForwardedRecord, Where, Receipt | None], None],
        stays: Callable[[FailedRecord, float], None],
        events: Events,
        in_transaction: bool = False,
    ) -> None:
        self._in_transaction = in_transaction
        self._publisher = publisher
        self._mailbox = mailbox
        self._events = events
        self._finished = finished
        self._stays = stays
        self._spool = publisher.spool
        self._records: dict[FailedRecord, ForwardedRecord] = {}
        self._timers: Timers[ForwardedRecord] = Timers(lambda record: record.failed_record in self._records)
        self._unavailable_until: dict[str, float] = {}  # by topic
        self.settling: KeysView[FailedRecord] = self._records.keys()
        """The records that are being forwarded; a live view."""
        self.failures: dict[Kind, int] = {"dead-letter": 0, "move": 0}
        """Failed sends since the start."""

    def __iter__(self) -> Iterator[ForwardedRecord]:
        """Those of this moment. Any thread."""
        return iter(tuple(self._records.values()))

    def begin(
        self,
        failed_record: FailedRecord,
        kind: Kind,
        outgoing: Outgoing,
        now: float,
        *,
        error: BaseException | None = None,
    ) -> None:
        """Send it; or write it to the spool while its topic is known to accept nothing. `error`: why it failed."""
        record = self._records[failed_record] = ForwardedRecord(failed_record, kind, outgoing, outgoing)
        if self._events.keeps_errors:
            record.raised = error
        if self._spool is not None and kind == "dead-letter":
            if self._spool.has(outgoing):  # from before a crash, or from a former owner of the partition
                self._done(record, "spool")
                return
            if now < self._unavailable_until.get(outgoing.topic, now):
                self._keep(record)
                return
        self._publish(record)

    def drop(self, failed_record: FailedRecord) -> None:
        """Its partition is revoked: a later answer has no effect."""
        self._records.pop(failed_record, None)

    def release_dropped(self, count: int) -> None:
        """Up to so many records were dropped: free them, since each keeps its message in memory."""
        self._timers.dropped(count)

    def step(self, now: float) -> None:
        """Send again what has waited long enough."""
        for record in self._timers.due(now):
            self._publish(record)

    def next_in(self, now: float) -> float:
        """Seconds until something is due."""
        return self._timers.next_in(now)

    def status(self, kind: Kind) -> ForwardingStatus:
        """Any thread."""
        records = [record for record in self if record.kind == kind]
        refused = [(since, record) for record in records if (since := record.refused_since) is not None]
        if not refused:
            return ForwardingStatus(len(records))
        since, oldest = min(refused, key=lambda pair: pair[0])
        source = original(oldest.failed_record.message)
        place = f"{source.topic()}[{source.partition()}] offset {source.offset()}"
        return ForwardingStatus(len(records), len(refused), since, oldest.error, place)

    def settled(self, answer: Settled, now: float) -> None:
        """The sink or the spool answered: finished, or try again."""
        record = answer.record
        if self._records.get(record.failed_record) is not record:
            return
        match answer.outcome:
            case Receipt() as receipt:
                self._unavailable_until.pop(receipt.topic, None)
                self._done(record, "topic", receipt)
            case SinkError() as error:
                self._not_published(record, error, now)
            case Kept():
                self._done(record, "spool")
            case SpoolError() as error:
                self._wait(record, error, backoff_s(record.failures), now)
            case other:
                assert_never(other)

    def _publish(self, record: ForwardedRecord) -> None:
        if self._in_transaction:
            record.failed_record.partition.add_output(Output(record.outgoing, record.kind))
            self._done(record, "topic")
            return
        mailbox = self._mailbox
        self._publisher.send(record.outgoing, lambda outcome: mailbox.post(Settled(record, outcome)))

    def _keep(self, record: ForwardedRecord) -> None:
        """The whole letter: what had to be cut for Kafka is not lost here."""
        spool, mailbox = self._spool, self._mailbox
        if spool is None:
            raise RuntimeError("there is no spool for a letter")
        spool.keep(record.whole, lambda outcome: mailbox.post(Settled(record, outcome)))

    def _not_published(self, record: ForwardedRecord, error: SinkError, now: float) -> None:
        self.failures[record.kind] += 1
        spool, is_letter = self._spool, record.kind == "dead-letter"
        step = after_failure(
            record.kind, record.outgoing, error, failures=record.failures + 1, has_spool=spool is not None
        )
        if isinstance(step, SendInstead):
            self._report(record, error, "adjust")
            record.outgoing = step.outgoing
            self._publish(record)
            return
        record.failures += 1
        if error.fault is Fault.MISSING and is_letter:
            record.outgoing = record.whole  # with the topic, its partitions come back
            if self._publisher.missing is not None:
                self._publisher.missing(record.outgoing.topic)
        match step:
            case BackOff(delay_s):
                self._wait(record, error, delay_s, now)
            case ToSpool():
                if error.fault is not Fault.TOO_LARGE:
                    self._unavailable_until[record.outgoing.topic] = now + TOPIC_UNAVAILABLE_S
                self._report(record, error, "spool")
                self._keep(record)
            case StayInPlace():
                self._report(record, error, "stay")
                self.drop(record.failed_record)
                self._stays(record.failed_record, now)
            case other:
                assert_never(other)

    def _wait(self, record: ForwardedRecord, error: SinkError | SpoolError, delay_s: float, now: float) -> None:
        self._report(record, error, "retry", delay_s)
        record.refused_since = now if record.refused_since is None else record.refused_since
        record.error = str(error)
        self._timers.add(now + delay_s, record)

    def _report(
        self,
        record: ForwardedRecord,
        error: SinkError | SpoolError,
        next_step: Literal["retry", "adjust", "spool", "stay"],
        delay_s: float = 0.0,
    ) -> None:
        self._events.emit(
            PublishFailed(
                *self._events.source,
                **record_fields(record.failed_record, record.raised),
                target="spool" if isinstance(error, SpoolError) else TARGETS[record.kind],
                publish_topic=record.outgoing.topic,
                message=str(error),
                next_step=next_step,
                fault=error.fault if isinstance(error, SinkError) else None,
                full=isinstance(error, SpoolError) and error.full,
                retry_in_s=delay_s,
            )
        )

    def _done(self, record: ForwardedRecord, where: Where, receipt: Receipt | None = None) -> None:
        self.drop(record.failed_record)
        self._finished(record, where, receipt)

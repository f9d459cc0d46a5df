"""What happened in a consumer, as values.

The loop's thread emits each event once, when it is a fact (or, for `RecordFailed`, when it is decided), to observers
that declare the types they want: the log, the spans of attempts, the test harness, users' hooks. Metrics do not come
from events: they are integers that the loop counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, Protocol

from keepfast.core.errors import Fault
from keepfast.core.records import RecordPlace, TopicPartition
from keepfast.core.verdicts import Kind, Verdict

Partitions = tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened in the consumer of this name and group."""

    consumer: str
    group: str


class Observer(Protocol):
    """Called on the loop's thread, so it must return at once. What it raises is logged once and goes no further.

    `wants` is read when the loop is built. An event is exactly of one of these types: a base class stands for nothing.

    `keeps_errors`: whether it needs `error` in events about what was published. Then the exception, and with it the
    frames of the handler, stays in memory until the broker has acknowledged the record.
    """

    @property
    def wants(self) -> frozenset[type[Event]]: ...
    @property
    def keeps_errors(self) -> bool: ...
    def on_event(self, event: Event) -> None: ...


# -- records


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinished(Event):
    """The handler succeeded with these records, in this order: they are finished. Built only if an observer wants it.

    Their places are where they came from, also after they were in a retry topic (`retry_topic`). What a handler still
    does when its partition was revoked is not reported: it counts for nothing here. `filtered` are records between them
    that the filter did not let pass, `skipped` those that the inbox knows already: they are finished without a call.
    """

    records: tuple[RecordPlace, ...]
    filtered: tuple[RecordPlace, ...] = ()
    skipped: tuple[RecordPlace, ...] = ()
    retry_topic: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordEvent(Event):
    """About one record. Its place is where it came from, also after it was in a retry topic (`retry_topic`).

    `attempt`: how often the handler was called for it so far. `error` is None where it was not kept; `error_message` is
    what it says, masked, in one line of up to 300 characters, and `raised_at` is `file:line` in the user's code, where
    that is known. `took_s`: how long the handler took. `kind`, `code` and `rule` are what the rules made of the error.
    """

    topic: str
    partition: int
    offset: int
    attempt: int
    error: BaseException | None
    error_type: str
    kind: Kind
    code: str
    rule: str
    retry_topic: str = ""
    error_message: str = ""
    raised_at: str = ""
    took_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFailed(RecordEvent):
    """An attempt failed, and this is what will be done about it. `verdict` None: a guard holds the record back, and the
    attempt does not count.
    """

    verdict: Verdict | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryScheduled(RecordEvent):
    """The record runs again in place, not before `delay_s` has passed. `attempt` is the one that failed."""

    delay_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySucceeded(RecordEvent):
    """The record succeeded after `attempt` attempts that failed, the last one with this error: it is finished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLettered(RecordEvent):
    """The dead letter is acknowledged by the broker: the record is finished.

    `letter_offset` is None where a publisher of the user's own has taken it.
    """

    reason: str
    letter_topic: str
    letter_partition: int | None = None
    letter_offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spooled(RecordEvent):
    """The dead letter is in the spool, to be sent later: the record is finished."""

    reason: str
    letter_topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved(RecordEvent):
    """The copy in the retry topic is acknowledged: the record is finished here, and comes back after `delay_s`."""

    reason: str
    moved_to: str
    delay_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Discarded(RecordEvent):
    """The record was dropped on purpose: it is finished."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishFailed(RecordEvent):
    """What has to be elsewhere before the record is finished was not accepted there. What is done about it: it is sent
    again after `retry_in_s`; sent at once in another form, such as without its stack; written to the spool; or, too
    large for a retry topic, retried in place.

    `fault` is None and `full` may be True where the spool did not accept it. `message` is the client's.
    """

    target: Literal["dead-letter-topic", "retry-topic", "spool"]
    publish_topic: str
    message: str
    next_step: Literal["retry", "adjust", "spool", "stay"]
    fault: Fault | None = None
    full: bool = False
    retry_in_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFailed(Event):
    """A call with a list of records failed as a whole. The place is that of its first record.

    `verdict`: see `RecordFailed`; DeadLetter and Move mean that the bad record is searched for.
    """

    topic: str
    partition: int
    offset: int
    partitions: Partitions
    records: int
    attempt: int
    error: BaseException
    kind: Kind
    code: str
    rule: str
    verdict: Verdict | None
    error_message: str = ""
    took_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerTimedOut(Event):
    """The handler took longer than `timeout_s`. `given_up`: its record continues without it; False: its lane waits.

    The place is where the record came from, also after it was in a retry topic (`retry_topic`); of a list of records,
    that of the first. `abandoned`: how many handlers run on although they were given up.
    """

    topic: str
    partition: int
    offset: int
    attempt: int
    timeout_s: float
    given_up: bool
    abandoned: int
    consequence: str = ""
    retry_topic: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerAbandoned(Event):
    """The handler still runs for a partition that was revoked and is back: the partition continues without it.

    The place is where the record came from, also after it was in a retry topic (`retry_topic`); of a list of records,
    that of the first.
    """

    topic: str
    partition: int
    offset: int
    attempt: int
    waited_s: float
    abandoned: int
    retry_topic: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockExpired(Event):
    """The locks of records of a queue ran out before they were finished: they are delivered again, to any member.
    `offset` is the first of them, `records` how many they are, `in_flight` how many of them a handler still has; what
    it does counts for nothing here.
    """

    topic: str
    partition: int
    offset: int
    records: int
    in_flight: int
    lock_s: float


# -- partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned(Event):
    """Partitions were assigned to this consumer."""

    partitions: Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class Revoked(Event):
    """Partitions were given up in order. `unconfirmed`: of these, the last commit was not confirmed in time."""

    partitions: Partitions
    unconfirmed: Partitions = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost(Event):
    """Partitions were taken away without warning: nothing of them could be committed."""

    partitions: Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReset(Event):
    """The position of a partition was not valid: reading continues by `policy`. `offset` is the old position."""

    topic: str
    partition: int
    offset: int
    reason: Literal["offset_out_of_range", "topic_recreated"]
    policy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sought(Event):
    """An operator moved the position of a partition from `offset` to `to`, as a new epoch."""

    topic: str
    partition: int
    offset: int
    to: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionChanged(Event):
    """Topics that match the consumer's pattern have appeared or disappeared, or a topic for replays to its group alone
    has appeared. `topics` are all that it reads now, without those for retries and replays.
    """

    added: tuple[str, ...]
    removed: tuple[str, ...]
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecreated(Event):
    """The topic was deleted and created again."""

    topic: str
    old_id: str
    new_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviousOwnerCrashed(Event):
    """The process that had the partition before died while records may have been in flight.

    `in_flight`: how many records of this partition; None if that is not known, and then everything from `offset` up to
    `in_flight_below` may have been. `suspected`: records that were in flight at two crashes are on probation now.
    """

    topic: str
    partition: int
    offset: int
    in_flight: int | None
    in_flight_below: int | None
    suspected: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbationStarted(Event):
    """So many records of the partition may have killed their process: they are tried by halves, a few one at a time."""

    topic: str
    partition: int
    offset: int
    suspects: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbationEnded(Event):
    """No record of the partition is suspected any more; `handed_over`: because it is another process's now."""

    topic: str
    partition: int
    handed_over: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed(Event):
    """The broker has confirmed these positions: the next offset to read, by partition. Built only if wanted."""

    offsets: dict[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitFailed(Event):
    """A commit was not confirmed; it is sent again."""

    topic: str
    partition: int
    offset: int
    fault: Fault
    code: str


# -- the consumer


@dataclass(frozen=True, slots=True, kw_only=True)
class Held(Event):
    """Nothing new starts because of `hold`: of one partition, or of the whole consumer (`topic` is empty).

    The hold of a partition ends with `Released`, with its assignment, or where it begins again (`Sought`,
    `PartitionReset`).
    """

    hold: str
    topic: str = ""
    partition: int = -1
    code: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Released(Event):
    """This hold is gone; others may be left."""

    hold: str
    topic: str = ""
    partition: int = -1
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerOpened(Event):
    """A downstream is down by `outages` of the last `attempts`: records wait. `rule` decided about the last one."""

    outages: int
    attempts: int
    rule: str
    next_probe_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerClosed(Event):
    """Records run again, after `held_s`; `by`: probe or operator."""

    by: str
    held_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StormGuardTripped(Event):
    """`dead_lettered` of the last `records` were to be dead-lettered: the consumer is held."""

    dead_lettered: int
    records: int
    next_probe_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StormGuardReleased(Event):
    """Records run again, after `held_s`; `by`: probe or operator."""

    by: str
    held_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Halted(Event):
    """The consumer stops by itself, and so does the app: by a verdict (`kind` is halted; `topic`, `partition` and
    `offset` name the record), because it was fenced, or because the client or the loop failed.
    """

    kind: Literal["halted", "fenced", "failed"]
    reason: str
    error: BaseException | None = None
    topic: str = ""
    partition: int = -1
    offset: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainStarted(Event):
    """The consumer was asked to stop: nothing new starts."""

    in_flight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainFinished(Event):
    """The consumer has stopped as asked; so much was still being handled, published or committed."""

    unfinished: int


EVENT_TYPES: Final = tuple(
    one
    for one in tuple(globals().values())
    if isinstance(one, type) and issubclass(one, Event) and one not in (Event, RecordEvent)
)
"""All of them: what an event may be of."""

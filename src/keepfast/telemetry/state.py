"""The state of a running app, as the HTTP server sends it and clients read it.

Times are durations in seconds at the time of the response. Of a record only topic, partition and offset are included,
and of one in flight the hash of its key and the masked message of its last error: no key, value or header.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal

import msgspec

Phase = Literal["starting", "running", "draining", "halted", "ended"]
Level = Literal["ok", "degraded", "failing"]


class StateStruct(msgspec.Struct, frozen=True, kw_only=True):
    """A reader ignores unknown fields, and uses defaults for fields that an older server does not send."""


class PartitionState(StateStruct, frozen=True, kw_only=True):
    """An assigned partition.

    `position` is the offset that may be committed; `lag` is the distance from it to the end that the client has seen
    last, None before the first fetch. `behind` is the part of the lag that is not finished, and `finished_above` the
    rest: what needs nothing more above the first unfinished record. `lag_s` is the age of the oldest unfinished record
    by its Kafka timestamp: 0 if there is none, None if `lag` is None or the record has no timestamp.
    """

    topic: str
    partition: int
    epoch: int = 0
    position: int = 0
    committed: int = 0
    end: int | None = None
    lag: int | None = None
    behind: int | None = None
    finished_above: int = 0
    lag_s: float | None = None
    buffered: int = 0
    held_bytes: int = 0
    in_flight: int = 0
    failed_records: int = 0
    """Failed records: waiting for a retry, running again, being moved or dead-lettered."""
    pauses: tuple[str, ...] = ()
    """Why it is paused."""
    holds: tuple[str, ...] = ()
    """Why none of its records start. `stale_run`: with order by key, why some do not."""
    stale_run_s: float = 0.0
    """How long its records have waited for a handler that started before the partition was assigned."""
    held_by: str = ""
    """Who paused it."""
    held_s: float = 0.0
    """How long it has been paused by an operator."""
    closing: bool = False
    stalled_s: float = 0.0
    """How long no record has finished although there were some."""
    stuck: bool = False
    """Its lag grows, and no record has finished for a while."""
    not_fetched_s: float = 0.0
    """How long there have been records that the client does not fetch, though nothing holds it back."""
    beyond_end: bool = False
    """Its position lies beyond the end of its log: the topic was deleted and created again, or records were lost."""
    window_full_s: float = 0.0
    """How long no further record of it has started, because they lie too far above the unfinished one at `position`."""
    suspects: int = 0
    """Records on probation, because a process crashed twice while they were in flight: see the crash guard."""


class Hold(StateStruct, frozen=True, kw_only=True):
    """A named reason why no record of a consumer starts. `by`: who paused it."""

    name: str
    for_s: float
    by: str = ""


class Refused(StateStruct, frozen=True, kw_only=True):
    """Records whose publish is refused: each blocks its lane, uncommitted."""

    records: int = 0
    for_s: float = 0.0
    why: str = ""
    record: str = ""
    """The oldest: topic, partition and offset."""


class GuardState(StateStruct, frozen=True, kw_only=True):
    """None: the guard is not configured."""

    breaker: Literal["closed", "open", "half-open"] | None = None
    breaker_opened: int = 0
    storm: Literal["watching", "tripped"] | None = None
    storm_trips: int = 0
    waits: int = 0


class QueueState(StateStruct, frozen=True, kw_only=True):
    """A queue. Its lag is not known: the client has no request for it. Nor is it known whether it has joined its group
    before the first record is delivered.
    """

    lock_s: float
    """How long a record is locked for a member; a lock cannot be renewed."""
    redelivered: int = 0
    """Records that were delivered before."""
    locks_expired: int = 0
    """Records whose lock ran out here before they were finished."""


QUEUE_NOTE: Final = (
    "a queue: the client has no request for its lag (kafka-share-groups.sh --describe --offsets has), cannot renew a"
    " lock, and does not say whether it has joined"
)


class StuckHandler(StateStruct, frozen=True, kw_only=True):
    """A handler call that has been running for longer than `stuck_after_s`. `offset` is that of the first record.
    `stack`: `file:line function`, innermost last, when it was last logged.
    """

    topic: str
    partition: int
    offset: int
    records: int = 1
    attempt: int = 1
    revoked: bool = False
    """Its partition was revoked meanwhile."""
    for_s: float = 0.0
    stack: tuple[str, ...] = ()


class ConsumerState(StateStruct, frozen=True, kw_only=True):
    """A consumer, as its loop recorded it last."""

    name: str
    group: str
    topics: tuple[str, ...]
    pattern: str = ""
    """The regular expression that topics are read by, too."""
    not_read: dict[str, str] = {}
    """Topics that match the pattern and cannot be read, with the reason."""
    missing_topics: tuple[str, ...] = ()
    """Topics of the subscription that do not exist."""
    order: str
    commit: str
    handler: str = ""
    phase: Phase = "starting"
    why: str = ""
    """Why it halted or ended."""
    member: bool = False
    """Whether it is a member of its group."""
    lost: bool = False
    """Whether it was a member and lost its partitions."""
    producer_hangs: str = ""
    """A call of its transactions' producer did not return, and since then no partitions were assigned."""
    partitions: tuple[PartitionState, ...] = ()
    unpositioned: int = 0
    """Partitions whose committed offset could not be read yet."""
    holds: tuple[Hold, ...] = ()
    paused_s: float = 0.0
    """How long the oldest pause by an operator has lasted, of the consumer or of an assigned partition; 0 without one.
    """
    clients_replaced: int = 0
    """Clients that failed and were replaced by new ones."""
    in_flight: int = 0
    """Records that were handed to workers."""
    oldest_in_flight_s: float = 0.0
    waiting: int = 0
    settling: int = 0
    letters_refused: Refused = Refused()
    moves_refused: Refused = Refused()
    letter_topics: dict[str, int | None] = {}
    """Dead-letter topic → number of letters; None: the topic does not exist."""
    guards: GuardState = GuardState()
    abandoned: int = 0
    max_abandoned_reached: bool = False
    """Calls are overdue and no more threads may be abandoned: no record starts until one returns."""
    overdue: int = 0
    """Calls that exceed their timeout and were not abandoned."""
    blocked: bool = False
    """The event loop of async handlers is blocked."""
    blocked_at: tuple[str, ...] = ()
    """The stack of its thread when that was last logged: `file:line function`, innermost last."""
    stuck: tuple[StuckHandler, ...] = ()
    """Handler calls that do not return, oldest first; at most 20."""
    stuck_handlers: int = 0
    """The number of all of them."""
    queue: QueueState | None = None
    """Of `order="queue"`: then there are no partitions, and the lag is not known."""
    brokers: str = ""
    """The last error of the client about the brokers; empty if there is none."""
    age_s: float = 0.0
    """The age of this state."""
    turn_age_s: float = 0.0
    """Time since the loop began its last iteration."""
    turn_limit_s: float = 30.0
    """An iteration that takes longer means that the loop is stuck."""


class SpoolState(StateStruct, frozen=True, kw_only=True):
    letters: int = 0
    bytes: int = 0
    stuck: int = 0
    sent_on: int = 0
    refusing: str = ""
    """Why it does not accept letters."""
    waits: str = ""
    """Why Kafka does not take the letters that it holds."""


class OutboxState(StateStruct, frozen=True, kw_only=True):
    """Events of the app that are written and not sent; `age_s` is that of the oldest. `leads`: this process sends them.
    `refused` and `unreachable` say what Kafka or the database refuses now.
    """

    rows: int = 0
    age_s: float | None = None
    sent: int = 0
    failures: int = 0
    leads: bool = False
    refused: str = ""
    unreachable: str = ""


class Reason(StateStruct, frozen=True, kw_only=True):
    """A problem. `code` is constant, `text` is for people."""

    code: str
    level: Level
    text: str
    consumer: str = ""
    fails_live: bool = False
    """Whether a restart would help."""
    fails_ready: bool = False
    """Whether the app cannot process records because of it."""


HOLDS: Final[Mapping[str, str]] = {
    "drain": "it is shutting down",
    "halt": "a handler or a rule has halted it",
    "commit": "commits fail; nothing starts until one is confirmed",
    "breaker": "a downstream fails; a record is tried now and then, and the others wait",
    "storm": "too many of the last records would be dead-lettered; a record is tried now and then, and the others wait",
    "registry": "a record needs a schema that the schema registry has not answered for yet",
    "abandoned": "too many handlers do not return; a restart helps",
    "operator": "paused by an operator",
    "letters": "a dead letter cannot be published, and the lock of its record has run out",
    "rebalance": "the group rebalances; its commit is sent again afterwards",
    "commit_refused": "the broker refuses its commits",
    "rate": "the rate limit",
    "stale_run": "a handler that began before the last revocation is still running",
}
"""What holds, of a consumer and of a partition, mean."""


class ConsumerHealth(StateStruct, frozen=True, kw_only=True):
    """A consumer in short. `lag_total` is the sum of its partitions, `behind_total` what of it is not finished, `lag_s`
    the age in the worst one; None if unknown. `holds`: why nothing starts, each in words. `note`: what cannot be known
    of it, and why.
    """

    group: str
    phase: Phase
    member: bool
    partitions: int = 0
    lag_total: int | None = None
    behind_total: int | None = None
    lag_s: float | None = None
    in_flight: int = 0
    holds: dict[str, str] = {}
    note: str = ""


class HealthReport(StateStruct, frozen=True, kw_only=True):
    """`live`: no restart is needed. `ready`: it can process records; its partitions are assigned, to it or to other
    members. `started`: it has been ready once.
    """

    status: Level
    live: bool
    ready: bool
    started: bool
    app: str = ""
    uptime_s: float = 0.0
    reasons: tuple[Reason, ...] = ()
    consumers: dict[str, ConsumerHealth] = {}


class ConsumerCounts(StateStruct, frozen=True, kw_only=True):
    """Totals since the start; the difference of two states gives rates."""

    received: int = 0
    processed: int = 0
    errors: int = 0
    retries: int = 0
    dead_lettered: int = 0
    moved: int = 0
    discarded: int = 0
    filtered: int = 0
    skipped: int = 0
    commits: int = 0
    commit_failures: int = 0
    handling_s: float = 0.0
    """Total time in handlers."""


class ProcessState(StateStruct, frozen=True, kw_only=True):
    """A child process of a supervisor. `text`: why it does not answer. `partitions`: those that it had when it answered
    last, as `topic[number]`.
    """

    pid: int | None = None
    answers: bool = False
    text: str = ""
    partitions: tuple[str, ...] = ()


class AppState(StateStruct, frozen=True, kw_only=True):
    """The whole app: the response of `GET /api/state`. `processes`: those of `--processes`, by number."""

    app: str
    version: str
    keepfast: str
    pid: int
    uptime_s: float
    phase: Phase
    consumers: dict[str, ConsumerState]
    spool: SpoolState | None = None
    outbox: OutboxState | None = None
    counts: dict[str, ConsumerCounts] = {}
    processes: dict[str, ProcessState] = {}


class LaneState(StateStruct, frozen=True, kw_only=True):
    """A lane with work. `state`: running, waiting for a retry, or settling (being moved or dead-lettered).

    `stuck`: its handler takes longer than a record may. `error` and `raised_at` are of the last failed attempt,
    `stack` is where the handler is now (of the oldest ones). `queued`: records that wait behind it in its lane.
    """

    state: Literal["running", "waiting", "settling"]
    topic: str
    partition: int
    offset: int
    records: int = 1
    attempt: int = 1
    for_s: float = 0.0
    stuck: bool = False
    error_type: str = ""
    code: str = ""
    error: str = ""
    raised_at: str = ""
    key_hash: str = ""
    queued: int = 0
    stack: tuple[str, ...] = ()


class ControlDone(StateStruct, frozen=True, kw_only=True):
    """An order that was carried out, for the audit: what was ordered, by whom, why and how, and what came of it."""

    what: str
    by: str
    why: str = ""
    via: Literal["command", "page", "api", "code"] = "command"
    """`code`: an order of the app's own, such as `app.pause`."""
    result: str = ""


class TimelineEvent(StateStruct, frozen=True, kw_only=True):
    """Something that happened in a consumer. `at`: seconds since the epoch, of the last of `count` alike."""

    number: int
    at: float
    event: str
    consumer: str
    group: str
    text: str
    level: Level = "ok"
    count: int = 1


class TimelineEvents(StateStruct, frozen=True, kw_only=True):
    """The response of `GET /api/events`: the last events, oldest first."""

    events: tuple[TimelineEvent, ...] = ()


class ConsumerDetail(StateStruct, frozen=True, kw_only=True):
    """The response of `GET /api/consumers/<name>`, from the loop itself. Oldest lanes first; `left_out` more exist."""

    state: ConsumerState
    counts: ConsumerCounts
    lanes: tuple[LaneState, ...] = ()
    left_out: int = 0


class CommandDone(StateStruct, frozen=True, kw_only=True):
    """The response to a command: what was done, in one sentence, and how much changed."""

    text: str
    changed: int = 0


class Positions(StateStruct, frozen=True, kw_only=True):
    """The response of `GET /api/consumers/<name>/position`. `lag` is the sum of those that are known, `behind`
    what of it is not finished.
    """

    partitions: tuple[PartitionState, ...] = ()
    lag: int = 0
    behind: int = 0

    @classmethod
    def of(cls, partitions: Iterable[PartitionState]) -> Positions:
        found = tuple(sorted(partitions, key=lambda one: (one.topic, one.partition)))
        lag, behind = sum(one.lag or 0 for one in found), sum(one.behind or 0 for one in found)
        return cls(partitions=found, lag=lag, behind=behind)


class SeekResult(StateStruct, frozen=True, kw_only=True):
    """What a seek does, or did (`done`). Offsets are counted: where some hold no record, fewer records are concerned.

    `position` is the offset up to which everything is finished, `first` and `end` are the edges of the log.
    `committed`: whether the broker has confirmed the new position; until then a crash would undo the seek. `inbox`: the
    consumer has one, which skips those of the repeated records that it has processed.
    """

    topic: str
    partition: int
    position: int
    to: int
    repeats: int
    skips: int
    first: int = 0
    end: int = 0
    done: bool = False
    committed: bool = False
    inbox: bool = False


class Problem(StateStruct, frozen=True, kw_only=True):
    """The response to a request that failed: what happened and what to do. `elsewhere`: another process of the group
    may have the partition.
    """

    error: str
    elsewhere: bool = False

"""What a running app says about itself over HTTP, as types: the server writes these, and clients read them.

Times are ages in seconds at the moment of the answer. Nothing of a record but where it is: no key, no value, no header,
no text of an exception.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Phase = Literal["starting", "running", "draining", "halted", "ended"]
Level = Literal["ok", "degraded", "failing"]


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """Fields that a reader does not know are ignored, and those that an older server leaves out have defaults."""


class PartitionState(Shape, frozen=True, kw_only=True):
    """One assigned partition. `position` is what may be committed; `lag` counts from there to the end as the client saw
    it last, and is None where nothing was fetched yet. `lag_s` is how old the oldest record is that was received and is
    not finished, by its timestamp in Kafka: 0 if there is none, None where `lag` is or if it has no timestamp.
    """

    topic: str
    partition: int
    epoch: int = 0
    position: int = 0
    committed: int = 0
    end: int | None = None
    lag: int | None = None
    lag_s: float | None = None
    buffered: int = 0
    held_bytes: int = 0
    in_flight: int = 0
    cases: int = 0
    """Records in trouble: waiting for their next attempt, running again, being moved or buried."""
    pauses: tuple[str, ...] = ()
    """Why it is not fetched."""
    holds: tuple[str, ...] = ()
    """Why nothing of it starts; `stale_run`: why some of it does not, with order by key."""
    stale_run_s: float = 0.0
    """How long records of it have waited for a handler that began before the partition was assigned."""
    closing: bool = False
    still_s: float = 0.0
    """How long nothing of it has finished although something could have."""
    stuck: bool = False
    """Its lag grows, and nothing has finished for a while."""
    suspects: int = 0
    """Records that run alone, one at a time, because a process died twice over them."""


class Hold(Shape, frozen=True, kw_only=True):
    """A named reason why nothing of a consumer starts."""

    name: str
    for_s: float


class Refused(Shape, frozen=True, kw_only=True):
    """Records that nobody takes: each holds up its lane, uncommitted."""

    records: int = 0
    for_s: float = 0.0
    why: str = ""
    record: str = ""
    """The one that has waited longest: topic, partition and offset."""


class GuardState(Shape, frozen=True, kw_only=True):
    """None: there is no such guard."""

    breaker: Literal["closed", "open", "half-open"] | None = None
    breaker_opened: int = 0
    storm: Literal["watching", "tripped"] | None = None
    storm_trips: int = 0
    waits: int = 0


class StuckHandler(Shape, frozen=True, kw_only=True):
    """A handler that has been at one record, or one batch, for longer than `stuck_after_s`. The place is that of the
    first record. `stack`: `file:line function` when it was logged last, the innermost last.
    """

    topic: str
    partition: int
    offset: int
    records: int = 1
    attempt: int = 1
    revoked: bool = False
    """Its partition was taken away meanwhile."""
    for_s: float = 0.0
    stack: tuple[str, ...] = ()


class ConsumerState(Shape, frozen=True, kw_only=True):
    """One consumer, as its loop saw itself at its last look."""

    name: str
    group: str
    topics: tuple[str, ...]
    order: str
    commit: str
    handler: str = ""
    phase: Phase = "starting"
    why: str = ""
    """Why it is halted or has ended."""
    member: bool = False
    """Whether it is a member of its group."""
    lost: bool = False
    """Whether it was one, and its partitions were taken from it."""
    partitions: tuple[PartitionState, ...] = ()
    unpositioned: int = 0
    """Partitions of which the committed offset could not be read yet."""
    holds: tuple[Hold, ...] = ()
    in_flight: int = 0
    """Records that workers have in hand."""
    oldest_in_flight_s: float = 0.0
    waiting: int = 0
    settling: int = 0
    letters_refused: Refused = Refused()
    moves_refused: Refused = Refused()
    letter_topics: dict[str, int | None] = {}
    """Dead-letter topic → how many letters it held a moment ago; None: there is no such topic."""
    guards: GuardState = GuardState()
    abandoned: int = 0
    choked: bool = False
    """Records are overdue, and no more threads may be abandoned: nothing starts until one comes back."""
    overdue: int = 0
    """Records that take longer than they may, and are not given up."""
    blocked: bool = False
    """The event loop of an async handler does not turn."""
    blocked_at: tuple[str, ...] = ()
    """Where its thread was when that was logged last: `file:line function`, the innermost last."""
    stuck: tuple[StuckHandler, ...] = ()
    """Handlers that do not end, the oldest first; at most 20."""
    stuck_handlers: int = 0
    """How many there are."""
    brokers: str = ""
    """What the client said of the brokers a moment ago; empty if nothing is wrong."""
    age_s: float = 0.0
    """How old this is."""
    turn_age_s: float = 0.0
    """How long ago the loop began its last turn."""
    longest_turn_s: float = 30.0
    """No turn takes longer, unless the loop is stuck."""


class SpoolState(Shape, frozen=True, kw_only=True):
    letters: int = 0
    bytes: int = 0
    stuck: int = 0
    sent_on: int = 0
    refusing: str = ""


class Reason(Shape, frozen=True, kw_only=True):
    """Something that is not as it should be. `code` is constant, `text` is for people."""

    code: str
    level: Level
    text: str
    consumer: str = ""
    fails_live: bool = False
    """Whether a restart is the remedy."""
    fails_ready: bool = False
    """Whether the app cannot do its work because of it."""


class ConsumerHealth(Shape, frozen=True, kw_only=True):
    """One consumer in a few words. `lag` and `lag_s` are those of its worst partition, None where it is not known."""

    group: str
    phase: Phase
    member: bool
    partitions: int = 0
    lag: int | None = None
    lag_s: float | None = None
    in_flight: int = 0
    holds: tuple[str, ...] = ()


class HealthReport(Shape, frozen=True, kw_only=True):
    """`live`: need not be restarted. `ready`: has its partitions, or others have them, and can work. `started`: it has
    been ready once.
    """

    status: Level
    live: bool
    ready: bool
    started: bool
    app: str = ""
    uptime_s: float = 0.0
    reasons: tuple[Reason, ...] = ()
    consumers: dict[str, ConsumerHealth] = {}


class ConsumerCounts(Shape, frozen=True, kw_only=True):
    """Totals since the start; a reader makes rates of two of them."""

    received: int = 0
    processed: int = 0
    errors: int = 0
    retries: int = 0
    buried: int = 0
    moved: int = 0
    discarded: int = 0
    commits: int = 0
    commit_failures: int = 0
    handling_s: float = 0.0
    """Time spent in handlers."""


class AppState(Shape, frozen=True, kw_only=True):
    """Everything, for `GET /api/state`."""

    app: str
    version: str
    keepfast: str
    pid: int
    uptime_s: float
    phase: Phase
    consumers: dict[str, ConsumerState]
    spool: SpoolState | None = None
    counts: dict[str, ConsumerCounts] = {}


class LaneState(Shape, frozen=True, kw_only=True):
    """Work that is under way. `state`: running, waiting for its next attempt, or settling (being moved or buried)."""

    state: Literal["running", "waiting", "settling"]
    topic: str
    partition: int
    offset: int
    records: int = 1
    attempt: int = 1
    for_s: float = 0.0
    error_type: str = ""
    code: str = ""


class ConsumerDetail(Shape, frozen=True, kw_only=True):
    """For `GET /api/consumers/<name>`: asked of the loop itself. The oldest lanes come first; `left_out` are more."""

    state: ConsumerState
    counts: ConsumerCounts
    lanes: tuple[LaneState, ...] = ()
    left_out: int = 0


class CommandDone(Shape, frozen=True, kw_only=True):
    """The answer to a command: what was done, in one sentence, and what changed."""

    text: str
    changed: int = 0


class Problem(Shape, frozen=True, kw_only=True):
    """The answer to a request that was refused or failed: what happened and what to do."""

    error: str

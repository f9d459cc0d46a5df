"""What the loop needs to know about its consumer, all decided before it starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import Literal

from keepfast.classify.classification import BUILT_IN, NotFound, RuleBook, Unknown
from keepfast.core.guards import BreakerPolicy, CallSpacing, RatePolicy, StormPolicy
from keepfast.core.names import TopicParts
from keepfast.core.policies import BatchPolicy, BufferPolicy, CommitPolicy, LetterFormat, Order, RetryPolicy
from keepfast.core.records import Message
from keepfast.core.replays import DESK_TOPIC
from keepfast.core.retry_topics import Tiers
from keepfast.core.schemas import SchemaRef
from keepfast.core.timeouts import TimeoutPolicy
from keepfast.engine.renewals import UNKNOWN_S
from keepfast.redact.masking import DEFAULT_RULES, MaskingRules
from keepfast.telemetry.event_log import RecordLog


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One consumer: what it reads, in which order, and how it behaves."""

    name: str
    group: str
    topics: tuple[str, ...]
    """Those that it reads when it starts; `Subscription` knows those that it reads now."""
    pattern: str | None = None
    """A regular expression: topics whose whole name matches are read, too."""
    matched: frozenset[str] = frozenset()
    """Those of `topics` that are read because of the pattern."""
    appeared: Set[str] = frozenset()
    """Topics that match and were not there when the group started first: they are read from their beginning."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Topics that match and may not be read, with the reason."""
    refresh_s: float = 30.0
    """How often topics that match are looked up."""
    order: Order = "partition"
    capacity: int = 32
    """Runs that may be out at the same time: worker threads, or coroutines."""
    commit: CommitPolicy = field(default_factory=CommitPolicy)
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    retry_by_error: tuple[tuple[str, RetryPolicy], ...] = ()
    """Policies of single errors, by the keys that rules have."""
    timeout: TimeoutPolicy = field(default_factory=TimeoutPolicy)
    rules: RuleBook = BUILT_IN
    """How errors are classified: the user's rules before the built-in ones."""
    breaker: BreakerPolicy | None = None
    storm_guard: StormPolicy | None = None
    rate: RatePolicy | None = None
    schema_of: Callable[[Message], SchemaRef | None] | None = None
    """Which registered schema a record was written with, for its letter; never blocks."""
    spacing: CallSpacing | None = None
    """How far apart attempts must be, and no retry waits less; changes while the consumer runs."""
    record_log: RecordLog | None = None
    """Where lines about records go; None: to `keepfast.consumer`."""
    unknown_errors: Unknown = "retry"
    not_found: NotFound = "final"
    batch: BatchPolicy | None = None
    """The handler takes lists."""
    exactly_once: bool = False
    """Commits are transactions, with what the handler sends and with failed records that are forwarded."""
    atomic: bool = False
    """A call of it that fails has changed nothing."""
    buffer: BufferPolicy = field(default_factory=BufferPolicy)
    sweep: int = 500
    """Records taken from the client in one go (`max_poll_records`)."""
    reset: Literal["earliest", "latest", "error"] = "earliest"
    renewed_every_s: float = UNKNOWN_S
    """How often a position is committed again that has not changed, before the broker forgets it."""
    revoke_timeout_s: float = 10.0
    lock_s: float | None = None
    """Of a queue: how long its records are locked for this member; None: it is no queue."""
    max_deliveries: int | None = 3
    """Counted starts of a suspect without a result before it is dead-lettered; None: no crash guard."""
    dead_letter_topics: Mapping[str, str] = field(default_factory=dict)
    """Source topic → where its letters go."""
    letter_partitions: Mapping[str, int] = field(default_factory=dict)
    """Dead-letter topic → how many partitions it has, where that is known."""
    letter_format: LetterFormat = "envelope"
    letter_group: str = ""
    """The group that letters name; empty: that of the plan."""
    masking: MaskingRules = DEFAULT_RULES
    """For what letters say about errors."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """Source topic → its id, where the broker supports it."""
    has_inbox: bool = False
    """Its inbox knows records by the ids of their topics: where a missing id can be asked for, a partition waits for
    it. A record that is read again is skipped if the inbox knows it.
    """
    partition_counts: Mapping[str, int] = field(default_factory=dict)
    """Source topic → how many partitions it had when the process started."""
    names: Mapping[str, TopicParts] = field(default_factory=dict)
    """Source topic → domain and entity, which its metrics are named by."""
    tiers: Tiers | None = None
    """Its retry topics, if it has any."""
    desk_topic: str = DESK_TOPIC
    """Where it is reported what became of replayed records."""
    group_instance_id: str | None = None
    named_by_supervisor: bool = False
    """Its `group_instance_id` was made by the supervisor, not configured."""
    handler: str = ""
    app_version: str = ""

    def name_taken(self) -> str:
        """What to do if another member has this one's name; empty if it has none."""
        if self.group_instance_id is None:
            return ""
        if self.named_by_supervisor:
            return (
                f"Its name {self.group_instance_id!r} was made by the supervisor (app, host, number): set"
                " KEEPFAST_CONSUMER_GROUP_INSTANCE_ID for each supervisor of this app under this host name."
            )
        return f"Its name is {self.group_instance_id!r} (KEEPFAST_CONSUMER_GROUP_INSTANCE_ID, or in the code)."

    @property
    def subscription(self) -> tuple[str, ...]:
        """The topics it reads: its own, and those that its records come back from."""
        return (*self.topics, *(self.tiers.topics if self.tiers else ()))

    @property
    def one_by_one(self) -> bool:
        """Whether each record, or each batch, starts on its own: because each is committed, because a rate counts
        them, or because a batch is one call.
        """
        return self.commit.mode == "each" or self.paced or self.batch is not None

    @property
    def paced(self) -> bool:
        """Whether something limits how fast records start."""
        return self.rate is not None or self.spacing is not None

    def reset_of(self, topic: str) -> Literal["earliest", "latest", "error"]:
        """A retry topic is always read from its beginning: whatever is in it, this group has put there."""
        return "earliest" if self.tiers and topic in self.tiers.topics else self.reset

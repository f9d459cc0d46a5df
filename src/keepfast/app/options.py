"""The settings of a consumer in code. Environment, `.env` and `keepfast.toml` override them by what they set for this
consumer, not by what they set for all.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

from keepfast.classify.classification import Rule
from keepfast.core.alerts import AlertPolicy, TopicKind
from keepfast.core.guards import BreakerPolicy, RatePolicy, StormPolicy
from keepfast.core.inbox import Inbox
from keepfast.core.policies import (
    BatchPolicy,
    BufferPolicy,
    CommitMode,
    CommitPolicy,
    DeadLetterPolicy,
    Order,
    RetryPolicy,
)
from keepfast.core.retry_topics import RetryTopics
from keepfast.core.timeouts import OnTimeout
from keepfast.core.topic_patterns import Pattern
from keepfast.decode.choice import Decoding
from keepfast.decode.signature import HandlerShape, ProviderShape
from keepfast.engine.context import RawRecord
from keepfast.inbox.postgres import PostgresInbox
from keepfast.redact.sensitive import CardNumbers

ErrorKey = type[BaseException] | str
"""An exception class, its `module.Class`, or a code that errors carry: `http:429`, `sqlstate:40P01`."""

Middleware = Callable[..., Iterator[None] | AsyncIterator[None]]
"""A generator function that yields once, while the handler runs."""


class ConsumerOptions(TypedDict, total=False):
    """Options of `@app.consumer`; the settings reference describes each of them."""

    # Made from the settings by `make reference`; change those instead.
    topics_refresh_s: float
    group: str
    domain: str
    entity: str
    order: Order
    concurrency: int
    idempotent: bool
    exactly_once: bool
    atomic: bool
    tombstones: Literal["dead-letter", "discard"]
    unknown_types: Literal["dead-letter", "discard"]
    unknown_errors: Literal["retry", "dead-letter"]
    not_found: Literal["final", "retry"]
    rules: Sequence[Rule] | Mapping[ErrorKey, str]
    retries: Mapping[ErrorKey, RetryPolicy | str]
    auto_offset_reset: Literal["earliest", "latest", "error"]
    isolation_level: Literal["read_committed", "read_uncommitted"]
    max_deliveries: int | None
    max_poll_records: int
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    group_instance_id: str
    assignor: Literal["cooperative-sticky", "range", "roundrobin"]
    group_protocol: Literal["auto", "classic", "consumer"]
    lock_s: float
    configure_group: bool
    unsafe_timings: bool
    timeout_s: float | None
    on_timeout: OnTimeout
    max_abandoned: int
    stuck_after_s: float | None
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    revoke_timeout_s: float
    commit: CommitPolicy | CommitMode
    retry: RetryPolicy | str
    retry_topics: RetryTopics | str
    batch: BatchPolicy
    buffer: BufferPolicy
    dead_letter: DeadLetterPolicy | str
    breaker: BreakerPolicy | bool
    storm_guard: StormPolicy | bool
    rate: RatePolicy
    alerts: AlertPolicy | TopicKind
    # Up to here.


@dataclass(frozen=True, slots=True)
class Consumer:
    """One function and its settings in code."""

    name: str
    function: Callable[..., Any]
    shape: HandlerShape
    topics: tuple[str, ...]
    options: ConsumerOptions
    sensitive: CardNumbers | None = None
    middleware: tuple[ProviderShape, ...] = ()
    """The outermost first."""
    filter: Callable[[RawRecord], object] | None = None
    decoding: Decoding = field(default_factory=Decoding)
    pattern: Pattern | None = None
    inbox: Inbox | PostgresInbox | None = None

    @property
    def sources(self) -> dict[str, object]:
        """What it reads, as settings."""
        topics: dict[str, object] = {"topics": list(self.topics)} if self.topics else {}
        return topics | ({"pattern": self.pattern.regex} if self.pattern is not None else {})

"""Policies: small frozen values that say how a consumer behaves. Each reports all its faults at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, Literal, get_args

from keepfast.core.fields import DERIVED, Derived, Doc, Env, Findings, Floor, NoneWord, Policy, Range

Order = Literal["partition", "key", "none", "queue"]
ORDERS: Final[tuple[Order, ...]] = ("partition", "key", "none")
"""Those that differ in their lanes: of a queue they are those of none."""

CommitMode = Literal["each", "interval"]

LetterFormat = Literal["envelope", "nested", "headers"]
LETTER_FORMATS: Final[tuple[LetterFormat, ...]] = get_args(LetterFormat)

WEEK_MS: Final = 7 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy(Policy):
    """How often, and after which delays, a failed record is tried again in place.

    `max_retries` counts the retries, not the first attempt; None retries forever, and then, unless delays are set,
    every 3 s exactly. Delays grow from `initial_delay_ms` by `multiplier` up to `max_delay_ms`; `jitter` adds up to 10
    % on top of the capped delay. `max_elapsed_s` ends the retries so many seconds after the first attempt began.
    """

    section: ClassVar[str] = "retry"

    max_retries: Annotated[
        int | None,
        Range(0, 1_000_000),
        NoneWord("forever"),
        Env("RETRY_MAX_RETRIES", "MAX_RETRIES"),
        Doc("Retries after the first attempt; `forever` retries every 3 s unless delays are set."),
    ] = 3
    initial_delay_ms: Annotated[
        float,
        Range(0, WEEK_MS),
        Env("RETRY_INITIAL_DELAY_MS", "INITIAL_RETRY_DELAY_MS"),
        Doc("The delay before the first retry."),
        Derived("1000, or max_delay_ms if that is less; 3000 if retries are `forever` and no delay is set"),
    ] = DERIVED
    max_delay_ms: Annotated[
        float,
        Range(0, WEEK_MS),
        Env("RETRY_MAX_DELAY_MS", "MAX_RETRY_DELAY_MS"),
        Doc("No delay is longer, jitter aside."),
        Derived("30000; 3000 if retries are `forever` and no delay is set"),
    ] = DERIVED
    multiplier: Annotated[
        float,
        Range(1, 1000),
        Env("RETRY_BACKOFF_MULTIPLIER"),
        Doc("By how much each delay is longer than the last."),
        Derived("2; 1 if retries are `forever` and no delay is set"),
    ] = DERIVED
    jitter: Annotated[
        bool,
        Env("RETRY_JITTER"),
        Doc("Adds up to 10 % to each delay, at random."),
        Derived("true; false if retries are `forever` and no delay is set"),
    ] = DERIVED
    max_elapsed_s: Annotated[
        float | None, Range(0), NoneWord("none"), Doc("No retry starts later than this after the first attempt.")
    ] = None

    def _derive(self) -> None:
        timing = (self.initial_delay_ms, self.max_delay_ms, self.multiplier)
        fixed = self.max_retries is None and all(value is DERIVED for value in timing)
        defaults = (3000, 3000, 1.0, False) if fixed else (1000, 30000, 2.0, True)
        for name, default in zip(("initial_delay_ms", "max_delay_ms", "multiplier", "jitter"), defaults, strict=True):
            if getattr(self, name) is DERIVED:
                object.__setattr__(self, name, default)
        if timing[0] is DERIVED and isinstance(self.max_delay_ms, int | float):
            object.__setattr__(self, "initial_delay_ms", min(self.initial_delay_ms, self.max_delay_ms))

    def _check_together(self, findings: Findings) -> None:
        initial, longest = self.initial_delay_ms, self.max_delay_ms
        if findings.fine("initial_delay_ms", "max_delay_ms") and initial > longest:
            findings.add(
                f"initial_delay_ms ({initial:g}) is larger than max_delay_ms ({longest:g}), which would cap every"
                " delay; raise max_delay_ms or lower initial_delay_ms."
            )

    def delay_ms(self, retry_count: int, jitter: float) -> float:
        """The delay before the retry that follows `retry_count` earlier ones; `jitter` is a random number in [0, 1)."""
        if retry_count < 0 or not 0 <= jitter < 1:
            raise ValueError(f"retry_count must be 0 or more and jitter in [0, 1); got {retry_count} and {jitter}")
        base = self._base_ms(retry_count)
        return base + jitter * 0.1 * base if self.jitter else base

    def _base_ms(self, retry_count: int) -> float:
        if self.multiplier == 1 or self.initial_delay_ms == 0:
            return float(self.initial_delay_ms)
        try:
            grown = self.initial_delay_ms * float(self.multiplier) ** retry_count
        except OverflowError:  # a record that is retried forever gets there
            return float(self.max_delay_ms)
        return float(min(grown, self.max_delay_ms))

    @property
    def longest_wait_ms(self) -> float | None:
        """What all retries of one record may wait together, by the standard's rule of thumb; None: no end."""
        limits = []
        if self.max_retries is not None:
            limits.append(self.max_retries * self.max_delay_ms)
        if self.max_elapsed_s is not None:
            limits.append(self.max_elapsed_s * 1000)
        return min(limits, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitPolicy(Policy):
    """When offsets are committed.

    `each`: a lane continues only after the commit of its last record is confirmed. `interval`: every `every_s` seconds
    or `every_records` finished records, whichever comes first, and when a burst of a tenth of these is over; a crash
    repeats that much, so it needs idempotent work.
    """

    section: ClassVar[str] = "commit"

    mode: Annotated[
        CommitMode,
        Doc("`each`: after each record. `interval`: by time and count; needs idempotent=True or an inbox."),
        Derived("`each`; `interval` with an inbox"),
    ] = "each"
    every_s: Annotated[float, Range(0, 3600, above=True), Doc("Interval: after this time at the latest.")] = 1.0
    every_records: Annotated[int, Range(1), Doc("Interval: after this many records at the latest.")] = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPolicy(Policy):
    """How many records a handler that takes a list gets at once.

    A call gets `size` records, or as many as are there `wait_s` seconds after the first of them could have started. 0
    waits for nothing.
    """

    section: ClassVar[str] = "batch"

    size: Annotated[int, Range(1, 10_000), Doc("The most records of a call.")] = 100
    wait_s: Annotated[
        float, Range(0, 60), Doc("A call gets fewer records this long after the first of them could have started.")
    ] = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferPolicy(Policy):
    """How much may wait in memory: `records` and `bytes` per partition, `client_queue_bytes` in each client.

    `bytes` bounds all that is received and not finished: values, keys and headers (estimated by one record of each
    fetch). `records` bounds what nothing has taken yet; four times as many may wait behind others of their key. A
    partition is paused when a bound is reached and resumed at half of both. An empty partition always takes one record,
    however large. Below 1 MiB the client's queue could not hold one fetch.
    """

    section: ClassVar[str] = "buffer"

    records: Annotated[int, Range(1, 10_000_000), Doc("Records per partition.")] = 1000
    bytes: Annotated[int, Range(1), Doc("Bytes per partition; one record is always accepted.")] = 16 * 1024 * 1024
    client_queue_bytes: Annotated[
        int, Range(1024 * 1024, 2_147_482_624), Doc("Bytes that the client may fetch ahead, per consumer.")
    ] = 64 * 1024 * 1024

    @property
    def low_records(self) -> int:
        return self.records // 2

    @property
    def low_bytes(self) -> int:
        return self.bytes // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterPolicy(Policy):
    """Where letters go and how they look. `topic` may use {domain} {entity} {topic} {env} {group}."""

    section: ClassVar[str] = "dead_letter"

    topic: Annotated[str, Doc("May use {domain}, {entity}, {topic}, {env} and {group}.")] = "{domain}.{entity}.dlq"
    create_topic: Annotated[bool, Doc("Whether a missing dead-letter topic is created.")] = True
    format: Annotated[LetterFormat, Doc("How a letter looks.")] = "envelope"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingPolicy(Policy):
    """How long the group waits for a member. Session and heartbeat are None under the consumer group protocol
    (KIP-848), where the broker sets them. The floors are those of the consumer standard: below them a member is evicted
    by a pause that means nothing. Tests, where a member must die fast, go below them.
    """

    section: ClassVar[str] = "timings"

    session_timeout_ms: Annotated[
        int | None,
        Range(1, 3_600_000),
        Floor(30_000, "standard:3.1.1"),
        Doc("A member that is silent for this long is removed from the group."),
    ] = 60_000
    heartbeat_interval_ms: Annotated[
        int | None,
        Range(1, 3_600_000),
        Floor(10_000, "standard:3.1.2"),
        Doc("How often a member sends a heartbeat; at most a third of the session."),
    ] = 10_000
    max_poll_interval_ms: Annotated[
        int,
        Range(1, 86_400_000),
        Floor(300_000, "standard:3.1.4"),
        Doc("A member that does not poll for this long is removed from the group. Slow handlers do not count."),
    ] = 600_000
    revoke_timeout_s: Annotated[
        float,
        Range(0, 43_200, above=True),
        Doc("How long running records of a revoked partition may take; below half of max_poll_interval_ms."),
    ] = 10.0

    def _check_together(self, findings: Findings) -> None:
        session, heartbeat, poll = self.session_timeout_ms, self.heartbeat_interval_ms, self.max_poll_interval_ms
        if session is not None and findings.fine("session_timeout_ms"):
            if heartbeat is not None and findings.fine("heartbeat_interval_ms") and heartbeat * 3 > session:
                findings.add(
                    f"heartbeat_interval_ms ({heartbeat}) must be at most a third of session_timeout_ms ({session}), so"
                    f" that two lost heartbeats do no harm; set it to {session // 3} or less, or raise"
                    " session_timeout_ms."
                )
            if findings.fine("max_poll_interval_ms") and poll < session:
                findings.add(
                    f"max_poll_interval_ms ({poll}) must not be below session_timeout_ms ({session}), which the client"
                    " refuses; raise max_poll_interval_ms."
                )
        if findings.fine("revoke_timeout_s", "max_poll_interval_ms") and self.revoke_timeout_s * 2000 >= poll:
            findings.add(
                f"revoke_timeout_s ({self.revoke_timeout_s:g}) must be below half of max_poll_interval_ms ({poll}),"
                " because draining a revoked partition blocks polling; lower it."
            )

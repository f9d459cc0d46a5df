"""Policies: small frozen values that say how a consumer behaves. Each checks itself and says all its faults at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from keepfast.core import checks
from keepfast.core.errors import ConfigError

Order = Literal["partition", "key", "none"]
ORDERS: Final[tuple[Order, ...]] = ("partition", "key", "none")

CommitMode = Literal["each", "interval"]
COMMIT_MODES: Final[tuple[CommitMode, ...]] = ("each", "interval")

LetterFormat = Literal["envelope", "nested", "headers"]
LETTER_FORMATS: Final[tuple[LetterFormat, ...]] = ("envelope", "nested", "headers")

MAX_BATCH: Final = 10_000

WEEK_MS: Final = 7 * 24 * 3600 * 1000

# The floors of the consumer standard, §3.1: below them a member is evicted by a pause that means nothing.
SESSION_FLOOR_MS: Final = 30_000
HEARTBEAT_FLOOR_MS: Final = 10_000
POLL_INTERVAL_FLOOR_MS: Final = 300_000


class _Untold:
    """Tells an option that was left out from every value that could be given."""

    def __repr__(self) -> str:
        return "…"


_UNTOLD: Any = _Untold()


class _Findings:
    """Gathers what is wrong with one policy, so that all of it is said at once."""

    def __init__(self, policy: str, **fields: str | None) -> None:
        self._policy = policy
        self._wrong = {name for name, what in fields.items() if what}
        self._found = [f"{policy}: {name} {what}." for name, what in fields.items() if what]

    def fine(self, *names: str) -> bool:
        """Each of these is right by itself, so that how they fit together can be looked at."""
        return self._wrong.isdisjoint(names)

    def add(self, problem: str) -> None:
        self._found.append(f"{self._policy}: {problem}")

    def refuse(self) -> None:
        if self._found:
            raise ConfigError(*self._found)


def _optional(value: object, problem: str | None, meaning: str) -> str | None:
    """None is fine, too, and means something."""
    if value is None or problem is None:
        return None
    return problem.replace("; got", f", or None: {meaning}; got", 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often, and after which delays, a failed record is tried again in place.

    `max_retries` counts the retries, not the first attempt; None retries for ever, and then, unless delays are told,
    every 3 s exactly. Delays grow from `initial_delay_ms` by `multiplier` up to `max_delay_ms`; `jitter` adds up to 10
    % on top of the capped delay. `max_elapsed_s` ends the retries so many seconds after the first attempt began.
    """

    max_retries: int | None = 3
    initial_delay_ms: float = _UNTOLD  # 1000; for ever: 3000
    max_delay_ms: float = _UNTOLD  # 30000; for ever: 3000
    multiplier: float = _UNTOLD  # 2.0; for ever: 1.0
    jitter: bool = _UNTOLD  # True; for ever: False
    max_elapsed_s: float | None = None

    def __post_init__(self) -> None:
        timing = (self.initial_delay_ms, self.max_delay_ms, self.multiplier)
        fixed = self.max_retries is None and all(value is _UNTOLD for value in timing)
        defaults = (3000, 3000, 1.0, False) if fixed else (1000, 30000, 2.0, True)
        for name, default in zip(("initial_delay_ms", "max_delay_ms", "multiplier", "jitter"), defaults, strict=True):
            if getattr(self, name) is _UNTOLD:
                object.__setattr__(self, name, default)
        self._check()

    def _check(self) -> None:
        initial, longest = self.initial_delay_ms, self.max_delay_ms
        findings = _Findings(
            "retry",
            max_retries=_optional(self.max_retries, checks.whole(self.max_retries, 0), "for ever"),
            initial_delay_ms=checks.number(initial, 0, WEEK_MS),
            max_delay_ms=checks.number(longest, 0, WEEK_MS),
            multiplier=checks.number(self.multiplier, 1, 1000),
            jitter=checks.flag(self.jitter),
            max_elapsed_s=_optional(self.max_elapsed_s, checks.number(self.max_elapsed_s, 0), "no limit"),
        )
        if findings.fine("initial_delay_ms", "max_delay_ms") and initial > longest:
            findings.add(
                f"initial_delay_ms ({initial:g}) is larger than max_delay_ms ({longest:g}), which would cap every"
                " delay; raise max_delay_ms or lower initial_delay_ms."
            )
        findings.refuse()

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
        except OverflowError:  # a record that is retried for ever gets there
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
class CommitPolicy:
    """When offsets are committed.

    `each`: a lane goes on only after the commit of its last record is confirmed. `interval`: every `every_s` seconds or
    `every_records` finished records, whichever comes first; a crash repeats that much, so it needs idempotent work.
    """

    mode: CommitMode = "each"
    every_s: float = 1.0
    every_records: int = 10_000

    def __post_init__(self) -> None:
        _Findings(
            "commit",
            mode=checks.one_of(self.mode, COMMIT_MODES),
            every_s=checks.number(self.every_s, 0, 3600, above=True),
            every_records=checks.whole(self.every_records, 1),
        ).refuse()


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPolicy:
    """How many records a handler that takes a list gets at once.

    A call gets `size` records, or as many as are there `wait_s` seconds after the first of them could have started. 0
    waits for nothing.
    """

    size: int = 100
    wait_s: float = 0.1

    def __post_init__(self) -> None:
        _Findings(
            "batch", size=checks.whole(self.size, 1, MAX_BATCH), wait_s=checks.number(self.wait_s, 0, 60)
        ).refuse()


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferPolicy:
    """How much may wait in memory: `records` and `bytes` per partition, `client_queue_bytes` in each client.

    `bytes` bounds all that is received and not finished: values, keys and headers (estimated by one record of each
    fetch). `records` bounds what nothing has taken yet; four times as many may wait behind others of their key. A
    partition is paused when a bound is reached and resumed at half of both. An empty partition always takes one record,
    however large. Below 1 MiB the client's queue could not hold one fetch.
    """

    records: int = 1000
    bytes: int = 16 * 1024 * 1024
    client_queue_bytes: int = 64 * 1024 * 1024

    def __post_init__(self) -> None:
        _Findings(
            "buffer",
            records=checks.whole(self.records, 1, 10_000_000),
            bytes=checks.whole(self.bytes, 1),
            client_queue_bytes=checks.whole(self.client_queue_bytes, 1024 * 1024, 2_147_482_624),
        ).refuse()

    @property
    def low_records(self) -> int:
        return self.records // 2

    @property
    def low_bytes(self) -> int:
        return self.bytes // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterPolicy:
    """Where letters go and how they look. `topic` may use {domain} {entity} {topic} {env} {group}."""

    topic: str = "{domain}.{entity}.dlq"
    create_topic: bool = True
    format: LetterFormat = "envelope"

    def __post_init__(self) -> None:
        _Findings(
            "dead_letter",
            topic=checks.text(self.topic),
            create_topic=checks.flag(self.create_topic),
            format=checks.one_of(self.format, LETTER_FORMATS),
        ).refuse()


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingPolicy:
    """How long the group waits for a member. Session and heartbeat are None under the consumer group protocol
    (KIP-848), where the broker sets them. `unsafe` switches the floors off: for tests, where a member must die fast.
    """

    session_timeout_ms: int | None = 60_000
    heartbeat_interval_ms: int | None = 10_000
    max_poll_interval_ms: int = 600_000
    revoke_timeout_s: float = 10.0
    unsafe: bool = False

    def __post_init__(self) -> None:
        session, heartbeat, poll = self.session_timeout_ms, self.heartbeat_interval_ms, self.max_poll_interval_ms
        floors = (1, 1, 1) if self.unsafe else (SESSION_FLOOR_MS, HEARTBEAT_FLOOR_MS, POLL_INTERVAL_FLOOR_MS)
        findings = _Findings(
            "timings",
            session_timeout_ms=None if session is None else _floored(session, floors[0], 3_600_000),
            heartbeat_interval_ms=None if heartbeat is None else _floored(heartbeat, floors[1], 3_600_000),
            max_poll_interval_ms=_floored(poll, floors[2], 86_400_000),
            revoke_timeout_s=checks.number(self.revoke_timeout_s, 0, above=True),
            unsafe=checks.flag(self.unsafe),
        )
        if session is not None:
            self._check_session(findings, session)
        if findings.fine("revoke_timeout_s", "max_poll_interval_ms") and self.revoke_timeout_s * 2000 >= poll:
            findings.add(
                f"revoke_timeout_s ({self.revoke_timeout_s:g}) must be below half of max_poll_interval_ms ({poll}),"
                " because draining a revoked partition holds up polling; lower it."
            )
        findings.refuse()

    def _check_session(self, findings: _Findings, session: int) -> None:
        heartbeat, poll = self.heartbeat_interval_ms, self.max_poll_interval_ms
        both_fine = findings.fine("session_timeout_ms", "heartbeat_interval_ms")
        if heartbeat is not None and both_fine and heartbeat * 3 > session:
            findings.add(
                f"heartbeat_interval_ms ({heartbeat}) must be at most a third of session_timeout_ms ({session}), so"
                f" that two lost heartbeats do no harm; set it to {session // 3} or less, or raise session_timeout_ms."
            )
        if findings.fine("session_timeout_ms", "max_poll_interval_ms") and poll < session:
            findings.add(
                f"max_poll_interval_ms ({poll}) must not be below session_timeout_ms ({session}), which the client"
                " refuses; raise max_poll_interval_ms."
            )


def _floored(value: object, floor: int, high: int) -> str | None:
    """What is wrong; if it is only below the floor, with the way around it."""
    problem = checks.whole(value, floor, high)
    if problem is None or checks.whole(value, 1, high):
        return problem
    return f"{problem}. Raise it; only in tests, unsafe_timings switches this floor off"

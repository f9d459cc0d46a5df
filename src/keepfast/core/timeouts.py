"""How long a handler may take for one record, and what happens then; and after how long it counts as stuck."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, Literal

from keepfast.core.fields import Derived, Doc, NoneWord, Policy, Range

OnTimeout = Literal["dead-letter", "retry", "hold"]

WEEK_S: Final = 7 * 24 * 3600

CHECK_INTERVAL_S, CHECKS_PER_LIMIT = 0.05, 10
"""A record in flight is looked at this often, and at least so many times before its time is over."""

STUCK_CHECK_S = 1.0
"""How often, where nothing times out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeoutPolicy(Policy):
    """`timeout_s` None: as long as it likes.

    `dead-letter`: the record is dead-lettered, whatever retries are left; a coroutine is cancelled, a thread is
    abandoned, which can be done to at most `max_abandoned` at a time. `retry`: the handler is given up in the same way,
    and the attempt failed with an outage: the record is retried, and a breaker opens. `hold`: the record keeps its lane
    until the handler ends, and its outcome counts.

    `stuck_after_s`: a handler that takes longer, and longer than `timeout_s`, is reported with its stack, and so is a
    blocked event loop. A new epoch of a partition waits that long for a run of an earlier one. None: no report, and it
    waits until the run ends.
    """

    section: ClassVar[str] = "timeout"

    timeout_s: Annotated[
        float | None,
        Range(0, WEEK_S, above=True),
        NoneWord("none"),
        Doc("How long the handler may take for one record; `none`: without limit."),
    ] = None
    on_timeout: Annotated[
        OnTimeout,
        Doc(
            "`dead-letter` the record and abandon the handler, `retry` it as after an outage, or `hold` its lane until"
            " the handler ends."
        ),
        Derived("`dead-letter`; with a breaker `retry`"),
    ] = "dead-letter"
    max_abandoned: Annotated[
        int,
        Range(1, 10_000),
        Doc("Handlers that timed out and still run; if there are this many, the next one holds the consumer."),
    ] = 10
    stuck_after_s: Annotated[
        float | None,
        Range(0, WEEK_S, above=True),
        NoneWord("none"),
        Doc(
            "A handler that takes longer (and longer than timeout_s) is logged with its stack and shown in health; a"
            " reassigned partition waits that long for a handler from before. `none`: off, it waits forever."
        ),
    ] = 30.0

    @property
    def check_interval_s(self) -> float:
        """How often to look; a record is found overdue or stuck at most twice this late, and never early."""
        every_s = STUCK_CHECK_S if self.stuck_s is None else min(STUCK_CHECK_S, self.stuck_s / CHECKS_PER_LIMIT)
        return every_s if self.timeout_s is None else min(every_s, CHECK_INTERVAL_S, self.timeout_s / CHECKS_PER_LIMIT)

    @property
    def stuck_s(self) -> float | None:
        """After so long a handler is stuck: the larger of `stuck_after_s` and `timeout_s`."""
        return None if self.stuck_after_s is None else max(self.stuck_after_s, self.timeout_s or 0.0)

    @property
    def stale_s(self) -> float | None:
        """So long a new epoch of a partition waits for a run of an earlier one. None: until the run ends, because
        nothing is abandoned (`hold`), or because `stuck_after_s` is switched off.
        """
        return None if self.timeout_s is not None and self.on_timeout == "hold" else self.stuck_s

    @property
    def blocked_s(self) -> float | None:
        """An event loop that has not turned for so long is blocked."""
        return self.stuck_s if self.timeout_s is None else self.timeout_s

    @property
    def blocked_report_s(self) -> float | None:
        """After so long a blocked event loop is logged: at once when it counts as blocked."""
        return self.blocked_s


class OverdueWatch:
    """How long one run has been at the record it is at. Owner: the loop thread.

    Time counts only as far as it was watched: a process that was stopped for a minute has not worked for a minute.
    """

    __slots__ = ("at", "begun_at", "spent_s")

    def __init__(self) -> None:
        self.begun_at = 0.0
        self.at = -1
        self.spent_s = 0.0

    def look(self, begun_at: float, at: int, passed_s: float) -> float:
        """The run is at record `at` now; `passed_s` have been watched since the last look. Seconds spent on it."""
        if at == self.at and begun_at == self.begun_at:
            self.spent_s += passed_s
        else:
            self.begun_at, self.at, self.spent_s = begun_at, at, 0.0
        return self.spent_s

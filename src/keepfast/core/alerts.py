"""When people want to be woken: the thresholds of a consumer's alerts. Nothing in a running app reads them; the rules
for Prometheus are made from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from keepfast.core import checks
from keepfast.core.errors import ConfigError

TopicKind = Literal["financial", "notification", "other"]
TOPIC_KINDS: Final[tuple[TopicKind, ...]] = ("financial", "notification", "other")

LAG_OF_KIND: Final[dict[TopicKind, tuple[int, int]]] = {
    "financial": (100, 1_000),
    "notification": (500, 5_000),
    "other": (1_000, 10_000),
}
"""Records of lag above which there is a warning, and above which it is critical."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertPolicy:
    """What is too much. Shares are of the records that reach their end; lags and letters are counted in records.

    `kind` None: that of the retry profile if it is one, else `other`. `lag_warning` and `lag_critical` None: those of
    the kind. `lag_s` None: nobody is told how old records are. `for_s`: how long it must be so. `without`: names of
    alerts that are left out.
    """

    kind: TopicKind | None = None
    lag_warning: int | None = None
    lag_critical: int | None = None
    lag_s: float | None = None
    partition_lag: int = 10_000
    error_share: float = 0.05
    letter_share: float = 0.01
    publish_failure_share: float = 0.10
    letters_warning: int = 0
    letters_critical: int = 10
    rebalances_per_hour: int = 1
    for_s: float = 300.0
    runbook_url: str = "runbook.html"
    without: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        shares = ("error_share", "letter_share", "publish_failure_share")
        counts = ("partition_lag", "letters_warning", "letters_critical", "rebalances_per_hour")
        found = {name: checks.number(getattr(self, name), 0, 1) for name in shares}
        found |= {name: checks.whole(getattr(self, name), 0) for name in counts}
        for name in ("lag_warning", "lag_critical"):
            if getattr(self, name) is not None:
                found[name] = checks.whole(getattr(self, name), 0)
        if self.lag_s is not None:
            found["lag_s"] = checks.number(self.lag_s, 0)
        if self.kind is not None:
            found["kind"] = checks.one_of(self.kind, TOPIC_KINDS)
        found["for_s"] = checks.number(self.for_s, 0, 86_400)
        found["runbook_url"] = checks.text(self.runbook_url)
        found["without"] = checks.texts(self.without)
        problems = [f"alerts: {name} {problem}." for name, problem in found.items() if problem]
        if not problems and self.lag[0] > self.lag[1]:
            problems.append(f"alerts: lag_warning ({self.lag[0]:,}) must not be above lag_critical ({self.lag[1]:,}).")
        if not problems and self.letters_warning > self.letters_critical:
            problems.append("alerts: letters_warning must not be above letters_critical.")
        if problems:
            raise ConfigError(*problems)

    @property
    def lag(self) -> tuple[int, int]:
        """Above the first there is a warning; above the second it is critical."""
        warning, critical = LAG_OF_KIND[self.kind or "other"]
        return (
            warning if self.lag_warning is None else self.lag_warning,
            critical if self.lag_critical is None else self.lag_critical,
        )

"""When people want to be woken: the thresholds of a consumer's alerts. Nothing in a running app reads them; the rules
for Prometheus are made from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, Literal, get_args

from keepfast.core.fields import Derived, Doc, Findings, NameList, Policy, Range, Text

TopicKind = Literal["financial", "notification", "other"]
TOPIC_KINDS: Final[tuple[TopicKind, ...]] = get_args(TopicKind)

LAG_OF_KIND: Final[dict[TopicKind, tuple[int, int]]] = {
    "financial": (100, 1_000),
    "notification": (500, 5_000),
    "other": (1_000, 10_000),
}
"""Records of lag above which there is a warning, and above which it is critical."""


def _lag_by_kind(severity: int) -> str:
    return "by kind: " + ", ".join(f"{kind} {limits[severity]}" for kind, limits in LAG_OF_KIND.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertPolicy(Policy):
    """What is too much. Shares are of the records that reach their end; lags and letters are counted in records.

    `kind` None: that of the retry profile if it is one, else `other`. `lag_warning` and `lag_critical` None: those of
    the kind. `lag_s` None: no alert on the age of records. `for_s`: how long it must be so. `without`: names of alerts
    that are left out.
    """

    section: ClassVar[str] = "alerts"

    kind: Annotated[
        TopicKind | None,
        Doc("Decides how much lag is too much."),
        Derived("the retry profile, if it is one of these; else other"),
    ] = None
    lag_warning: Annotated[int | None, Range(0), Doc("A warning above this lag."), Derived(_lag_by_kind(0))] = None
    lag_critical: Annotated[int | None, Range(0), Doc("Critical above this lag."), Derived(_lag_by_kind(1))] = None
    lag_s: Annotated[
        float | None,
        Range(0),
        Doc("A warning when a record is older than this and not finished."),
        Derived("no such alert"),
    ] = None
    partition_lag: Annotated[int, Range(0), Doc("The lag of a partition that is high for any topic.")] = 10_000
    error_share: Annotated[float, Range(0, 1), Doc("Failed attempts, as a share of processed records.")] = 0.05
    letter_share: Annotated[float, Range(0, 1), Doc("Dead letters, as a share of processed records.")] = 0.01
    publish_failure_share: Annotated[
        float, Range(0, 1), Doc("Failed attempts to publish a dead letter, as a share of all such attempts.")
    ] = 0.10
    letters_warning: Annotated[int, Range(0), Doc("A warning above this many unresolved dead letters of a topic.")] = 0
    letters_critical: Annotated[int, Range(0), Doc("Critical above this many unresolved dead letters of a topic.")] = 10
    rebalances_per_hour: Annotated[
        int, Range(0), Doc("More than this is frequent, beside those of processes that come and go.")
    ] = 1
    for_s: Annotated[float, Range(0, 86_400), Doc("How long a condition must hold before an alert fires.")] = 300.0
    runbook_url: Annotated[
        str,
        Text("the address of a page"),
        Doc("Where your people find the runbook; each alert links to its section there."),
    ] = "runbook.html"
    without: Annotated[
        tuple[str, ...], NameList(may_be_empty=True), Doc("Names of alerts that are not to be written.")
    ] = ()

    def _check_together(self, findings: Findings) -> None:
        if findings.fine("kind", "lag_warning", "lag_critical") and self.lag[0] > self.lag[1]:
            findings.add(f"lag_warning ({self.lag[0]:,}) must not be above lag_critical ({self.lag[1]:,}).")
        if findings.fine("letters_warning", "letters_critical") and self.letters_warning > self.letters_critical:
            findings.add("letters_warning must not be above letters_critical.")

    @property
    def lag(self) -> tuple[int, int]:
        """Above the first there is a warning; above the second it is critical."""
        warning, critical = LAG_OF_KIND[self.kind or "other"]
        return (
            warning if self.lag_warning is None else self.lag_warning,
            critical if self.lag_critical is None else self.lag_critical,
        )

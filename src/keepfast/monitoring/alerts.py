"""The alerts of an app: what is too much by its settings, said in PromQL over the metrics of the catalogue.

A share is compared by multiplication, not division: while nothing at all is processed any error is too much, and
nothing becomes a NaN that fires never. `increase` extrapolates, so counts are rounded before they are compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from keepfast.core.errors import ConfigError
from keepfast.monitoring.queries import TopicSeries, series
from keepfast.settings import ConsumerSettings, Settings
from keepfast.telemetry import catalogue as cat

Severity = Literal["warning", "critical"]
SEVERITIES: Final[tuple[Severity, Severity]] = ("warning", "critical")

MAX_TURN_S: Final = 60
"""A loop that has not turned for so long is stuck, and what it shows of its partitions stands still with it."""
NEARLY: Final = 0.9
"""The process ends at the deadline of a shutdown; the last scrape before shows less than the whole of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One rule. `section` is the anchor in the runbook."""

    name: str
    expr: str
    for_s: float
    severity: Severity
    summary: str
    description: str
    section: str
    runbook_url: str
    labels: tuple[tuple[str, str], ...] = ()

    @property
    def link(self) -> str:
        return f"{self.runbook_url.partition('#')[0]}#{self.section}"


def alerts_of(settings: Settings) -> dict[str, list[Alert]]:
    """By the group of rules they stand in: one for each consumer, and one for the app. Raises ConfigError if the
    settings leave out an alert that does not exist.
    """
    found = {f"keepfast {settings.app.name}": list(_app(settings))}
    for consumer in settings.consumers.values():
        topics = [TopicSeries(consumer, topic) for topic in consumer.topics]
        alerts = [alert for topic in topics for alert in (*_shares(topic), *_amounts(topic))]
        found[f"keepfast {consumer.group}"] = [*alerts, *_group(consumer)]
    known = sorted({alert.name for alerts in found.values() for alert in alerts})
    problems = [
        f"consumer {consumer.name}: alerts.without names {name!r}, which is no alert; there are {', '.join(known)}."
        for consumer in settings.consumers.values()
        for name in consumer.alerts.without
        if name not in known
    ]
    if problems:
        raise ConfigError(*problems)
    without = {f"keepfast {one.group}": one.alerts.without for one in settings.consumers.values()}
    everywhere = [set(one.alerts.without) for one in settings.consumers.values()]
    without[f"keepfast {settings.app.name}"] = tuple(set.intersection(*everywhere)) if everywhere else ()
    return {group: [one for one in alerts if one.name not in without[group]] for group, alerts in found.items()}


def _app(settings: Settings) -> Iterator[Alert]:
    """What concerns the process, not a consumer."""
    consumers = list(settings.consumers.values())
    url = consumers[0].alerts.runbook_url
    labels = (("app", settings.app.name),)
    info = series(cat.INFO, app=settings.app.name)
    yield Alert(
        name="KeepfastDown",
        expr=f"absent({info})",
        for_s=max(one.alerts.for_s for one in consumers),
        severity="critical",
        summary=f"No process of {settings.app.name} answers",
        description="Prometheus reaches no process of the app: nothing is processed, and no other alert can fire.",
        section="it-does-not-start",
        runbook_url=url,
        labels=labels,
    )
    took, may_take = series(cat.SHUTDOWN), series(cat.SHUTDOWN_TIMEOUT)
    yield Alert(
        name="KeepfastShutdownTimeout",
        expr=(
            f"max_over_time({took}[10m]) > {NEARLY} * max_over_time({may_take}[10m])"
            f" and on (job, instance) last_over_time({info}[10m])"
        ),
        for_s=0,
        severity="warning",
        summary=f"A process of {settings.app.name} took its whole time to stop",
        description="After {{ $value | humanizeDuration }} handlers were still at work; what was not finished comes"
        " again. The log has deadline_passed.",
        section="it-takes-too-long-to-stop",
        runbook_url=url,
        labels=labels,
    )


def _shares(of: TopicSeries) -> Iterator[Alert]:
    """Of one topic: errors, letters, and letters that cannot be written, as shares."""
    policy, topic = of.consumer.alerts, of.topic
    processed = of.rate(cat.PROCESSED)
    for name, metric, share, what, section in (
        ("KeepfastHighErrorRate", cat.ERRORS, policy.error_share, "Failed attempts", "lag-grows-though-it-works"),
        ("KeepfastHighDeadLetterRate", cat.DEAD_LETTERS, policy.letter_share, "Dead letters", "dead-letters-pile-up"),
    ):
        yield _alert(
            of,
            name,
            f"{of.rate(metric)} > {share:g} * {processed}",
            "warning",
            summary=f"{what} are more than {_percent(share)} of the records of {topic}",
            description="{{ $value | humanize }} a second; `keepfast dlq list` and the log have the causes.",
            section=section,
        )
    failures = of.rate(cat.PUBLISH_FAILURES)
    # Before the first letter there is no series of letters, and nothing to add to.
    attempts = f"({failures} + ({of.rate(cat.DEAD_LETTERS)} or 0 * {failures}))"
    share = policy.publish_failure_share
    yield _alert(
        of,
        "KeepfastDeadLettersNotPublished",
        f"{failures} > {share:g} * {attempts}",
        "critical",
        summary=f"More than {_percent(share)} of the attempts to publish dead letters of {topic} fail",
        description="Each letter holds its lane, uncommitted, until it is somewhere.",
        section="letters-cannot-be-written",
    )


def _amounts(of: TopicSeries) -> Iterator[Alert]:
    """Of one topic: lag and letters, as numbers."""
    policy, topic = of.consumer.alerts, of.topic
    yield _alert(
        of,
        "KeepfastHighPartitionLag",
        f"max by (group, topic, partition) ({of.of(cat.LAG)}) > {policy.partition_lag}",
        "warning",
        summary=f"A partition of {topic} lags by more than {policy.partition_lag:,} records",
        description="Partition {{ $labels.partition }} lags by {{ $value | humanize }} records.",
        section="lag-grows-though-it-works",
    )
    for severity, limit in zip(SEVERITIES, policy.lag, strict=True):
        yield _alert(
            of,
            "KeepfastLag",
            f"max by (group, topic) ({of.of(cat.LAG)}) > {limit}",
            severity,
            summary=f"{topic} ({policy.kind or 'other'}) lags by more than {limit:,} records",
            description="Its worst partition lags by {{ $value | humanize }} records; `keepfast lag` shows all.",
            section="lag-grows-though-it-works",
        )
    if policy.lag_s is not None:
        yield _alert(
            of,
            "KeepfastOldRecords",
            f"max by (group, topic, partition) ({of.of(cat.LAG_AGE)}) > {policy.lag_s:g}",
            "warning",
            summary=f"Records of {topic} are older than {policy.lag_s:g} s and not finished",
            description="The oldest of partition {{ $labels.partition }} is {{ $value | humanizeDuration }} old.",
            section="lag-grows-though-it-works",
        )
    letters = of.of(cat.DLQ_MESSAGES, dead_letter_topic=of.dead_letter_topic)
    # What a process buried before it was first scraped is no increase of its series: a series younger than a day counts
    # as it is.
    buried = f"sum by (group, topic) (({letters} unless {letters} offset 1d) or increase({letters}[1d]))"
    for severity, limit in zip(SEVERITIES, (policy.letters_warning, policy.letters_critical), strict=True):
        yield _alert(
            of,
            "KeepfastDeadLetters",
            f"round({buried}) > {limit}",
            severity,
            summary=f"More than {limit:,} dead letters of {topic} within a day",
            description="{{ $value | humanize }} letters; `keepfast dlq list` has one line for each cause.",
            section="dead-letters-pile-up",
            for_s=0,
        )


def _group(consumer: ConsumerSettings) -> Iterator[Alert]:
    """Of a whole consumer."""
    labels = (("consumer", consumer.name),)
    stuck, age = (series(metric, group=consumer.group) for metric in (cat.STUCK, cat.LOOP_AGE))
    yield Alert(
        name="KeepfastStuckPartitions",
        expr=f"sum by (group) ({stuck}) > 0 or max by (group) ({age}) > {MAX_TURN_S}",
        for_s=60,
        severity="critical",
        summary=f"Partitions of {consumer.group} are stuck: their lag grows and nothing finishes",
        description="A record waits or hangs, or the loop does not turn; /health says which.",
        section="nothing-is-processed",
        runbook_url=consumer.alerts.runbook_url,
        labels=labels,
    )
    limit = consumer.alerts.rebalances_per_hour
    joined = series(cat.REBALANCES, event="assigned", group=consumer.group)
    yield Alert(
        name="KeepfastFrequentRebalances",
        expr=f"max by (group) (round(increase({joined}[1h]))) > {limit}",
        for_s=0,
        severity="warning",
        summary=f"The group {consumer.group} rebalanced more than {limit} times within an hour",
        description="{{ $value | humanize }} times; members come and go, or one is silent for too long.",
        section="frequent-rebalances",
        runbook_url=consumer.alerts.runbook_url,
        labels=labels,
    )


def _alert(
    of: TopicSeries,
    name: str,
    expr: str,
    severity: Severity,
    *,
    summary: str,
    description: str,
    section: str,
    for_s: float | None = None,
) -> Alert:
    policy = of.consumer.alerts
    return Alert(
        name=name,
        expr=expr,
        for_s=policy.for_s if for_s is None else for_s,
        severity=severity,
        summary=f"{summary} ({of.consumer.group})",
        description=description,
        section=section,
        runbook_url=policy.runbook_url,
        labels=(("consumer", of.consumer.name), ("kind", policy.kind or "other")),
    )


def _percent(share: float) -> str:
    return f"{share * 100:g} %"

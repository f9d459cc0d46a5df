"""The alerts of an app, with thresholds from its settings, and the rules file for Prometheus.

Ratios are compared by multiplication, not division: while no record is processed any error exceeds the threshold, where
a division would give NaN, which never fires. `increase` extrapolates, so counts are rounded before the comparison.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from keepfast.core.errors import ConfigError
from keepfast.monitoring.promql import TopicSeries, series
from keepfast.settings import ConsumerSettings, Settings
from keepfast.telemetry import catalogue as cat

Severity = Literal["warning", "critical"]
SEVERITIES: Final[tuple[Severity, Severity]] = ("critical", "warning")

MAX_TURN_S: Final = 60
"""A loop whose iteration takes longer is stuck, and so are the gauges that it records."""
REBALANCES_A_PROCESS: Final = 4
"""A process that comes or goes causes up to two rebalances, and a cooperative one is made in two steps."""
FAILING_COMMITS: Final = 0.5
"""As a share of all commits; a few fail in every rebalance."""
ANSWERS: Final = 0.5
"""The share of five minutes in which a child process answers its supervisor at least. One restart, or a start that
takes two minutes, is no alert; a child that hangs after each restart answers for seconds of each minute.
"""
FORGOTTEN_S: Final = 600
"""A pause by an operator that lasts longer may have been forgotten."""
REPLACED_CLIENTS: Final = 2
"""More clients than this within ten minutes that failed are no accident."""
RESTART: Final = "5m"
"""Unresolved letters are not counted while the process that counts them restarts: sessions, rebalance and first count.
"""
MAX_STEP_S: Final = 60.0
STEPS: Final = 5
"""A period is looked at in so many steps at least, and once in MAX_STEP_S."""
NEARLY: Final = 0.9
"""The process ends at the deadline of a shutdown; the last scrape before it shows a shorter duration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """An alerting rule. `section` is its anchor in the runbook."""

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
    """By rule group: one for each consumer, and one for the app. Raises ConfigError if `alerts.without` names an alert
    that does not exist.
    """
    found = {f"keepfast {settings.app.name}": list(_app(settings))}
    for consumer in settings.consumers.values():
        topics = [TopicSeries(consumer, topic) for topic in consumer.topics]
        alerts = [alert for topic in topics for alert in (*_shares(topic), *_amounts(topic))]
        found[f"keepfast {consumer.group}"] = [*alerts, *_group(settings.app.name, consumer)]
    known = sorted({alert.name for alerts in found.values() for alert in alerts})
    problems = [
        f"consumer {consumer.name}: alerts.without names {name!r}, which is not an alert; there are {', '.join(known)}."
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
    """The alerts about the process."""
    consumers = list(settings.consumers.values())
    url = consumers[0].alerts.runbook_url
    labels = (("app", settings.app.name),)
    info = series(cat.INFO, app=settings.app.name)
    yield Alert(
        name="KeepfastDown",
        expr=f"absent({info})",
        for_s=max(one.alerts.for_s for one in consumers),
        severity="critical",
        summary=f"No process of {settings.app.name} can be scraped",
        description="Prometheus can scrape no process of the app: no record is processed, and no other alert can fire.",
        section="it-does-not-start",
        runbook_url=url,
        labels=labels,
    )
    up = f"avg by (job, instance, process) (avg_over_time({series(cat.PROCESS_UP)}[5m]))"
    yield Alert(
        name="KeepfastProcessDown",
        expr=f"{up} < {ANSWERS} and on (job, instance) {info}",
        for_s=max(one.alerts.for_s for one in consumers),
        severity="critical",
        summary=f"A child process of {settings.app.name} is down again and again, or does not answer",
        description="Process {{ $labels.process }} answered in {{ $value | humanizePercentage }} of five minutes; the"
        " log has child_silent, child_not_live or child_ended.",
        section="nothing-is-processed",
        runbook_url=url,
        labels=labels,
    )
    took, may_take = series(cat.SHUTDOWN), series(cat.SHUTDOWN_TIMEOUT)
    seen = f"max_over_time({took}[10m]) > {NEARLY} * max_over_time({may_take}[10m])"
    yield Alert(
        name="KeepfastShutdownTimeout",
        expr=(
            f"(max by (job, instance) ({seen}) or sum by (job, instance) ({_new(series(cat.SHUTDOWN_TIMEOUTS))}) > 0)"
            f" and on (job, instance) last_over_time({info}[10m])"
        ),
        for_s=0,
        severity="warning",
        summary=f"A process of {settings.app.name} reached its shutdown timeout",
        description="Handlers were still running; unfinished records are redelivered. The log has deadline_passed, and"
        " previous_shutdown_timed_out at the next start.",
        section="it-takes-too-long-to-stop",
        runbook_url=url,
        labels=labels,
    )
    if settings.spool.url is not None:
        yield Alert(
            name="KeepfastSpooledLetters",
            expr=f"max by (job, instance) ({series(cat.SPOOL_LETTERS)}) > 0 and on (job, instance) {info}",
            for_s=max(one.alerts.for_s for one in consumers),
            severity="warning",
            summary=f"Dead letters of {settings.app.name} wait in the spool",
            description="{{ $value | humanize }} letters that Kafka has not accepted; the log has dead_letter_spooled.",
            section="letters-cannot-be-written",
            runbook_url=url,
            labels=labels,
        )


def _shares(of: TopicSeries) -> Iterator[Alert]:
    """The alerts about ratios of a topic: errors, dead letters, and failed publishes of dead letters."""
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
            description="{{ $value | humanize }} per second; `keepfast dlq causes` and the log show the causes.",
            section=section,
        )
    failures = of.rate(cat.PUBLISH_FAILURES)
    # Before the first letter there is no series of letters: count 0.
    attempts = f"({failures} + ({of.rate(cat.DEAD_LETTERS)} or 0 * {failures}))"
    share = policy.publish_failure_share
    yield _alert(
        of,
        "KeepfastDeadLettersNotPublished",
        f"{failures} > {share:g} * {attempts}",
        "critical",
        summary=f"More than {_percent(share)} of the attempts to publish dead letters of {topic} fail",
        description="Each letter blocks its lane, uncommitted, until it is published or spooled.",
        section="letters-cannot-be-written",
    )


def _amounts(of: TopicSeries) -> Iterator[Alert]:
    """The alerts about amounts of a topic: lag and dead letters. Lag is what is not finished: what is finished above a
    record that hangs needs no more work.
    """
    policy, topic = of.consumer.alerts, of.topic
    yield _alert(
        of,
        "KeepfastHighPartitionLag",
        f"max by (group, topic, partition) ({of.of(cat.BEHIND)}) > {policy.partition_lag}",
        "warning",
        summary=f"A partition of {topic} lags by more than {policy.partition_lag:,} records",
        description="Partition {{ $labels.partition }} lags by {{ $value | humanize }} records.",
        section="lag-grows-though-it-works",
    )
    # One period for both: with `for`, the warning would begin to wait when the lag falls below the critical limit.
    lag, began = _lowest(f"max by (group, topic) ({of.of(cat.BEHIND)})", policy.for_s)
    for severity, limit, below in _pair(*policy.lag):
        yield _alert(
            of,
            "KeepfastLag",
            f"{lag} > {limit}{below}{began}",
            severity,
            summary=f"{topic} ({policy.kind or 'other'}) lags by more than {limit:,} records",
            description="Its worst partition lags by at least {{ $value | humanize }} records; `keepfast lag` shows"
            " all.",
            section="lag-grows-though-it-works",
            for_s=0,
        )
    if policy.lag_s is not None:
        yield _alert(
            of,
            "KeepfastOldRecords",
            f"max by (group, topic, partition) ({of.of(cat.LAG_AGE)}) > {policy.lag_s:g}",
            "warning",
            summary=f"Unfinished records of {topic} are older than {policy.lag_s:g} s",
            description="The oldest of partition {{ $labels.partition }} is {{ $value | humanizeDuration }} old.",
            section="lag-grows-though-it-works",
        )
    letters = of.of(cat.DLQ_MESSAGES, dead_letter_topic=of.dead_letter_topic)
    counted = of.of(cat.UNRESOLVED)
    unresolved = f"(max by (group, topic) ({counted}) or max by (group, topic) (last_over_time({counted}[{RESTART}])))"
    # Where unresolved ones are not counted (no right to read the letters), new ones are.
    new = f"round(sum by (group, topic) ({_new(letters)}))"
    for severity, limit, below in _pair(policy.letters_warning, policy.letters_critical):
        yield _alert(
            of,
            "KeepfastDeadLetters",
            f"({unresolved} or {new}) > {limit}{below}",
            severity,
            summary=f"More than {limit:,} dead letters of {topic} are unresolved",
            description="{{ $value | humanize }} records; `keepfast dlq causes "
            f"{of.dead_letter_topic}` shows the causes. It clears when they are replayed with success or discarded.",
            section="dead-letters-pile-up",
            for_s=0,
        )


def _pair(warning: int, critical: int) -> Iterator[tuple[Severity, int, str]]:
    """Severity, limit and the end of the condition of two alerts on one value, of which at most one fires."""
    for severity, limit in zip(SEVERITIES, (critical, warning), strict=True):
        yield severity, limit, "" if severity == "critical" else f" <= {critical}"


def _lowest(value: str, period_s: float) -> tuple[str, str]:
    """The lowest value of the period, and a condition: the value existed before the period, so that a process that has
    just started is given that time.
    """
    if period_s < 1:
        return value, ""
    period, step = _seconds(period_s), _seconds(min(MAX_STEP_S, period_s / STEPS))
    before = f"count_over_time({value}[{period}:{step}] offset {period})"
    return f"min_over_time({value}[{period}:{step}])", f" and on (group, topic) {before}"


def _new(counted: str, over: str = "10m") -> str:
    """How much was counted lately. What was counted before the first scrape of a process is no increase of its series:
    of a younger series, take the value, also when its process has ended.
    """
    return f"(max_over_time({counted}[{over}]) unless {counted} offset {over}) or increase({counted}[{over}])"


def _group(app: str, consumer: ConsumerSettings) -> Iterator[Alert]:
    """The alerts about a consumer."""
    yield from _guards(consumer)
    labels = (("consumer", consumer.name),)
    stuck, age = (series(metric, group=consumer.group) for metric in (cat.STUCK, cat.LOOP_AGE))
    yield Alert(
        name="KeepfastStuckPartitions",
        expr=f"sum by (group) ({stuck}) > 0 or max by (group) ({age}) > {MAX_TURN_S}",
        for_s=60,
        severity="critical",
        summary=f"Partitions of {consumer.group} are stuck: their lag grows and no record finishes",
        description="A handler does not return, or the loop is stuck; /health shows which.",
        section="nothing-is-processed",
        runbook_url=consumer.alerts.runbook_url,
        labels=labels,
    )
    limit = consumer.alerts.rebalances_per_hour
    joined = series(cat.REBALANCES, event="assigned", group=consumer.group)
    # A deploy brings series of another instance or version, and takes old ones away; a crash brings back the same.
    info = series(cat.INFO, app=app)
    came, went = f"last_over_time({info}[1h]) unless {info} offset 1h", f"{info} offset 1h unless {info}"
    processes = f"(scalar(count({came}) or vector(0)) + scalar(count({went}) or vector(0)))"
    yield Alert(
        name="KeepfastFrequentRebalances",
        expr=(f"max by (group) (round(increase({joined}[1h]))) > {limit} + {REBALANCES_A_PROCESS} * {processes}"),
        for_s=0,
        severity="warning",
        summary=f"The group {consumer.group} rebalanced more often within an hour than deploys explain",
        description="{{ $value | humanize }} times; members crash and come back, or exceed a timeout. The log has"
        " partitions_revoked, partitions_assigned and partitions_lost.",
        section="frequent-rebalances",
        runbook_url=consumer.alerts.runbook_url,
        labels=labels,
    )


_Row = tuple[str, str, float, Severity, str, str]
"""Name, expression, for how long, severity, summary and description of an alert about a consumer."""


def _guards(consumer: ConsumerSettings) -> Iterator[Alert]:
    """The alerts about what stops a consumer, or is about to."""
    policy, group = consumer.alerts, consumer.group
    breaker, storm, abandoned, commits, failures = (
        series(metric, group=group)
        for metric in (cat.BREAKER_OPEN, cat.STORM_HELD, cat.ABANDONED, cat.COMMITS, cat.COMMIT_FAILURES)
    )
    sent, failed = (f"sum by (group) (increase({one}[5m]))" for one in (commits, failures))
    held = series(cat.HOLD, hold="commit", group=group)
    found: list[_Row] = []
    if consumer.breaker is not None:
        text = "A downstream fails, and records wait for it; the log has breaker_opened with the rule."
        found.append(
            ("BreakerOpen", f"max by (group) ({breaker}) > 0", 60, "warning", f"The breaker of {group} is open", text)
        )
    if consumer.storm_guard is not None:
        text = "Nearly all of its records would be dead-lettered; the log has storm_guard_tripped. Deploy a fix."
        found.append(
            ("StormGuard", f"max by (group) ({storm}) > 0", 0, "critical", f"The storm guard stopped {group}", text)
        )
    found += [
        (
            "CommitsFail",
            f"max by (group) ({held}) > 0 or ({failed} > 3 and {failed} > {FAILING_COMMITS} * {sent})",
            60,
            "critical",
            f"Commits of {group} fail",
            "What is finished is not committed, and nothing new may start; the log has commit_failed with the code.",
        ),
        (
            "AbandonedThreads",
            f"sum by (group) ({abandoned}) > 0",
            policy.for_s,
            "warning",
            f"Handlers of {group} do not return after their timeout",
            "{{ $value | humanize }} threads are lost; the log has handler_timed_out. At max_abandoned it stops.",
        ),
    ]
    found += _stalls(group)
    for name, expr, for_s, severity, summary, description in found:
        yield Alert(
            name=f"Keepfast{name}",
            expr=expr,
            for_s=for_s,
            severity=severity,
            summary=summary,
            description=description,
            section="nothing-is-processed",
            runbook_url=policy.runbook_url,
            labels=(("consumer", consumer.name),),
        )


def _stalls(group: str) -> list[_Row]:
    """The alerts about a consumer that does not progress although no guard holds it."""
    stuck, paused, ended, replaced, missing = (
        series(metric, group=group)
        for metric in (cat.STUCK_HANDLERS, cat.PAUSE_AGE, cat.ENDED, cat.CLIENTS_REPLACED, cat.NOT_FETCHED)
    )
    return [
        (
            "PartitionsNotFetched",
            f"sum by (group) ({missing}) > 0",
            60,
            "critical",
            f"Partitions of {group} have records that are not fetched",
            (
                "{{ $value | humanize }} partitions, though the client was replaced; the log has partition_not_fetched"
                " with the position and the end."
            ),
        ),
        (
            "StuckHandlers",
            f"sum by (group) ({stuck}) > 0",
            60,
            "warning",
            f"Handlers of {group} do not return",
            (
                "{{ $value | humanize }} calls have run for longer than they should, and their lanes wait; the log"
                " has handler_stuck with the stack."
            ),
        ),
        (
            "ForgottenPause",
            f"max by (group) ({paused}) > {FORGOTTEN_S}",
            0,
            "warning",
            f"{group} has been paused by an operator for more than {FORGOTTEN_S // 60} minutes",
            (
                "The pause is {{ $value | humanizeDuration }} old; `keepfast ctl resume` ends it. The log has"
                " consumer_held or partition_held with hold=operator."
            ),
        ),
        (
            "ClientFailed",
            f"max by (group) ({ended}) > 0 or round(sum by (group) (increase({replaced}[10m]))) > {REPLACED_CLIENTS}",
            60,
            "critical",
            f"The Kafka client of {group} fails",
            (
                "The consumer has ended while its process runs, or its client fails again and again; the log has"
                " client_error, client_replaced or consumer_halted."
            ),
        ),
    ]


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


# -- the rules file


def rules_file(groups: Mapping[str, Sequence[Alert]], *, target: str) -> str:
    """The rules file of Prometheus. It is YAML in which every string is written as in JSON, which is valid YAML."""
    return "\n".join(_lines(groups, target)) + "\n"


def _lines(groups: Mapping[str, Sequence[Alert]], target: str) -> Iterator[str]:
    command = f"keepfast monitoring {' '.join(target.split())}"
    yield f"# Generated by `{command}`. To change it, change the settings in [alerts] and generate it again."
    yield "groups:"
    for name, alerts in groups.items():
        yield f"  - name: {_text(name)}"
        yield "    rules:" if alerts else "    rules: []"
        for alert in alerts:
            yield f"      - alert: {alert.name}"
            yield f"        expr: {_text(alert.expr)}"
            if alert.for_s:
                yield f"        for: {_seconds(alert.for_s)}"
            yield "        labels:"
            for label, value in (("severity", alert.severity), *alert.labels):
                yield f"          {label}: {_text(_literal(value))}"
            yield "        annotations:"
            yield f"          summary: {_text(_literal(alert.summary))}"
            yield f"          description: {_text(alert.description)}"
            yield f"          runbook_url: {_text(_literal(alert.link))}"


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _literal(text: str) -> str:
    """Names that look like a template are not expanded."""
    return text.replace("{{", "{{ `{{` }}")


def _seconds(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms" if seconds % 1 else f"{seconds:.0f}s"

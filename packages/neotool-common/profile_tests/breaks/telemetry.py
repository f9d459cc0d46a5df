"""Breaks of logs, metrics, health, traces and alerts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace as copy
from typing import Any

import msgspec
from profile_tests.breaking import add, breaks, change, replace
from profile_tests.breaks.settings import default

from keepfast.core import alerts as thresholds
from keepfast.core.alerts import AlertPolicy
from keepfast.core.events import RecordFailed
from keepfast.engine import metrics, status
from keepfast.engine.counts import FailureCounts
from keepfast.engine.fetch_watch import FetchWatch
from keepfast.engine.lifecycle import Lifecycle
from keepfast.engine.status import LoopStatus
from keepfast.http import health
from keepfast.monitoring import alerts
from keepfast.telemetry import catalogue, event_log, prometheus
from keepfast.telemetry.logs import JsonFormatter
from keepfast.telemetry.tracing import Tracing

# -- logs


class _Logger:
    """The logger of consumers, with another level for an event, or another name for a field."""

    def __init__(self, *, level: Callable[[str, str], str] | None = None, field: str = "") -> None:
        self._logger = event_log.consumer
        self._level = level or (lambda event, level: level)
        self._field = field

    def __getattr__(self, level: str) -> Callable[..., None]:
        def log(event: str, **fields: Any) -> None:
            if self._field in fields:
                fields[f"{self._field}x"] = fields.pop(self._field)
            getattr(self._logger, self._level(event, level))(event, **fields)

        return log


def _logged(**change_: Any) -> Callable[[], object]:
    return lambda: replace(event_log, "consumer", _Logger(**change_))


def _at(event: str, level: str) -> Callable[[], object]:
    return _logged(level=lambda each, usual: level if each == event else usual)


add("LOGGED", "a_retry_is_information", _at("retry_scheduled", "info"))
add("LOGGED", "the_end_of_retries_is_a_warning", _at("dead_lettering", "warning"))
add("LOGGED", "a_final_error_is_an_error", _at("dead_lettering", "error"))
add("LOGGED", "a_letter_is_a_warning", _at("dead_lettered", "warning"))
for _field in ("retry_count", "error_type", "consumer_group", "partition", "offset", "backoff_delay_ms"):
    add("LOGGED", f"lines_have_no_{_field}", _logged(field=_field))


def _json_line(edit: Callable[[dict[str, Any]], object]) -> None:
    def format_(self: JsonFormatter, record: Any) -> str:
        line = json.loads(before(self, record))
        edit(line)
        return json.dumps(line)

    before = replace(JsonFormatter, "format", format_)


@breaks("STRUCTURED")
def the_event_is_called_message() -> None:
    _json_line(lambda line: line.update(message=line.pop("event")))


@breaks("STRUCTURED")
def a_line_has_no_level() -> None:
    _json_line(lambda line: line.pop("level"))


# -- counts and metrics


@breaks("COUNTED")
def errors_are_not_told_apart() -> None:
    def failed(self: FailureCounts, labels: Any, exemplar: Any = None) -> None:
        self.errors += 1

    replace(FailureCounts, "failed", failed)


@breaks("COUNTED")
def letters_are_not_told_apart() -> None:
    def was_dead_lettered(self: FailureCounts, labels: Any, exemplar: Any = None) -> None:
        self.dead_lettered += 1

    replace(FailureCounts, "was_dead_lettered", was_dead_lettered)


@breaks("COUNTED")
def retries_are_not_told_apart() -> None:
    def retried(self: FailureCounts, number: int, delay_s: float) -> None:
        before(self, number, delay_s)
        self.retries_by_attempt = [0] * len(self.retries_by_attempt)

    before = replace(FailureCounts, "retried", retried)


def _topic_families(edit: Callable[[Any], Any]) -> None:
    def topic(*facts: Any) -> Iterator[Any]:
        for family in before(*facts):
            edited = edit(family)
            if edited is not None:
                yield edited

    before = replace(metrics, "_topic", topic)


def _without_family(metric: Any) -> Callable[[], None]:
    ending = metric.name.removeprefix("{domain}.{entity}")
    return lambda: _topic_families(lambda family: None if family.dotted.endswith(ending) else family)


for _name in ("DURATION", "RETRIES", "RETRY_DELAY", "DEAD_LETTERS", "ERRORS"):
    add("EXPOSED", f"there_is_no_{_name.lower()}", _without_family(getattr(catalogue, _name)))


@breaks("EXPOSED")
def failures_are_not_processed_records() -> None:
    def edit(family: Any) -> Any:
        if family.dotted.endswith(".processed"):
            family.samples = family.samples[:1]
        return family

    _topic_families(edit)


def _misnamed(name: str) -> Callable[[], None]:
    def make() -> None:
        [metric] = [one for one in catalogue.CATALOGUE if one.name == name]
        change(metric, name=f"{name}x")

    return make


for _name in (
    *(f"{{domain}}.{{entity}}.{of}" for of in ("processed", "processing.duration", "retry.count", "retry.delay")),
    *(f"{{domain}}.{{entity}}.{of}" for of in ("dlq.count", "error.count", "dlq.publish.failure")),
    *("kafka.consumer.lag", "kafka.consumer.records.lag.max", "kafka.consumer.records.consumed"),
    *("kafka.dlq.messages", "kafka.dlq.errors_by_type", "ingestion.events_processed", "ingestion.events_failed"),
):
    _plain = _name.replace("{domain}.{entity}.", "").replace(".", "_")
    add("METRIC_NAMES", f"{_plain}_is_misspelled", _misnamed(_name))


@breaks("PROCESS")
def the_library_is_not_asked() -> None:
    from prometheus_client import PROCESS_COLLECTOR

    replace(type(PROCESS_COLLECTOR), "collect", lambda self: ())


@breaks("PROCESS")
def the_network_is_not_read() -> None:
    replace(prometheus, "_network", lambda: iter(()))


# -- what a consumer shows


@breaks("SHOWN")
def rebalances_are_not_counted() -> None:
    def rebalanced(self: LoopStatus, what: str) -> None:
        known = dict(self.rebalances)
        before(self, what)
        self.rebalances.update(known)

    before = replace(LoopStatus, "rebalanced", rebalanced)


@breaks("IN_HAND")
def nothing_is_in_hand() -> None:
    replace(status, "_left", lambda run: 0)


def _partition_state(**edit: Callable[[Any], Any]) -> None:
    def partition(self: LoopStatus, *facts: Any) -> Any:
        found = before(self, *facts)
        return msgspec.structs.replace(found, **{name: value(found) for name, value in edit.items()})

    before = replace(LoopStatus, "_partition", partition)


@breaks("LAG")
def lag_is_the_wrong_way_round() -> None:
    _partition_state(lag=lambda found: None if found.lag is None else max(0, found.position - found.end))


@breaks("LAG")
def ends_of_paused_partitions_are_not_asked_for() -> None:
    replace(FetchWatch, "_ask", lambda *_: None)


@breaks("STUCK")
def no_partition_is_stuck() -> None:
    _partition_state(stuck=lambda found: False)


@breaks("STUCK")
def a_partition_is_stuck_although_its_lag_does_not_grow() -> None:
    _partition_state(stuck=lambda found: found.stalled_s >= status.STUCK_S)


# -- health


def _without_reason(code: str, of: str) -> None:
    def reasons(state: Any) -> Any:
        return [reason for reason in before(state) if reason.code != code]

    before = replace(health, of, reasons)


@breaks("STUCK_HEALTH")
def health_does_not_know_of_stuck_partitions() -> None:
    _without_reason("stuck_partitions", "_group")


@breaks("LETTER_HEALTH")
def health_does_not_know_of_refused_letters() -> None:
    _without_reason("dead_letters_refused", "_letters")


@breaks("HEALTH")
def health_does_not_know_of_failed_commits() -> None:
    _without_reason("commits_fail", "_group")


@breaks("HEALTH")
def health_does_not_know_of_a_lost_group() -> None:
    _without_reason("group_lost", "_group")


@breaks("PROBES")
def it_is_ready_while_it_drains() -> None:
    def reasons(seen: Any) -> Iterator[Any]:
        for reason in before(seen):
            drains = reason.code == "draining"
            yield msgspec.structs.replace(reason, fails_ready=False) if drains else reason

    before = replace(health, "_reasons", reasons)


@breaks("DRAIN_TIMED")
def nobody_knows_since_when_it_drains() -> None:
    def drain(self: Lifecycle, now: float) -> None:
        before(self, now)
        self.draining_since = None

    before = replace(Lifecycle, "_drain", drain)


@breaks("TRACED")
def what_was_decided_is_not_in_the_span() -> None:
    def on_event(self: Tracing, event: Any) -> None:
        if not isinstance(event, RecordFailed):
            return
        span = self._open.pop((event.group, event.topic, event.partition, event.offset), None)
        if span is not None:
            span.end()

    replace(Tracing, "on_event", on_event)


# -- alerts


def _alert_policy(of: str, **values: Callable[[AlertPolicy], object]) -> None:
    """In this part of the alerts the thresholds are others."""

    def part(subject: Any) -> Any:
        policy = subject.consumer.alerts
        edited = copy(policy, **{name: value(policy) for name, value in values.items()})
        return before(copy(subject, consumer=copy(subject.consumer, alerts=edited)))

    before = replace(alerts, of, part)


@breaks("ALERTS")
def errors_are_compared_with_the_share_of_letters() -> None:
    _alert_policy("_shares", error_share=lambda policy: policy.letter_share)


@breaks("ALERTS")
def letters_are_compared_with_the_share_of_errors() -> None:
    _alert_policy("_shares", letter_share=lambda policy: policy.error_share)


@breaks("ALERTS")
def refused_letters_are_compared_with_the_share_of_errors() -> None:
    _alert_policy("_shares", publish_failure_share=lambda policy: policy.error_share)


def _each_alert(edit: Callable[[Any], Any]) -> None:
    def init(self: alerts.Alert, **facts: Any) -> None:
        before(self, **facts)
        edit(self)

    before = replace(alerts.Alert, "__init__", init)


def _misnamed_alert(name: str) -> Callable[[], None]:
    def edit(alert: alerts.Alert) -> None:
        if alert.name == name:
            change(alert, name=f"{name}x")

    return lambda: _each_alert(edit)


for _name in (
    "KeepfastHighPartitionLag",
    "KeepfastStuckPartitions",
    "KeepfastFrequentRebalances",
    "KeepfastShutdownTimeout",
):
    add("ALERTS", f"{_name}_is_misspelled", _misnamed_alert(_name))


def _threshold(name: str, value: int) -> Callable[[], None]:
    return lambda: default(AlertPolicy, name, value)


add("ALERTS", "a_partition_may_lag_more", _threshold("partition_lag", 100_000))
add("ALERTS", "rebalances_may_be_more_frequent", _threshold("rebalances_per_hour", 2))
add("LETTER_ALERTS", "one_letter_is_no_warning", _threshold("letters_warning", 1))
add("LETTER_ALERTS", "eleven_letters_are_not_critical", _threshold("letters_critical", 11))


def _lag_limits(kind: Any, *limits: int) -> Callable[[], None]:
    return lambda: thresholds.LAG_OF_KIND.update({kind: (limits[0], limits[1])})


add("LAG_LIMITS", "financial_topics_may_lag_more", _lag_limits("financial", 101, 1_000))
add("LAG_LIMITS", "notifications_may_lag_more", _lag_limits("notification", 500, 5_001))
add("LAG_LIMITS", "others_may_lag_more", _lag_limits("other", 1_001, 10_000))


def _misnamed_section(section: str) -> Callable[[], None]:
    def edit(alert: alerts.Alert) -> None:
        if alert.section == section:
            change(alert, section=f"{section}x")

    return lambda: _each_alert(edit)


for _section in (
    "nothing-is-processed",
    "frequent-rebalances",
    "it-takes-too-long-to-stop",
    "letters-cannot-be-written",
):
    add("RUNBOOK", f"{_section.replace('-', '_')}_is_misspelled", _misnamed_section(_section))

"""Checks of the effective settings of an app and its consumers."""

from __future__ import annotations

from typing import Final

from keepfast.audit.rule import Check, Finding, failed, not_applicable, passed, per_app, per_consumer
from keepfast.audit.subject import AuditedConsumer, Subject
from keepfast.core.fields import floor_of
from keepfast.core.policies import TimingPolicy

OWN_SERVER: Final = "health_server_start replaces keepfast's health server"


def is_classic(one: AuditedConsumer) -> bool:
    """Return True if the classic protocol is in force. With `auto`, it is only on brokers that do not have KIP-848."""
    return one.own.group_protocol == "classic"


def left_to_the_broker(one: AuditedConsumer) -> Finding:
    """Return the finding about a setting of the classic protocol that is not in force."""
    if one.own.group_protocol == "consumer":
        return not_applicable("With group_protocol=consumer the broker decides.")
    return not_applicable("With group_protocol=auto the broker decides, unless it has no KIP-848.")


@per_consumer
def jitter(one: AuditedConsumer) -> Finding:
    retry = one.own.retry
    if retry.jitter:
        return passed("Delays vary by up to 10 %.")
    if retry.max_retries is None:
        return not_applicable("Unlimited retries have fixed intervals by default.")
    return failed("retry.jitter is off: consumers that failed together retry together.", "Set RETRY_JITTER=true.")


@per_consumer
def timings_are_safe(one: AuditedConsumer) -> Finding:
    names = ["max_poll_interval_ms"]
    names += ["session_timeout_ms", "heartbeat_interval_ms"] if is_classic(one) else []
    low = {
        name: value for name in names if (value := getattr(one.own.timings, name)) < floor_of(TimingPolicy, name).low
    }
    if not low:
        return passed(", ".join(f"{name} is {getattr(one.own.timings, name)}" for name in names) + ".")
    values = ", ".join(f"{name} is {value}, below {floor_of(TimingPolicy, name).low}" for name, value in low.items())
    return failed(f"{values}.", "Increase it, and remove unsafe_timings, which is for tests.")


@per_app
def metrics_are_exposed(subject: Subject) -> Finding:
    if subject.serves_itself and not subject.settings.metrics.otel:
        if subject.settings.metrics.port is not None:
            return passed(f"/metrics is served on port {subject.settings.metrics.port}.")
        return not_applicable(
            f"{OWN_SERVER}: serve runner.metrics() at /metrics, or remove KEEPFAST_METRICS_PORT=none."
        )
    if subject.settings.health.enabled or subject.settings.metrics.otel:
        return passed("/metrics is served." if subject.settings.health.enabled else "Exported through OpenTelemetry.")
    return failed(
        "Metrics are neither served nor exported.",
        "Remove HEALTH_CHECK_ENABLED=false, or set KEEPFAST_METRICS_OTEL=true.",
    )


@per_app
def health_is_served(subject: Subject) -> Finding:
    return passed(f"{OWN_SERVER}.") if subject.serves_itself else served(subject)


def served(subject: Subject) -> Finding:
    """Return the finding about keepfast's own health server."""
    if subject.settings.health.enabled:
        return passed(f"/health on port {subject.settings.health.port}.")
    return failed("Health is not served.", "Remove HEALTH_CHECK_ENABLED=false.")


def logged_at(level: str) -> Check:
    """Return a check that lines of this level are logged."""
    levels = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")

    def check(subject: Subject) -> Finding:
        own = subject.settings.log.level
        if levels.index(own) <= levels.index(level):
            return passed(f"log.level is {own}.")
        return failed(f"log.level is {own}, so lines of level {level} are not logged.", "Set KEEPFAST_LOG_LEVEL=INFO.")

    return per_app(check)


@per_app
def drains_long_enough(subject: Subject) -> Finding:
    timeout_s = subject.settings.shutdown.timeout_s
    slow = [one.own for one in subject.consumers if (one.own.timeout.timeout_s or 0) > timeout_s]
    if not slow:
        return passed(f"shutdown.timeout_s is {timeout_s:g}.")
    return failed(
        f"shutdown.timeout_s is {timeout_s:g}, and {slow[0].name} may take {slow[0].timeout.timeout_s:g} s per record.",
        "Set shutdown.timeout_s above timeout_s, and the platform's grace period above both.",
    )

"""Looking at the settings that hold for an app and its consumers."""

from __future__ import annotations

from keepfast.audit.checks_hooks import OWN_SERVER
from keepfast.audit.clause import Finding, Look, each, failed, not_applicable, overruled, passed, whole
from keepfast.audit.decisions import (
    GUARDS,
    HEARTBEAT_AT_A_THIRD,
    JITTER_AFTER_THE_CAP,
    RETRY_SUM_WARNS,
)
from keepfast.audit.subject import Asked, Subject
from keepfast.core.fields import floor_of
from keepfast.core.policies import RetryPolicy, TimingPolicy
from keepfast.settings.catalogue import PROFILES
from keepfast.settings.consumers import POLL_MARGIN_MS

# -- retries


def _end(one: Asked) -> Finding:
    retry = one.own.retry
    if retry.max_retries is None and retry.max_elapsed_s is None:
        return overruled(RETRY_SUM_WARNS, "Retries for ever, by name, as the loop article advises: nothing is buried.")
    return passed("After the last retry a letter is written.")


retries_end = each(_end)


@each
def buried_after_retries(one: Asked) -> Finding:
    if one.own.breaker is not None or one.own.storm_guard is not None:
        return overruled(GUARDS, "A breaker or storm guard is on: while a downstream is away, records wait instead.")
    return _end(one)


@each
def standard_retries(one: Asked) -> Finding:
    retry = one.own.retry
    named = {name: RetryPolicy(**told) for name, told in PROFILES.items()}  # type: ignore[arg-type] # a table of policies
    for name, policy in {**named, "for ever": RetryPolicy(max_retries=None)}.items():
        if retry == policy:
            return passed(f"The retry policy is the profile {name}.")
    return failed(
        f"The retry policy is of the app's own making: {retry.max_retries} retries, {retry.initial_delay_ms:g} to"
        f" {retry.max_delay_ms:g} ms.",
        "Begin with the defaults (3 retries, 1 s to 30 s) or a profile; say why where that does not do.",
    )


@each
def jitter(one: Asked) -> Finding:
    retry = one.own.retry
    if retry.jitter:
        return passed("Delays vary by up to 10 %.")
    if retry.max_retries is None:
        return overruled(RETRY_SUM_WARNS, "Retries for ever come at fixed intervals unless told otherwise.")
    return failed("retry.jitter is off: consumers that failed together come back together.", "Set RETRY_JITTER=true.")


@each
def capped(one: Asked) -> Finding:
    if one.own.retry.jitter:
        return overruled(
            JITTER_AFTER_THE_CAP, "The base is capped; up to 10 % of jitter comes on top, as the formula has it."
        )
    return passed("Without jitter the cap is exact.")


@each
def rate_limited(one: Asked) -> Finding:
    rate = one.own.rate
    if "rate_limit_min_delay_ms" in one.hooks:
        return passed("No retry waits less than rate_limit_min_delay_ms() says.")
    if rate is None:
        return not_applicable("No rate is configured. If the handler calls something that bears only so much, set one.")
    if rate.min_delay_ms > 0:
        return passed(f"At least {rate.min_delay_ms:g} ms between any two starts, retries included.")
    return passed("Retries are starts, and starts are limited by the rate.")


@each
def one_at_a_time(one: Asked) -> Finding:
    rate = one.own.rate
    if rate is None:
        return not_applicable("No rate is configured.")
    if one.own.max_poll_records == 1:
        return passed("max_poll_records is 1.")
    return overruled(GUARDS, "Starts are spaced one by one, however many records were fetched together.")


# -- timings and fetching


def _floor(name: str) -> Look:
    def look(one: Asked) -> Finding:
        value, floor = getattr(one.own.timings, name), floor_of(TimingPolicy, name)
        if value is None:
            return not_applicable("With group_protocol=consumer the broker decides.")
        if value >= floor.low:
            return passed(f"{name} is {value}.")
        return failed(
            f"{name} is {value}, below {floor.low}.", "Remove unsafe_timings, which is for tests, and raise it."
        )

    return each(look)


session_floor = _floor("session_timeout_ms")
heartbeat_floor = _floor("heartbeat_interval_ms")
poll_floor = _floor("max_poll_interval_ms")


@each
def heartbeat_share(one: Asked) -> Finding:
    session, heartbeat = one.own.timings.session_timeout_ms, one.own.timings.heartbeat_interval_ms
    if session is None or heartbeat is None:
        return not_applicable("With group_protocol=consumer the broker decides.")
    if heartbeat * 3 == session:
        return overruled(HEARTBEAT_AT_A_THIRD, "Exactly a third, as the standard's own minimum values are.")
    return passed(f"{heartbeat} is less than a third of {session}.")


@each
def retry_sum(one: Asked) -> Finding:
    wait_ms, poll = one.own.retry.longest_wait_ms, one.own.timings.max_poll_interval_ms
    if wait_ms is not None and poll >= wait_ms + POLL_MARGIN_MS:
        return passed(f"{poll} covers {wait_ms:g} ms of retries and {POLL_MARGIN_MS} ms more.")
    return overruled(RETRY_SUM_WARNS, "keepfast polls while records wait, so that no sum of delays evicts anybody.")


@each
def recommended_timings(one: Asked) -> Finding:
    timings = one.own.timings
    if timings.session_timeout_ms is None:
        return not_applicable("With group_protocol=consumer the broker decides.")
    told = (timings.session_timeout_ms, timings.heartbeat_interval_ms, timings.max_poll_interval_ms)
    if told == (60_000, 10_000, 600_000):
        return passed("60 s, 10 s and 600 s.")
    return failed(
        f"{told[0]}, {told[1]} and {told[2]} ms.", "Leave the timings out: the defaults are 60, 10 and 600 s."
    )


def _recommended(name: str, value: int) -> Look:
    def look(one: Asked) -> Finding:
        told = getattr(one.own, name)
        if told == value:
            return passed(f"{name} is {value}.")
        return failed(f"{name} is {told}.", f"Leave {name} out: the default is {value}.")

    return each(look)


fetch_min_bytes = _recommended("fetch_min_bytes", 1)
fetch_max_wait = _recommended("fetch_max_wait_ms", 500)


@each
def offset_reset(one: Asked) -> Finding:
    value = one.own.auto_offset_reset
    if value != "error":
        return passed(f"auto_offset_reset is {value}.")
    return failed("auto_offset_reset is error: a new group does not start.", "Choose earliest, or latest.")


@each
def poll_records(one: Asked) -> Finding:
    return passed(f"max_poll_records is {one.own.max_poll_records}; order does not depend on it.")


# -- seeing it


@whole
def metrics_are_exposed(subject: Subject) -> Finding:
    if subject.serves_itself and not subject.settings.metrics.otel:
        return not_applicable(
            f"{OWN_SERVER}: answer /metrics with runner.metrics(), or set KEEPFAST_METRICS_OTEL=true."
        )
    if subject.settings.health.enabled or subject.settings.metrics.otel:
        return passed("/metrics is served." if subject.settings.health.enabled else "Exported through OpenTelemetry.")
    return failed(
        "Nothing is served or exported.", "Remove HEALTH_CHECK_ENABLED=false, or set KEEPFAST_METRICS_OTEL=true."
    )


@whole
def health_is_served(subject: Subject) -> Finding:
    return passed(f"{OWN_SERVER}.") if subject.serves_itself else _served(subject)


@whole
def health_is_ours(subject: Subject) -> Finding:
    """What it knows and answers."""
    return not_applicable(f"{OWN_SERVER}.") if subject.serves_itself else _served(subject)


def _served(subject: Subject) -> Finding:
    if subject.settings.health.enabled:
        return passed(f"/health on port {subject.settings.health.port}.")
    return failed("Health is not served.", "Remove HEALTH_CHECK_ENABLED=false.")


def logged_at(level: str) -> Look:
    """Lines of this level are not silenced."""
    levels = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")

    def look(subject: Subject) -> Finding:
        told = subject.settings.log.level
        if levels.index(told) <= levels.index(level):
            return passed(f"log.level is {told}.")
        return failed(
            f"log.level is {told}, so lines of level {level} are not written.", "Set KEEPFAST_LOG_LEVEL=INFO."
        )

    return whole(look)


@whole
def drains_long_enough(subject: Subject) -> Finding:
    timeout_s = subject.settings.shutdown.timeout_s
    slow = [one.own for one in subject.consumers if (one.own.timeout.timeout_s or 0) > timeout_s]
    if not slow:
        return passed(f"shutdown.timeout_s is {timeout_s:g}.")
    return failed(
        f"shutdown.timeout_s is {timeout_s:g}, and {slow[0].name} may take {slow[0].timeout.timeout_s:g} s a record.",
        "Raise shutdown.timeout_s above timeout_s, and the platform's grace period above both.",
    )

"""Checks of the effective settings of an app and its consumers, against the values of the documents."""

from __future__ import annotations

from keepfast.audit.checks_settings import OWN_SERVER, is_classic, left_to_the_broker, served
from keepfast.audit.rule import Check, Finding, failed, not_applicable, overruled, passed, per_app, per_consumer
from keepfast.audit.subject import AuditedConsumer, Subject
from keepfast.core.alerts import TopicKind
from keepfast.core.fields import floor_of
from keepfast.core.guards import StormPolicy
from keepfast.core.policies import RetryPolicy, TimingPolicy
from keepfast.settings.catalogue import PROFILES
from keepfast.settings.consumers import POLL_MARGIN_MS
from neotool_common.profiles.decisions import (
    CHOSEN_BY_NAME,
    GUARDS,
    HEARTBEAT_AT_A_THIRD,
    JITTER_AFTER_THE_CAP,
    RETRY_SUM_WARNS,
)

# -- retries


def _end(one: AuditedConsumer) -> Finding:
    retry = one.own.retry
    if retry.max_retries is None and retry.max_elapsed_s is None:
        return overruled(RETRY_SUM_WARNS, "Retries without limit, chosen explicitly, as the loop article advises.")
    return passed("After the last retry the record is dead-lettered.")


retries_end = per_consumer(_end)


@per_consumer
def dead_lettered_after_retries(one: AuditedConsumer) -> Finding:
    if one.own.breaker is not None or one.own.storm_guard not in (
        None,
        StormPolicy(),
    ):  # by default only a bug trips it
        return overruled(GUARDS, "A breaker or storm guard is on: during an outage records wait instead.")
    return _end(one)


@per_consumer
def standard_retries(one: AuditedConsumer) -> Finding:
    retry = one.own.retry
    named = {name: _profile(name) for name in PROFILES}
    for name, policy in {**named, "unlimited": RetryPolicy(max_retries=None)}.items():
        if retry == policy:
            return passed(f"The retry policy is the profile {name}.")
    return failed(
        f"The retry policy is the app's own: {_shown(retry)}.",
        "Use the defaults (3 retries, 1 s to 30 s) or a profile, or document why not.",
    )


def _profile(name: str) -> RetryPolicy:
    return RetryPolicy(**PROFILES[name])  # type: ignore[arg-type] # a table of policies


def retries_of(kind: TopicKind) -> Check:
    """Topics of this kind are retried as its profile says, with the values that take effect."""

    def check(one: AuditedConsumer) -> Finding:
        own, expected = one.own.retry, _profile(kind)
        if one.own.alerts.kind != kind:
            return not_applicable(f"alerts.kind is {one.own.alerts.kind or 'other'}; retry={kind!r} sets it.")
        if own == expected:
            return passed(f"The retry policy is the profile {kind}.")
        return failed(
            f"A {kind} topic has {_shown(own)}, not {_shown(expected)}.",
            f"Use retry={kind!r}, and remove the settings that change it.",
        )

    return per_consumer(check)


@per_consumer
def retries_by_default(one: AuditedConsumer) -> Finding:
    own = one.own.retry
    if one.own.alerts.kind in ("financial", "notification"):
        return not_applicable(f"alerts.kind is {one.own.alerts.kind}.")
    if own in (_profile("default"), _profile("none")):
        return passed(f"{_shown(own)}.".capitalize())
    return overruled(CHOSEN_BY_NAME, f"The app's own retry policy: {_shown(own)}.")


@per_consumer
def no_retries(one: AuditedConsumer) -> Finding:
    if one.own.retry.max_retries == 0:
        return passed("max_retries is 0.")
    return not_applicable('The consumer retries. For one that a schedule triggers again, use retry="none".')


def _shown(retry: RetryPolicy) -> str:
    count = "retries without limit" if retry.max_retries is None else f"{retry.max_retries} retries"
    return f"{count}, {retry.initial_delay_ms:g} to {retry.max_delay_ms:g} ms"


@per_consumer
def jitter(one: AuditedConsumer) -> Finding:
    retry = one.own.retry
    if retry.jitter:
        return passed("Delays vary by up to 10 %.")
    if retry.max_retries is None:
        return overruled(RETRY_SUM_WARNS, "Unlimited retries have fixed intervals by default.")
    return failed("retry.jitter is off: consumers that failed together retry together.", "Set RETRY_JITTER=true.")


@per_consumer
def capped(one: AuditedConsumer) -> Finding:
    if one.own.retry.jitter:
        return overruled(JITTER_AFTER_THE_CAP, "The base is capped; up to 10 % of jitter is added, as in the formula.")
    return passed("Without jitter the cap is exact.")


@per_consumer
def rate_limited(one: AuditedConsumer) -> Finding:
    rate = one.own.rate
    if "rate_limit_min_delay_ms" in one.hooks:
        return passed("Every retry waits at least rate_limit_min_delay_ms().")
    if rate is None:
        return not_applicable("No rate is configured. If the handler calls a rate-limited service, set one.")
    if rate.min_delay_ms > 0:
        return passed(f"At least {rate.min_delay_ms:g} ms between any two starts, retries included.")
    return passed("Retries are starts, and starts are limited by the rate.")


@per_consumer
def one_at_a_time(one: AuditedConsumer) -> Finding:
    rate = one.own.rate
    if rate is None:
        return not_applicable("No rate is configured.")
    if one.own.max_poll_records == 1:
        return passed("max_poll_records is 1.")
    return overruled(GUARDS, "Starts are spaced one by one, independent of the number of fetched records.")


# -- timings and fetching


def _floor(name: str, *, everywhere: bool = False) -> Check:
    """Return a check of a lower bound. `everywhere`: with both group protocols."""

    def check(one: AuditedConsumer) -> Finding:
        value, floor = getattr(one.own.timings, name), floor_of(TimingPolicy, name)
        if not everywhere and not is_classic(one):
            return left_to_the_broker(one)
        if value >= floor.low:
            return passed(f"{name} is {value}.")
        return failed(
            f"{name} is {value}, below {floor.low}.", "Increase it, and remove unsafe_timings, which is for tests."
        )

    return per_consumer(check)


session_floor = _floor("session_timeout_ms")
heartbeat_floor = _floor("heartbeat_interval_ms")
poll_floor = _floor("max_poll_interval_ms", everywhere=True)


@per_consumer
def heartbeat_share(one: AuditedConsumer) -> Finding:
    session, heartbeat = one.own.timings.session_timeout_ms, one.own.timings.heartbeat_interval_ms
    if session is None or heartbeat is None or not is_classic(one):
        return left_to_the_broker(one)
    if heartbeat * 3 == session:
        return overruled(HEARTBEAT_AT_A_THIRD, "Exactly a third, like the standard's own minimum values.")
    return passed(f"{heartbeat} is less than a third of {session}.")


@per_consumer
def retry_sum(one: AuditedConsumer) -> Finding:
    wait_ms, poll = one.own.retry.longest_wait_ms, one.own.timings.max_poll_interval_ms
    if wait_ms is not None and poll >= wait_ms + POLL_MARGIN_MS:
        return passed(f"{poll} covers {wait_ms:g} ms of retries and {POLL_MARGIN_MS} ms more.")
    return overruled(RETRY_SUM_WARNS, "keepfast polls while records wait, so that no sum of delays evicts a member.")


@per_consumer
def recommended_timings(one: AuditedConsumer) -> Finding:
    timings = one.own.timings
    if not is_classic(one):
        return left_to_the_broker(one)
    values = (timings.session_timeout_ms, timings.heartbeat_interval_ms, timings.max_poll_interval_ms)
    if values == (60_000, 10_000, 600_000):
        return passed("60 s, 10 s and 600 s.")
    return failed(
        f"{values[0]}, {values[1]} and {values[2]} ms.", "Remove the timings: the defaults are 60, 10 and 600 s."
    )


def _recommended(name: str, value: int) -> Check:
    def check(one: AuditedConsumer) -> Finding:
        own = getattr(one.own, name)
        if own == value:
            return passed(f"{name} is {value}.")
        return failed(f"{name} is {own}.", f"Remove {name}: the default is {value}.")

    return per_consumer(check)


fetch_min_bytes = _recommended("fetch_min_bytes", 1)
fetch_max_wait = _recommended("fetch_max_wait_ms", 500)


@per_consumer
def offset_reset(one: AuditedConsumer) -> Finding:
    value = one.own.auto_offset_reset
    if value != "error":
        return passed(f"auto_offset_reset is {value}.")
    return failed("auto_offset_reset is error: a new group does not start.", "Choose earliest, or latest.")


@per_consumer
def poll_records(one: AuditedConsumer) -> Finding:
    return passed(f"max_poll_records is {one.own.max_poll_records}; order does not depend on it.")


# -- monitoring


@per_app
def health_is_ours(subject: Subject) -> Finding:
    """The content of keepfast's own health answers."""
    return not_applicable(f"{OWN_SERVER}.") if subject.serves_itself else served(subject)

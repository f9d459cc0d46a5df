"""Checks of dead letters: when they are written, and what happens when they cannot be published."""

from __future__ import annotations

from keepfast.audit.rule import Finding, failed, not_applicable, passed, per_app, per_consumer
from keepfast.audit.subject import AuditedConsumer, Subject


@per_consumer
def timeouts_are_dead_lettered(one: AuditedConsumer) -> Finding:
    timeout = one.own.timeout
    if timeout.timeout_s is None:
        return not_applicable("No timeout_s is configured.")
    if timeout.on_timeout == "retry":
        return passed(f"After {timeout.timeout_s:g} s the record is retried as after an outage, then dead-lettered.")
    if timeout.on_timeout == "dead-letter":
        return passed(f"After {timeout.timeout_s:g} s the record is dead-lettered.")
    return failed("on_timeout is hold: a record that takes too long blocks its lane.", 'Set on_timeout="dead-letter".')


@per_consumer
def has_a_timeout(one: AuditedConsumer) -> Finding:
    timeout_s = one.own.timeout.timeout_s
    if timeout_s is not None:
        return passed(f"timeout_s is {timeout_s:g}.")
    return failed("A handler has no time limit.", "Set timeout_s=… to what the slowest good record needs.")


@per_app
def spool_is_used(subject: Subject) -> Finding:
    if subject.settings.spool.url is None:
        return not_applicable("No spool is configured.")
    if any("dlq_publisher" in one.hooks for one in subject.consumers):
        return failed(
            "dlq_publisher publishes the letters, and the configured spool takes none of them.",
            "Remove dlq_publisher, so that keepfast publishes, or remove KEEPFAST_SPOOL.",
        )
    return passed("The spool stores letters that Kafka does not accept.")

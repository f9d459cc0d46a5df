"""Checks of dead letters: their format, their topic, and the fallback."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from keepfast.audit.rule import Check, Finding, failed, not_applicable, overruled, passed, per_app, per_consumer
from keepfast.audit.subject import AuditedConsumer, Subject
from neotool_common.profiles.checks_groups import BY_PATTERN
from neotool_common.profiles.decisions import CHOSEN_BY_NAME, GUARDS, SPOOL
from neotool_common.profiles.hooks import OWN_PUBLISHER


def letters_as(form: str, document: str) -> Check:
    """Return a check that letters have the format of this document, or by explicit choice that of another."""

    def check(one: AuditedConsumer) -> Finding:
        if "dlq_publisher" in one.hooks:
            return not_applicable(OWN_PUBLISHER)
        if one.own.dead_letter.format == form:
            return passed(f"Letters are written as {form}.")
        return overruled(CHOSEN_BY_NAME, f"Letters are written as {one.own.dead_letter.format}, not as in {document}.")

    return per_consumer(check)


_LETTER_NAMES: Final[Mapping[str, tuple[str, str]]] = {
    "standard": ("<domain>.<entity>.dlq", "{domain}.{entity}.dlq"),
    "fraud": ("<topic>.dlq.<env>", "{topic}.dlq.{env}"),
    "spring": ("<topic>.DLT", "{topic}.DLT"),
}


def letter_topics_as(document: str) -> Check:
    """Return a check that dead-letter topics are named as in this document, or as in another of them."""
    form, _ = _LETTER_NAMES[document]

    def check(one: AuditedConsumer) -> Finding:
        if "dlq_publisher" in one.hooks:
            return not_applicable(OWN_PUBLISHER)
        if not one.own.topics:
            return not_applicable(BY_PATTERN)
        styles = {_style(one, topic, name) for topic, name in one.own.dead_letter_topics.items()}
        names = ", ".join(sorted(set(one.own.dead_letter_topics.values())))
        if styles == {document}:
            return passed(f"{names}.")
        if None not in styles:
            return overruled(CHOSEN_BY_NAME, f"{names}: named as in another of the documents.")
        return failed(f"{names} has none of the known forms.", f"Remove dead_letter.topic, or name it {form}.")

    return per_consumer(check)


def _style(one: AuditedConsumer, topic: str, name: str) -> str | None:
    names = one.own.names[topic]
    values = {"domain": names.domain, "entity": names.entity, "topic": topic, "env": one.env}
    styles = [style for style, (_, pattern) in _LETTER_NAMES.items() if pattern.format(**values) == name]
    return styles[0] if styles else None


@per_app
def nothing_committed_without_letter(subject: Subject) -> Finding:
    if subject.settings.spool.url is not None:
        return overruled(SPOOL, "With a spool, a letter that is written and synced to disk counts too.")
    return passed("A record is not committed before its letter is published; publishing is retried without limit.")


@per_app
def has_a_spool(subject: Subject) -> Finding:
    if subject.settings.spool.url is not None:
        return passed("A spool stores letters that Kafka does not accept.")
    return overruled(
        SPOOL, "Without a spool the record stays in Kafka, uncommitted, until its letter can be published."
    )


@per_consumer
def has_a_breaker(one: AuditedConsumer) -> Finding:
    if one.own.breaker is not None:
        return passed("A breaker is on.")
    return overruled(
        GUARDS, "Off by default, as the standard requires a letter after the last retry; enable it with breaker=True."
    )

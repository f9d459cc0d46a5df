"""Looking at letters: when they are written, where to, and what stands in for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from keepfast.audit.checks_hooks import OWN_PUBLISHER
from keepfast.audit.clause import Finding, Look, each, failed, not_applicable, overruled, passed, whole
from keepfast.audit.decisions import CHOSEN_BY_NAME, GUARDS, SPOOL
from keepfast.audit.subject import Asked, Subject


@each
def timeouts_are_buried(one: Asked) -> Finding:
    timeout = one.own.timeout
    if timeout.timeout_s is None:
        return not_applicable("No timeout_s is configured.")
    if timeout.on_timeout == "dead-letter":
        return passed(f"After {timeout.timeout_s:g} s a letter is written.")
    return failed("on_timeout is hold: a record that takes too long keeps its lane.", 'Set on_timeout="dead-letter".')


@each
def has_a_timeout(one: Asked) -> Finding:
    timeout_s = one.own.timeout.timeout_s
    if timeout_s is not None:
        return passed(f"timeout_s is {timeout_s:g}.")
    return failed("A handler may take as long as it likes.", "Set timeout_s=… to what the slowest good record needs.")


def letters_as(form: str, whose: str) -> Look:
    """Letters have the shape that this document wants; that of another, taken by name, is as good."""

    def look(one: Asked) -> Finding:
        if "dlq_publisher" in one.hooks:
            return not_applicable(OWN_PUBLISHER)
        if one.own.dead_letter.format == form:
            return passed(f"Letters are written as {form}.")
        return overruled(CHOSEN_BY_NAME, f"Letters are written as {one.own.dead_letter.format}, not as {whose} has it.")

    return each(look)


_LETTER_NAMES: Final[Mapping[str, tuple[str, str]]] = {
    "standard": ("<domain>.<entity>.dlq", "{domain}.{entity}.dlq"),
    "fraud": ("<topic>.dlq.<env>", "{topic}.dlq.{env}"),
    "spring": ("<topic>.DLT", "{topic}.DLT"),
}


def letter_topics_as(document: str) -> Look:
    """Named as this document wants, or as another of them does."""
    words, _ = _LETTER_NAMES[document]

    def look(one: Asked) -> Finding:
        if "dlq_publisher" in one.hooks:
            return not_applicable(OWN_PUBLISHER)
        styles = {_style(one, topic, name) for topic, name in one.own.dead_letter_topics.items()}
        names = ", ".join(sorted(set(one.own.dead_letter_topics.values())))
        if styles == {document}:
            return passed(f"{names}.")
        if None not in styles:
            return overruled(CHOSEN_BY_NAME, f"{names}: named as another of the documents has it.")
        return failed(f"{names} is none of the known forms.", f"Leave dead_letter.topic out, or name it {words}.")

    return each(look)


def _style(one: Asked, topic: str, name: str) -> str | None:
    names = one.own.names[topic]
    values = {"domain": names.domain, "entity": names.entity, "topic": topic, "env": one.env}
    styles = [style for style, (_, pattern) in _LETTER_NAMES.items() if pattern.format(**values) == name]
    return styles[0] if styles else None


@whole
def nothing_committed_without_letter(subject: Subject) -> Finding:
    if subject.settings.spool.url is not None:
        return overruled(SPOOL, "With a spool, a letter that was written to disk and synced counts, too.")
    return passed("Without a letter nothing is committed; it is tried for ever.")


@whole
def has_a_spool(subject: Subject) -> Finding:
    if subject.settings.spool.url is not None:
        return passed("A spool takes letters that Kafka does not.")
    return overruled(
        SPOOL, "Without a spool the record stays in Kafka, uncommitted, until its letter can be published."
    )


@each
def has_a_breaker(one: Asked) -> Finding:
    if one.own.breaker is not None:
        return passed("A breaker is on.")
    return overruled(GUARDS, "Off unless asked for: the standard wants a letter after the last retry. breaker=True.")

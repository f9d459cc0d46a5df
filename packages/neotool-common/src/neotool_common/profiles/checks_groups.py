"""Checks of commits, group names, order and assignment, as the documents ask for them."""

from __future__ import annotations

import re
from typing import Final

from keepfast.audit.checks_groups import typed, value_kind
from keepfast.audit.checks_settings import is_classic, left_to_the_broker
from keepfast.audit.rule import Finding, failed, not_applicable, overruled, passed, per_consumer
from keepfast.audit.subject import AuditedConsumer
from neotool_common.profiles.decisions import CHOSEN_BY_NAME, COOPERATIVE_STICKY

BY_PATTERN: Final = "Its topics are found by a pattern; the broker knows them."

_SEGMENT = r"[a-zA-Z0-9](?:[a-zA-Z0-9_-]*[a-zA-Z0-9])?"
_GROUP = re.compile(rf"{_SEGMENT}(?:\.{_SEGMENT})+")


@per_consumer
def commits_each(one: AuditedConsumer) -> Finding:
    if one.own.commit.mode == "each":
        return passed("Each record is committed on its own before its lane continues.")
    if one.own.exactly_once:
        return passed("Commits are batched, in transactions with all that the handler sends.")
    if one.own.inbox_days is not None:
        return passed("Commits are batched, and an inbox knows which records were processed.")
    return passed("Commits are batched, and the handler is declared idempotent.")


@per_consumer
def group_pattern(one: AuditedConsumer) -> Finding:
    group = one.own.group
    if _GROUP.fullmatch(group):
        return passed(f"{group}.")
    if re.fullmatch(rf"cg-{_SEGMENT}", group):
        return overruled(CHOSEN_BY_NAME, f"{group}: cg-<purpose>, as in the Spring-style strategy.")
    return failed(f"{group} has neither form.", "Name it <domain>.<entity>.<version> or <service>.<consumer>.")


@per_consumer
def group_with_env(one: AuditedConsumer) -> Finding:
    if one.own.group.endswith(f".{one.env}"):
        return passed(f"{one.own.group}.")
    return overruled(CHOSEN_BY_NAME, f'{one.own.group} does not end with the environment; group="….{{env}}" adds it.')


@per_consumer
def group_by_purpose(one: AuditedConsumer) -> Finding:
    group = one.own.group
    if re.fullmatch(rf"cg-{_SEGMENT}", group):
        return passed(f"{group}.")
    return overruled(CHOSEN_BY_NAME, f"{group}: named as in the consumer standard.")


@per_consumer
def versioned(one: AuditedConsumer) -> Finding:
    topics = ", ".join(one.own.topics)
    if not one.own.topics:
        return not_applicable(BY_PATTERN)
    if all(re.search(r"\.v[0-9]+$", topic) for topic in one.own.topics):
        return passed(f"{topics}.")
    return overruled(CHOSEN_BY_NAME, f"{topics}: without a version, as in the Spring-style strategy.")


@per_consumer
def default_assignor(one: AuditedConsumer) -> Finding:
    assignor = one.own.assignor
    if not is_classic(one):
        return left_to_the_broker(one)
    if assignor == "cooperative-sticky":
        return overruled(
            COOPERATIVE_STICKY, "cooperative-sticky, which the client includes and which moves few partitions."
        )
    return passed(f"assignor is {assignor}.")


@per_consumer
def cooperative(one: AuditedConsumer) -> Finding:
    assignor = one.own.assignor
    if assignor is None:
        return not_applicable("With group_protocol=consumer the broker decides, and moves few partitions.")
    if one.own.group_protocol == "auto":
        return passed("KIP-848, which moves few partitions, or cooperative-sticky if the broker does not support it.")
    if assignor == "cooperative-sticky":
        return passed("assignor is cooperative-sticky.")
    return overruled(COOPERATIVE_STICKY, f"assignor is {assignor}, chosen explicitly, as in the consumer standard.")


@per_consumer
def sequential(one: AuditedConsumer) -> Finding:
    if one.own.order not in ("none", "queue"):
        return passed(f"order is {one.own.order}.")
    return failed(
        f"order is {one.own.order}: records overtake each other.",
        'Use order="partition" or order="key" if order matters.',
    )


@per_consumer
def cards_are_discarded(one: AuditedConsumer) -> Finding:
    if one.sensitive is None:
        return not_applicable("No detector is on. If records may contain card numbers, set sensitive=CardNumbers().")
    return passed("Records with card numbers are discarded before the handler, counted, and never written or logged.")


@per_consumer
def validated(one: AuditedConsumer) -> Finding:
    kind = value_kind(one)
    if kind == "raw":
        return overruled(
            CHOSEN_BY_NAME, "The handler takes raw values and decodes them itself, as in the loop article."
        )
    return typed(kind)

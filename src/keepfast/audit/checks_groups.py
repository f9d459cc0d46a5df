"""Checks of commits, groups, order, and the declarations of a handler."""

from __future__ import annotations

import inspect
import re
from typing import Any, Final, get_args, get_origin

from keepfast.audit.clause import Finding, failed, not_applicable, overruled, passed, per_consumer
from keepfast.audit.decisions import CHOSEN_BY_NAME, COOPERATIVE_STICKY
from keepfast.audit.subject import AuditedConsumer

BY_PATTERN: Final = "Its topics are found by a pattern; the broker knows them."

_GENERIC: Final = frozenset(
    {"app", "consumer", "default", "foo", "group", "group1", "kafka", "my-group", "test", "worker"}
)
_SEGMENT = r"[a-zA-Z0-9](?:[a-zA-Z0-9_-]*[a-zA-Z0-9])?"
_GROUP = re.compile(rf"{_SEGMENT}(?:\.{_SEGMENT})+")
_RAW: Final = (bytes, str)
_UNCHECKED: Final = (dict, Any, inspect.Parameter.empty, None)


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
def group_is_descriptive(one: AuditedConsumer) -> Finding:
    group = one.own.group
    if len(group) >= 4 and group.lower() not in _GENERIC:
        return passed(f"{group}.")
    return failed(f"{group!r} is not descriptive.", "Remove group, or name app and consumer: payments.charge.")


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
    if assignor is None:
        return not_applicable("With group_protocol=consumer the broker decides.")
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
def idempotent(one: AuditedConsumer) -> Finding:
    if one.own.idempotent:
        return passed("The handler is declared idempotent.")
    if one.inbox == "around":
        return passed("An inbox notes each record in the transaction of the handler.")
    if one.inbox == "beside":
        return failed(
            "The handler has an inbox and does not take its transaction: what it writes is not part of it.",
            "Take the transaction as a parameter (tx: psycopg.Connection), or set idempotent=True if it bears"
            " a repetition.",
        )
    return failed(
        "The handler is not declared idempotent, and after a crash records are delivered again.",
        "Make the handler idempotent (an upsert, an idempotency key) and set idempotent=True.",
    )


@per_consumer
def validated(one: AuditedConsumer) -> Finding:
    takes = one.takes
    if get_origin(takes) is list:
        takes = get_args(takes)[0]
    bare = (
        [part for part in (get_args(takes) or (takes,)) if part is not type(None)]
        if get_origin(takes) is not dict
        else [dict]
    )
    if any(part in _UNCHECKED or get_origin(part) is dict for part in bare):
        return failed("The handler takes unvalidated values.", "Annotate its value with a dataclass or a model.")
    if any(part in _RAW for part in bare):
        return overruled(
            CHOSEN_BY_NAME, "The handler takes raw values and decodes them itself, as in the loop article."
        )
    return passed("Values are decoded into a type; a mismatch is dead-lettered before the handler.")


@per_consumer
def cards_are_discarded(one: AuditedConsumer) -> Finding:
    if one.sensitive is None:
        return not_applicable("No detector is on. If records may contain card numbers, set sensitive=CardNumbers().")
    return passed("Records with card numbers are discarded before the handler, counted, and never written or logged.")

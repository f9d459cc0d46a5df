"""Checks of groups, and of the declarations of a handler."""

from __future__ import annotations

import inspect
from typing import Any, Final, Literal, get_args, get_origin

from keepfast.audit.rule import Finding, failed, not_applicable, passed, per_consumer
from keepfast.audit.subject import AuditedConsumer

_GENERIC: Final = frozenset(
    {"app", "consumer", "default", "foo", "group", "group1", "kafka", "my-group", "test", "worker"}
)
_RAW: Final = (bytes, str)
_UNCHECKED: Final = (dict, Any, inspect.Parameter.empty, None)


@per_consumer
def group_is_descriptive(one: AuditedConsumer) -> Finding:
    group = one.own.group
    if len(group) >= 4 and group.lower() not in _GENERIC:
        return passed(f"{group}.")
    return failed(f"{group!r} is not descriptive.", "Remove group, or name app and consumer: payments.charge.")


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


ValueKind = Literal["typed", "raw", "unchecked"]


def value_kind(one: AuditedConsumer) -> ValueKind:
    """Return whether the handler takes values of a declared type, raw ones, or unchecked ones such as a dict."""
    takes = one.takes
    if get_origin(takes) is list:
        takes = get_args(takes)[0]
    members = (get_args(takes) or (takes,)) if get_origin(takes) is not dict else (dict,)
    parts = [part for part in members if part is not type(None)]
    if any(part in _UNCHECKED or get_origin(part) is dict for part in parts):
        return "unchecked"
    return "raw" if any(part in _RAW for part in parts) else "typed"


@per_consumer
def validated(one: AuditedConsumer) -> Finding:
    kind = value_kind(one)
    return not_applicable("The handler takes raw values and decodes them itself.") if kind == "raw" else typed(kind)


def typed(kind: ValueKind) -> Finding:
    """Return the finding about values that are not raw."""
    if kind == "unchecked":
        return failed("The handler takes unvalidated values.", "Annotate its value with a dataclass or a model.")
    return passed("Values are decoded into a type; a mismatch is dead-lettered before the handler.")

"""Looking at commits, groups, order, and what a handler says about itself."""

from __future__ import annotations

import inspect
import re
from typing import Any, Final, get_args, get_origin

from keepfast.audit.clause import Finding, each, failed, not_applicable, overruled, passed
from keepfast.audit.decisions import CHOSEN_BY_NAME, COOPERATIVE_STICKY
from keepfast.audit.subject import Asked

_GENERIC: Final = frozenset(
    {"app", "consumer", "default", "foo", "group", "group1", "kafka", "my-group", "test", "worker"}
)
_SEGMENT = r"[a-zA-Z0-9](?:[a-zA-Z0-9_-]*[a-zA-Z0-9])?"
_GROUP = re.compile(rf"{_SEGMENT}(?:\.{_SEGMENT})+")
_RAW: Final = (bytes, str)
_UNCHECKED: Final = (dict, Any, inspect.Parameter.empty, None)


@each
def commits_each(one: Asked) -> Finding:
    if one.own.commit.mode == "each":
        return passed("Each record is committed by itself before its lane goes on.")
    return passed("Commits are batched, and the handler is declared idempotent.")


@each
def group_is_descriptive(one: Asked) -> Finding:
    group = one.own.group
    if len(group) >= 4 and group.lower() not in _GENERIC:
        return passed(f"{group}.")
    return failed(f"{group!r} does not say whose it is.", "Leave group out, or name app and consumer: payments.charge.")


@each
def group_pattern(one: Asked) -> Finding:
    group = one.own.group
    if _GROUP.fullmatch(group):
        return passed(f"{group}.")
    if re.fullmatch(rf"cg-{_SEGMENT}", group):
        return overruled(CHOSEN_BY_NAME, f"{group}: cg-<purpose>, as the Spring-style strategy names groups.")
    return failed(f"{group} has neither form.", "Name it <domain>.<entity>.<version> or <service>.<consumer>.")


@each
def group_with_env(one: Asked) -> Finding:
    if one.own.group.endswith(f".{one.env}"):
        return passed(f"{one.own.group}.")
    return overruled(CHOSEN_BY_NAME, f'{one.own.group} does not end with the environment; group="….{{env}}" does that.')


@each
def group_by_purpose(one: Asked) -> Finding:
    group = one.own.group
    if re.fullmatch(rf"cg-{_SEGMENT}", group):
        return passed(f"{group}.")
    return overruled(CHOSEN_BY_NAME, f"{group}: named as the consumer standard has it.")


@each
def versioned(one: Asked) -> Finding:
    topics = ", ".join(one.own.topics)
    if all(re.search(r"\.v[0-9]+$", topic) for topic in one.own.topics):
        return passed(f"{topics}.")
    return overruled(CHOSEN_BY_NAME, f"{topics}: without a version, as the Spring-style strategy names topics.")


@each
def default_assignor(one: Asked) -> Finding:
    assignor = one.own.assignor
    if assignor is None:
        return not_applicable("With group_protocol=consumer the broker decides.")
    if assignor == "cooperative-sticky":
        return overruled(
            COOPERATIVE_STICKY, "cooperative-sticky, which comes with the client and moves few partitions."
        )
    return passed(f"assignor is {assignor}.")


@each
def cooperative(one: Asked) -> Finding:
    assignor = one.own.assignor
    if assignor is None:
        return not_applicable("With group_protocol=consumer the broker decides, and moves few partitions.")
    if one.own.group_protocol == "auto":
        return passed("KIP-848, which moves few partitions, or cooperative-sticky where the broker does not have it.")
    if assignor == "cooperative-sticky":
        return passed("assignor is cooperative-sticky.")
    return overruled(COOPERATIVE_STICKY, f"assignor is {assignor}, as the consumer standard has it, by name.")


@each
def sequential(one: Asked) -> Finding:
    if one.own.order != "none":
        return passed(f"order is {one.own.order}.")
    return failed(
        "order is none: records overtake each other.", 'Use order="partition" or order="key" if order matters.'
    )


@each
def idempotent(one: Asked) -> Finding:
    if one.own.idempotent:
        return passed("The handler is declared idempotent.")
    return failed(
        "Nothing says that a record may come twice, and after a crash it does.",
        "Make the handler bear it (an upsert, a key of its own) and say idempotent=True.",
    )


@each
def validated(one: Asked) -> Finding:
    takes = one.takes
    if get_origin(takes) is list:
        takes = get_args(takes)[0]
    bare = (
        [part for part in (get_args(takes) or (takes,)) if part is not type(None)]
        if get_origin(takes) is not dict
        else [dict]
    )
    if any(part in _UNCHECKED or get_origin(part) is dict for part in bare):
        return failed("The handler takes what comes, unchecked.", "Annotate its value with a dataclass or a model.")
    if any(part in _RAW for part in bare):
        return overruled(CHOSEN_BY_NAME, "The handler takes what was sent and decodes it, as the loop article has it.")
    return passed("Values are decoded into a type, and what does not fit is buried before the handler sees it.")


@each
def cards_are_sunk(one: Asked) -> Finding:
    if one.sensitive is None:
        return not_applicable("No detector is on. Where card numbers may come, say sensitive=CardNumbers().")
    return passed("Records with card numbers are dropped before the handler, counted, and reach no topic or log.")

"""What `keepfast explain` knows about an exception, by whose rules, and in which words it is said."""

from __future__ import annotations

import difflib
import importlib
import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

import click

from keepfast.classify.classification import (
    BUILT_IN,
    UNKNOWN_RULE,
    Classification,
    NotFound,
    RuleBook,
    Unknown,
    classify_class,
    classify_key,
)
from keepfast.classify.retries import RetryPolicies
from keepfast.classify.rules import Rule, normal_key
from keepfast.core.errors import ConfigError
from keepfast.core.policies import RetryPolicy
from keepfast.telemetry.clean import clean_error, clean_text

if TYPE_CHECKING:
    from keepfast.settings import Settings

MAX_DELAYS = 6

_DECIDED_BY = {
    "http": ("its HTTP status", "http:503"),
    "sqlstate": ("its SQLSTATE", "sqlstate:40P01"),
    "grpc": ("its gRPC status", "grpc:UNAVAILABLE"),
    "aws": ("its AWS error code", "aws:SlowDown"),
    "kafka": ("its Kafka error", "kafka:_TRANSPORT"),
    "errno": ("its error number", "errno:ECONNREFUSED"),
    "fault": ("the client's error", "kafka:_TRANSPORT"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainView:
    """By whose rules and settings an exception is looked at: those of a consumer, or, without one, the built-in ones.

    `told` says where rules and policies came from, by their keys: `rules.http:409` → `keepfast.toml [consumer] rules`.
    """

    consumer: str = ""
    rules: RuleBook = BUILT_IN
    policies: RetryPolicies = field(default_factory=lambda: RetryPolicies(RetryPolicy()))
    unknown: Unknown = "retry"
    not_found: NotFound = "final"
    told: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Explanation:
    """What is known about what was asked for."""

    asked: str
    found: Classification
    policy_key: str
    policy: RetryPolicy
    notes: tuple[str, ...]


def view_of(consumer: str, settings: Settings) -> ExplainView:
    """The consumer's own."""
    own = settings.consumers[consumer]
    prefix = f"consumers.{consumer}.consumer."
    told = {key.removeprefix(prefix): origin for key, origin in settings.origins.items() if key.startswith(prefix)}
    return ExplainView(
        consumer=consumer,
        rules=RuleBook(own.rules),
        policies=RetryPolicies(own.retry, own.retries),
        unknown=own.unknown_errors,
        not_found=own.not_found,
        told=told,
    )


def answer(text: str, view: ExplainView) -> Explanation:
    """Raises ConfigError for what can be no exception."""
    key = normal_key(text)
    cls, note = (None, "") if ":" in key else _load(key)
    notes = [note] if note else []
    if ":" not in key:
        notes += [_decided_by(scheme) for scheme in view.rules.asked(key if cls is None else cls)]
    by_key = cls is None
    found = (
        classify_key(key, view.rules, unknown=view.unknown, not_found=view.not_found)
        if cls is None
        else classify_class(cls, view.rules, unknown=view.unknown, not_found=view.not_found)
    )
    policy_key, policy = view.policies.of_key(key) if by_key else view.policies.of_class(cls)  # type: ignore[arg-type]
    return Explanation(key, found, policy_key, policy, tuple(notes))


def _decided_by(scheme: str) -> str:
    by, example = _DECIDED_BY[scheme]
    return f"An error of this class is decided by {by} where it has one: keepfast explain {example}"


def _load(name: str) -> tuple[type[BaseException] | None, str]:
    """The class, if it can be had here, else why it is known by its name alone."""
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    parts = name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        module = ".".join(parts[:end])
        try:
            value: object = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name and (module == error.name or module.startswith(f"{error.name}.")):
                continue
            return None, f"{module} cannot be imported here ({clean_error(error)}): known by its name alone."
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a stranger's module does
            return None, f"{module} cannot be imported here ({clean_error(error)}): known by its name alone."
        return _class_in(value, module, parts[end:]), ""
    return None, f"{parts[0]} is not installed here: known by its name alone, not by its base classes."


def _class_in(value: object, module: str, path: list[str]) -> type[BaseException]:
    for step in path:
        inner = getattr(value, step, None)
        if inner is None:
            names = [name for name, each in vars(value).items() if _is_exception(each)]
            near = difflib.get_close_matches(step, names, n=1)
            hint = f" Did you mean {module}.{near[0]}?" if near else ""
            raise ConfigError(f"{module} has no exception {clean_text(step)!r}.{hint}")
        value = inner
    if not _is_exception(value):
        raise ConfigError(f"{module}.{'.'.join(path)} is no exception class.")
    return value  # type: ignore[return-value] # just looked at


def _is_exception(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)


def as_json(one: Explanation, view: ExplainView) -> str:
    fields = {"exception": one.asked, **asdict(one.found), "next": _next(one, view), "notes": one.notes}
    if view.consumer:
        fields |= {"consumer": view.consumer, "rule_from": _rule_origin(one.found, view), "policy": asdict(one.policy)}
        fields["policy_for"] = one.policy_key
    return json.dumps(fields)


def as_text(one: Explanation, view: ExplainView) -> str:
    found = one.found
    by = f", as consumer {view.consumer} sees it" if view.consumer else ""
    lines = [f"{clean_text(one.asked)}{by}", ""]
    lines.append(f"  kind    {_coloured(found.kind)}")
    lines.append(f"  code    {found.code}")
    if found.kind == "retryable":
        lines.append(f"  outage  {'yes: a downstream is away (counts for the breaker)' if found.outage else 'no'}")
    if found.rule == UNKNOWN_RULE:
        lines.append(
            f"  rule    none: an unknown error, so the setting for those decides (unknown_errors={view.unknown})"
        )
    else:
        standard = f" (standard {found.standard})" if found.standard else ""
        origin = _rule_origin(found, view)
        lines.append(f"  rule    {found.rule}, by {found.matched}{standard}{f', from {origin}' if origin else ''}")
        why = _why(found, view.rules.rules)
        lines += [f"          {why}"] if why else []
    lines.append(f"  next    {_next(one, view)}")
    lines += [f"  note    {note}" for note in one.notes]
    return "\n".join(lines)


def _why(found: Classification, rules: Iterable[Rule]) -> str:
    return next((rule.why for rule in rules if rule.name == found.rule), "")


def _rule_origin(found: Classification, view: ExplainView) -> str:
    """Where the rule was written; empty for a built-in one."""
    rule = next((rule for rule in view.rules.rules if rule.name == found.rule), None)
    origins = (view.told.get(f"rules.{key}", "") for key in (rule.keys if rule else ()))
    return next((origin for origin in origins if origin), "")


def _next(one: Explanation, view: ExplainView) -> str:
    match one.found.kind:
        case "retryable":
            return _retries(one, view)
        case "non-retryable":
            unused = " The retry policy for it has no effect; a rule must call it retryable." if one.policy_key else ""
            return f"Buried at once: no retry, a dead letter, then the commit.{unused}"
        case "discard":
            return "Dropped: no retry, no dead letter; counted and logged, then the commit."
        case "halt":
            return "The app stops with exit code 4; the record stays unfinished and comes again after the restart."
        case other:
            assert_never(other)


def _retries(one: Explanation, view: ExplainView) -> str:
    """The policy in words."""
    policy = one.policy
    origin = view.told.get(f"retries.{one.policy_key}", "")
    by = f" (the policy for {one.policy_key}{f', from {origin}' if origin else ''})" if one.policy_key else ""
    if policy.max_retries == 0:
        return f"Buried at once: no retries{by}, a dead letter, then the commit."
    told = policy.max_retries
    shown = [_seconds(policy.delay_ms(number, 0)) for number in range(min(told or MAX_DELAYS, MAX_DELAYS))]
    if told is None or told > MAX_DELAYS:
        shown = [*shown, "…"] if len(set(shown[-2:])) > 1 or told is not None else [f"{shown[-1]} each"]
    extra = " (and up to 10 % more)" if policy.jitter else ""
    begin = "By default retried" if not view.consumer else "Retried"
    often = "for ever" if told is None else f"{told} time{'s' * (told != 1)}"
    limit = (
        "" if policy.max_elapsed_s is None else f", none later than {policy.max_elapsed_s:g} s after the first attempt"
    )
    end = "." if told is None and policy.max_elapsed_s is None else "; then buried."
    return f"{begin} {often}{by}, after {', '.join(shown)}{extra}, or later if the downstream asks so{limit}{end}"


def _seconds(delay_ms: float) -> str:
    return f"{delay_ms / 1000:g} s"


def _coloured(kind: str) -> str:
    colours = {"retryable": "yellow", "non-retryable": "red", "discard": "magenta", "halt": "red"}
    return click.style(kind, fg=colours[kind], bold=True)


def show_rules(view: ExplainView, *, as_json: bool) -> None:
    rules = view.rules.rules
    if as_json:
        names = ("name", "kind", "code", "outage", "standard", "why", "keys")
        click.echo(json.dumps([{name: getattr(rule, name) for name in names} for rule in rules]))
        return
    for rule in rules:
        outage = ", outage" if rule.outage else ""
        origin = next((view.told[f"rules.{key}"] for key in rule.keys if f"rules.{key}" in view.told), "")
        why = rule.why or (f"From {origin}." if origin else "")
        click.echo(f"{click.style(rule.name, bold=True)}: {rule.kind}{outage}")
        click.echo(f"  {why}{f' (standard {rule.standard})' if rule.standard else ''}")
        click.echo(f"  {', '.join(rule.keys)}")

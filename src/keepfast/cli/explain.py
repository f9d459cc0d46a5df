"""`keepfast explain`: how an exception is classified, by which rule, and what happens to its record."""

from __future__ import annotations

import difflib
import errno
import importlib
import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
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
from keepfast.classify.retry_policies import RetryPolicies
from keepfast.classify.rules import Rule, normal_key
from keepfast.cli.errors import report_errors
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
    "sqlite": ("its SQLite result code", "sqlite:FULL"),
    "errno": ("its error number", "errno:ECONNREFUSED"),
    "fault": ("the client's error", "kafka:_TRANSPORT"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainView:
    """The rules and settings that classify an exception: those of a consumer, or without one the built-in ones.

    `origins` says where rules and policies come from: `rules.http:409` → `keepfast.toml [consumer] rules`.
    """

    consumer: str = ""
    rules: RuleBook = BUILT_IN
    policies: RetryPolicies = field(default_factory=lambda: RetryPolicies(RetryPolicy()))
    unknown: Unknown = "retry"
    not_found: NotFound = "final"
    origins: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Explanation:
    """How one exception is classified."""

    exception: str
    found: Classification
    policy_key: str
    policy: RetryPolicy
    notes: tuple[str, ...]


@click.command(short_help="Show how an exception is classified, and by which rule.")
@click.argument("exception", required=False)
@click.option("--app", "target", metavar="MODULE:APP", help="Include the rules and settings of this app.")
@click.option("--consumer", metavar="NAME", help="Only for this consumer of the app.")
@click.option(
    "--unknown",
    type=click.Choice(["retry", "dead-letter"]),
    help="What happens to errors without a rule.  [default: retry, or the app's setting]",
)
@click.option(
    "--not-found",
    type=click.Choice(["final", "retry"]),
    help="What happens to HTTP 404 and the like.  [default: final, or the app's setting]",
)
@click.option("--list", "list_rules", is_flag=True, help="List all rules.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; one object per consumer.")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
def explain(
    exception: str | None,
    target: str | None,
    consumer: str | None,
    *,
    unknown: Unknown | None,
    not_found: NotFound | None,
    list_rules: bool,
    as_json: bool,
    debug: bool,
) -> None:
    """Show how an exception is classified, which rule decides, and what happens to its record.

    EXCEPTION is a class or an error code. Classes of libraries that are not installed are matched by name. With --app
    the answer is given for each consumer, with the rules and retries of its code, keepfast.toml and the environment.

    \b
      keepfast explain requests.exceptions.Timeout
      keepfast explain mylib.errors.Busy --app shop.main:app --consumer charge
      keepfast explain http:503
      keepfast explain sqlstate:40P01
      keepfast explain KafkaError:_TRANSPORT
      keepfast explain --list
    """
    if list_rules == (exception is not None):
        raise click.UsageError("Name an exception, such as http:503, or list all rules with --list.")
    if consumer is not None and target is None:
        raise click.UsageError("--consumer needs --app MODULE:APP.")
    with report_errors(debug=debug):
        for number, view in enumerate(_views(target, consumer)):
            view = replace(view, unknown=unknown or view.unknown, not_found=not_found or view.not_found)  # noqa: PLW2901
            if exception is None:
                show_rules(view, as_json=as_json)
                continue
            one = answer(exception, view)
            shown = json_of(one, view) if as_json else as_text(one, view)
            click.echo(shown if as_json or number == 0 else f"\n{shown}")


def _views(target: str | None, consumer: str | None) -> list[ExplainView]:
    if target is None:
        return [ExplainView()]
    from keepfast.cli.app_loader import load_app

    app = load_app(target, cwd=Path.cwd())
    chosen = app.chosen([consumer] if consumer is not None else ())
    settings = app.settings()
    return [view_of(one.name, settings) for one in chosen]


def view_of(consumer: str, settings: Settings) -> ExplainView:
    """The rules and settings of one consumer."""
    own = settings.consumers[consumer]
    prefix = f"consumers.{consumer}.consumer."
    origins = {key.removeprefix(prefix): origin for key, origin in settings.origins.items() if key.startswith(prefix)}
    return ExplainView(
        consumer=consumer,
        rules=RuleBook(own.rules),
        policies=RetryPolicies(own.retry, own.retries),
        unknown=own.unknown_errors,
        not_found=own.not_found,
        origins=origins,
    )


def answer(text: str, view: ExplainView) -> Explanation:
    """Classify an exception class or error code. Raises ConfigError if the text cannot be one."""
    key = normal_key(text)
    _check_errno(key, view.rules.rules)
    cls, note = (None, "") if ":" in key else _load(key)
    notes = [note] if note else []
    if ":" not in key:
        notes += [_decided_by(scheme) for scheme in view.rules.schemes(key if cls is None else cls)]
    by_key = cls is None
    found = (
        classify_key(key, view.rules, unknown=view.unknown, not_found=view.not_found)
        if cls is None
        else classify_class(cls, view.rules, unknown=view.unknown, not_found=view.not_found)
    )
    policy_key, policy = view.policies.of_key(key) if by_key else view.policies.of_class(cls)  # type: ignore[arg-type]
    return Explanation(key, found, policy_key, policy, tuple(notes))


def _check_errno(key: str, rules: Iterable[Rule]) -> None:
    """Raise ConfigError for the name of an error number that there is not: no error would ever have it."""
    scheme, _, name = key.partition(":")
    named = {one.partition(":")[2] for rule in rules for one in rule.keys if one.startswith("errno:")}
    known = named | {one for one in dir(errno) if one.startswith("E")}  # not every system has all that are named
    if scheme != "errno" or name in known:
        return
    near = difflib.get_close_matches(name, sorted(known), n=1)
    hint = f" Did you mean errno:{near[0]}?" if near else " Python's module errno lists them."
    raise ConfigError(f"There is no error number {clean_text(name)!r}.{hint}")


def _decided_by(scheme: str) -> str:
    by, example = _DECIDED_BY[scheme]
    return f"An error of this class is classified by {by} if it has one: keepfast explain {example}"


def _load(name: str) -> tuple[type[BaseException] | None, str]:
    """The class, or None and the reason why it is matched by name only."""
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
            return None, f"{module} cannot be imported ({clean_error(error)}): matched by name only."
        except (Exception, SystemExit) as error:  # noqa: BLE001 - anything that a foreign module may raise
            return None, f"{module} cannot be imported ({clean_error(error)}): matched by name only."
        return _class_in(value, module, parts[end:]), ""
    return None, f"{parts[0]} is not installed: matched by name only, not by its base classes."


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
        raise ConfigError(f"{module}.{'.'.join(path)} is not an exception class.")
    return value  # type: ignore[return-value] # checked above


def _is_exception(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)


def json_of(one: Explanation, view: ExplainView) -> str:
    fields = {"exception": one.exception, **asdict(one.found), "next": next_step(one, view), "notes": one.notes}
    if view.consumer:
        fields |= {"consumer": view.consumer, "rule_from": _rule_origin(one.found, view), "policy": asdict(one.policy)}
        fields["policy_for"] = one.policy_key
    return json.dumps(fields)


def as_text(one: Explanation, view: ExplainView) -> str:
    found = one.found
    by = f", for consumer {view.consumer}" if view.consumer else ""
    lines = [f"{clean_text(one.exception)}{by}", ""]
    lines.append(f"  kind    {_coloured(found.kind)}")
    lines.append(f"  code    {found.code}")
    if found.kind == "retryable":
        lines.append(
            f"  outage  {'yes: a downstream is unavailable (counts for the breaker)' if found.outage else 'no'}"
        )
    if found.rule == UNKNOWN_RULE:
        lines.append(f"  rule    none: an unknown error, decided by the setting unknown_errors={view.unknown}")
    else:
        standard = f" (standard {found.standard})" if found.standard else ""
        origin = _rule_origin(found, view)
        lines.append(f"  rule    {found.rule}, by {found.matched}{standard}{f', from {origin}' if origin else ''}")
        why = _why(found, view.rules.rules)
        lines += [f"          {why}"] if why else []
    lines.append(f"  next    {next_step(one, view)}")
    lines += [f"  note    {note}" for note in one.notes]
    return "\n".join(lines)


def _why(found: Classification, rules: Iterable[Rule]) -> str:
    return next((rule.why for rule in rules if rule.name == found.rule), "")


def _rule_origin(found: Classification, view: ExplainView) -> str:
    """Where the rule is defined; empty for a built-in one."""
    rule = next((rule for rule in view.rules.rules if rule.name == found.rule), None)
    origins = (view.origins.get(f"rules.{key}", "") for key in (rule.keys if rule else ()))
    return next((origin for origin in origins if origin), "")


def next_step(one: Explanation, view: ExplainView) -> str:
    """What happens to the record, in words."""
    match one.found.kind:
        case "retryable":
            return _retries(one, view)
        case "non-retryable":
            unused = " Its retry policy has no effect unless a rule makes it retryable." if one.policy_key else ""
            return f"Dead-lettered at once, without retries; then committed.{unused}"
        case "discard":
            return "Discarded: no retry, no dead letter; counted and logged, then committed."
        case "halt":
            return (
                "The app stops with exit code 4; the record is not committed and is delivered again after the restart."
            )
        case other:
            assert_never(other)


def _retries(one: Explanation, view: ExplainView) -> str:
    """Describe the retry policy."""
    policy = one.policy
    origin = view.origins.get(f"retries.{one.policy_key}", "")
    by = f" (the policy for {one.policy_key}{f', from {origin}' if origin else ''})" if one.policy_key else ""
    if policy.max_retries == 0:
        return f"Dead-lettered at once, without retries{by}; then committed."
    count = policy.max_retries
    shown = [_seconds(policy.delay_ms(number, 0)) for number in range(min(count or MAX_DELAYS, MAX_DELAYS))]
    if count is None or count > MAX_DELAYS:
        shown = [*shown, "…"] if len(set(shown[-2:])) > 1 or count is not None else [f"{shown[-1]} each"]
    extra = " (and up to 10 % more)" if policy.jitter else ""
    begin = "By default retried" if not view.consumer else "Retried"
    often = "without limit" if count is None else f"{count} time{'s' * (count != 1)}"
    limit = (
        "" if policy.max_elapsed_s is None else f", none later than {policy.max_elapsed_s:g} s after the first attempt"
    )
    end = "." if count is None and policy.max_elapsed_s is None else "; then dead-lettered."
    return f"{begin} {often}{by}, after {', '.join(shown)}{extra}, or later if the downstream requests it{limit}{end}"


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
        origin = next((view.origins[f"rules.{key}"] for key in rule.keys if f"rules.{key}" in view.origins), "")
        why = rule.why or (f"From {origin}." if origin else "")
        click.echo(f"{click.style(rule.name, bold=True)}: {rule.kind}{outage}")
        click.echo(f"  {why}{f' (standard {rule.standard})' if rule.standard else ''}")
        click.echo(f"  {', '.join(rule.keys)}")

"""`holdfast explain`: how an exception is classified, which rule says so, and what happens to its record."""

from __future__ import annotations

import difflib
import importlib
import json
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import assert_never

import click

from holdfast.cli.errors import said_plainly
from holdfast.core.classification import (
    BUILT_IN,
    UNKNOWN_RULE,
    Classification,
    NotFound,
    RuleBook,
    Unknown,
    classify_class,
    classify_key,
)
from holdfast.core.errors import ConfigError
from holdfast.core.policies import RetryPolicy
from holdfast.core.rules import Rule, normal_key
from holdfast.observe.clean import clean_error, clean_text

_DECIDED_BY = {
    "http": ("its HTTP status", "http:503"),
    "sqlstate": ("its SQLSTATE", "sqlstate:40P01"),
    "grpc": ("its gRPC status", "grpc:UNAVAILABLE"),
    "aws": ("its AWS error code", "aws:SlowDown"),
    "kafka": ("its Kafka error", "kafka:_TRANSPORT"),
    "errno": ("its error number", "errno:ECONNREFUSED"),
    "fault": ("the client's error", "kafka:_TRANSPORT"),
}


@dataclass(frozen=True, slots=True)
class _Answer:
    """What is known about what was asked for."""

    asked: str
    found: Classification
    notes: tuple[str, ...]


@click.command(short_help="Say how an exception is classified, and by which rule.")
@click.argument("exception", required=False)
@click.option(
    "--unknown",
    type=click.Choice(["retry", "dead-letter"]),
    default="retry",
    show_default=True,
    help="What becomes of errors that no rule knows.",
)
@click.option(
    "--not-found",
    type=click.Choice(["final", "retry"]),
    default="final",
    show_default=True,
    help="What becomes of HTTP 404 and its like.",
)
@click.option("--list", "list_rules", is_flag=True, help="Show all rules instead.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
def explain(
    exception: str | None, *, unknown: Unknown, not_found: NotFound, list_rules: bool, as_json: bool, debug: bool
) -> None:
    """Say how an exception is classified, which rule decides, and what happens to its record.

    EXCEPTION is a class or what an error says about itself. A library that is not installed is known by name.

    \b
      holdfast explain requests.exceptions.Timeout
      holdfast explain mylib.errors.Busy
      holdfast explain http:503
      holdfast explain sqlstate:40P01
      holdfast explain KafkaError:_TRANSPORT
      holdfast explain --list
    """
    if list_rules == (exception is not None):
        raise click.UsageError("Name an exception, such as http:503, or ask for all rules with --list.")
    with said_plainly(debug=debug):
        if exception is None:
            _show_rules(BUILT_IN.rules, as_json=as_json)
            return
        answer = _answer(exception, BUILT_IN, unknown=unknown, not_found=not_found)
        shown = _as_json(answer) if as_json else _as_text(answer, BUILT_IN.rules)
        click.echo(shown)


def _answer(text: str, book: RuleBook, *, unknown: Unknown, not_found: NotFound) -> _Answer:
    """Raises ConfigError for what can be no exception."""
    key = normal_key(text)
    if ":" in key:
        return _Answer(key, classify_key(key, book, unknown=unknown, not_found=not_found), ())
    cls, note = _load(key)
    notes = [note] if note else []
    notes += [_decided_by(scheme) for scheme in book.asked(key if cls is None else cls)]
    if cls is None:
        return _Answer(key, classify_key(key, book, unknown=unknown, not_found=not_found), tuple(notes))
    return _Answer(key, classify_class(cls, book, unknown=unknown, not_found=not_found), tuple(notes))


def _decided_by(scheme: str) -> str:
    by, example = _DECIDED_BY[scheme]
    return f"An error of this class is decided by {by} where it has one: holdfast explain {example}"


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


def _as_json(answer: _Answer) -> str:
    found = asdict(answer.found)
    return json.dumps({"exception": answer.asked, **found, "next": _next(answer.found), "notes": answer.notes})


def _as_text(answer: _Answer, rules: Iterable[Rule]) -> str:
    found = answer.found
    lines = [f"{clean_text(answer.asked)}", ""]
    lines.append(f"  kind    {_coloured(found.kind)}")
    lines.append(f"  code    {found.code}")
    if found.kind == "retryable":
        lines.append(f"  outage  {'yes: a downstream is away (counts for the breaker)' if found.outage else 'no'}")
    if found.rule == UNKNOWN_RULE:
        lines.append("  rule    none: an unknown error, so the setting for those decides")
    else:
        standard = f" (standard {found.standard})" if found.standard else ""
        lines.append(f"  rule    {found.rule}, by {found.matched}{standard}")
        why = next((rule.why for rule in rules if rule.name == found.rule), "")
        lines += [f"          {why}"] if why else []
    lines.append(f"  next    {_next(found)}")
    lines += [f"  note    {note}" for note in answer.notes]
    return "\n".join(lines)


def _next(found: Classification) -> str:
    match found.kind:
        case "retryable":
            return _retries(RetryPolicy())
        case "non-retryable":
            return "Buried at once: no retry, a dead letter, then the commit."
        case "discard":
            return "Dropped: no retry, no dead letter; counted and logged, then the commit."
        case "halt":
            return "The app stops with exit code 4; the record stays unfinished and comes again after the restart."
        case other:
            assert_never(other)


def _retries(policy: RetryPolicy) -> str:
    """The default policy in words; a consumer may have another."""
    count = policy.max_retries or 0
    delays = ", ".join(f"{policy.delay_ms(number, 0) / 1000:g} s" for number in range(count))
    extra = " (and up to 10 % more)" if policy.jitter else ""
    return f"By default retried {count} times, after {delays}{extra}, or later if the downstream asks so; then buried."


def _coloured(kind: str) -> str:
    colours = {"retryable": "yellow", "non-retryable": "red", "discard": "magenta", "halt": "red"}
    return click.style(kind, fg=colours[kind], bold=True)


def _show_rules(rules: Iterable[Rule], *, as_json: bool) -> None:
    if as_json:
        fields = ("name", "kind", "code", "outage", "standard", "why", "keys")
        click.echo(json.dumps([{name: getattr(rule, name) for name in fields} for rule in rules]))
        return
    for rule in rules:
        outage = ", outage" if rule.outage else ""
        click.echo(f"{click.style(rule.name, bold=True)}: {rule.kind}{outage}")
        click.echo(f"  {rule.why}{f' (standard {rule.standard})' if rule.standard else ''}")
        click.echo(f"  {', '.join(rule.keys)}")

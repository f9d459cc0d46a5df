"""The events of the log, read from the calls that write them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import keepfast
from keepfast.telemetry.logs import LEVELS
from tools.reference.markdown import MADE, code, codes, escaped, table

INTRODUCTION = """# Events of the log

Every line of the log is an event with a constant name and fields. On a terminal it is text, elsewhere JSON with
`ts`, `level`, `logger` and `event` besides the fields (`[log]` in the [settings](settings.md#log), `--log-format`).
Values are made safe: no payload, no line breaks, secrets masked. What may come in storms is sampled; `suppressed`
then says how many lines were left out, in the next one of its kind or, if none comes, in a `log_lines_suppressed`.

The fields below are those that the call itself names; lines about a record also have `consumer_group`, `topic`,
`partition`, `offset`, `retry_count`, `error_type`, `error_classification`, `code`, `rule`, `error_message` (masked, one
line), `at` (where it was raised) and `processing_ms`. Lines of a child process have its number (`process`).
`keepfast dev` and `--debug` add a `traceback`. What to do about them: the [runbook](../runbook.md).
"""
ROOT = Path(keepfast.__file__).parent
_NOT_OURS = ("testing", "demo")
"""What logs for tests and the demo."""


class Event(NamedTuple):
    """One call."""

    name: str
    level: str
    fields: tuple[str, ...]


class Source(NamedTuple):
    """A module that logs: its first sentence, and what it writes."""

    logger: str
    about: str
    events: list[Event]


def page() -> str:
    parts = [MADE + INTRODUCTION]
    for logger, group in groupby(sources(), key=lambda one: one.logger):
        parts.append(f"## {logger}\n")
        for source in group:
            rows = sorted({(code(one.name), one.level, codes(one.fields)) for one in source.events})
            parts.append(f"{escaped(source.about)}\n\n{table(('event', 'level', 'fields'), rows)}")
    return "\n".join(parts)


def sources() -> list[Source]:
    """Sorted by logger; one that several modules use comes several times."""
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        if path.relative_to(ROOT).parts[0] in _NOT_OURS:
            continue
        tree = ast.parse(path.read_text())
        for variable, logger in _loggers_of(tree).items():
            events = list(_events(tree, variable))
            if events:
                found.append(Source(logger, _about(tree), events))
    return sorted(found, key=lambda one: one.logger)


def _about(tree: ast.Module) -> str:
    first = " ".join((ast.get_docstring(tree) or "").split("\n\n")[0].split())
    return first.partition(" Owner: ")[0]


def _loggers_of(tree: ast.Module) -> dict[str, str]:
    """Names of the module that are loggers, and the logger of each: `log = get_logger("keepfast.loop")`."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Assign(
                targets=[target],
                value=ast.Call(func=ast.Name(id="get_logger"), args=[ast.Constant(value=str() as name)]),
            ):
                found[ast.unparse(target).rpartition(".")[2]] = name
            case _:
                continue
    return found


def _events(tree: ast.Module, log: str) -> Iterator[Event]:
    """What is written to this logger."""
    first = log == next(iter(_loggers_of(tree)))
    handed_on = _functions_with_an_event(tree, log) if first else {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = next((one.value for one in node.args if isinstance(one, ast.Constant) and type(one.value) is str), None)
        if name is None or not name.isidentifier():
            continue
        level = _level_of(node, log) or handed_on.get(ast.unparse(node.func).rpartition(".")[2], "")
        if level:
            yield Event(
                name, level, tuple(sorted(word.arg for word in node.keywords if word.arg and word.arg not in _HOW))
            )


_HOW = frozenset({"now", "key", "every_s", "at_most"})
"""Arguments of `sampled` that are no fields."""


def _level_of(call: ast.Call, log: str) -> str:
    """`log.error("…")`, `log.sampled(logging.ERROR, "…")`, `say(log.error, "…")`, `say(log.error if … else …, "…")`."""
    words = [call.func, *call.args]
    inner = [node for word in words for node in ast.walk(word) if isinstance(node, ast.Attribute)]
    ours = [node for node in inner if ast.unparse(node.value).rpartition(".")[2] == log]
    levels = [node.attr for node in ours if node.attr in LEVELS or node.attr == "exception"]
    if any(node.attr == "sampled" for node in ours):
        levels = [ast.unparse(call.args[0]).rpartition(".")[2].lower()]
    return " or ".join(dict.fromkeys("error" if level == "exception" else level for level in levels))


def _functions_with_an_event(tree: ast.Module, log: str) -> dict[str, str]:
    """Functions that are handed the event's name, and the level at which the module logs such names."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    named = {one.name for one in functions if "event" in {word.arg for word in one.args.args}}
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    levels = [_level_of(call, log) for call in calls if any(ast.unparse(one) == "event" for one in call.args)]
    return dict.fromkeys(named, next((one for one in levels if one), "by circumstance"))

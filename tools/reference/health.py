"""The reasons that `/health` may give, read from the code that gives them."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from typing import NamedTuple

from keepfast.http import health
from keepfast.supervisor import shared_health
from tools.reference.markdown import MADE, code, table

INTRODUCTION = """# Health

| path | 200 as long as | for |
|---|---|---|
| `/health` | nothing is `failing` | people, and container health checks |
| `/health/live` | a restart would not help | liveness probes |
| `/health/ready` | it can process records | readiness probes, alerts |
| `/health/startup` | every consumer has joined its group once | startup probes |

Otherwise it is 503. The body is JSON, always with all reasons: `code` is constant, `text` is for people, `fails_live`
and `fails_ready` say which probe it fails. Lag, unreachable brokers, dead letters and guards never fail liveness: a
restart would not help. A pause by an operator is no problem.

With `--processes`, `consumer` is `name@number`. The supervisor asks each child every 5 s and restarts one that is not
live: after `health.restart_after_s` (30 s) of such answers (it drains first), or when it has not answered for as long
(SIGTERM, 10 s later SIGKILL). `/health/live` fails only while a silent child is being killed, and if a child outlives
the deadline of its drain, so that an orchestrator does not restart the others.

Host and port are [settings](settings.md#health): `HEALTH_CHECK_PORT` (8080), `HEALTH_CHECK_ENABLED`.

## Reasons
"""


class Given(NamedTuple):
    """One reason. `text` has `…` where the code fills in what it found."""

    code: str
    level: str
    live: bool
    ready: bool
    text: str


def page() -> str:
    rows = [
        (code(one.code), one.level, "yes" if one.live else "", "yes" if one.ready else "", one.text)
        for one in reasons()
    ]
    return MADE + INTRODUCTION + "\n" + table(("code", "level", "fails live", "fails ready", "text"), rows)


def reasons() -> list[Given]:
    parts = [part for module in (health, shared_health) for part in ast.parse(inspect.getsource(module)).body]
    return [one for part in parts if isinstance(part, ast.FunctionDef) for one in _in(part)]


def _in(function: ast.FunctionDef) -> Iterator[Given]:
    for call in sorted((node for node in ast.walk(function) if isinstance(node, ast.Call)), key=lambda one: one.lineno):
        named = {word.arg: word.value for word in call.keywords}
        match call.func:
            case ast.Name(id="_failing"):
                arguments, level, ready = call.args, "failing", True
            case ast.Name(id="Reason") if isinstance(named["code"], ast.Constant):
                arguments, level, ready = (
                    [named["code"], named["text"]],
                    _text(named["level"]),
                    _is_true(named.get("fails_ready")),
                )
            case _:
                continue
        text = _before(function, call) if isinstance(arguments[1], ast.Name) else _text(arguments[1])
        yield Given(_text(arguments[0]), level, _is_true(named.get("fails_live")), ready, text)


def _before(function: ast.FunctionDef, call: ast.Call) -> str:
    """What was assigned to `text` last before this call."""
    lines = {
        node.lineno: node.value
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "text" and node.lineno < call.lineno
    }
    return _text(lines[max(lines)])


def _text(node: ast.expr) -> str:
    """With `…` for everything that is known only when it happens."""
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(map(_text, parts))
        case ast.Call(func=ast.Attribute(value=ast.JoinedStr() as inner)):
            return _text(inner)
        case _:
            return "…"


def _is_true(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True

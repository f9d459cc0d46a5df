"""Reads `.env`: one NAME=value a line, nothing is filled in, nothing is executed.

    # a comment
    export KAFKA_BROKERS=kafka:9092       # a comment after a space
    SINGLE='as it stands'
    DOUBLE="with \\n \\t \\" \\\\ as escapes"

A value is everything after the first `=`, without spaces around it. A later line wins over an earlier one.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_LINE = re.compile(r"\s*(?:export\s+)?(?P<name>[A-Za-z_][A-Za-z0-9_.-]*)\s*=\s*(?P<rest>.*)", re.ASCII | re.DOTALL)
_SINGLE = re.compile(r"'(?P<value>[^']*)'\s*(?:#.*)?", re.DOTALL)
_DOUBLE = re.compile(r'"(?P<value>(?:[^"\\]|\\.)*)"\s*(?:#.*)?', re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_COMMENT = re.compile(r"(?:^|\s)#.*", re.DOTALL)
_MEANT = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\", "$": "$"}


class Line(NamedTuple):
    """Where a variable was set, for messages, and its value."""

    number: int
    value: str


def parse(text: str) -> tuple[dict[str, Line], list[str]]:
    """The variables, and what is wrong with other lines. A problem never repeats a line: it may hold a secret."""
    variables: dict[str, Line] = {}
    problems: list[str] = []
    for number, line in enumerate(text.split("\n"), start=1):
        content = line.rstrip("\r").strip()
        if not content or content.startswith("#"):
            continue
        found = _LINE.fullmatch(content)
        if not found:
            problems.append(f"line {number} is not NAME=value; write it so, or begin it with #")
            continue
        value = _value(found["rest"])
        if value is None:
            problems.append(f"line {number} ({found['name']}): the quotes do not close at the end; put them right")
        else:
            variables[found["name"]] = Line(number, value)
    return variables, problems


def _value(rest: str) -> str | None:
    if rest.startswith("'"):
        found = _SINGLE.fullmatch(rest)
        return found["value"] if found else None
    if rest.startswith('"'):
        found = _DOUBLE.fullmatch(rest)
        return _ESCAPE.sub(lambda m: _MEANT.get(m[1], m[0]), found["value"]) if found else None
    return _COMMENT.sub("", rest).strip()

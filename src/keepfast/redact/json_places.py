"""Where in a JSON text a byte stands, found without decoding it: for texts of any depth, cut off, or slightly wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

_TOKEN: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[{}\[\],:]', re.DOTALL)
_DEEPEST: Final = 200
_NAME_BYTES: Final = 256


class Place(NamedTuple):
    """The way from the root: names of fields and positions in lists. `in_name`: the byte stands in a field's name, and
    `way` leads to the object that has it."""

    way: tuple[str | int, ...]
    in_name: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(step for step in self.way if isinstance(step, str))


class _Level:
    """An open object (`step` is the name of its current field) or list (`step` is the position)."""

    __slots__ = ("is_object", "naming", "step")

    def __init__(self, *, is_object: bool) -> None:
        self.is_object = is_object
        self.naming = is_object
        self.step: bytes | int = b"" if is_object else 0


def places(data: bytes, positions: Iterable[int]) -> Iterator[Place | None]:
    """A place for each position (ascending), or None where the text is no JSON or is nested too deep. One pass."""
    start = _start(data)
    tokens = _TOKEN.finditer(data, start) if start is not None else iter(())
    levels: list[_Level] = []
    token = next(tokens, None)
    too_deep = start is None
    for position in positions:
        while token is not None and token.end() <= position and not too_deep:
            too_deep = _follow(levels, token)
            token = next(tokens, None)
        if too_deep:
            yield None
            continue
        inside = token is not None and token.start() <= position
        in_name = bool(inside and levels and levels[-1].naming)
        way = tuple(_step(level.step) for level in (levels[:-1] if in_name else levels))
        yield Place(way, in_name)


def _start(data: bytes) -> int | None:
    """Where the JSON begins; a registry's frame (a zero byte and a schema id) may stand before it."""
    start = 5 if data[:1] == b"\0" else 0
    opening = data[start : start + 64].lstrip()[:1]
    return start if opening in (b"{", b"[") else None


def _follow(levels: list[_Level], token: re.Match[bytes]) -> bool:
    """Take one token in; True if that leads too deep."""
    kind = token[0][:1]
    top = levels[-1] if levels else None
    if kind in b"{[":
        levels.append(_Level(is_object=kind == b"{"))
        return len(levels) > _DEEPEST
    if kind in b"}]":
        if levels:
            levels.pop()
    elif top is None:
        pass
    elif kind == b",":
        if isinstance(top.step, int):
            top.step += 1
        top.naming = top.is_object
    elif kind == b":":
        top.naming = False
    elif top.naming:
        top.step = token[0]
    return False


def _step(quoted: bytes | int) -> str | int:
    if isinstance(quoted, int):
        return quoted
    if len(quoted) > _NAME_BYTES:
        return quoted[1:_NAME_BYTES].decode("utf-8", "replace")
    try:
        return str(json.loads(quoted))
    except (ValueError, RecursionError):
        return quoted.strip(b'"').decode("utf-8", "replace")

"""The commands in shell blocks: in `console` after a `$`, with what they print; in `sh` alone."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from tests.docs.blocks import Block

_ASSIGNED = re.compile(r"(?:export )?([A-Z][A-Z0-9_]*)=(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Command:
    """One command line, and what the page says that it prints."""

    words: tuple[str, ...]
    prints: str


def commands(block: Block) -> Iterator[Command]:
    for line, prints in _lines(block):
        words = shlex.split(line, comments=True)
        for part in _parts(words):
            bare = [word for number, word in enumerate(part) if not _all_assigned(part[: number + 1])]
            if bare:
                yield Command(tuple(bare), prints)


def assignments(block: Block) -> Iterator[tuple[str, str]]:
    for line, _ in _lines(block):
        words = shlex.split(line, comments=True)
        for number, word in enumerate(words):
            found = _ASSIGNED.fullmatch(word)
            if found and (_all_assigned(words[: number + 1]) or words[0] in {"export", "docker"}):
                yield found[1], found[2]


def _all_assigned(words: list[str]) -> bool:
    return all(word == "export" or _ASSIGNED.fullmatch(word) for word in words)


def _parts(words: list[str]) -> Iterator[list[str]]:
    """`a && b | c` is three commands."""
    part: list[str] = []
    for word in words:
        if word in {"&&", "|", "&", ";"}:
            yield part
            part = []
        else:
            part.append(word)
    yield part


def _lines(block: Block) -> Iterator[tuple[str, str]]:
    """Each command line with what follows it; a line that ends in a backslash continues in the next."""
    text = block.text.replace("\\\n", " ")
    if block.language == "sh":
        yield from ((line, "") for line in text.splitlines() if line.strip())
        return
    for chunk in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        line, _, prints = chunk.partition("\n")
        yield line, prints

"""Pieces of Markdown."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Sequence

MADE = "<!-- Made from the code by `make reference`; change the code instead. -->\n\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [f"| {' | '.join(map(cell, row))} |" for row in rows]
    return "\n".join(lines) + "\n"


def cell(text: str) -> str:
    """On one line. A bar would end the cell; within a code span it does not, and a backslash would be shown."""
    return _outside_of_code(escaped(re.sub(r"\s+", " ", text).strip()), lambda part: part.replace("|", "\\|"))


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def codes(texts: Iterable[str]) -> str:
    return ", ".join(map(code, texts))


def fence(text: str, language: str = "text", title: str = "", ticks: int = 3) -> str:
    named = f' title="{title}"' if title else ""
    return f"{'`' * ticks}{language}{named}\n{text.rstrip()}\n{'`' * ticks}\n"


def docstring(thing: object) -> str:
    """As Markdown: placeholders in angle brackets are no HTML; examples, trees and columns become blocks."""
    text = inspect.getdoc(thing) or ""
    return "\n\n".join(_paragraph(paragraph) for paragraph in re.split(r"\n\n(?!    )", text))


def _paragraph(text: str) -> str:
    lines = text.splitlines()
    if text.startswith("    ") or sum("  " in line for line in lines) > len(lines) / 2:
        return fence(textwrap.dedent(text)).rstrip()
    beginning, found, example = text.partition("\n\n    ")
    return escaped(beginning) + (f"\n\n{_paragraph(found[2:] + example)}" if found else "")


def escaped(text: str) -> str:
    """Angle brackets outside of code spans would be taken for HTML."""
    return _outside_of_code(text, lambda part: part.replace("<", "&lt;").replace(">", "&gt;"))


def _outside_of_code(text: str, change: Callable[[str], str]) -> str:
    return "".join(part if part.startswith("`") else change(part) for part in re.split(r"(`[^`]*`)", text))

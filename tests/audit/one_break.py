"""One break, and ways to make several alike."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Break:
    """`old` is replaced in `file`, or in the evidence's own code if no file is named."""

    old: str
    new: str
    file: str = ""


def renamed(*texts: str, file: str = "") -> tuple[Break, ...]:
    """Names that somebody mistypes: the first one in quotes, or the text but its last character."""
    ends = [text.index('"', 1) if text.startswith('"') else len(text) - 1 for text in texts]
    return tuple(Break(text, f"{text[:end]}x{text[end:]}", file) for text, end in zip(texts, ends, strict=True))


def judged(rule: str, kind: str, other: str, file: str = "") -> Break:
    """A rule about errors that says another thing."""
    return Break(f'"{kind}",\n        name="{rule}"', f'"{other}",\n        name="{rule}"', file)

"""Names of fields and headers, as people spell them: `cardNumber`, `card_number`, `Card-Number` are one name."""

from __future__ import annotations

import re
from typing import Final

_WORDS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+|[^\W\d_A-Za-z]+")


def words(name: str, *, longest: int = 256) -> tuple[str, ...]:
    """The words of a name, in lower case. A longer name is cut: names come from outside."""
    return tuple(word.lower() for word in _WORDS.findall(name[:longest]))


def joined(name: str) -> str:
    """The name as one word, to compare names whatever their spelling."""
    return "".join(words(name))


def has_words(name_words: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    """`wanted` stands in the name, word after word, or is the whole name written as one word."""
    if not wanted or not name_words:
        return False
    size = len(wanted)
    if any(name_words[at : at + size] == wanted for at in range(len(name_words) - size + 1)):
        return True
    return "".join(name_words) == "".join(wanted)

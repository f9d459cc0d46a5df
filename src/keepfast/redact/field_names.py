"""Names of fields and headers, as people spell them: `cardNumber`, `card_number`, `Card-Number` are one name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_WORDS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+|[^\W\d_A-Za-z]+")
_MAX_REMEMBERED: Final = 4096
_NO_GAPS: Final = str.maketrans("", "", "_-.")


def words(name: str, *, longest: int = 256) -> tuple[str, ...]:
    """The words of a name, in lower case. A longer name is cut: names come from outside."""
    return tuple(word.lower() for word in _WORDS.findall(name[:longest]))


def joined(name: str) -> str:
    """The name as one word, to compare names whatever their spelling."""
    return "".join(words(name))


class FieldNames:
    """A set of names. A name is in it if one of them stands in it, word after word, or is all of it as one word.

    Any thread may ask: what is remembered is the same whoever writes it.
    """

    __slots__ = ("_as_one_word", "_by_first_word", "_looked_up")

    def __init__(self, names: Iterable[str]) -> None:
        spelt = [words(name) for name in names]
        self._as_one_word = frozenset("".join(one) for one in spelt if one)
        self._looked_up: dict[str, bool] = {}
        self._by_first_word: dict[str, list[tuple[str, ...]]] = {}
        for one in spelt:
            if one:
                self._by_first_word.setdefault(one[0], []).append(one)

    def may_be_in(self, text: str) -> bool:
        """False if no name of this set can stand anywhere in the text. Much quicker than to look at each name in it."""
        if not text.isascii():
            return True
        squeezed = text.lower().translate(_NO_GAPS)
        return any(name in squeezed for name in self._as_one_word)

    def __contains__(self, name: str) -> bool:
        known = self._looked_up.get(name)
        if known is None:
            known = self._look_up(name)
            if len(self._looked_up) < _MAX_REMEMBERED:  # names come from outside
                self._looked_up[name] = known
        return known

    def _look_up(self, name: str) -> bool:
        spelt = words(name)
        if "".join(spelt) in self._as_one_word:
            return True
        return any(
            spelt[at : at + len(wanted)] == wanted
            for at, word in enumerate(spelt)
            for wanted in self._by_first_word.get(word, ())
        )

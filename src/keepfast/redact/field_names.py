"""Names of fields and headers, independent of spelling: `cardNumber`, `card_number`, `Card-Number` are one name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_WORDS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+|[^\W\d_A-Za-z]+")
_MAX_CACHED: Final = 4096
_NO_GAPS: Final = str.maketrans("", "", "_-.")


def words(name: str, *, longest: int = 256) -> tuple[str, ...]:
    """The words of a name, in lower case. A longer name is truncated, because names are input."""
    return tuple(word.lower() for word in _WORDS.findall(name[:longest]))


def as_one_word(name: str) -> str:
    """The name as one word, to compare names independent of their spelling."""
    return "".join(words(name))


class FieldNames:
    """A set of names. It contains a name if one of the set is part of it, word by word, or equals it as one word.

    Thread-safe: concurrent lookups cache the same result.
    """

    __slots__ = ("_by_first_word", "_cache", "_single_words")

    def __init__(self, names: Iterable[str]) -> None:
        split = [words(name) for name in names]
        self._single_words = frozenset("".join(one) for one in split if one)
        self._cache: dict[str, bool] = {}
        self._by_first_word: dict[str, list[tuple[str, ...]]] = {}
        for one in split:
            if one:
                self._by_first_word.setdefault(one[0], []).append(one)

    def may_be_in(self, text: str) -> bool:
        """False if no name of this set can occur in the text. Much faster than checking each name in it."""
        if not text.isascii():
            return True
        squeezed = text.lower().translate(_NO_GAPS)
        return any(name in squeezed for name in self._single_words)

    def __contains__(self, name: str) -> bool:
        known = self._cache.get(name)
        if known is None:
            known = self._lookup(name)
            if len(self._cache) < _MAX_CACHED:  # names are input
                self._cache[name] = known
        return known

    def _lookup(self, name: str) -> bool:
        split = words(name)
        if "".join(split) in self._single_words:
            return True
        return any(
            split[at : at + len(wanted)] == wanted
            for at, word in enumerate(split)
            for wanted in self._by_first_word.get(word, ())
        )

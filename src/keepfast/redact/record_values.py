"""Replaces the values of a record in a text about it, such as the message of an error."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias
from unicodedata import normalize

MAX_BYTES: Final = 262_144
"""Larger parts of a record are searched for the words of the text, and not parsed."""
MAX_PARSED_BYTES: Final = 4 * MAX_BYTES
"""Of all parts together; further ones are treated as larger ones."""
MAX_CHARACTERS: Final = 65_536
"""Characters of the text that are kept."""
LONG: Final = 100
"""Of a longer value, only its beginning is looked for; the text ends where it begins."""
WORD: Final = 4
"""Characters of a word. A shorter value counts as a whole and in its own case only: NO may be a country."""
# Words begin and end at an underscore, too.
_START, _END = r"(?<![^\W_])", r"(?![^\W_])"
_NUMBER: Final = re.compile(rf"{_START}(?<!\.)[0-9]+(?:\.[0-9]+)?(?!\.[0-9]){_END}")
_COMPOUND: Final = re.compile(rf"\w[\w@.+-]{{{WORD - 2},}}\w")
_WORD: Final = re.compile(rf"[^\W_]{{{WORD},}}")
_PLAIN: Final = re.compile(r"[\w .@+-]*", re.ASCII)

_Span: TypeAlias = tuple[int, int]


def without_values(text: str, parts: Iterable[bytes | None]) -> str:
    """The text with `*` for what stands in `parts`: key, value and values of headers of a record.

    Of JSON, these are its texts and numbers, not the names of its fields; of other text, the whole; of both, and of
    other bytes, each word of four characters or more. Case, surrounding space and the composition of accents do not
    matter. A part of a word alone is not found in JSON.
    """
    if not text:
        return text
    text, left = normalize("NFC", text[:MAX_CHARACTERS]), MAX_PARSED_BYTES
    texts: set[str] = set()
    numbers: set[float] = set()
    raw: list[bytes] = []
    for part in parts:
        if part:
            left -= len(part)
            _collect(part, texts, numbers, raw, parsed=len(part) <= MAX_BYTES and left >= 0)
    folded, places = _folded(text)
    forms = {form for value in texts for form in _forms(value, quoted="\\" in text)}
    words = set(_words("\n".join(texts).casefold()))

    def is_known(start: int, end: int) -> bool:
        return folded[start:end] in words or _stands_in(text[places[start] : places[end - 1] + 1], raw)

    spans = [*_values({form.casefold() for form in forms if len(form) >= WORD}, folded)]
    spans += [match.span() for match in _NUMBER.finditer(folded) if numbers and float(match[0]) in numbers]
    if words or raw:
        spans += _known_words(folded, is_known)
    in_text = [(places[start], places[end - 1] + 1) for start, end in spans]
    return _replaced(text, [*in_text, *_values({form for form in forms if len(form) < WORD}, text)])


def _collect(part: bytes, texts: set[str], numbers: set[float], raw: list[bytes], *, parsed: bool) -> None:
    if parsed:
        try:
            scalars = list(_scalars(json.loads(part, parse_int=float, parse_constant=float)))
        except (ValueError, RecursionError):
            pass
        else:
            texts.update(normalize("NFC", scalar) for scalar in scalars if isinstance(scalar, str))
            numbers.update(abs(scalar) for scalar in scalars if type(scalar) is float)
            return
        with suppress(UnicodeDecodeError):
            texts.add(normalize("NFC", part.decode()))
    raw.append(part.lower())


def _scalars(document: Any) -> Iterator[Any]:
    nodes = [document]
    while nodes:
        node = nodes.pop()
        if isinstance(node, dict):
            nodes.extend(node.values())
        elif isinstance(node, list):
            nodes.extend(node)
        else:
            yield node


def _folded(text: str) -> tuple[str, Sequence[int]]:
    """The text without case, and for each of its characters the place in `text`: ß becomes two."""
    if text.isascii():
        return text.lower(), range(len(text))
    folded = [character.casefold() for character in text]
    return "".join(folded), [place for place, characters in enumerate(folded) for _ in characters]


def _forms(value: str, *, quoted: bool) -> Iterator[str]:
    """Return the forms of a value in a text: with and without space around it, and as Python and JSON quote it."""
    for start in {value[:LONG], value.strip()[:LONG]} if value.strip() else ():
        yield start
        if quoted and not _PLAIN.fullmatch(start):
            yield normalize("NFC", repr(start)[1:-1])
            yield json.dumps(start)[1:-1]
            yield json.dumps(normalize("NFD", start))[1:-1]


def _words(folded: str) -> Iterator[str]:
    yield from _COMPOUND.findall(folded)
    yield from _WORD.findall(folded)


def _values(forms: Iterable[str], text: str) -> Iterator[_Span]:
    found = sorted((form for form in forms if form in text), key=len, reverse=True)
    if found:
        pattern = rf"(?s){_START}(?:{'|'.join(map(_pattern, found))})"
        yield from (match.span() for match in re.finditer(pattern, text))


def _pattern(form: str) -> str:
    return re.escape(form) + (".*" if len(form) >= LONG else _END)


def _known_words(folded: str, is_known: Callable[[int, int], bool]) -> Iterator[_Span]:
    """The words that are known, and of a compound that is not those in it that are."""
    for compound in _COMPOUND.finditer(folded):
        if is_known(*compound.span()):
            yield compound.span()
        else:
            words = _WORD.finditer(folded, *compound.span())
            yield from (word.span() for word in words if is_known(*word.span()))


def _stands_in(word: str, raw: list[bytes]) -> bool:
    """Return True if the word is in one of `raw`, whose ASCII letters are small ones."""
    if not raw:
        return False
    cases = {word} if word.isascii() else {word, word.lower(), word.upper(), word.title()}
    forms = {normalize(form, case) for case in cases for form in ("NFC", "NFD")}
    encoded = [form.encode("utf-8", "replace").lower() for form in forms]
    return any(form in part for part in raw for form in encoded)


def _replaced(text: str, spans: list[_Span]) -> str:
    """The text with one `*` for spans that overlap."""
    pieces, at = [], 0
    for start, end in sorted(spans):
        if start >= at:
            pieces += [text[at:start], "*"]
        at = max(at, end)
    return "".join([*pieces, text[at:]])

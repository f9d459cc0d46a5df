"""Other ways to write a digit, a space or a dash, brought to the plain one.

Folded are: every decimal digit of Unicode (full-width, Arabic, Devanagari, …), its spaces and dashes, `\\u0034` escapes
of JSON with any number of backslashes (JSON inside a JSON text has more of them), and characters without a width, which
vanish: they come along when a number is copied from a page, and hide it from the eye and from a plain search.
Everything else stays as it is, so structure (quotes, brackets) is neither made nor lost.
"""

from __future__ import annotations

import bisect
import re
import unicodedata
from typing import Final, NamedTuple

_SPACES: Final = "\u00a0\u2000-\u200a\u202f\u205f\u3000"
_DASHES: Final = "\u2010-\u2015\u2212\ufe58\ufe63\uff0d"
_NO_WIDTH: Final = "\u00ad\u200b-\u200f\u2060-\u2064\ufeff"
_ODD: Final = re.compile(
    rf"[{_SPACES}{_DASHES}{_NO_WIDTH}]|(?![\x00-\x7f])\d|(?<!\\)\\++u(?P<escaped>[0-9a-fA-F]{{4}})"
)
_IS_SPACE: Final = re.compile(f"[ {_SPACES}]")
_IS_DASH: Final = re.compile(f"[{_DASHES}-]")
_IS_NO_WIDTH: Final = re.compile(f"[{_NO_WIDTH}]")

# Escapes that matter: of a digit, a gap, or right before a digit, where the escape's own digits would join in. Letters
# of most languages are none of these, so a text full of them is not taken apart.
_ODD_ESCAPE: Final = re.compile(
    rb"\\u(?:00[23aA]|0[6-9a-fA-F]|1[0-9]|20[0-6]|2212|3000|[aA][6-9abAB]|[fF][eEfF]|[0-9a-fA-F]{4}[0-9])"
)
_ODD_CHARACTER: Final = re.compile(rf"[{_SPACES}{_DASHES}{_NO_WIDTH}]|(?![\x00-\x7f])\d")
_BACKSLASH: Final = 92
_ASCII: Final = bytes(range(128))


class Folded(NamedTuple):
    """The folded bytes; `steps` are (positions here, positions in the original) wherever the two shift."""

    data: bytes
    steps: tuple[list[int], list[int]] | None = None

    def origin(self, position: int) -> int:
        """Where the byte at `position` stood in the original."""
        if self.steps is None:
            return position
        here, there = self.steps
        at = bisect.bisect_right(here, position) - 1
        return position if at < 0 else there[at] + position - here[at]


def is_odd(data: bytes) -> bool:
    """There may be something to fold. Cheap: most data is plain, and this is asked of every record."""
    if not data.isascii():
        beyond_ascii = data.translate(None, _ASCII).decode("utf-8", "ignore")
        if _ODD_CHARACTER.search(beyond_ascii) is not None:
            return True
    return _BACKSLASH in data and _ODD_ESCAPE.search(data) is not None


def fold(data: bytes) -> Folded:
    """`data` with plain digits and gaps. Never fails; bytes that are no UTF-8 stay as they are."""
    if not is_odd(data):
        return Folded(data)
    text = data.decode("utf-8", "surrogateescape")
    pieces: list[bytes] = []
    here: list[int] = [0]
    there: list[int] = [0]
    folded_bytes = original_bytes = done = 0
    for odd in _ODD.finditer(text):
        before = text[done : odd.start()].encode("utf-8", "surrogateescape")
        plain = _plain(odd).encode("utf-8", "surrogateescape")
        pieces += (before, plain)
        folded_bytes += len(before)
        original_bytes += len(before)
        here.append(folded_bytes)
        there.append(original_bytes)
        folded_bytes += len(plain)
        original_bytes += len(odd[0].encode("utf-8", "surrogateescape"))
        here.append(folded_bytes)
        there.append(original_bytes)
        done = odd.end()
    pieces.append(text[done:].encode("utf-8", "surrogateescape"))
    return Folded(b"".join(pieces), (here, there))


def _plain(odd: re.Match[str]) -> str:
    escaped = odd["escaped"]
    character = odd[0] if escaped is None else chr(int(escaped, 16))
    digit = unicodedata.decimal(character, None)
    if digit is not None:
        return str(digit)
    if _IS_SPACE.match(character):
        return " "
    if _IS_DASH.match(character):
        return "-"
    if _IS_NO_WIDTH.match(character):
        return ""
    # A quote or a backslash would look like structure, half of a pair is no character: something without a meaning.
    return character if character.isprintable() and character not in "\"'\\" else "?"

r"""Folding: other ways to write a digit, a space or a dash are replaced by the plain one.

These are every decimal digit of Unicode (full-width, Arabic, Devanagari, …), its spaces and dashes, `\u0034` escapes of
JSON with any number of backslashes (JSON inside a JSON string has more of them), `%34` of URLs and forms, also encoded
twice (`%2534`), a `+` between groups of digits, which is a space in a form, and entities of HTML (`&#52;`, `&nbsp;`).
Zero-width characters are removed: they come with a number that is copied from a page, and hide it from the eye and from
a plain search. Everything else is unchanged, so structure (quotes, brackets) is neither created nor lost.
"""

from __future__ import annotations

import bisect
import re
import unicodedata
from collections.abc import Iterator
from typing import Final, NamedTuple

MIN_DIGITS: Final = 13
"""Of a card number: where there are fewer, nothing is folded."""

_SPACES: Final = "\u00a0\u2000-\u200a\u202f\u205f\u3000"
_DASHES: Final = "\u2010-\u2015\u2212\ufe58\ufe63\uff0d"
_NO_WIDTH: Final = "\u00ad\u200b-\u200f\u2060-\u2064\ufeff"
_HEX: Final = "[0-9a-fA-F]"
_NEXT: Final = rf"%(?:25)*+[89abAB]{_HEX}"
_PERCENT: Final = rf"%(?:25)*+(?:[0-7]{_HEX}|[cdCD]{_HEX}{_NEXT}|[eE]{_HEX}(?:{_NEXT}){{2}}|[fF][0-4](?:{_NEXT}){{3}})"
"""One character of UTF-8 in percent encoding, once or several times."""
_ENTITIES: Final = {
    **dict.fromkeys(("nbsp", "ensp", "emsp", "thinsp", "numsp", "puncsp", "hairsp"), " "),
    **dict.fromkeys(("ndash", "mdash", "minus", "hyphen", "dash", "horbar"), "-"),
    **dict.fromkeys(("shy", "zwj", "zwnj", "lrm", "rlm"), ""),
}
_ENTITY: Final = (
    rf"&(?:amp;)*+(?:\#(?P<decimal>[0-9]{{1,7}})|\#[xX](?P<hex>{_HEX}{{1,6}})|(?P<entity>{'|'.join(_ENTITIES)}));"
)
_NAMED: Final = re.compile(rb"&[a-z]")
_ANY_ESCAPE: Final = (
    rf"\\(?<!\\\\)\\*+u(?P<escaped>{_HEX}{{4}})|%(?P<percent>{_PERCENT.removeprefix('%')})|{_ENTITY}"
    r"|\+(?P<plus>(?<=[0-9]{4}\+)(?=[0-9]{3}))"
)
"""Each way begins with a character, outside of groups: that is fast."""
_ESCAPE: Final = re.compile(_ANY_ESCAPE)
_ODD: Final = re.compile(rf"[{_SPACES}{_DASHES}{_NO_WIDTH}]|(?![\x00-\x7f])\d|{_ANY_ESCAPE}")
_PERCENT_BYTE: Final = re.compile(rf"%(?:25)*+({_HEX}{{2}})")
_IS_SPACE: Final = re.compile(f"[ {_SPACES}]")
_IS_DASH: Final = re.compile(f"[{_DASHES}-]")
_IS_NO_WIDTH: Final = re.compile(f"[{_NO_WIDTH}]")

# Relevant escapes: of a digit, of a gap, or directly before a digit, where the escape's own digits would join it.
# Letters of most languages are none of these, so a text full of them is not folded.
_ODD_ESCAPE: Final = re.compile(
    rb"\\u(?:00[23aA]|0[6-9a-fA-F]|1[0-9]|20[0-6]|2212|3000|[aA][6-9abAB]|[fF][eEfF]|[0-9a-fA-F]{4}[0-9])"
)
# The same for URLs and HTML: an escape of a digit, or one before a digit. Each begins with one byte, to be fast.
_ODD_PERCENT: Final = re.compile(
    rb"%(?:25)*+(?:3[0-9]|[cC]2%|[dD][9bBfF]%|[eE][012aAfF]%|[eE]3%(?:25)*+80%(?:25)*+80|[fF]0%|[0-9a-fA-F]{2}[0-9])"
)
_ODD_PLUS: Final = re.compile(rb"\+(?<=[0-9]{4}\+)[0-9]{3}")
_LETTER: Final = rb"(?:00[c-fC-F]H|0[1-5]HH|[4-9b-dB-D]HHH)".replace(b"H", rb"[0-9a-fA-F]")
"""In hexadecimal digits: letters of Europe and of East Asia, where neither digits nor gaps are."""
_LETTER_ENTITY: Final = (
    (rb"\#(?:19[2-9]|[2-9][0-9]{2}|1[0-2][0-9]{2}|1[3-9][0-9]{3}|[23][0-9]{4}|[xX](?:[c-fC-F]H|[1-5]HH|L));")
    .replace(b"L", _LETTER)
    .replace(b"H", rb"[0-9a-fA-F]")
)
_ODD_ENTITY: Final = re.compile(
    rb"&(?:amp;)*+(?!"
    + _LETTER_ENTITY
    + rb"(?![0-9]))(?:\#(?:[xX]?[0-9a-fA-F]{4,}|[xX]3[0-9]|4[89]|5[0-7]);|[a-z#0-9]++;[0-9])"
)
_LETTER_ESCAPES: Final = re.compile(
    rb"\\(?<!\\\\)\\*+u"
    + _LETTER
    + rb"|&"
    + _LETTER_ENTITY
    + rb"|%(?:(?:[cC][3-9a-fA-F]|[dD][0-7])P|[eE][4-9b-dB-D]PP)".replace(b"P", rb"%[89abAB][0-9a-fA-F]")
)
"""The same letters in all ways, when nothing is encoded twice any more."""
_DIGITS: Final = re.sub(r"\D+", "", "".join(map(chr, range(128, 0x20000))))
_DIGITS_16: Final = "".join(one for one in _DIGITS if one <= "\uffff")
_DIGITS_32: Final = _DIGITS[len(_DIGITS_16) :]
_PLANE_1: Final = "\U00010000-\U0001ffff"
"""Where all digits beyond 16 bits are. A set with one range beyond 16 bits, and no category, is a table: fast."""
_CHARACTERS: Final = _SPACES + _DASHES + _NO_WIDTH + _DIGITS_16
_ODD_CHARACTER: Final = re.compile(f"[{_CHARACTERS}]")
_ODD_DIGIT_32: Final = re.compile(f"[{_DIGITS_32}]")
_LONG_ENOUGH: Final = rf"{_CHARACTERS}{_PLANE_1}]{{{MIN_DIGITS},}}+"
_NUMBER: Final = re.compile(rf"[0-9 ._+\-{_LONG_ENOUGH}")
_ESCAPED_NUMBER: Final = re.compile(rf"[0-9 ._+\-%\\&#;a-fA-FuxX{_LONG_ENOUGH}")
# 13 digits or more in a row that are all escaped in one way, as programs write them. What is before and behind them
# cannot become an escape with them. Each way begins with one byte, to be fast.
_NO_START: Final = rb"S(?<![0-9a-fA-F%\\uxX#+]S)"
_NO_PLUS: Final = rb"(?![0-9]{0,3}\+)"
_ZEROS: Final = bytes(48 if 48 <= byte <= 57 else byte for byte in range(256))


class _Row(NamedTuple):
    """`shape` is in every such row, digits being 0; a digit has `width` bytes and is written with `digits` for 0 to 9,
    at `place`.
    """

    shape: bytes
    pattern: re.Pattern[bytes]
    width: int
    place: int
    table: bytes


def _row(shape: bytes, rest: bytes, digits: bytes = b"0123456789") -> _Row:
    start, place = re.escape(shape[:1]), shape.rindex(b"0")
    pattern = _NO_START.replace(b"S", start) + rest + rb"(?:" + start + rest + rb"){12,}+" + _NO_PLUS
    return _Row(shape * MIN_DIGITS, re.compile(pattern), len(shape), place, bytes.maketrans(digits, b"0123456789"))


_ROWS: Final = (
    _row(b"%00", rb"3[0-9]"),
    _row(rb"\u0000", rb"u003[0-9]"),
    _row(b"&#00;", rb"\#(?:4[89]|5[0-7]);", b"8901234567"),  # 0 is `&#48;`, 9 is `&#57;`
    _row(b"&#x00;", rb"\#x3[0-9];"),
    _row(b"&#0000;", rb"\#16(?:3[2-9]|4[01]);", b"2345678901"),  # of Arabic: 0 is `&#1632;`
    _row(b"&#0000;", rb"\#(?:177[6-9]|178[0-5]);", b"6789012345"),
)
_PERCENT_3: Final = re.compile(rb"%[0-9a-fA-F]{2}")
_FOLDABLE_SHADOW: Final = bytes(48 if byte in b"0123456789 ._+-" else 32 for byte in range(256))
_NEVER_FOLDED: Final = b"0123456789 ._-"
_BACKSLASH: Final = 92
_PERCENT_SIGN: Final = 37
_PLUS: Final = 43
_AMPERSAND: Final = 38
_FIRST_BYTE_OF_PLANE_1: Final = 0xF0
_ASCII: Final = bytes(range(128))
_BYTES_PER_ESCAPE: Final = 48
"""Of a text with few escapes."""
_FEW_CHARACTERS: Final = 32
_LONG_TEXT: Final = 4096

# For a copy of the data with one byte for each character: 0 if it may be a digit, a gap or an odd character. Both ends
# of a range have the same first byte.
_ODD_FIRST: Final = b"0123456789 ._+-" + bytes({one.encode()[0] for one in _CHARACTERS + _DIGITS_32})
_ODD_SHADOW: Final = bytes(48 if byte in _ODD_FIRST else 32 for byte in range(256))
_NO_FIRST: Final = bytes(range(0x80, 0xC0))
_RUN: Final = b"0" * MIN_DIGITS


# Where a card number may be: digits, gaps and what may be folded to them. Letters of most languages are none of these.
_OF_UTF_8: Final = (
    rb"\xc2[\xa0\xad]|\xd9[\xa0-\xa9]|\xdb[\xb0-\xb9]|\xdf[\x80-\x89]|[\xe0\xe1\xea][\x80-\xbf]{2}"
    rb"|\xe2[\x80\x81\x88][\x80-\xbf]|\xe3\x80\x80|\xef[\xb9\xbb\xbc][\x80-\xbf]|\xf0[\x80-\xbf]{3}"
)
_IN_PERCENT: Final = (
    rb"%(?:25)*+(?:2[0dDeEbB]|3[0-9]|5[fF]|[cC]2P|[dD][9bBfF]P|[eE][01aA]PP|[eE]2%(?:25)*+8[018]P"
    rb"|[eE]3%(?:25)*+80%(?:25)*+80|[eE][fF]%(?:25)*+[bB][9bBcC]P|[fF]0PPP)"
).replace(b"P", rb"%(?:25)*+[89abAB][0-9a-fA-F]")
_IN_JSON: Final = (
    rb"(?<!\\)\\++u(?:00[23aA][0-9a-fA-F]|(?:0[6-9a-fA-F]|1[0-9]|[aA][6-9abAB]|[fF][eEfF])[0-9a-fA-F]{2}"
    rb"|20[0-6][0-9a-fA-F]|2212|3000)"
)
_IN_HTML: Final = (
    rb"&(?:amp;)*+(?:\#(?!1[0-2][0-9]{2};|1[3-9][0-9]{3};|[23][0-9]{4};)[0-9]{1,7}"
    rb"|\#[xX](?!0?4[0-9a-fA-F]{2};|[4-9][0-9a-fA-F]{3};)[0-9a-fA-F]{1,6}|[a-z]{3,6});"
)
# An escape of anything may precede: its own digits would join those of a number.
_FOLDABLE: Final = re.compile(
    rb"(?:%(?:25)*+(?:[0-7][0-9a-fA-F]|[c-fC-F][0-9a-fA-F](?:%(?:25)*+[89abAB][0-9a-fA-F]){1,3})|(?<!\\)\\++u[0-9a-fA-F]{4})?"
    rb"(?:[0-9 ._+-]|" + b"|".join((_OF_UTF_8, _IN_PERCENT, _IN_JSON, _IN_HTML)) + rb")++"
)
_NO_DIGIT: Final = re.compile(rb"[ ._+-]|%(?:25)*+(?!3[0-9])[0-7][0-9a-fA-F]")
_STRUCTURE: Final = {
    f"%{ord(one):02{letter}}".encode(): b"?" if one == '"' else one.encode()
    for one in '":,{}[] /=&-@'
    for letter in "Xx"
}
"""What JSON and addresses have between their texts, in percent encoding."""
_MUCH_STRUCTURE: Final = 256


class Folded(NamedTuple):
    """The folded bytes; `steps` are (folded positions, original positions) wherever the two diverge."""

    data: bytes
    steps: tuple[list[int], list[int]] | None = None

    def origin(self, position: int) -> int:
        """The original position of the folded byte at `position`."""
        if self.steps is None:
            return position
        here, there = self.steps
        at = bisect.bisect_right(here, position) - 1
        return position if at < 0 else there[at] + position - here[at]


def needs_folding(data: bytes) -> bool:
    """Whether there may be something to fold. Cheap, because it is called for every record."""
    return _has_odd_characters(data) or _has_escapes(data)


def _has_odd_characters(data: bytes) -> bool:
    if data.isascii():
        return False
    beyond_ascii = data.translate(None, _ASCII).decode("utf-8", "ignore")
    if _ODD_CHARACTER.search(beyond_ascii) is not None:
        return True
    return _FIRST_BYTE_OF_PLANE_1 in data and _ODD_DIGIT_32.search(beyond_ascii) is not None


def _has_escapes(data: bytes) -> bool:
    if _BACKSLASH in data and _ODD_ESCAPE.search(data) is not None:
        return True
    if _PERCENT_SIGN in data and _ODD_PERCENT.search(data) is not None:
        return True
    if _PLUS in data and _ODD_PLUS.search(data) is not None:
        return True
    return _AMPERSAND in data and _ODD_ENTITY.search(data) is not None


def plain(data: bytes) -> bytes:
    """`data` as `fold` makes it, without the positions; in a long text much faster, as little of it is looked at."""
    if _has_escapes(data):
        data = _without_escapes(data)
    return data if data.isascii() else _without_odd_characters(data)


def _without_escapes(data: bytes) -> bytes:
    """Each escape by itself where there are few; else numbers only, of which a text full of escapes has few."""
    if sum(map(data.count, (b"%", b"&", b"\\"))) * _BYTES_PER_ESCAPE <= len(data):
        text = data.decode("latin-1")  # a character a byte
        return _ESCAPE.sub(lambda odd: _utf_8(_plain(odd)).decode("latin-1"), text).encode("latin-1")
    if not _has_escaped_digits_only(data):
        data = _LETTER_ESCAPES.sub(b"?", _without_names(_without_structure(data)))
    return _utf_8(_ESCAPED_NUMBER.sub(_folded, data.decode("utf-8", "surrogateescape")))


def _has_escaped_digits_only(data: bytes) -> bool:
    """Whether all escapes are digits in percent encoding."""
    if _AMPERSAND in data or _BACKSLASH in data or b"%2" in data:
        return False
    return data.count(b"%3") == data.count(b"%") == data.translate(_ZEROS).count(b"%00")


def _utf_8(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _without_odd_characters(data: bytes) -> bytes:
    if _RUN not in data.translate(_ODD_SHADOW, _NO_FIRST):
        return data
    try:
        text = data.decode()
    except UnicodeDecodeError:
        if not _has_odd_characters(data):
            return data
        text = data.decode("utf-8", "surrogateescape")
    return _utf_8(_NUMBER.sub(lambda number: _plain_text(number[0]), text))


def _plain_text(text: str) -> str:
    """A table repeats few characters, and to replace one of them everywhere is much faster than to translate all."""
    at = 0
    for _ in range(_FEW_CHARACTERS if len(text) > _LONG_TEXT else 0):
        odd = _ODD_CHARACTER.search(text, at)
        if odd is None:
            break
        at = odd.start()
        text = text.replace(odd[0], _plain_character(odd[0]))
    return text if text.isascii() else text.translate(_PLAIN)


def _folded(number: re.Match[str]) -> str:
    data = _utf_8(number[0])
    if len(data) <= _LONG_TEXT:
        return fold(data).data.decode("utf-8", "surrogateescape")
    if not needs_folding(data):
        return number[0]
    data = _without_rows(data)
    pieces: list[bytes] = []
    done = 0
    for start, end in _long_areas(data):
        if data[start:end].translate(None, _NEVER_FOLDED):
            pieces += (data[done:start], _fold(data[start:end]).data)
            done = end
    pieces.append(data[done:])
    return b"".join(pieces).decode("utf-8", "surrogateescape")


def _without_rows(data: bytes) -> bytes:
    """Without long rows of escaped digits: each at once, because a value may have 300,000 of them."""
    shadow = data.translate(_ZEROS)
    for shape, pattern, width, place, table in _ROWS:
        if shape in shadow:
            data = pattern.sub(lambda row, w=width, p=place, t=table: row[0][p::w].translate(t), data)  # type: ignore[misc]
    return data


def _long_areas(data: bytes) -> Iterator[tuple[int, int]]:
    """Where enough is that may be folded to digits: all, unless percent encoding is the only one."""
    if not data.isascii() or _BACKSLASH in data or _AMPERSAND in data or b"%25" in data:
        yield 0, len(data)
        return
    shadow = _PERCENT_3.sub(b"000", data).translate(_FOLDABLE_SHADOW) + b" "
    end = 0
    while (start := shadow.find(_RUN, end)) >= 0:
        end = shadow.index(b" ", start)
        yield start, end


def _without_structure(data: bytes) -> bytes:
    """Without the structure of JSON in percent encoding, if there is much."""
    if _PERCENT_SIGN in data and data.count(b"%") >= _MUCH_STRUCTURE:
        data = data.replace(b"%25", b"%").replace(b"%25", b"%")
        for escape, sign in _STRUCTURE.items():
            data = data.replace(escape, sign)
    return data


def _without_names(data: bytes) -> bytes:
    """Without entities that have a name."""
    if _NAMED.search(data) is not None:
        data = data.replace(b"&amp;", b"&").replace(b"&amp;", b"&")
        for name, sign in _ENTITIES.items():
            data = data.replace(f"&{name};".encode(), sign.encode())
    return data


def fold(data: bytes) -> Folded:
    """`data` with plain digits and gaps. Never raises; bytes that are not UTF-8 are unchanged."""
    return _fold(data) if needs_folding(data) else Folded(data)


def _fold(data: bytes) -> Folded:
    pieces: list[bytes] = []
    here: list[int] = [0]
    there: list[int] = [0]
    folded_bytes = done = 0
    for area in _FOLDABLE.finditer(data):
        if area.end() - area.start() < MIN_DIGITS or len(_NO_DIGIT.sub(b"", area[0])) < MIN_DIGITS:
            continue
        text = area[0].decode("utf-8", "surrogateescape")
        text_done, at = 0, area.start()
        for odd in _ODD.finditer(text):
            at += len(_utf_8(text[text_done : odd.start()]))
            text_done = odd.end()
            before, plain = data[done:at], _utf_8(_plain(odd))
            pieces += (before, plain)
            folded_bytes += len(before)
            here.append(folded_bytes)
            there.append(at)
            folded_bytes += len(plain)
            at = done = at + len(_utf_8(odd[0]))
            here.append(folded_bytes)
            there.append(done)
    pieces.append(data[done:])
    return Folded(b"".join(pieces), (here, there))


def _plain(odd: re.Match[str]) -> str:
    if odd["plus"] is not None:
        return " "
    if odd["entity"]:
        return _ENTITIES[odd["entity"]]
    return _plain_character(_character(odd))


def _plain_character(character: str) -> str:
    digit = unicodedata.decimal(character, None)
    if digit is not None:
        return str(digit)
    if _IS_SPACE.match(character):
        return " "
    if _IS_DASH.match(character):
        return "-"
    if _IS_NO_WIDTH.match(character):
        return ""
    # A quote or a backslash would look like structure, and half of a surrogate pair is no character: a neutral one.
    return character if character.isprintable() and character not in "\"'\\" else "?"


def _character(odd: re.Match[str]) -> str:
    """The character that an escape stands for."""
    if odd["percent"]:
        return bytes.fromhex("".join(_PERCENT_BYTE.findall(odd[0]))).decode("utf-8", "replace")[:1]
    code = int(odd["escaped"] or odd["hex"] or "0", 16) or int(odd["decimal"] or 0)
    if not code:
        return odd[0][:1]
    return chr(code) if code < 0x110000 else "?"


class _PlainCharacters(dict[int, int | str]):
    """For `str.translate`: by code point, filled when it is asked."""

    def __missing__(self, code: int) -> int | str:
        character = chr(code)
        odd = _ODD_CHARACTER.match(character) or _ODD_DIGIT_32.match(character)
        self[code] = _plain_character(character) if odd else code
        return self[code]


_PLAIN: Final = _PlainCharacters()

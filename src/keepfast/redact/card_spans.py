"""Finds digits that may be a card number in folded bytes. Linear: every pattern is bounded or starts once per run.

A candidate is
- *solid*: 13 to 19 digits with no digit beside them (so nothing inside a longer run of digits);
- *grouped* as cards are printed (4-4-4-4, 4-6-5, …) by one space, dash or dot, also among other groups (`… 12/27`);
- *irregular*: a whole chain of groups by one space or one dash each, 13 to 19 digits together;
- *prefixed*: in binary data (Avro, Protobuf, MessagePack, CBOR), as many digits as the byte before them says, because
  there the byte after a text may be a letter or a digit by chance.
It has the check digit and stands in an issuer's range, and none of these is true: a letter touches it (ids, hashes,
base64), a `+` does (phones), it is the fraction of a decimal number, or part of a UUID or of an IBAN with a right check
sum.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from keepfast.redact.card_ranges import LONGEST, SHORTEST, Issuer, issuer_of, luhn

_GAPS: Final = b" .-"
_SHADOW: Final = bytes(48 if 48 <= byte <= 57 else 32 for byte in range(256))
_RUN: Final = b"0" * SHORTEST

# Where digits and gaps are many. On a shadow of the data in which every digit is 0, so that one byte finds its start.
_AREA: Final = re.compile(rb"0[0 .-]{12,}+")
_ZEROS: Final = bytes(48 if 48 <= byte <= 57 else byte for byte in range(256))
_SOLID: Final = re.compile(rb"(?<![0-9])[0-9]{13,19}(?![0-9])")
# As lookaheads: the groups before a card must not swallow its first ones.
_FOURS: Final = re.compile(
    rb"(?<![0-9])(?=([0-9]{4}([ .-])[0-9]{4}\2[0-9]{4}\2[0-9]{1,4})(?![0-9])(\2[0-9]{1,3}(?![0-9]))?)"
)
_LAID_OUT: Final = re.compile(
    rb"(?<![0-9])(?=([0-9]{4}([ .-])(?:[0-9]{6}\2[0-9]{4,5}|[0-9]{4}\2[0-9]{5}|[0-9]{3}\2[0-9]{3}\2[0-9]{3})"
    rb"|[0-9]{8}[ -][0-9]{8}|[0-9]{6}[ -][0-9]{13})(?![0-9]))"
)
_IRREGULAR: Final = re.compile(
    rb"(?<![0-9])(?<![0-9][ .-])[0-9]{1,17}([ -])(?:[0-9]{1,17}\1){0,17}[0-9]{1,17}(?![0-9])(?![ .-][0-9])"
)
_LONG_RUN: Final = re.compile(rb"(?<![0-9])[0-9]{13,21}(?![0-9])")
_BINARY: Final = re.compile(rb"[\x00-\x08\x0e-\x1f]")

_FRACTION: Final = re.compile(rb"\.0*+[1-9]")
_UUID: Final = re.compile(rb"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_IBAN: Final = re.compile(rb"(?<![A-Za-z0-9])[A-Z]{2}[0-9]{2}(?:[ -]?[A-Za-z0-9]){11,30}")
# Letters that may touch: a word for a card, and the mark of a magnetic stripe's first track.
_CARD_WORD: Final = re.compile(rb"(?:%B|(?<![A-Za-z0-9])(?i:pan|card|cardno|cc|ccn|visa|mastercard|amex|no|nr))\Z")
_AROUND: Final = 48


class Candidate(NamedTuple):
    """Digits at data[start:end]; `grouped` says that they are laid out as on a card."""

    start: int
    end: int
    digits: bytes
    issuer: Issuer
    grouped: bool


def worth_a_look(data: bytes) -> bool:
    """Cheap, and never wrong when it says no: there are 13 digits with at most gaps between them."""
    return data.translate(_SHADOW, _GAPS).find(_RUN) >= 0


def candidates(data: bytes) -> Iterator[Candidate]:
    """All candidates, roughly in order; they may overlap."""
    for area in _AREA.finditer(data.translate(_ZEROS)):
        start, end = area.span()
        for match in _SOLID.finditer(data, start, end):
            one = _solid(data, match)
            if one is not None:
                yield one
        if not area[0].isdigit():
            yield from _gapped(data, start, end)
    if _is_binary(data):
        yield from _prefixed(data)


def _solid(data: bytes, match: re.Match[bytes]) -> Candidate | None:
    issuer = card(match[0])
    if issuer is None:
        return None
    start, end = match.span()
    if data[start - 1 : start] == b"." and data[start - 2 : start - 1].isdigit():
        return None
    if _FRACTION.match(data, end) or _excluded(data, start, end, len(match[0])):
        return None
    return Candidate(start, end, match[0], issuer, False)


def _gapped(data: bytes, area_start: int, area_end: int) -> Iterator[Candidate]:
    for start, end, grouped in _spans(data, area_start, area_end):
        digits = data[start:end].translate(None, _GAPS)
        issuer = card(digits)
        if issuer is not None and not _excluded(data, start, end, len(digits)):
            yield Candidate(start, end, digits, issuer, grouped)


def _spans(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, bool]]:
    for match in _FOURS.finditer(data, start, end):
        yield *match.span(1), True
        if match[3] is not None:
            yield match.start(1), match.end(3), True
    for match in _LAID_OUT.finditer(data, start, end):
        yield *match.span(1), True
    for match in _IRREGULAR.finditer(data, start, end):
        yield *match.span(), False


def _prefixed(data: bytes) -> Iterator[Candidate]:
    """At most two more digits than announced: one may be the next field's mark or length, more are no accident."""
    for match in _LONG_RUN.finditer(data):
        start = match.start()
        before = data[start - 1] if start else 0
        for length in (before, before / 2, before - 0xA0, before - 0x60):
            if length in _LENGTHS and int(length) <= len(match[0]) <= length + 2:
                digits = match[0][: int(length)]
                issuer = card(digits)
                if issuer is not None:
                    yield Candidate(start, start + len(digits), digits, issuer, False)


_LENGTHS: Final = frozenset(range(SHORTEST, LONGEST + 1))


def _is_binary(data: bytes) -> bool:
    if _BINARY.search(data):
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return True
    return False


def card(digits: bytes) -> Issuer | None:
    """The issuer, if these digits may be a card number: by length, check digit and range."""
    if not SHORTEST <= len(digits) <= LONGEST or not luhn(digits):
        return None
    return issuer_of(digits) if digits.strip(digits[:1]) else None  # one digit repeated fills a form, not a purse


def _excluded(data: bytes, start: int, end: int, length: int) -> bool:
    before, after = data[max(0, start - _AROUND) : start], data[end : end + 1]
    if before.endswith(b"+") and length <= 15:
        return True
    if after.isalpha():
        return True
    # The letter of an escape (`\n`) belongs to the backslash, not to the digits.
    if before[-1:].isalpha() and before[-2:-1] != b"\\" and not _CARD_WORD.search(before):
        return True
    near = data[start - len(before) : end + _AROUND]
    start, end = len(before), len(before) + end - start
    return _inside_uuid(near, start, end) or _inside_iban(near, start, end)


def _inside_uuid(near: bytes, start: int, end: int) -> bool:
    if b"-" not in near[max(0, start - 1) : end + 1]:
        return False
    return any(match.start() < end and start < match.end() for match in _UUID.finditer(near))


def _inside_iban(near: bytes, start: int, end: int) -> bool:
    """A part that begins behind the first group; the first one is glued to letters, and out already."""
    if near[start - 1 : start] not in (b" ", b"-") or not near[start - 2 : start - 1].isalnum():
        return False
    for match in _IBAN.finditer(near):
        if not match.start() < start < match.end():
            continue
        for stop in range(max(end, match.start() + 15), match.end() + 1):
            text = near[match.start() : stop].translate(None, b" -").upper()
            number = "".join(str(int(chr(byte), 36)) for byte in text[4:] + text[:4])
            if int(number) % 97 == 1:
                return True
    return False

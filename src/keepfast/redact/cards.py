"""Card numbers: issuer ranges, candidates in bytes, and masking in text.

*Issuer ranges* are wide on purpose: a missed card leaks, so a range is listed whole even if not all of it is in use.
Each names the lengths that its cards really have (*usual*) and those that its rules allow but hardly any card has
(*rare*). Rare lengths collide with everyday numbers (13 digits that start with 4 are more often a German or Japanese
article number than a Visa card), so the detector needs further evidence for them.

*Candidates* are digits in folded bytes that may be a card number. The search is linear: every pattern is bounded or
starts once per run. A candidate is
- *solid*: 13 to 19 digits with no digit beside them (so nothing inside a longer run of digits);
- *grouped* as cards are printed (4-4-4-4, 4-6-5, …) by one space, dash, dot or underscore, also among other groups
  (`… 12/27`);
- *irregular*: a whole chain of groups, each separated by one space or one dash, 13 to 19 digits together;
- *scientific*: 13 digits or more with an exponent, as a program writes that took the number for a floating-point one;
- *prefixed*: in binary data (Avro, Protobuf, MessagePack, CBOR), as many digits as the byte before them says, because
  there the byte after a text may be a letter or a digit by chance.
It has a valid check digit and is in an issuer's range, and none of these is true: a letter touches it (ids, hashes,
base64; but not the D before the expiry date in the second track of a magnetic stripe), a `+` precedes it (phones), it
is the fraction of a decimal number, or part of a UUID or of a valid IBAN.

*Masking* is wider than detection, because a false positive costs nothing there. It masks what the detector would
accept, including rare lengths and tokens; any 13 to 19 digits in one run with a valid check digit, from any issuer,
unless they start with 0 or 1 as no card does (milliseconds since 1970 are common in logs) or are the fraction of a
decimal number; adjacent groups in any layout that together may be a card number; a longer run that starts or ends with
one; and runs of more than 64 digits.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from keepfast.redact.folding import MIN_DIGITS, fold

MAX_DIGITS: Final = 19


class Issuer(NamedTuple):
    """The issuer of a card number; `usual` is False for a length that hardly any of its cards has."""

    name: str
    usual: bool


class _Range(NamedTuple):
    issuer: str
    low: bytes
    high: bytes
    usual: frozenset[int]
    rare: frozenset[int] = frozenset()


_ANY: Final = frozenset(range(MIN_DIGITS, MAX_DIGITS + 1))
_16: Final = frozenset({16})
_17_TO_19: Final = frozenset({17, 18, 19})
_16_TO_19: Final = _16 | _17_TO_19
_USUAL_MAESTRO: Final = frozenset({16, 18, 19})


def _ranges() -> tuple[_Range, ...]:
    """Narrow ranges first: the first range that matches names the issuer."""
    table: list[tuple[str, str, frozenset[int], frozenset[int]]] = [
        ("Hipercard", "606282", _16, frozenset({13, 19})),
        ("Hiper", "637095 637568 637599 637600 637609 637612", _16, frozenset()),
        ("Elo", "504175 506699-506778 509000-509999 627780 636297 636368", _16, frozenset()),
        ("Verve", "506099-506198 507865-507964 650002-650027", frozenset({16, 18, 19}), frozenset()),
        ("RuPay", "508500-508999 606985-607984 608001-608500 652150-653149 817200-820199", _16, frozenset()),
        ("UkrCard", "604001-604200", _16, _17_TO_19),
        ("Dankort", "5019", _16, frozenset()),
        ("Bancontact", "6703", frozenset({17}), _ANY - {17}),
        # 18 digits that start with 639 are more often a time: ticks of .NET, 100 ns since the year 1.
        ("Maestro", "6390", _USUAL_MAESTRO - {18}, _ANY - _USUAL_MAESTRO | {18}),
        ("Maestro", "5018 5020 5038 5612 5893 6304 6759 6761-6763", _USUAL_MAESTRO, _ANY - _USUAL_MAESTRO),
        # 17 to 19 digits are allowed, and are ids that count up with the time (snowflakes) far more often.
        ("Mir", "2200-2204", _16, _17_TO_19),
        ("UzCard", "8600 5614", _16, frozenset()),
        ("Humo", "9860", _16, frozenset()),
        ("Troy", "9792", _16, frozenset()),
        ("Visa", "4", _16, frozenset({13, 18, 19})),
        ("Mastercard", "51-55 2221-2720", _16, frozenset()),
        ("American Express", "34 37", frozenset({15}), frozenset()),
        ("Discover", "6011 644-649 65", _16, _17_TO_19),
        ("Diners Club", "300-305 3095 36 38-39", frozenset({14}), frozenset({15}) | _16_TO_19),
        ("JCB", "3528-3589", _16, _17_TO_19),
        ("JCB", "1800 2131", frozenset(), frozenset({15})),
        ("UnionPay", "62", frozenset({16, 19}), frozenset({17, 18})),
        ("UnionPay", "81", _16, _17_TO_19),
        ("RuPay", "60 82", frozenset(), _16),
        ("Maestro", "50 56-58 60-61 63-64 66-69 0604", frozenset(), _ANY),
        ("UATP", "1", frozenset(), frozenset({15})),
    ]
    found = []
    for issuer, prefixes, usual, rare in table:
        for prefix in prefixes.encode().split():
            low, _, high = prefix.partition(b"-")
            found.append(_Range(issuer, low, high or low, usual, rare))
    return tuple(found)


_RANGES: Final = _ranges()
_BY_START: Final = {
    start: tuple(one for one in _RANGES if one.low[:2] <= start[: len(one.low)] <= one.high[:2])
    for start in (b"%02d" % number for number in range(100))
}
"""First two ASCII digits → the ranges in which they occur."""
LENGTHS: Final = {
    digit: tuple(
        sorted(
            frozenset().union(*(one.usual | one.rare for one in _RANGES if one.low[0] <= digit <= one.high[0])),
            reverse=True,
        )
    )
    for digit in range(48, 58)
}
"""First ASCII digit → possible lengths of a card number, longest first."""
_DOUBLED: Final = bytes(
    (48 + (2 * (byte - 48) if byte < 53 else 2 * (byte - 48) - 9)) if 48 <= byte <= 57 else byte for byte in range(256)
)


def issuer_of(digits: bytes) -> Issuer | None:
    """The issuer by prefix and length of these ASCII digits, or None. Ignores the check digit."""
    length = len(digits)
    for issuer, low, high, usual, rare in _BY_START[digits[:2]]:
        if low <= digits[: len(low)] <= high:
            if length in usual:
                return Issuer(issuer, True)
            if length in rare:
                return Issuer(issuer, False)
    return None


def luhn(digits: bytes) -> bool:
    """Whether the last digit is the Luhn check digit of the others. `digits` are ASCII digits only."""
    total = sum(digits[-1::-2]) + sum(digits[-2::-2].translate(_DOUBLED)) - 48 * len(digits)
    return total % 10 == 0


_VALUE: Final = bytes(byte - 48 if 48 <= byte <= 57 else 0 for byte in range(256))
_VALUE_DOUBLED: Final = bytes(sum(divmod(2 * value, 10)) for value in _VALUE)
_IS_TENS: Final = bytes(number % 10 == 0 for number in range(256))


def _right(numbers: list[bytes]) -> Iterator[bytes]:
    """Those of these numbers (of at most 19 digits) that have a valid check digit and are in an issuer's range.

    The numbers are the rows of a table, filled up with zeros, which change no sum. Its columns are added as if each
    were one large integer, so that a byte of the sum belongs to one number (it is 171 at most): much faster than number
    by number, and a value of 1 MB may have 70,000.
    """
    table = b"".join(map(bytes.zfill, numbers, itertools.repeat(MAX_DIGITS)))
    total = 0
    for column in range(MAX_DIGITS):
        values = table[column::MAX_DIGITS].translate(_VALUE_DOUBLED if column % 2 else _VALUE)
        total += int.from_bytes(values, "little")
    valid = total.to_bytes(len(numbers), "little").translate(_IS_TENS)
    return (number for number in itertools.compress(numbers, valid) if issuer_of(number) is not None)


_GAPS: Final = b" ._-"
_SHADOW: Final = bytes(48 if 48 <= byte <= 57 else 32 for byte in range(256))
_RUN: Final = b"0" * MIN_DIGITS

# Areas of digits and gaps, searched in a copy of the data in which every digit is 0, so that one byte finds the start.
_AREA: Final = re.compile(rb"0[0 ._-]{12,}+")
_ZEROS: Final = bytes(48 if 48 <= byte <= 57 else byte for byte in range(256))
_SOLID: Final = re.compile(rb"(?<![0-9])[0-9]{13,19}(?![0-9])")


class _Layout(NamedTuple):
    """Groups of digits as cards have them. `shape` is in every area with such groups, digits being 0."""

    gap: bytes
    shape: bytes
    groups: re.Pattern[bytes]


def _layouts() -> Iterator[_Layout]:
    """Each pattern begins with one of few bytes, to be fast, so the first group needs a gap before it. It is a
    lookahead, so that groups before a card do not consume its first groups.
    """
    table = [
        (b"0000G0000G0000G0", rb"[0-9]{4}G[0-9]{4}G[0-9]{4}G[0-9]{1,4}+(?![0-9])(?:G[0-9]{1,3}+(?![0-9]))?", b" ._-"),
        (b"0000G000000G0000", rb"[0-9]{4}G[0-9]{6}G[0-9]{4,5}(?![0-9])", b" ._-"),
        (b"0000G0000G00000", rb"[0-9]{4}G[0-9]{4}G[0-9]{5}(?![0-9])", b" ._-"),
        (b"0000G000G000G000", rb"[0-9]{4}G[0-9]{3}G[0-9]{3}G[0-9]{3}(?![0-9])", b" ._-"),
        (b"00000000G00000000", rb"[0-9]{8}G[0-9]{8}(?![0-9])", b" -"),
        (b"000000G0000000000000", rb"[0-9]{6}G[0-9]{13}(?![0-9])", b" -"),
    ]
    for shape, groups, gaps in table:
        for gap in map(chr, gaps):
            lookahead = rb"(?=(" + groups.replace(b"G", re.escape(gap).encode()) + rb"))"
            yield _Layout(
                gap.encode(),
                shape.replace(b"G", gap.encode()),
                re.compile(rb"[ ._-](?!" + _NO_CARD + rb")" + lookahead),
            )


_NO_CARD: Final = rb"1[0-79]|7|9[0-69]|0[0-57-9]|2[089]|3[123]|59|8[03-57-9]"
"""The first digits of no card in groups."""
_LAYOUTS: Final = tuple(_layouts())
_IRREGULAR: Final = re.compile(
    rb"[ ._-](?:(?<=_)|(?<=[ ._-]{2}))(?=([0-9]{1,17}([ -])(?:[0-9]{1,17}\2){0,17}[0-9]{1,17}(?![0-9])(?![ .-][0-9])))"
)
_AS_SPACE: Final = bytes.maketrans(b".-", b"  ")
_NEXT_GROUP: Final = re.compile(rb"[ ._-](?=[0-9])")
_LONGEST_LAYOUT: Final = 24
_PIECE_BYTES: Final = 8192
_SCIENTIFIC: Final = re.compile(
    rb"\.(?<=([1-9])\.)(?<![0-9.][1-9]\.)([0-9]{12,18}+)[eE]\+?(1[2-8])(?:(?<=\+..)|(?![0-9]))"
)
"""It begins with one byte, to be fast."""
_EXPIRY: Final = re.compile(rb"[Dd][0-9]{2}(?:0[1-9]|1[0-2])")
"""Behind the number in the second track of a magnetic stripe."""
_LENGTH_BYTES: Final = {
    byte: length
    for length in range(MIN_DIGITS, MAX_DIGITS + 1)
    for byte in (length, 2 * length, 0xA0 + length, 0x60 + length)
}
"""The byte before a text in Protobuf, Avro, MessagePack and CBOR → the length that it says."""
_PREFIXED: Final = re.compile(rb"[" + re.escape(bytes(_LENGTH_BYTES)) + rb"][0-9]{13,21}+(?![0-9])")
_BINARY: Final = bytes(byte for byte in range(32) if not 9 <= byte <= 13)

_FRACTION: Final = re.compile(rb"\.0*+[1-9]")
_UUID: Final = re.compile(rb"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_IBAN: Final = re.compile(rb"(?<![A-Za-z0-9])[A-Z]{2}[0-9]{2}(?:[ -]?[A-Za-z0-9]){11,30}")
# Letters that may touch the digits: a word for a card, and the start of a magnetic stripe's first track.
_CARD_WORD: Final = re.compile(
    rb"(?:%B|(?<![A-Za-z0-9])(?i:pan|card(?:number|num|nbr|no|nr)?|cc|ccn|visa|mastercard|amex|no|nr))\Z"
)
_AROUND: Final = 48


class Candidate(NamedTuple):
    """Digits at data[start:end]; `grouped`: laid out as on a card."""

    start: int
    end: int
    digits: bytes
    issuer: Issuer
    grouped: bool

    @property
    def like_an_id(self) -> bool:
        """18 digits in a row are a Maestro card or, more often, an id that grows with the time (a snowflake)."""
        return len(self.digits) == 18 and not self.grouped


def may_contain_card(data: bytes) -> bool:
    """Whether there are 13 digits with at most gaps between them. Cheap; False is always right."""
    return data.translate(_SHADOW, _GAPS).find(_RUN) >= 0


def candidates(data: bytes) -> Iterator[Candidate]:
    """All candidates, roughly in order; they may overlap."""
    shadow = data.translate(_ZEROS)
    for area in _AREA.finditer(shadow) if len(data) < _LARGE else _areas(data, shadow):
        start, end = area.span()
        if _RUN in area[0]:
            for match in _SOLID.finditer(data, start, end):
                one = _solid(data, match)
                if one is not None:
                    yield one
        if not area[0].isdigit():
            yield from _gapped(data, area)
            if data[end : end + 1] in (b"e", b"E"):
                yield from _scientific(data, start, end)
    if _is_binary(data):
        yield from _prefixed(data)


_LARGE: Final = 1 << 14
_SAMPLE: Final = 1 << 11
_MANY: Final = 16
"""Long numbers in a sample: so many are judged faster at once."""
_DIGITS_ONLY: Final = bytes(byte if 48 <= byte <= 57 else 32 for byte in range(256))
_NO_AREA: Final = re.compile(rb"[^0-9 ._-]")
_DECIMAL: Final = b"0." + b"0" * (MIN_DIGITS - 1)
_DOTS: Final = re.compile(rb"\.0{3,6}\.")
"""In each layout with dots, digits being 0."""


def _areas(data: bytes, shadow: bytes) -> Iterator[re.Match[bytes]]:
    """The areas of a large value, part by part, because the first card may be enough. Where there are many long
    numbers, areas that have wrong ones only are left out.
    """
    start = 0
    while start < len(data):
        sample, end = start + _SAMPLE, start + _LARGE
        if shadow.count(_RUN, start, sample) + shadow.count(_DECIMAL, start, sample) >= _MANY:
            end = _end_of_part(data, end)
            yield from _areas_among_many(data, shadow, start, end)
        else:
            for area in _AREA.finditer(shadow, start):
                if area.start() >= end:
                    end = area.start()
                    break
                yield area
                end = max(end, area.end())
            else:
                return
        start = end


def _end_of_part(data: bytes, at: int) -> int:
    """The first position from here where neither a digit nor a gap is."""
    end = _NO_AREA.search(data, at)
    return end.start() if end else len(data)


def _areas_among_many(data: bytes, shadow: bytes, start: int, end: int) -> Iterator[re.Match[bytes]]:
    places = {*_solid_places(data, start, end), *_scientific_places(data, start, end)}
    if _may_have_groups(shadow[start:end]):
        for area in _AREA.finditer(shadow, start, end):
            # In a run of digits, or two with a dot between them, a card may only be at the start.
            if area.start() in places or not area[0].replace(b".", b"", 1).isdigit():
                yield area
        return
    for place in sorted(places):
        rest = _AREA.match(shadow, place) if place >= start else None
        if rest is not None:
            yield rest
            start = rest.end()


def _may_have_groups(shadow: bytes) -> bool:
    """Whether there may be groups of digits that are a card number. False is always right."""
    if any(gap in shadow and b"0%b0" % gap in shadow for gap in (b" ", b"-", b"_")):
        return True
    return b"." in shadow and _DOTS.search(shadow) is not None


def _solid_places(data: bytes, start: int, end: int) -> Iterator[int]:
    text = b" %b " % data[start:end].translate(_DIGITS_ONLY)
    at = 0
    for digits in _right([run for run in text.split() if MIN_DIGITS <= len(run) <= MAX_DIGITS]):
        at = text.index(b" %b " % digits, at)
        if not _is_fraction(data, start + at):  # the copy has one byte more at the front
            yield start + at
        at += len(digits)


def _scientific_places(data: bytes, start: int, end: int) -> Iterator[int]:
    found = _SCIENTIFIC.findall(data, start, end + 4)
    right = set(_right([first + fraction.ljust(int(exponent), b"0") for first, fraction, exponent in found]))
    for match in _SCIENTIFIC.finditer(data, start, end + 4) if right else ():
        if match[1] + match[2].ljust(int(match[3]), b"0") in right:
            yield match.start() - 1


def _solid(data: bytes, match: re.Match[bytes]) -> Candidate | None:
    issuer = card(match[0])
    if issuer is None:
        return None
    start, end = match.span()
    if _is_fraction(data, start) or _FRACTION.match(data, end) or _excluded(data, start, end, len(match[0])):
        return None
    return Candidate(start, end, match[0], issuer, False)


def _is_fraction(data: bytes, start: int) -> bool:
    return data[start - 1 : start] == b"." and data[start - 2 : start - 1].isdigit()


def _scientific(data: bytes, start: int, end: int) -> Iterator[Candidate]:
    for match in _SCIENTIFIC.finditer(data, start, end + 4):
        exponent = int(match[3])
        digits = match[1] + match[2].ljust(exponent, b"0")
        issuer = card(digits) if len(digits) == exponent + 1 else None
        if issuer is not None:
            yield Candidate(match.start() - 1, match.end(), digits, issuer, False)


def _gapped(data: bytes, area: re.Match[bytes]) -> Iterator[Candidate]:
    for start, end, grouped in itertools.chain(_laid_out(data, area), _irregular(data, *area.span())):
        digits = data[start:end].translate(None, _GAPS)
        issuer = card(digits)
        if issuer is not None and not _excluded(data, start, end, len(digits)):
            yield Candidate(start, end, digits, issuer, grouped)


def _laid_out(data: bytes, area: re.Match[bytes]) -> Iterator[tuple[int, int, bool]]:
    layouts = [one.groups for one in _LAYOUTS if one.gap in area[0] and one.shape in area[0]]
    for start, end in _pieces(data, *area.span()) if layouts else ():
        piece = b" " + data[start:end]
        for groups in layouts:
            # A table of numbers repeats itself, and other groups soon look like a card: judge what differs first.
            different = set(groups.findall(piece))
            if any(card(one.translate(None, _GAPS)) for found in different for one in _windows(found)):
                for match in groups.finditer(piece):
                    first = start + match.start(1) - 1
                    yield from ((first, first + len(one), True) for one in _windows(match[1]))


def _irregular(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, bool]]:
    area = b"_" + data[start:end]
    several = area.rfind(b"_") > 0 or b"  " in area.translate(_AS_SPACE)
    for match in _IRREGULAR.finditer(area) if several else filter(None, [_IRREGULAR.match(area)]):
        yield start + match.start(1) - 1, start + match.end(1) - 1, False


def _windows(found: bytes) -> Iterator[bytes]:
    """What may be the number: the groups, and without the fifth."""
    yield found
    if len(found) - len(found.translate(None, _GAPS)) == 4:
        yield found[: max(map(found.rfind, (b" ", b".", b"_", b"-")))]


def _pieces(data: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Parts of an area that begin and end with whole groups and overlap by the longest layout."""
    while end - start > _PIECE_BYTES + _LONGEST_LAYOUT:
        following = _NEXT_GROUP.search(data, start + _PIECE_BYTES, end)
        if following is None:
            break
        last = _NEXT_GROUP.search(data, following.end() + _LONGEST_LAYOUT, end)
        if last is None:
            break
        yield start, last.start()
        start = following.end()
    yield start, end


def _prefixed(data: bytes) -> Iterator[Candidate]:
    """At most two more digits than the length byte says: one may be the next field's tag or length."""
    for match in _PREFIXED.finditer(data) if len(data) < _LARGE else _prefixed_among_many(data):
        length = _LENGTH_BYTES[match[0][0]]
        digits = match[0][1 : 1 + length]
        issuer = card(digits) if length < len(match[0]) <= length + 3 else None
        if issuer is not None:
            yield Candidate(match.start() + 1, match.start() + 1 + length, digits, issuer, False)


def _prefixed_among_many(data: bytes) -> Iterator[re.Match[bytes]]:
    start = 0
    while start < len(data):
        end = _end_of_part(data, start + _LARGE)
        runs = [(run, _LENGTH_BYTES[run[0]]) for run in _PREFIXED.findall(data, start, end)]
        if any(_right([run[1 : 1 + length] for run, length in runs])):
            yield from _PREFIXED.finditer(data, start, end)
        start = end


def _is_binary(data: bytes) -> bool:
    if len(data.translate(None, _BINARY)) < len(data):
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return True
    return False


def card(digits: bytes) -> Issuer | None:
    """The issuer, if these digits may be a card number: by length, check digit and range."""
    if not MIN_DIGITS <= len(digits) <= MAX_DIGITS or not luhn(digits):
        return None
    return issuer_of(digits) if digits.strip(digits[:1]) else None  # one digit repeated is a placeholder


def _excluded(data: bytes, start: int, end: int, length: int) -> bool:
    before, after = data[max(0, start - _AROUND) : start], data[end : end + 1]
    if before.endswith(b"+") and length <= 15:
        return True
    if after.isalpha() and not _EXPIRY.match(data, end):
        return True
    # The letter of an escape (`\n`) belongs to the backslash.
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
    """Whether the digits are part of an IBAN, after its first group; in the first group letters touch them."""
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


CARD_MASK: Final = "[card number]"

_CHAIN: Final = re.compile(rb"(?<![0-9])[0-9](?:[ .-]?[0-9]){12,}+")
_GROUP: Final = re.compile(rb"[0-9]++")
_UNREADABLE: Final = 64
_DOT: Final = 46


Span = tuple[int, int]


def mask_cards(text: str) -> str:
    """The text with each card number replaced by `[card number]`. Linear and idempotent; never raises."""
    if len(text) < MIN_DIGITS:
        return text
    data = text.encode("utf-8", "surrogatepass")
    spans = _card_mask_spans(data)
    if not spans:
        return text
    pieces: list[bytes] = []
    done = 0
    for start, end in spans:
        pieces += (data[done:start], CARD_MASK.encode())
        done = end
    pieces.append(data[done:])
    return b"".join(pieces).decode("utf-8", "surrogatepass")


def _card_mask_spans(data: bytes) -> list[Span]:
    """The spans of card numbers in the original, in order, without overlaps."""
    folded = fold(data)
    if not may_contain_card(folded.data):
        return []
    found = [one for chain in _CHAIN.finditer(folded.data) for one in _in_chain(folded.data, chain)]
    # A candidate may be part of a run; the rest of the run could start another.
    found += [(one.start, _end_of_run(folded.data, one.end)) for one in candidates(folded.data)]
    merged: list[Span] = []
    for start, end in sorted(found):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return [(folded.origin(start), folded.origin(end)) for start, end in merged]


def _end_of_run(data: bytes, at: int) -> int:
    more = _GROUP.match(data, at)
    return more.end() if more else at


def _in_chain(data: bytes, chain: re.Match[bytes]) -> Iterator[Span]:
    groups = [match.span() for match in _GROUP.finditer(data, *chain.span())]
    # Only an integer and its fraction; in a longer chain a dot may separate anything.
    if len(groups) == 2 and groups[0][1] - groups[0][0] < MIN_DIGITS and data[groups[0][1]] == _DOT:
        return
    digits = chain[0].translate(None, _GAPS)
    offsets = list(itertools.accumulate((end - start for start, end in groups), initial=0))
    at_offset = {offset: at for at, offset in enumerate(offsets)}
    at = 0
    while at < len(groups):
        start, end = groups[at]
        if _lone(data[start:end]):
            stop = at + 1
        else:
            stop = _window(digits, offsets[at], at_offset) or at
            if stop == at + 2 and data[end] == _DOT:
                stop = at
        if stop > at:
            yield start, groups[stop - 1][1]
        at = max(stop, at + 1)


def _lone(digits: bytes) -> bool:
    size = len(digits)
    if size < MIN_DIGITS:
        return False
    if size <= MAX_DIGITS:
        return luhn(digits) and (digits[0] > 49 or card(digits) is not None)
    return size > _UNREADABLE or any(
        part is not None and part.usual
        for length in range(MIN_DIGITS, MAX_DIGITS + 1)
        for part in (card(digits[:length]), card(digits[-length:]))
    )


def _window(digits: bytes, offset: int, at_offset: dict[int, int]) -> int | None:
    """The index after the last group of the longest card number of whole groups that starts at this offset, or None."""
    for length in LENGTHS[digits[offset]]:
        stop = at_offset.get(offset + length)
        if stop is not None and card(digits[offset : offset + length]) is not None:
            return stop
    return None

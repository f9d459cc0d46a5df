r"""Card numbers: folding of digits, issuer ranges, candidates in bytes, and masking in text.

*Folding* replaces other ways to write a digit, a space or a dash by the plain one: every decimal digit of Unicode
(full-width, Arabic, Devanagari, …), its spaces and dashes, `\u0034` escapes of JSON with any number of backslashes
(JSON inside a JSON string has more of them), `%34` of URLs and forms, also encoded twice (`%2534`), a `+` between
groups of digits, which is a space in a form, and entities of HTML (`&#52;`, `&nbsp;`). Zero-width characters are
removed: they come with a number that is copied from a page, and hide it from the eye and from a plain search.
Everything else is unchanged, so structure (quotes, brackets) is neither created nor lost.

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

import bisect
import itertools
import re
import unicodedata
from collections.abc import Iterator
from typing import Final, NamedTuple

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
_ODD: Final = re.compile(
    rf"[{_SPACES}{_DASHES}{_NO_WIDTH}]|(?![\x00-\x7f])\d|(?<!\\)\\++u(?P<escaped>{_HEX}{{4}})"
    rf"|(?P<percent>{_PERCENT})|{_ENTITY}|(?<=[0-9]{{4}})(?P<plus>\+)(?=[0-9]{{3}})"
)
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
_ODD_PERCENT: Final = re.compile(rb"%(?:25)*+(?:3[0-9]|[dD][9bB]%|[eE][0-9a-fA-F]%|[fF]0%|[0-9a-fA-F]{2}[0-9])")
_ODD_PLUS: Final = re.compile(rb"\+(?<=[0-9]{4}\+)[0-9]{3}")
_ODD_ENTITY: Final = re.compile(
    rb"&(?:amp;)*+(?:\#(?:[xX]?[0-9a-fA-F]{4,}|[xX]3[0-9]|4[89]|5[0-7]);|[a-z#0-9]++;[0-9])"
)
_ODD_CHARACTER: Final = re.compile(rf"[{_SPACES}{_DASHES}{_NO_WIDTH}]|(?![\x00-\x7f])\d")
_BACKSLASH: Final = 92
_PERCENT_SIGN: Final = 37
_PLUS: Final = 43
_AMPERSAND: Final = 38
_ASCII: Final = bytes(range(128))


# Where a card number may be: digits, gaps and what may be folded to them.
_FOLDABLE: Final = re.compile(
    rb"(?:[0-9 ._+-]|[\x80-\xff]|(?<!\\)\\++u[0-9a-fA-F]{4}|%(?:25)*+[0-9a-fA-F]{2}"
    rb"|&(?:amp;)*+(?:\#[0-9a-fA-FxX]{1,8}|[a-z]{3,6});)++"
)
_NO_DIGIT: Final = re.compile(rb"[ ._+-]|%(?:25)*+(?!3[0-9])[0-7][0-9a-fA-F]")


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
    if not data.isascii():
        beyond_ascii = data.translate(None, _ASCII).decode("utf-8", "ignore")
        if _ODD_CHARACTER.search(beyond_ascii) is not None:
            return True
    if _BACKSLASH in data and _ODD_ESCAPE.search(data) is not None:
        return True
    if _PERCENT_SIGN in data and _ODD_PERCENT.search(data) is not None:
        return True
    if _PLUS in data and _ODD_PLUS.search(data) is not None:
        return True
    return _AMPERSAND in data and _ODD_ENTITY.search(data) is not None


def fold(data: bytes) -> Folded:
    """`data` with plain digits and gaps. Never raises; bytes that are not UTF-8 are unchanged."""
    if not needs_folding(data):
        return Folded(data)
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
            at += len(text[text_done : odd.start()].encode("utf-8", "surrogateescape"))
            text_done = odd.end()
            before, plain = data[done:at], _plain(odd).encode("utf-8", "surrogateescape")
            pieces += (before, plain)
            folded_bytes += len(before)
            here.append(folded_bytes)
            there.append(at)
            folded_bytes += len(plain)
            at = done = at + len(odd[0].encode("utf-8", "surrogateescape"))
            here.append(folded_bytes)
            there.append(done)
    pieces.append(data[done:])
    return Folded(b"".join(pieces), (here, there))


def _plain(odd: re.Match[str]) -> str:
    if odd["plus"]:
        return " "
    if odd["entity"]:
        return _ENTITIES[odd["entity"]]
    character = _character(odd)
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


MIN_DIGITS: Final = 13
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
        ("Mir", "2200-2204", _16_TO_19, frozenset()),
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


_BY_FIRST_DIGIT: Final = {
    digit: tuple(one for one in _ranges() if one.low[0] <= digit <= one.high[0]) for digit in range(48, 58)
}
LENGTHS: Final = {
    digit: tuple(sorted(frozenset().union(*(one.usual | one.rare for one in ranges)), reverse=True))
    for digit, ranges in _BY_FIRST_DIGIT.items()
}
"""First ASCII digit → possible lengths of a card number, longest first."""
_DOUBLED: Final = bytes(
    (48 + (2 * (byte - 48) if byte < 53 else 2 * (byte - 48) - 9)) if 48 <= byte <= 57 else byte for byte in range(256)
)


def issuer_of(digits: bytes) -> Issuer | None:
    """The issuer by prefix and length of these ASCII digits, or None. Ignores the check digit."""
    length = len(digits)
    for issuer, low, high, usual, rare in _BY_FIRST_DIGIT[digits[0]]:
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


_GAPS: Final = b" ._-"
_SHADOW: Final = bytes(48 if 48 <= byte <= 57 else 32 for byte in range(256))
_RUN: Final = b"0" * MIN_DIGITS

# Areas of digits and gaps, searched in a copy of the data in which every digit is 0, so that one byte finds the start.
_AREA: Final = re.compile(rb"0[0 ._-]{12,}+")
_ZEROS: Final = bytes(48 if 48 <= byte <= 57 else byte for byte in range(256))
_SOLID: Final = re.compile(rb"(?<![0-9])[0-9]{13,19}(?![0-9])")
# Lookaheads, so that groups before a card do not consume its first groups.
_FOURS: Final = re.compile(
    rb"(?<![0-9])(?=([0-9]{4}([ ._-])[0-9]{4}\2[0-9]{4}\2[0-9]{1,4})(?![0-9])(\2[0-9]{1,3}(?![0-9]))?)"
)
_LAID_OUT: Final = re.compile(
    rb"(?<![0-9])(?=([0-9]{4}([ ._-])(?:[0-9]{6}\2[0-9]{4,5}|[0-9]{4}\2[0-9]{5}|[0-9]{3}\2[0-9]{3}\2[0-9]{3})"
    rb"|[0-9]{8}[ -][0-9]{8}|[0-9]{6}[ -][0-9]{13})(?![0-9]))"
)
_IRREGULAR: Final = re.compile(
    rb"(?<![0-9])(?<![0-9][ .-])[0-9]{1,17}([ -])(?:[0-9]{1,17}\1){0,17}[0-9]{1,17}(?![0-9])(?![ .-][0-9])"
)
_SCIENTIFIC: Final = re.compile(rb"(?<![0-9.])([1-9])\.([0-9]{12,18})[eE]\+?(1[2-8])(?![0-9])")
_EXPIRY: Final = re.compile(rb"[Dd][0-9]{2}(?:0[1-9]|1[0-2])")
"""Behind the number in the second track of a magnetic stripe."""
_LONG_RUN: Final = re.compile(rb"(?<![0-9])[0-9]{13,21}(?![0-9])")
_BINARY: Final = re.compile(rb"[\x00-\x08\x0e-\x1f]")

_FRACTION: Final = re.compile(rb"\.0*+[1-9]")
_UUID: Final = re.compile(rb"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_IBAN: Final = re.compile(rb"(?<![A-Za-z0-9])[A-Z]{2}[0-9]{2}(?:[ -]?[A-Za-z0-9]){11,30}")
# Letters that may touch the digits: a word for a card, and the start of a magnetic stripe's first track.
_CARD_WORD: Final = re.compile(rb"(?:%B|(?<![A-Za-z0-9])(?i:pan|card|cardno|cc|ccn|visa|mastercard|amex|no|nr))\Z")
_AROUND: Final = 48


class Candidate(NamedTuple):
    """Digits at data[start:end]; `grouped`: laid out as on a card."""

    start: int
    end: int
    digits: bytes
    issuer: Issuer
    grouped: bool


def may_contain_card(data: bytes) -> bool:
    """Whether there are 13 digits with at most gaps between them. Cheap; False is always right."""
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
            if data[end : end + 1] in (b"e", b"E"):
                yield from _scientific(data, start, end)
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


def _scientific(data: bytes, start: int, end: int) -> Iterator[Candidate]:
    for match in _SCIENTIFIC.finditer(data, start, end + 4):
        exponent = int(match[3])
        digits = match[1] + match[2].ljust(exponent, b"0")
        issuer = card(digits) if len(digits) == exponent + 1 else None
        if issuer is not None:
            yield Candidate(*match.span(), digits, issuer, False)


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
    """At most two more digits than the length byte says: one may be the next field's tag or length."""
    for match in _LONG_RUN.finditer(data):
        start = match.start()
        before = data[start - 1] if start else 0
        for length in (before, before / 2, before - 0xA0, before - 0x60):
            if length in _LENGTHS and int(length) <= len(match[0]) <= length + 2:
                digits = match[0][: int(length)]
                issuer = card(digits)
                if issuer is not None:
                    yield Candidate(start, start + len(digits), digits, issuer, False)


_LENGTHS: Final = frozenset(range(MIN_DIGITS, MAX_DIGITS + 1))


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

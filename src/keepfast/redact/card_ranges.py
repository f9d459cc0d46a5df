"""Which digits may be a card number: the check digit, and the ranges and lengths that issuers use.

Ranges are kept wide on purpose: a card that is missed leaks, so a range is listed whole even if not all of it is in
use. Each names the lengths that its cards really have (*usual*) and those that its rules allow but hardly any card has
(*rare*). The second kind collides with numbers of everyday life (13 digits with a 4 in front are a German or Japanese
article number before they are a Visa card), so the detector asks for a sign beside the digits before it counts one.
"""

from __future__ import annotations

from typing import Final, NamedTuple

SHORTEST: Final = 13
LONGEST: Final = 19


class Issuer(NamedTuple):
    """Who issues numbers like this one; `usual` is False for a length that hardly any of its cards has."""

    name: str
    usual: bool


class _Range(NamedTuple):
    issuer: str
    low: bytes
    high: bytes
    usual: frozenset[int]
    rare: frozenset[int] = frozenset()


_ANY: Final = frozenset(range(SHORTEST, LONGEST + 1))
_16: Final = frozenset({16})
_17_TO_19: Final = frozenset({17, 18, 19})
_16_TO_19: Final = _16 | _17_TO_19
_USUAL_MAESTRO: Final = frozenset({16, 18, 19})


def _ranges() -> tuple[_Range, ...]:
    """The narrow ones first: the first range that fits names the issuer."""
    table: list[tuple[str, str, frozenset[int], frozenset[int]]] = [
        ("Hipercard", "606282", _16, frozenset({13, 19})),
        ("Hiper", "637095 637568 637599 637600 637609 637612", _16, frozenset()),
        ("Elo", "504175 506699-506778 509000-509999 627780 636297 636368", _16, frozenset()),
        ("Verve", "506099-506198 507865-507964 650002-650027", frozenset({16, 18, 19}), frozenset()),
        ("RuPay", "508500-508999 606985-607984 608001-608500 652150-653149 817200-820199", _16, frozenset()),
        ("UkrCard", "604001-604200", _16, _17_TO_19),
        ("Dankort", "5019", _16, frozenset()),
        ("Bancontact", "6703", frozenset({17}), _ANY - {17}),
        ("Maestro", "5018 5020 5038 5612 5893 6304 6390 6759 6761-6763", _USUAL_MAESTRO, _ANY - _USUAL_MAESTRO),
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
"""How many digits a card number may have that begins with this ASCII digit, the most first."""
_DOUBLED: Final = bytes(
    (48 + (2 * (byte - 48) if byte < 53 else 2 * (byte - 48) - 9)) if 48 <= byte <= 57 else byte for byte in range(256)
)


def issuer_of(digits: bytes) -> Issuer | None:
    """Whose number these ASCII digits may be by the first ones and their count; the check digit is not looked at."""
    length = len(digits)
    for issuer, low, high, usual, rare in _BY_FIRST_DIGIT[digits[0]]:
        if low <= digits[: len(low)] <= high:
            if length in usual:
                return Issuer(issuer, True)
            if length in rare:
                return Issuer(issuer, False)
    return None


def luhn(digits: bytes) -> bool:
    """The last digit is the check digit of the others. `digits` are ASCII digits and nothing else."""
    total = sum(digits[-1::-2]) + sum(digits[-2::-2].translate(_DOUBLED)) - 48 * len(digits)
    return total % 10 == 0

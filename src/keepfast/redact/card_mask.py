"""Takes card numbers out of texts that are shown or logged. Wider than the detector: here a false alarm costs nothing.

Masked are: what the detector would take for a card number, rare lengths and tokens included; any 13 to 19 digits in one
run with a right check digit, whoever would issue them, unless they begin as no card does (with 0, or with 1: times in
milliseconds are what people read logs for) or are the fraction of a decimal number; groups, next to each other and
however laid out, that together may be a card number; a longer run that begins or ends with one; and runs of more than
64 digits.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Final

from keepfast.redact.card_fold import fold
from keepfast.redact.card_ranges import LENGTHS, LONGEST, SHORTEST, luhn
from keepfast.redact.card_spans import candidates, card, worth_a_look

CARD: Final = "[card number]"

_CHAIN: Final = re.compile(rb"(?<![0-9])[0-9](?:[ .-]?[0-9]){12,}+")
_GROUP: Final = re.compile(rb"[0-9]++")
_UNREADABLE: Final = 64
_DOT: Final = 46
_GAPS: Final = b" .-"

Span = tuple[int, int]


def mask_cards(text: str) -> str:
    """The text with `[card number]` in place of each. Linear, never fails; masking twice is masking once."""
    if len(text) < SHORTEST:
        return text
    data = text.encode("utf-8", "surrogatepass")
    spans = _spans(data)
    if not spans:
        return text
    pieces: list[bytes] = []
    done = 0
    for start, end in spans:
        pieces += (data[done:start], CARD.encode())
        done = end
    pieces.append(data[done:])
    return b"".join(pieces).decode("utf-8", "surrogatepass")


def _spans(data: bytes) -> list[Span]:
    """Where the card numbers are in the original, in order, without overlaps."""
    folded = fold(data)
    if not worth_a_look(folded.data):
        return []
    found = [one for chain in _CHAIN.finditer(folded.data) for one in _in_chain(folded.data, chain)]
    # A candidate may be part of a run; what is left of one could begin another.
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
    # Nothing but a whole number and its fraction; in a longer chain a dot may separate anything.
    if len(groups) == 2 and groups[0][1] - groups[0][0] < SHORTEST and data[groups[0][1]] == _DOT:
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
    if size < SHORTEST:
        return False
    if size <= LONGEST:
        return luhn(digits) and (digits[0] > 49 or card(digits) is not None)
    return size > _UNREADABLE or any(
        part is not None and part.usual
        for length in range(SHORTEST, LONGEST + 1)
        for part in (card(digits[:length]), card(digits[-length:]))
    )


def _window(digits: bytes, offset: int, at_offset: dict[int, int]) -> int | None:
    """The group behind the longest card number of whole groups that begins at this offset in the chain's digits."""
    for length in LENGTHS[digits[offset]]:
        stop = at_offset.get(offset + length)
        if stop is not None and card(digits[offset : offset + length]) is not None:
            return stop
    return None

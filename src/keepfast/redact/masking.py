"""Masks secrets and card numbers in everything that is shown or logged: texts, headers, decoded values.

Secrets are recognized by the name of their field (`password`, `Authorization`, …), by their form (a bearer token, a
password in an address) and by the user's patterns; card numbers by their digits (see `cards`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from keepfast.core import checks
from keepfast.core.errors import ConfigError
from keepfast.redact.cards import CARD_MASK, mask_cards
from keepfast.redact.field_names import FieldNames
from keepfast.redact.folding import MIN_DIGITS

MASKED: Final = "[masked]"

SECRET_FIELDS: Final = (
    "password", "passwd", "pwd", "passphrase", "secret", "token", "authorization", "cookie", "credential",
    "credentials", "api_key", "access_key", "private_key", "secret_key", "session_id", "signature", "sasl_jaas_config",
    "iban", "pan", "card_number", "cc_number", "cvv", "cvv2", "cvc", "cvc2", "pin", "ssn",
)  # fmt: skip
"""The fields and headers that are masked by default; a name matches if it contains these words: `userPassword`."""

_WHOLE_LINE_FIELDS: Final = FieldNames(("authorization", "cookie"))

# A lower-case string that every match contains, for a fast check; then the pattern.
_BUILT_IN: Final = (
    ("@", re.compile(r"(?<=://)[^\s/:@\"']{0,256}:[^\s/@\"']{1,256}(?=@)")),  # user:password in an address
    ("eyj", re.compile(r"(?<![\w.-])eyJ[\w-]{5,}+\.[\w-]++(?:\.[\w-]*+)?")),  # a JSON web token
    ("bearer ", re.compile(r"(?<![A-Za-z])(?i:bearer) {1,4}[\w.~+/=-]{8,}+")),
    (
        "private key-----",
        re.compile(r"-----BEGIN [A-Z ]{0,32}PRIVATE KEY-----(?:(?!-----END)[\s\S])*+(?:-----END[A-Z ]{0,48}-----)?"),
    ),
)
_NAME: Final = re.compile(
    r"(?<![\w.\-])(?P<name>[^\W\d][\w.\-]*+)\\*+[\"']?\s{0,4}(?::|=>?)\s{0,4}(?P<quote>\\*+[\"'])?"
)
_BARE: Final = re.compile(r"(?:(?i:bearer|basic|digest|negotiate|token)\s{1,4})?[^\s,;&\"'<>)\]}]*+")
_LINE: Final = re.compile(r"[^\r\n]*+")
_ONE_WORD: Final = re.compile(r"[A-Za-z0-9_.\-\[\]]*+")  # like most fields of a log: topics, types, groups
_NO_DIGITS: Final = str.maketrans("", "", "0123456789")
_PLACEHOLDER: Final = re.compile(f"({re.escape(MASKED)}|{re.escape(CARD_MASK)})")
_BRACKETS: Final = {"{": re.compile(r"[{}]"), "[": re.compile(r"[\[\]]")}
_MAX_DEPTH: Final = 64
_SLACK: Final = 1024
_CUT_MARGIN: Final = 64
"""Characters dropped where a text was cut: a card number cut in two is not recognized."""
_ROUNDS: Final = 4
"""Masking may uncover the start of an adjacent name, so it is repeated; after this many rounds nothing changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskingRules:
    """What is masked besides card numbers. Thread-safe; never raises.

    `fields`: names of fields and headers whose values are masked, in any spelling (`api_key`, `X-Api-Key`).
    `patterns`: regular expressions whose matches are masked. They run on foreign text, so avoid unbounded backtracking.
    Masking is idempotent.
    """

    fields: tuple[str, ...] = SECRET_FIELDS
    patterns: tuple[str, ...] = ()

    _names: FieldNames = field(init=False, repr=False, compare=False)
    _quick: bool = field(init=False, repr=False, compare=False)
    _compiled: tuple[tuple[str, re.Pattern[str]], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        wrong = {"fields": checks.texts(self.fields), "patterns": checks.texts(self.patterns)}
        problems = [f"masking: {name} {problem}." for name, problem in wrong.items() if problem]
        compiled = []
        for pattern in self.patterns if not problems else ():
            try:
                one = re.compile(pattern)
            except re.error as error:
                problems.append(f"masking: the pattern {pattern!r} is not a regular expression: {error}.")
            else:
                compiled.append(one)
                if one.match(""):
                    problems.append(f"masking: the pattern {pattern!r} matches the empty string.")
        if problems:
            raise ConfigError(*problems)
        object.__setattr__(self, "_names", FieldNames(self.fields))
        object.__setattr__(self, "_quick", not compiled)
        object.__setattr__(self, "_compiled", (*_BUILT_IN, *(("", one) for one in compiled)))

    def extended_by(self, other: MaskingRules) -> MaskingRules:
        """Rules that mask what these or the others mask."""
        fields = tuple(dict.fromkeys((*self.fields, *other.fields)))
        patterns = tuple(dict.fromkeys((*self.patterns, *other.patterns)))
        if (fields, patterns) == (self.fields, self.patterns):
            return self
        return MaskingRules(fields=fields, patterns=patterns)

    def hides(self, name: str) -> bool:
        """Whether the value of a field or header of this name is masked."""
        return name in self._names

    def text(self, text: str) -> str:
        """Mask a text: an error message, a log line, JSON."""
        if self._quick and _ONE_WORD.fullmatch(text) and _too_few_digits(text) and "eyJ" not in text:
            return text
        for _ in range(_ROUNDS):
            masked = self._once(text)
            if masked == text:
                break
            text = masked
        return text

    def short(self, text: str, limit: int) -> str:
        """The first `limit` characters of a text, masked; reads no more of a long text than needed."""
        window = text[: 4 * limit + _SLACK]
        masked = self.text(window)
        if len(window) < len(text):
            masked = masked[:-_CUT_MARGIN]
        return masked[:limit]

    def short_end(self, text: str, limit: int) -> str:
        """The last `limit` characters of a text, masked; reads no more of a long text than needed."""
        window = text[-4 * limit - _SLACK :]
        masked = self.text(window)
        if len(window) < len(text):
            masked = masked[_CUT_MARGIN:]
        return masked[-limit:]

    def _once(self, text: str) -> str:
        lower = text.lower()
        if self._names.may_be_in(text):
            text = "".join(self._without_secrets(text))
        for sign, pattern in self._compiled:
            if sign in lower and pattern.search(text):
                pieces = _PLACEHOLDER.split(text)  # do not mask inside placeholders
                pieces[::2] = [pattern.sub(MASKED, piece) for piece in pieces[::2]]
                text = "".join(pieces)
        return mask_cards(text)

    def header(self, name: str, value: bytes | None) -> str | None:
        """The masked value of a header; bytes that are not UTF-8 are shown as escapes."""
        if value is None:
            return None
        return MASKED if self.hides(name) else self.text(value.decode("utf-8", "backslashreplace"))

    def tree(self, value: Any) -> Any:
        """A masked copy of a decoded value, made of plain types."""
        return self._tree(value, 0)

    def _tree(self, value: Any, depth: int) -> Any:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int | float):
            return _number(value)
        if isinstance(value, str):
            return self.text(value)
        if depth >= _MAX_DEPTH:
            return MASKED
        if isinstance(value, Mapping):
            named = ((self._key(name), one) for name, one in value.items())
            return {
                name: MASKED if one is not None and self.hides(name) else self._tree(one, depth + 1)
                for name, one in named
            }
        if isinstance(value, list | tuple | set | frozenset):
            return [self._tree(one, depth + 1) for one in value]
        return self._other(value)

    def _key(self, name: Any) -> str:
        return self.text(name) if isinstance(name, str) else self._other(name)

    def _other(self, value: Any) -> str:
        try:
            return self.text(
                bytes(value).decode("utf-8", "backslashreplace")
                if isinstance(value, bytes | bytearray | memoryview)
                else str(value)
            )
        except Exception:  # noqa: BLE001 - an error in a foreign __str__ must not break a log line
            return f"[{type(value).__name__}]"

    def _without_secrets(self, text: str) -> Iterator[str]:
        done = 0
        while (match := _NAME.search(text, done)) is not None:
            start, end = match.end(), match.end()
            if self.hides(match["name"]):
                end = _end_of_value(text, match)
            yield text[done:start]
            if end > start:
                yield MASKED
            done = end
        yield text[done:]


def _too_few_digits(text: str) -> bool:
    return len(text) < MIN_DIGITS or len(text) - len(text.translate(_NO_DIGITS)) < MIN_DIGITS


def _number(value: float) -> float | str:
    """Mask a card number that was decoded as a number; some decoders return floats."""
    if not 10**12 <= abs(value) < 10**77:  # below: too short; above: no card, and slow to format
        return value
    digits = str(int(value))
    return CARD_MASK if int(value) == value and mask_cards(digits) != digits else value


def _end_of_value(text: str, match: re.Match[str]) -> int:
    start, quote = match.end(), match["quote"]
    if quote:
        return _end_of_quoted(text, start, quote)
    if text.startswith(MASKED, start):
        return start
    if text[start : start + 1] in _BRACKETS:
        return _end_of_brackets(text, start)
    found = (_LINE if match["name"] in _WHOLE_LINE_FIELDS else _BARE).match(text, start)
    return found.end() if found else start


def _end_of_quoted(text: str, start: int, quote: str) -> int:
    """The index of the closing quote, which has as many backslashes as the opening one, or the end of the text."""
    end = text.find(quote, start)
    while end > start and text[end - 1] == "\\":
        end = text.find(quote, end + 1)
    return len(text) if end < 0 else end


def _end_of_brackets(text: str, start: int) -> int:
    """The index after the bracket that closes the one at `start`. Brackets in strings count: it may mask too much."""
    depth = 0
    for match in _BRACKETS[text[start]].finditer(text, start):
        depth += 1 if match[0] == text[start] else -1
        if depth == 0:
            return match.end()
    return len(text)


DEFAULT_RULES: Final = MaskingRules()
"""The rules without configuration."""


def mask(text: str) -> str:
    """Mask a text by the default rules."""
    return DEFAULT_RULES.text(text)

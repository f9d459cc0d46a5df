r"""The detector for card numbers in records.

A record with a card number is discarded, not dead-lettered: it is written to no topic, no spool and no log. A false
positive therefore loses a record, and a miss is a leak. `CardNumbers` is narrow where everyday numbers are known to
look alike, and wide elsewhere:

- found: 13 to 19 digits with a valid check digit in an issuer's range, solid or grouped (see `cards`), in any encoding
  that leaves the digits readable: JSON of any depth, as string or number, also in scientific notation, in names and
  values, JSON in JSON, `\u` escapes, `%34`, entities of HTML, XML, forms, CSV, strings inside Avro, Protobuf,
  MessagePack or CBOR; with digits of other scripts and with zero-width characters in between; UTF-16 with a byte order
  mark; in the key, in names and values of headers.
- found only with a sign nearby, unless `without_sign="all"`: lengths that hardly any card of that issuer has, such as
  13 digits that start with 4, which are more often an article number (EAN). A sign is a word such as card or pan in the
  name of the field, of its parent or of the header, or directly before the digits; or a card's layout (4-4-4-4). Fields
  for numbers of another kind (`id`, `phone`, `ean`, `ticks`) do not inherit the sign of their parent, and 18 digits in
  one need a sign, too: ids that grow with the time (snowflakes) have as many.
- not scanned: headers of tracing (`traceparent`, `b3`, `x-b3-*`, `x-datadog-*`, `sentry-trace`), whose ids are numbers.
- not found: numbers packed in binary (a 64-bit integer in Avro), compressed, encrypted or base64 values, digits spread
  over several fields or separated by more than one gap, and anything inside a longer run of digits.
- remaining false positives: 2.4 % of random 16-digit numbers match an issuer and the check digit by chance. Name such
  fields in `ignore_fields` (`LOOKALIKE_FIELDS` is a start), or always require a sign: `without_sign="none"`.

The JSON path of a match is found without decoding: for JSON of any depth, truncated, or slightly invalid.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from keepfast.core import checks
from keepfast.core.errors import ConfigError, Discard
from keepfast.core.records import Headers
from keepfast.redact.cards import MAX_DIGITS, Candidate, candidates, may_contain_card
from keepfast.redact.field_names import as_one_word, words
from keepfast.redact.folding import MIN_DIGITS, plain

_TOKEN: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[{}\[\],:]', re.DOTALL)
_MAX_DEPTH: Final = 200
_NAME_BYTES: Final = 256


class JsonPath(NamedTuple):
    """The path of a byte: names of fields and positions in lists. `in_name`: the byte is in a field's name, and `steps`
    lead to the object of that field.
    """

    steps: tuple[str | int, ...]
    in_name: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(step for step in self.steps if isinstance(step, str))


class _Level:
    """An open object (`step` is the name of its current field) or list (`step` is the position)."""

    __slots__ = ("is_object", "naming", "step")

    def __init__(self, *, is_object: bool) -> None:
        self.is_object = is_object
        self.naming = is_object
        self.step: bytes | int = b"" if is_object else 0


def json_paths(data: bytes, positions: Iterable[int]) -> Iterator[JsonPath | None]:
    """The path of each position (ascending), or None if the text is not JSON or nested too deeply. One pass."""
    start = _start(data)
    tokens = _TOKEN.finditer(data, start) if start is not None else iter(())
    levels: list[_Level] = []
    token = next(tokens, None)
    too_deep = start is None
    for position in positions:
        while token is not None and token.end() <= position and not too_deep:
            too_deep = _follow(levels, token)
            token = next(tokens, None)
        if too_deep:
            yield None
            continue
        inside = token is not None and token.start() <= position
        in_name = bool(inside and levels and levels[-1].naming)
        steps = tuple(_step(level.step) for level in (levels[:-1] if in_name else levels))
        yield JsonPath(steps, in_name)


def _start(data: bytes) -> int | None:
    """Where the JSON starts; a schema registry's prefix (a zero byte and a schema id) may precede it."""
    start = 5 if data[:1] == b"\0" else 0
    opening = data[start : start + 64].lstrip()[:1]
    return start if opening in (b"{", b"[") else None


def _follow(levels: list[_Level], token: re.Match[bytes]) -> bool:
    """Process one token; True if the nesting is too deep."""
    kind = token[0][:1]
    top = levels[-1] if levels else None
    if kind in b"{[":
        levels.append(_Level(is_object=kind == b"{"))
        return len(levels) > _MAX_DEPTH
    if kind in b"}]":
        if levels:
            levels.pop()
    elif top is None:
        pass
    elif kind == b",":
        if isinstance(top.step, int):
            top.step += 1
        top.naming = top.is_object
    elif kind == b":":
        top.naming = False
    elif top.naming:
        top.step = token[0]
    return False


def _step(quoted: bytes | int) -> str | int:
    if isinstance(quoted, int):
        return quoted
    if len(quoted) > _NAME_BYTES:
        return quoted[1:_NAME_BYTES].decode("utf-8", "replace")
    try:
        return str(json.loads(quoted))
    except (ValueError, RecursionError):
        return quoted.strip(b'"').decode("utf-8", "replace")


PAN_DETECTED: Final = "PAN_DETECTED"

TOKEN_PREFIXES: Final = ("tok_", "tok-", "token_", "token-", "tkn_", "pm_", "src_")
"""Prefixes of tokens, which replace card numbers and may be passed around."""

LOOKALIKE_FIELDS: Final = (
    "ean", "gtin", "isbn", "upc", "sku", "imei", "iccid", "imsi", "iban", "order_id", "order_number", "invoice_number",
    "tracking_number", "tracking_id", "parcel_number", "timestamp", "trace_id", "span_id", "phone", "phone_number",
)  # fmt: skip
"""Names of fields whose numbers look like card numbers, for `ignore_fields`."""

TEST_NUMBERS: Final = (
    "4242424242424242", "4111111111111111", "4012888888881881", "4000056655665556", "5555555555554444",
    "5105105105105100", "2223003122003222", "378282246310005", "371449635398431", "6011111111111117",
    "6011000990139424", "3056930009020004", "30569309025904", "38520000023237", "36227206271667",
    "3530111333300000", "3566002020360505", "6200000000000005",
)  # fmt: skip
"""Numbers that payment providers publish for tests: for `allow`, outside production."""

WithoutSign = Literal["usual", "all", "none"]
_WITHOUT_SIGN: Final[tuple[WithoutSign, ...]] = ("usual", "all", "none")

_SIGN: Final = re.compile(
    r"card|karte|kart\b|carte\b|tarjeta|cartao|carta\b|credit|debit|\b[df]?pan\b|\bcc\b|\bccn\b|visa\b|mastercard|maestro"
    r"|amex|primary ?account|\bacct ?(?:num|no|nbr)|卡|カード|карт"
)
_PARTS_OF_SIGNS: Final = (
    *(b"card", b"kart", b"cart", b"tarjeta", b"credit", b"debit", b"pan", b"cc", b"visa", b"maestro", b"amex"),
    *(b"primary", b"acct"),
)
"""One of these is in each sign of ASCII."""
_NO_LETTERS: Final = bytes(byte for byte in range(256) if not 97 <= byte <= 122)
_MANY: Final = 16
_NUMBERS_OF_THEIR_OWN: Final = frozenset(
    (
        *("id", "ids", "uid", "guid", "phone", "mobile", "tel", "telephone", "fax", "msisdn", "ean", "gtin", "isbn"),
        *("upc", "sku", "imei", "imsi", "iccid", "iban", "ticks", "ts", "time", "timestamp", "date", "created"),
        *("updated", "nonce", "hash"),
    )
)
"""Words in the names of fields that do not inherit the sign of their parent."""
_JUST_A_NUMBER: Final = frozenset(("number", "num", "no", "nr", "nbr", "value", "digits"))
_TRACING: Final = re.compile(
    r"traceparent|tracestate|b3|x-b3-.*|x-datadog-.*|sentry-trace|uber-trace-id|x-cloud-trace-context|x-amzn-trace-id",
    re.IGNORECASE,
)
_WORD: Final = re.compile(rb"[A-Za-z0-9_-]{1,64}\Z")
_STOPS: Final = re.compile(rb"[\",;{}\[\]\n&]")
_ASSIGNED: Final = re.compile(rb"(?:\[[A-Za-z0-9_-]*\])*\\*+[\"']?[ ]?[=:][ ]?\\*+[\"']?\Z")
"""Between a name and its value where the value is text: in a form, in JSON inside a text, in code."""
_LOOK_BACK: Final = 64
_BYTE_ORDER_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")
_MANY_DIGITS: Final = re.compile(r"(?:\d\D?){9}")
_LIKE_A_VALUE: Final = re.compile(r"\d{4}|[@/=:]")
_MAX_NAME_SHOWN: Final = 48

Part = Literal["key", "value", "header", "header name"]


@dataclass(frozen=True, slots=True)
class CardFinding:
    """Where a card number was found. It contains no digit of it and may be logged.

    `header` is the name of the header, if it is in one. `place` is its JSON path (`$.payment.card`), or `byte 17`.
    """

    part: Part
    place: str
    issuer: str
    digits: int
    header: str = ""
    code: str = PAN_DETECTED

    def __str__(self) -> str:
        header = f" {self.header!r}" if self.header else ""
        return f"a card number ({self.issuer}, {self.digits} digits) in the {self.part}{header} at {self.place}"


class SensitiveData(Discard):
    """The record contains data that must not be stored: it is discarded without a dead letter, and never shown.

    The engine raises it for a `CardFinding`; a handler may raise it too, with a reason that contains no secret.
    """

    def __init__(self, what: CardFinding | str, *, code: str = PAN_DETECTED) -> None:
        self.finding = what if isinstance(what, CardFinding) else None
        self.code = code
        super().__init__(str(what))


@dataclass(frozen=True, slots=True, kw_only=True)
class CardNumbers:
    """What counts as a card number in a record. Thread-safe; `scan` takes linear time and never raises.

    `min_digits`: fewer digits never count. `ignore_fields`: names of JSON fields (with everything below them) and of
    headers whose values are not scanned, in any spelling. `token_prefixes`: words with these prefixes are accepted.
    `allow`: numbers that are accepted, such as `TEST_NUMBERS`. `without_sign`: which lengths count without a word for a
    card nearby: those that are `usual` for the issuer, `all`, or `none`.
    """

    min_digits: int = MIN_DIGITS
    ignore_fields: tuple[str, ...] = ()
    token_prefixes: tuple[str, ...] = TOKEN_PREFIXES
    allow: tuple[str, ...] = field(default=(), repr=False)
    without_sign: WithoutSign = "usual"

    _ignored: frozenset[str] = field(init=False, repr=False, compare=False)
    _allowed: frozenset[bytes] = field(init=False, repr=False, compare=False)
    _tokens: tuple[bytes, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._check()
        object.__setattr__(self, "_ignored", frozenset(map(as_one_word, self.ignore_fields)))
        object.__setattr__(self, "_allowed", frozenset(re.sub(r"\D", "", number).encode() for number in self.allow))
        object.__setattr__(self, "_tokens", tuple(prefix.encode() for prefix in self.token_prefixes))

    def _check(self) -> None:
        fields = {
            "min_digits": checks.whole(self.min_digits, MIN_DIGITS, MAX_DIGITS),
            "ignore_fields": checks.texts(self.ignore_fields),
            "token_prefixes": checks.texts(self.token_prefixes),
            "allow": checks.texts(self.allow),
            "without_sign": checks.one_of(self.without_sign, _WITHOUT_SIGN),
        }
        problems = [f"sensitive: {name} {problem}." for name, problem in fields.items() if problem]
        if problems:
            raise ConfigError(*problems)

    def scan(self, key: bytes | None, value: bytes | None, headers: Headers | None = None) -> CardFinding | None:
        """The first card number of a record, or None. Scans the value first, where most are."""
        if value is not None and len(value) >= MIN_DIGITS:
            found = self._scan_part(value, "value")
            if found is not None:
                return found
        if key is not None and len(key) >= MIN_DIGITS:
            found = self._scan_part(key, "key")
            if found is not None:
                return found
        return self._scan_headers(headers) if headers else None

    def _scan_headers(self, headers: Headers) -> CardFinding | None:
        for name, value in headers:
            if len(name) >= MIN_DIGITS:
                found = self._scan_part(name.encode("utf-8", "surrogatepass"), "header name")
                if found is not None:
                    return found
            if (
                value is not None
                and len(value) >= MIN_DIGITS
                and not _TRACING.fullmatch(name)
                and not (self._ignored and as_one_word(name) in self._ignored)
            ):
                found = self._scan_part(value, "header", name)
                if found is not None:
                    return found
        return None

    def _scan_part(self, data: bytes, part: Part, header: str = "") -> CardFinding | None:
        if data[:2] in _BYTE_ORDER_MARKS:
            data = data.decode("utf-16", "replace").encode("utf-8", "surrogatepass")
        data = plain(data)
        return self._find(data, part, header) if may_contain_card(data) else None

    def _find(self, data: bytes, part: Part, header: str) -> CardFinding | None:
        unsure = []
        for candidate in candidates(data):
            if len(candidate.digits) < self.min_digits or candidate.digits in self._allowed:
                continue
            if self._is_token(data, candidate):
                continue
            if self._ignored or candidate.like_an_id or not self._counts_alone(candidate):
                unsure.append(candidate)
                continue
            path = next(json_paths(data, (candidate.start,)))
            return _finding(candidate, path, part, header)
        return self._find_by_context(data, sorted(unsure), part, header) if unsure else None

    def _find_by_context(self, data: bytes, unsure: list[Candidate], part: Part, header: str) -> CardFinding | None:
        """Decide by the field names on the path of each candidate."""
        if len(unsure) > _MANY and not (header or _may_have_sign(data)):
            unsure = [one for one in unsure if self._counts_alone(one)]
        for candidate, path in zip(unsure, json_paths(data, [one.start for one in unsure]), strict=True):
            names = path.names if path else ()
            if self._ignored and any(as_one_word(name) in self._ignored for name in names):
                continue
            alone = self._counts_alone(candidate) and not (
                candidate.like_an_id and _is_of_its_own(names[-1:] or (header,))
            )
            if alone or _has_sign(data, candidate, (*_signs(names), header)):
                return _finding(candidate, path, part, header)
        return None

    def _counts_alone(self, candidate: Candidate) -> bool:
        if self.without_sign == "usual":
            return candidate.issuer.usual or candidate.grouped
        return self.without_sign == "all"

    def _is_token(self, data: bytes, candidate: Candidate) -> bool:
        before = _WORD.search(data[max(0, candidate.start - _LOOK_BACK) : candidate.start])
        return before is not None and before[0].startswith(self._tokens)


def _may_have_sign(data: bytes) -> bool:
    """Whether a word for a card may be anywhere. Fast; False is always right."""
    letters = data.lower().translate(None, _NO_LETTERS)
    return not data.isascii() or b"\\u" in data or any(part in letters for part in _PARTS_OF_SIGNS)


def _is_of_its_own(names: Sequence[str]) -> bool:
    return bool(names) and not _NUMBERS_OF_THEIR_OWN.isdisjoint(words(names[0]))


def _signs(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names that may have a word for a card: of the field, and of its parent unless it is a number of its own. A
    field that says no more than `number` belongs to all that it is in.
    """
    own = names[-1:]
    if _is_of_its_own(own):
        return own
    return names if own and _JUST_A_NUMBER.issuperset(words(own[0])) else names[-2:]


def _has_sign(data: bytes, candidate: Candidate, names: tuple[str, ...]) -> bool:
    """A word for a card in the names, or between the last stop and the digits: `card: `, `card="`, `card[number]=`."""
    before = _ASSIGNED.sub(b"=", data[max(0, candidate.start - _LOOK_BACK) : candidate.start])
    text = " ".join((*names, _STOPS.split(before)[-1].decode("utf-8", "replace")))
    return _SIGN.search(" ".join(words(text, longest=1024))) is not None


def _finding(candidate: Candidate, path: JsonPath | None, part: Part, header: str) -> CardFinding:
    if path is None:
        where = f"byte {candidate.start}"
    else:
        steps = "".join(f"[{step}]" if isinstance(step, int) else f".{_shown(step)}" for step in path.steps[-16:])
        more = "…" if len(path.steps) > 16 else ""
        where = f"${more}{steps}" + (" (the name of a field)" if path.in_name else "")
    name = "" if part == "header name" else _shown(header)
    return CardFinding(part, where, candidate.issuer.name, len(candidate.digits), name)


def _shown(name: str) -> str:
    """A name as it may be logged. Names come from outside: one that looks like a value, or is odd, is not shown."""
    if len(name) > _MAX_NAME_SHOWN or _MANY_DIGITS.search(name) or _LIKE_A_VALUE.search(name) or not name.isprintable():
        return f"[a name of {len(name)} characters]"
    return name

"""Synthetic records with and without card numbers, deterministic for a seed; the numbers belong to no issuer.

Each class is one way to write a card number, or one kind of number that looks like one; a class says what is true of
all its records. Records without any long number are the largest class, as in life.
"""

from __future__ import annotations

import base64
import json
import random
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

Headers = list[tuple[str, bytes | None]]


class Sample(NamedTuple):
    """One record. `holds_card` is the truth; `kind` is the class that it was made for."""

    kind: str
    holds_card: bool
    key: bytes
    value: bytes
    headers: Headers


class Kind(NamedTuple):
    name: str
    weight: int
    holds_card: bool
    make: Callable[[random.Random], tuple[bytes, bytes, Headers]]


def check_digit(body: str) -> str:
    """The digit that makes `body` pass the check of ISO/IEC 7812."""
    total = 0
    for place, digit in enumerate(reversed(body)):
        number = int(digit) * (2 if place % 2 == 0 else 1)
        total += number - 9 if number > 9 else number
    return str(-total % 10)


def article_check_digit(body: str) -> str:
    """The digit that makes `body` an article number (EAN, GTIN, ISBN-13)."""
    return str(-sum(int(digit) * (3 if place % 2 == 0 else 1) for place, digit in enumerate(reversed(body))) % 10)


def digits(rng: random.Random, count: int) -> str:
    return str(rng.randrange(10**count)).zfill(count)


def with_check(rng: random.Random, prefix: str, length: int) -> str:
    body = prefix + digits(rng, length - len(prefix) - 1)
    return body + check_digit(body)


CARDS: Final[tuple[tuple[int, Callable[[random.Random], str]], ...]] = (
    (40, lambda rng: with_check(rng, "4", 16)),
    (25, lambda rng: with_check(rng, str(rng.randint(51, 55)), 16)),
    (6, lambda rng: with_check(rng, str(rng.randint(2221, 2720)), 16)),
    (8, lambda rng: with_check(rng, rng.choice(("34", "37")), 15)),
    (4, lambda rng: with_check(rng, rng.choice(("6011", "65", "644", "649")), 16)),
    (2, lambda rng: with_check(rng, rng.choice(("36", "38", "300", "305")), 14)),
    (3, lambda rng: with_check(rng, str(rng.randint(3528, 3589)), 16)),
    (4, lambda rng: with_check(rng, "62", rng.choice((16, 19)))),
    (3, lambda rng: with_check(rng, rng.choice(("5018", "6304", "6759", "6761")), rng.choice((16, 18, 19)))),
    (2, lambda rng: with_check(rng, str(rng.randint(2200, 2204)), 16)),
    (2, lambda rng: with_check(rng, rng.choice(("607000", "608100", "652200", "508600")), 16)),
    (1, lambda rng: with_check(rng, rng.choice(("9792", "9860", "8600", "606282", "636368")), 16)),
)
_MAKERS: Final = [make for _, make in CARDS]
_SHARES: Final = [share for share, _ in CARDS]


def card(rng: random.Random) -> str:
    return rng.choices(_MAKERS, _SHARES)[0](rng)


def rare_card(rng: random.Random) -> str:
    return with_check(rng, "4", rng.choice((13, 19)))


def grouped(rng: random.Random, number: str) -> str:
    gap = rng.choice(" -")
    if len(number) in (14, 15):
        return gap.join((number[:4], number[4:10], number[10:]))
    return gap.join(number[at : at + 4] for at in range(0, len(number), 4))


def irregular(rng: random.Random, number: str) -> str:
    gap = rng.choice(" -")
    cuts = sorted(rng.sample(range(2, len(number) - 1), rng.randint(1, 4)))
    return gap.join(number[start:end] for start, end in zip([0, *cuts], [*cuts, len(number)], strict=True))


_NAMES: Final = ("Erika Mustermann", "Jan Kowalski", "Anna Nowak", "John Smith", "María Pérez", "Zoë Müller", "李雷")
_CARD_FIELDS: Final = (
    "pan",
    "card_number",
    "cardNumber",
    "number",
    "card",
    "account",
    "ccnum",
    "note",
    "reference",
    "id",
)


def order(rng: random.Random, **more: Any) -> dict[str, Any]:
    """About 200 bytes of JSON without a long number of its own."""
    return {
        "order": f"ord-{rng.randrange(10**7)}",
        "customer": {"id": rng.randrange(10**6), "name": rng.choice(_NAMES)},
        "amount": f"{rng.randrange(10**5) / 100:.2f}",
        "currency": rng.choice(("EUR", "USD", "PLN")),
        "created_at": f"2026-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}T10:{rng.randint(10, 59)}:00Z",
        "items": [{"sku": f"A-{rng.randrange(1000)}", "qty": rng.randint(1, 9)}],
        **more,
    }


def record(rng: random.Random, **more: Any) -> tuple[bytes, bytes, Headers]:
    value = json.dumps(order(rng, **more), ensure_ascii=rng.random() < 0.5).encode()
    return f"ord-{rng.randrange(10**7)}".encode(), value, [("content-type", b"application/json")]


def nested(rng: random.Random) -> tuple[bytes, bytes, Headers]:
    tree: Any = {rng.choice(_CARD_FIELDS): card(rng)}
    for _ in range(rng.randint(1, 12)):
        tree = {"data": tree} if rng.random() < 0.5 else [rng.randrange(100), tree]
    return record(rng, payload=tree)


def in_place(rng: random.Random) -> tuple[bytes, bytes, Headers]:
    """In the key, a header's value, a header's name, or the name of a field."""
    key, value, headers = record(rng)
    number = card(rng)
    match rng.randrange(4):
        case 0:
            return number.encode(), value, headers
        case 1:
            return key, value, [*headers, ("x-customer-card", number.encode())]
        case 2:
            return key, value, [*headers, (f"card-{number}", b"1")]
        case _:
            return record(rng, **{number: True})


def as_text(rng: random.Random) -> tuple[bytes, bytes, Headers]:
    number = card(rng)
    texts = (
        f"Customer gave card {grouped(rng, number)}, exp 12/27, please refund.",
        f"<payment><pan>{number}</pan><exp>1227</exp></payment>",
        f"id=7&pan={number}&exp=1227",
        f"7;Smith;{number};12/27;100.00",
        f"%B{number}^SMITH/JOHN^27121010000?;{number}=27121010000?",
        f"{number} 12/27 {digits(rng, 3)}",
        f"paid by card:\\n{number}\\nthanks",
    )
    return b"k", rng.choice(texts).encode(), []


def escaped(rng: random.Random) -> tuple[bytes, bytes, Headers]:
    number = card(rng)
    kinds = (
        "".join(f"\\u{ord(one):04x}" if rng.random() < 0.5 else one for one in number),
        "".join(chr(0xFF10 + int(one)) for one in number),
        "\u200b".join(number),
        number[:4] + "\u00a0" + number[4:8] + "\u00a0" + number[8:],
        json.dumps(json.dumps({"pan": number, "name": "M\u00fcller"}))[1:-1],
    )
    return b"k", f'{{"order": "A-1", "card": "{rng.choice(kinds)}"}}'.encode(), []


def binary(rng: random.Random) -> tuple[bytes, bytes, Headers]:
    """A text field as Protobuf, Avro and MessagePack lay it out, with any byte behind it."""
    number = card(rng).encode()
    lengths = (bytes((0x12, len(number))), bytes((0x00, 2 * len(number))), bytes((0xA2, 0xA0 + len(number))))
    behind = bytes((rng.choice((0x1A, 0x22, 0x30, 0x38, 0x42, 0x14)),))
    return b"k", b"\x0a\x03abc" + rng.choice(lengths) + number + behind + b"\x05hello", []


def encoded(rng: random.Random) -> tuple[bytes, bytes, Headers]:
    """As forms, URLs and pages write it."""
    number = card(rng)
    spaced = " ".join(grouped(rng, number).replace("-", " ").split())
    kinds = (
        "pan=" + "".join(f"%{ord(one):02X}" for one in number),
        "n=" + spaced.replace(" ", "%20"),
        "n=" + spaced.replace(" ", "%2520"),
        "n=" + spaced.replace(" ", "%C2%A0"),
        "n=" + spaced.replace(" ", "+"),
        f"text=thanks%0A{number}%0A",
        "<b>" + spaced.replace(" ", "&nbsp;") + "</b>",
        "<b>" + "".join(f"&#{ord(one)};" for one in number) + "</b>",
        "<b>" + "".join(f"&#x{ord(one):x};" for one in number) + "</b>",
    )
    return b"k", rng.choice(kinds).encode(), []


def underscored(rng: random.Random) -> tuple[bytes, bytes, Headers]:
    return record(rng, note=grouped(rng, card(rng)).replace(" ", "_").replace("-", "_"))


def track_2(rng: random.Random) -> tuple[bytes, bytes, Headers]:
    letter = rng.choice("Dd")
    expiry = f"{rng.randint(26, 35)}{rng.randint(1, 12):02}"
    return record(rng, track2=f"{card(rng)}{letter}{expiry}101{digits(rng, 10)}F")


def scientific(rng: random.Random) -> tuple[bytes, bytes, Headers]:
    """As Java prints a floating-point number, with trailing zeros left out."""
    number = with_check(rng, "4", 16)
    fraction = number[1:].rstrip("0").ljust(12, "0")
    value = json.dumps(order(rng)).encode()[:-1] + f', "pan": {number[0]}.{fraction}E15}}'.encode()
    return b"k", value, []


def signed(rng: random.Random) -> tuple[bytes, bytes, Headers]:
    """A rare length below a name that says what it is."""
    name = rng.choice(("primaryAccountNumber", "dpan", "fpan", "acctNum", "acct_num", "cardno", "card_no", "cardNbr"))
    return record(rng, **{name: rare_card(rng)})


def traced(rng: random.Random) -> tuple[bytes, bytes, Headers]:
    """Ids of tracing are numbers, those of Datadog decimal ones."""
    key, value, headers = record(rng)
    trace, span = rng.getrandbits(128), rng.getrandbits(64)
    more: Headers = [
        ("traceparent", f"00-{trace:032x}-{span:016x}-01".encode()),
        ("b3", f"{trace:032x}-{span:016x}-1".encode()),
        ("x-b3-traceid", f"{trace:032x}".encode()),
        ("X-B3-SpanId", digits(rng, 16).encode()),
        ("x-datadog-trace-id", str(rng.getrandbits(63)).encode()),
        ("x-datadog-parent-id", digits(rng, rng.randint(16, 19)).encode()),
        ("sentry-trace", f"{trace:032x}-{digits(rng, 16)}-1".encode()),
    ]
    return key, value, [*headers, *rng.sample(more, 3)]


def below_a_card(rng: random.Random) -> tuple[bytes, bytes, Headers]:
    """Numbers of their own in an object that is called after a card."""
    fields = {
        "phone": "49" + digits(rng, 11),
        "ean": article(rng, ("40", "45", "50", "59"), 13),
        "ticks": rng.randrange(638_000_000_000_000_000, 640_000_000_000_000_000),
        "id": rng.randrange(4 * 10**12, 5 * 10**12),
        "customerId": with_check(rng, "4", 13),
        "createdAt": rng.randrange(1_500_000_000_000, 1_900_000_000_000),
    }
    name = rng.choice(list(fields))
    return record(rng, **{rng.choice(("card", "cardHolder", "credit_card", "paymentCard")): {name: fields[name]}})


def iban(rng: random.Random) -> str:
    country, size = rng.choice((("DE", 18), ("ES", 20), ("PL", 24), ("BE", 12), ("FI", 14), ("AT", 16), ("DK", 14)))
    account = digits(rng, size)
    letters = "".join(str(ord(one) - 55) for one in country)
    text = f"{country}{98 - int(account + letters + '00') % 97:02}{account}"
    return text if rng.random() < 0.5 else " ".join(text[at : at + 4] for at in range(0, len(text), 4))


def article(rng: random.Random, prefixes: tuple[str, ...], length: int) -> str:
    prefix = rng.choice(prefixes)
    body = prefix + digits(rng, length - len(prefix) - 1)
    return body + article_check_digit(body)


def one(name: str, make: Callable[[random.Random], Any]) -> Callable[[random.Random], tuple[bytes, bytes, Headers]]:
    return lambda rng: record(rng, **{name: make(rng)})


def _phone(rng: random.Random) -> str:
    number = rng.choice(("49", "48", "1", "44", "34", "375", "86")) + digits(rng, rng.randint(9, 11))
    return rng.choice((f"+{number}", f"+{number[:2]} {number[2:5]} {number[5:]}", f"00{number}"))


def _tracking(rng: random.Random) -> str:
    return rng.choice(
        (
            f"1Z{digits(rng, 16)}",
            "94" + digits(rng, 20),
            digits(rng, 12),
            digits(rng, 15),
            digits(rng, 20),
            "00" + digits(rng, 18),
        )
    )


WRITTEN: Final = "card, written: "
KINDS: Final[tuple[Kind, ...]] = (
    Kind("card, solid in a field", 90, True, lambda rng: record(rng, **{rng.choice(_CARD_FIELDS): card(rng)})),
    Kind("card, as a JSON number", 20, True, lambda rng: record(rng, pan=int(card(rng)))),
    Kind("card, grouped", 60, True, lambda rng: record(rng, note=grouped(rng, card(rng)))),
    Kind("card, irregular groups", 20, True, lambda rng: record(rng, note=irregular(rng, card(rng)))),
    Kind("card, nested", 40, True, nested),
    Kind("card, JSON in JSON", 20, True, lambda rng: record(rng, body=json.dumps({"pan": card(rng)}))),
    Kind("card, key or header or name", 30, True, in_place),
    Kind("card, in a text", 40, True, as_text),
    Kind("card, escaped or other scripts", 30, True, escaped),
    Kind("card, text in binary", 20, True, binary),
    Kind("card, rare length, signed", 10, True, lambda rng: record(rng, card_number=rare_card(rng))),
    Kind("card, rare length, no sign", 10, True, lambda rng: record(rng, reference=rare_card(rng))),
    Kind(f"{WRITTEN}URL, form or HTML", 30, True, encoded),
    Kind(f"{WRITTEN}track 2 with a D", 10, True, track_2),
    Kind(f"{WRITTEN}pan_", 10, True, lambda rng: record(rng, ref=f"pan_{card(rng)}")),
    Kind(f"{WRITTEN}underscores", 10, True, underscored),
    Kind(f"{WRITTEN}scientific", 10, True, scientific),
    Kind(f"{WRITTEN}rare length, sign words", 10, True, signed),
    Kind("headers: tracing", 30, False, traced),
    Kind("ids: below a card", 30, False, below_a_card),
    Kind(
        "ids: ticks of .NET",
        15,
        False,
        one("at", lambda rng: rng.randrange(638_900_000_000_000_000, 639_400_000_000_000_000)),
    ),
    Kind("plain order", 300, False, record),
    Kind("token", 20, False, lambda rng: record(rng, card=rng.choice(("tok_", "pm_")) + card(rng))),
    Kind("time in ms", 30, False, one("ts", lambda rng: rng.randrange(1_500_000_000_000, 1_900_000_000_000))),
    Kind("time in µs", 15, False, one("ts", lambda rng: rng.randrange(15 * 10**14, 19 * 10**14))),
    Kind("time in ns", 15, False, one("ts", lambda rng: rng.randrange(15 * 10**17, 19 * 10**17))),
    Kind("EAN-13", 20, False, one("ean", lambda rng: article(rng, ("40", "45", "50", "59", "30", "76", "0"), 13))),
    Kind("ISBN-13", 10, False, one("isbn", lambda rng: article(rng, ("978", "979"), 13))),
    Kind("GTIN-14", 10, False, one("gtin", lambda rng: article(rng, ("1", "2", "3", "5"), 14))),
    Kind("IMEI", 20, False, one("imei", lambda rng: with_check(rng, rng.choice(("35", "86", "01", "99")), 15))),
    Kind("ICCID", 10, False, one("iccid", lambda rng: with_check(rng, "89", 19))),
    Kind("IBAN", 20, False, one("iban", iban)),
    Kind("phone", 20, False, one("phone", _phone)),
    Kind("UUID", 20, False, one("id", lambda rng: str(uuid.UUID(int=rng.getrandbits(128), version=4)))),
    Kind("hex id", 15, False, one("trace", lambda rng: f"{rng.getrandbits(128):032x}")),
    Kind("tracking number", 15, False, one("parcel", _tracking)),
    Kind("snowflake id", 15, False, one("id", lambda rng: rng.randrange(10**17, 2 * 10**18))),
    Kind("64-bit hash", 15, False, one("hash", lambda rng: rng.getrandbits(63))),
    Kind("decimal fraction", 15, False, one("score", lambda rng: rng.random() * rng.choice((1, 90)))),
    Kind("25 digits", 10, False, one("id", lambda rng: digits(rng, 25))),
    Kind("base64", 10, False, one("blob", lambda rng: base64.b64encode(rng.randbytes(300)).decode())),
    Kind("16 random digits", 20, False, one("order_id", lambda rng: digits(rng, 16))),
    Kind("13-19 random digits", 20, False, one("reference", lambda rng: digits(rng, rng.randint(13, 19)))),
)


def samples(count: int, seed: int = 7, *, kinds: Sequence[Kind] = KINDS) -> Iterator[Sample]:
    rng = random.Random(seed)
    weights = [kind.weight for kind in kinds]
    for kind in rng.choices(kinds, weights, k=count):
        yield Sample(kind.name, kind.holds_card, *kind.make(rng))

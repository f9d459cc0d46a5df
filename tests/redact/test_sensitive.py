"""Ways to write a card number, all of which the detector must see; every number is made up or published for tests."""

from __future__ import annotations

import json
import urllib.parse
from typing import Any

import pytest

from keepfast.core.errors import ConfigError, Discard
from keepfast.core.records import Headers
from keepfast.redact.cards import luhn, mask_cards
from keepfast.redact.sensitive import PAN_DETECTED, TEST_NUMBERS, CardFinding, CardNumbers, SensitiveData

VISA = "4111111111111111"
AMEX = "378282246310005"
VISA_13 = "4222222222222"


def scan(
    value: object = None, *, key: bytes | None = None, headers: Headers = (), **options: Any
) -> CardFinding | None:
    data = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
    return CardNumbers(**options).scan(key, data, headers)


@pytest.mark.parametrize(
    ("number", "issuer"),
    [
        (VISA, "Visa"),
        ("5555555555554444", "Mastercard"),
        ("2221000000000009", "Mastercard"),
        ("2720990000000007", "Mastercard"),
        (AMEX, "American Express"),
        ("6011111111111117", "Discover"),
        ("30569309025904", "Diners Club"),
        ("3530111333300000", "JCB"),
        ("6200000000000005", "UnionPay"),
        ("6212345678901234502", "UnionPay"),
        ("6759649826438453", "Maestro"),
        ("2200000000000004", "Mir"),
        ("6070000000000002", "RuPay"),
    ],
)
def test_every_issuer_is_named(number: str, issuer: str) -> None:
    found = scan({"x": number})
    assert found is not None
    assert (found.issuer, found.digits, found.code) == (issuer, len(number), PAN_DETECTED)


@pytest.mark.parametrize("number", TEST_NUMBERS)
def test_published_test_numbers_are_found_unless_allowed(number: str) -> None:
    assert scan({"card": number})
    assert scan({"card": number}, allow=TEST_NUMBERS) is None
    assert scan({"card": f"{number[:4]} {number[4:]}"}, allow=(f"{number[:4]}-{number[4:]}",)) is None


@pytest.mark.parametrize(
    "text",
    [
        "4111 1111 1111 1111",
        "4111-1111-1111-1111",
        "4111.1111.1111.1111",
        "4111 1111 1111 1111 12/27",
        "2024-4111-1111-1111-1111",
        "41111111 11111111",
        "41 1111 11111 11111",
        "4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1",
        "3782 822463 10005",
        "3782-822463-10005",
        f"pay {VISA}, thanks",
        f"{VISA}.",
        f"{VISA}.0",
        f"PAN{VISA}",
        f"card_{VISA}",
        f"%B{VISA}^DOE/J^2712101?",
        f";{VISA}=27121010000?",
        f"a=1&pan={VISA}&b=2",
        f"<pan>{VISA}</pan>",
        f"line\n{VISA}\n",
        "４１１１１１１１１１１１１１１１",
        "٤١١١١١١١١١١١١١١١",
        "4111\u00a01111\u202f1111\u00a01111".replace("\u202f", "\u00a0"),
        "4111\u20131111\u20131111\u20131111",
        "\u200b".join(VISA),
        f"\ufeff{VISA}",
        f"é{VISA}",
    ],
)
def test_it_is_found_however_it_is_written(text: str) -> None:
    assert scan(text.encode()), "as plain text"
    assert scan({"a": [{"b": text}]}), "in JSON with escapes"
    assert scan(json.dumps({"a": text}, ensure_ascii=False).encode()), "in JSON without escapes"
    assert scan({"a": json.dumps({"b": json.dumps({"c": text})})}), "in JSON in JSON"
    assert scan({text: 1}), "in a name"
    assert scan(key=text.encode())
    assert scan(headers=[("h", text.encode())])
    assert scan(headers=[(f"h {text}", None)])


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"a": {"b": [1, {"pan": VISA}]}}, "$.a.b[1].pan"),
        ({"a": int(VISA)}, "$.a"),
        ([[], {}, [VISA]], "$[2][0]"),
        ({"a": 1, VISA: 2}, "$ (the name of a field)"),
        ({"a": {VISA: {"x": 5, "y": AMEX}}}, "$.a (the name of a field)"),
        ({"a": json.dumps({"b": VISA})}, "$.a"),
        ({'q"\\': VISA}, '$.q"\\'),
    ],
)
def test_the_finding_says_where_in_the_json(value: object, place: str) -> None:
    found = scan(value)
    assert found is not None
    assert (found.part, found.place) == ("value", place)


def test_the_place_is_reported_even_if_the_json_is_cut_off_or_framed_or_repeats_names() -> None:
    cut = b'{"a": {"b": "' + VISA.encode() + b'", "c": '
    for value in (cut, b"\0\0\0\0\7" + cut, b'{"a": {"b": "' + VISA.encode() + b'", "b": 1}}'):
        found = scan(value)
        assert found is not None
        assert found.place == "$.a.b"


def test_a_place_that_is_too_deep_is_reported_as_a_byte() -> None:
    found = scan(b"[" * 5000 + VISA.encode())
    assert found is not None
    assert found.place == "byte 5000"


def test_a_finding_shows_no_digit_of_the_card() -> None:
    number = "4929939187355598"
    found = [
        scan({number: {number: [number]}}),
        scan({f"card {number}": {"x": AMEX}}, allow=(number,)),
        scan(headers=[(f"x-{number}", number.encode())]),
        scan(headers=[(f"x-{number}", AMEX.encode())], allow=(number,)),
        scan(key=number.encode()),
    ]
    for finding in found:
        assert finding is not None
        shown = f"{finding} {finding!r} {SensitiveData(finding)!r} {SensitiveData(finding)}"
        assert not any(number[at : at + 5] in shown for at in range(12))
        assert AMEX[:5] not in shown


def test_reported_names_are_short_and_printable() -> None:
    found = scan({"x\n\x1b[31m" + "y" * 500: VISA})
    assert found is not None
    assert found.place.isprintable()
    assert len(found.place) < 60


@pytest.mark.parametrize(
    "value",
    [
        b"\x0a\x10" + VISA.encode() + b"B\x03abc",  # Protobuf, the next field's mark is a letter
        b"\x0a\x10" + VISA.encode() + b"0\x03abc",  # and a digit
        b"\x02\x20" + VISA.encode() + b"0" + b"x" * 24,  # Avro, the next text is 24 long
        b"\x81\xa3pan\xb0" + VISA.encode() + b"A",  # MessagePack
        b"\xa1\x63pan\x70" + VISA.encode() + b"\x05",  # CBOR: the length is a letter
    ],
)
def test_a_text_in_binary_data_ends_where_its_length_says(value: bytes) -> None:
    assert scan(value)


def test_utf_16_with_its_mark_is_read() -> None:
    assert scan(f'{{"pan": "{VISA}"}}'.encode("utf-16"))


def test_rare_lengths_need_a_sign() -> None:
    assert scan({"ean": VISA_13}) is None
    assert scan({"ean": VISA_13}, without_sign="all")
    assert scan({"card": {"number": VISA_13}})
    assert scan({"customerPan": VISA_13})
    assert scan(f"credit card {VISA_13}".encode())
    assert scan(headers=[("X-Card-Number", VISA_13.encode())])
    assert scan({"x": "4222 2222 22222"}), "laid out as on a card"
    assert scan({"company": VISA_13, "span": VISA_13, "japan": VISA_13}) is None


def test_a_sign_can_be_asked_for_always() -> None:
    assert scan({"order_id": VISA}, without_sign="none") is None
    assert scan({"order_id": "4111 1111 1111 1111"}, without_sign="none") is None
    assert scan({"card_no": VISA}, without_sign="none")


def test_ignored_fields_are_not_looked_at_with_all_that_is_below_them() -> None:
    options: dict[str, Any] = {"ignore_fields": ("order_id", "parcel")}
    for value in ({"orderId": VISA}, {"ORDER-ID": VISA}, {"parcel": {"x": [VISA, {"y": AMEX}]}}):
        assert scan(value, **options) is None
    found = scan({"order_id": VISA, "parcel": [AMEX], "z": {"orders": AMEX}}, **options)
    assert found is not None
    assert found.place == "$.z.orders"
    assert scan(headers=[("Order-Id", VISA.encode())], **options) is None


def test_fewer_digits_than_asked_for_do_not_count() -> None:
    assert scan({"card": AMEX}, min_digits=16) is None
    assert scan({"card": VISA}, min_digits=16)


def test_wrong_options_are_refused_all_at_once_and_numbers_stay_out_of_the_message() -> None:
    with pytest.raises(ConfigError) as refused:
        CardNumbers(min_digits=12, ignore_fields="x", without_sign="often", allow=[VISA])  # type: ignore[arg-type]
    assert len(refused.value.problems) == 4
    assert VISA not in str(refused.value)
    assert VISA not in repr(CardNumbers(allow=(VISA,)))


def test_sensitive_data_is_a_discard_with_a_code() -> None:
    found = scan({"pan": VISA})
    assert found is not None
    error = SensitiveData(found)
    assert isinstance(error, Discard)
    assert (error.code, error.finding, error.reason) == (PAN_DETECTED, found, str(found))
    assert str(found) == "a card number (Visa, 16 digits) in the value at $.pan"
    assert SensitiveData("a medical report", code="HEALTH").finding is None


@pytest.mark.parametrize("name", ["ada@example.com", "4111 1111 1111", "customer-2024", "x" * 60, "a\nb", "https://x"])
def test_a_name_that_looks_like_a_value_is_not_printed(name: str) -> None:
    value = json.dumps({name: {"card": "4111111111111111"}}).encode()
    found = CardNumbers().scan(None, value, [])
    assert found is not None
    assert found.place == f"$.[a name of {len(name)} characters].card"
    header = CardNumbers().scan(None, None, [(name, b"4111111111111111")])
    assert header is not None
    assert header.header == f"[a name of {len(name)} characters]"


@pytest.mark.parametrize(
    "text",
    [
        "pan=" + "".join(f"%{ord(one):02x}" for one in VISA),
        "pan=" + "".join(f"%25{ord(one):02x}" for one in VISA),
        "n=4111%201111%201111%201111",
        "n=4111%C2%A01111%C2%A01111%C2%A01111",
        "n=" + "".join(f"%EF%BC%{0x90 + int(one):X}" for one in VISA),
        f"text=thanks%0A{VISA}%0A",
        "n=4111+1111+1111+1111",
        "n=3782+822463+10005",
        "<b>4111&nbsp;1111&nbsp;1111&nbsp;1111</b>",
        "<b>4111&amp;nbsp;1111&amp;nbsp;1111&amp;nbsp;1111</b>",
        "".join(f"&#{ord(one)};" for one in VISA),
        "".join(f"&#x{ord(one):x};" for one in VISA),
        f"{VISA}D27121010000",
        f"{VISA}d2712",
        f"pan_{VISA}",
        "4111_1111_1111_1111",
        "4.111111111111111E15",
        "4.111111111111111e+15",
        *(
            json.dumps({name: VISA_13})
            for name in ("primaryAccountNumber", "dpan", "fpan", "acctNum", "cardno", "cardNr")
        ),
    ],
)
def test_the_forms_that_payment_companies_know_are_found_and_masked(text: str) -> None:
    assert scan(text.encode())
    assert "1111" not in mask_cards(text)


def test_headers_of_tracing_are_not_scanned() -> None:
    for name in ("traceparent", "b3", "X-B3-TraceId", "x-datadog-trace-id", "x-datadog-parent-id", "sentry-trace"):
        assert scan(headers=((name, VISA.encode()),)) is None
    assert scan(headers=(("x-customer", VISA.encode()),))


@pytest.mark.parametrize("name", ["phone", "ean", "ticks", "id", "customerId", "created_at"])
def test_a_number_of_its_own_does_not_inherit_the_sign_of_its_parent(name: str) -> None:
    assert scan({"card": {name: VISA_13}}) is None
    assert scan({"card": {"number": VISA_13}})
    assert scan({f"card_{name}": VISA_13})


SNOWFLAKE = next(at for at in range(675_900_000_000_000_000, 675_900_000_000_000_010) if luhn(str(at).encode()))


def test_an_id_that_grows_with_the_time_is_no_card() -> None:
    for value in (SNOWFLAKE, str(SNOWFLAKE)):
        assert scan({"id": value}) is None
        assert scan({"customer": {"userId": value}}) is None
        assert scan({"number": value}), "it may be a card of Maestro"
        assert scan({"cardId": value})
    assert scan(headers=(("message-id", str(SNOWFLAKE).encode()),)) is None
    mir = next(at for at in range(2_200 * 10**15, 2_200 * 10**15 + 10) if luhn(str(at).encode()))
    assert scan({"id": mir}) is None
    assert scan({"card": mir})


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"card": {"details": {"number": VISA_13}}}),
        json.dumps({"body": json.dumps({"cardNumber": VISA_13})}),
        f'card="{VISA_13}"',
        f"card: '{VISA_13}'",
        f"a=1&card[number]={VISA_13}",
        f"a=1&card%5Bnumber%5D={VISA_13}",
        f"cardnumber{VISA_13}",
        urllib.parse.quote(json.dumps([{"order": 1}] * 100 + [{"cardNumber": VISA_13}])),
    ],
)
def test_a_word_for_a_card_is_a_sign_however_it_is_assigned(text: str) -> None:
    assert scan(text.encode())
    assert scan(text.replace("card", "order").encode()) is None


@pytest.mark.parametrize("many", [b"1234 5678 9012 ", b"7123 ", b"123 ", b"2024-01-01 "])
@pytest.mark.parametrize("card", [b"4111 1111 1111 1111", b"3782-822463-10005", b"4111111111111111"])
@pytest.mark.parametrize("before", [0, 1, 545, 546, 547, 3_000])
def test_a_card_among_many_groups_is_found(many: bytes, card: bytes, before: int) -> None:
    assert scan(many * before + card + b" " + many * 2_000)
    assert scan(many * before + many * 2_000) is None


def test_ticks_of_this_year_are_no_card() -> None:
    start = 639_050_000_000_000_000
    assert not [at for at in range(start, start + 1_000) if scan({"at": at})]
    assert any(scan({"card": at}) for at in range(start, start + 20))

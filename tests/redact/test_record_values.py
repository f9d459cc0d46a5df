"""P10: of the values of a record, none is left in a text that quotes them; other words stay."""

from __future__ import annotations

import json
from typing import Any
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast.redact.record_values import without_values

ORDER = json.dumps(
    {"customer": "Ada Lovelace", "amount": 17.5, "status": 400, "iban": "DE02 1203", "paid": True, "note": 'say "a\nb"'}
).encode()


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("no customer Ada Lovelace", "no customer *"),
        ("no customer 'Ada Lovelace'", "no customer '*'"),
        ("17.50 is not -17.5", "* is not -*"),
        ("the bank answered HTTP 503", "the bank answered HTTP 503"),
        ("the bank answered HTTP 400", "the bank answered HTTP *"),
        ("1400 and 400.1 and v400", "1400 and 400.1 and v400"),
        ("KeyError: 'customer'", "KeyError: 'customer'"),
        ("paid is True", "paid is True"),
        ("note is 'say \"a\\nb\"'", "note is '*'"),
        ('note is "say \\"a\\nb\\""', 'note is "*"'),
        ('note is say "a\nb"', "note is *"),
        ("account acc-9 of t-1", "account * of *"),
        ("", ""),
    ],
)
def test_values_of_the_record_are_masked_and_other_words_are_not(text: str, masked: str) -> None:
    assert without_values(text, [b"acc-9", ORDER, None, b"", b"t-1"]) == masked


PERSON = {
    "name": " Zoë Lovelace\n",
    "street": "Große Straße 5",
    "country": "NO",
    "note": "write to marie.curie@example.org",
    "age": 47,
}


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("unknown: zoë lovelace", "unknown: *"),
        ("ZOË LOVELACE is unknown", "* is unknown"),
        ("unknown: ' Zoë Lovelace\\n'", "unknown: '*'"),
        ('unknown: "Zo\\u00eb Lovelace"', 'unknown: "*"'),
        ('unknown: "Zoe\\u0308 Lovelace"', 'unknown: "*"'),
        ("Lovelace, Zoë", "*, Zoë"),
        ("GROSSE STRASSE 5 is closed", "* is closed"),
        ("is it große-straße?", "is it *-*?"),
        ("user_lovelace_47 of customer_ZOË LOVELACE", "user_*_* of customer_*"),
        ("mail to MARIE.CURIE@example.org bounced", "mail to * bounced"),
        ("the curie of example.com", "the * of *.com"),
        ("no way to NO", "no way to *"),
        ("loveless street in 470 towns", "loveless street in 470 towns"),
    ],
)
def test_case_space_accents_and_underscores_hide_no_value(text: str, masked: str, form: Any) -> None:
    for record_form in ("NFC", "NFD"):
        value = {name: normalize(record_form, one) if isinstance(one, str) else one for name, one in PERSON.items()}
        for part in (json.dumps(value), json.dumps(value, ensure_ascii=False)):
            assert without_values(normalize(form, text), [part.encode()]) == masked


def test_of_bytes_that_are_not_json_every_word_counts() -> None:
    avro = b"\x00\x00\x00\x00\x07\x18Ada Lovelace\xff\x02"
    assert without_values("no customer Lovelace, error 17", [avro]) == "no customer *, error 17"
    for text in ("id_LOVELACE_1", "id_lovelace_1"):
        assert without_values(text, [avro]) == "id_*_1"
    for record_form in ("NFC", "NFD"):
        avro = b"\xff\x02" + normalize(record_form, "Élodie").encode()
        for text in ("Élodie", "ÉLODIE", "élodie", normalize("NFD", "élodie")):
            assert without_values(f"no customer {text}", [avro]) == "no customer *"


def test_a_long_value_is_masked_to_the_end_of_the_text_however_it_was_cut() -> None:
    value = "x" * 99 + "secret" * 20_000
    assert without_values(f"bad {value[:200]}… and so on", [json.dumps(value).encode()]) == "bad *"
    assert without_values(f"bad {value}", [json.dumps({"note": value, "more": "y" * 300_000}).encode()]) == "bad *"


SCALARS = st.text(min_size=1) | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
DOCUMENTS = st.recursive(SCALARS, lambda some: st.lists(some) | st.dictionaries(st.text(), some), max_leaves=10)
MARKER = st.text(alphabet="QXZJ", min_size=8, max_size=8)


@given(DOCUMENTS, MARKER, st.sampled_from([str, repr, json.dumps]))
def test_a_value_is_found_however_the_text_quotes_it(document: Any, marker: str, quote: Any) -> None:
    for stored in (marker, marker.lower(), f" {marker}\n", f"of {marker}, paid"):
        for part in (json.dumps([document, {"name": stored}]).encode(), stored.encode(), b"\xff" + stored.encode()):
            for text in (f"no customer {quote(marker)} (error 17)", f"no_{quote(marker.title())}_17"):
                assert marker not in without_values(text, [part]).upper()


@given(st.text(), st.lists(st.none() | st.binary()))
def test_any_text_and_any_record_will_do(text: str, parts: list[bytes | None]) -> None:
    without_values(text, parts)

"""P10: of the values of a record, none is left in a text that quotes them; other words stay."""

from __future__ import annotations

import json
from typing import Any

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


def test_of_bytes_that_are_not_json_every_word_counts() -> None:
    avro = b"\x00\x00\x00\x00\x07\x18Ada Lovelace\xff\x02"
    assert without_values("no customer Lovelace, error 17", [avro]) == "no customer *, error 17"


def test_a_long_value_is_masked_to_the_end_of_the_text_however_it_was_cut() -> None:
    value = "x" * 99 + "secret" * 20_000
    assert without_values(f"bad {value[:200]}… and so on", [json.dumps(value).encode()]) == "bad *"
    assert without_values(f"bad {value}", [json.dumps({"note": value, "more": "y" * 300_000}).encode()]) == "bad *"


SCALARS = st.text(min_size=1) | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
DOCUMENTS = st.recursive(SCALARS, lambda some: st.lists(some) | st.dictionaries(st.text(), some), max_leaves=10)
MARKER = st.text(alphabet="QXZJ", min_size=8, max_size=8)


@given(DOCUMENTS, MARKER, st.sampled_from([str, repr, json.dumps]))
def test_a_value_is_found_however_the_text_quotes_it(document: Any, marker: str, quote: Any) -> None:
    text = f"no customer {quote(marker)} (error 17)"
    for part in (json.dumps([document, {"name": marker}]).encode(), marker.encode(), b"\xff" + marker.encode()):
        assert marker not in without_values(text, [part])


@given(st.text(), st.lists(st.none() | st.binary()))
def test_any_text_and_any_record_will_do(text: str, parts: list[bytes | None]) -> None:
    without_values(text, parts)

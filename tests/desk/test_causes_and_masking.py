"""What is told of letters without telling their payload."""

from __future__ import annotations

import json

import pytest
from hypothesis import given

from keepfast.desk.letter_causes import by_cause
from keepfast.desk.masking import frames, shape
from tests.desk.letter_topics import Stock, letter_topic
from tests.support.letters import compact_json, letter


def test_letters_are_counted_by_cause_the_most_frequent_first() -> None:
    stock = Stock()
    for number in range(5):
        stock.file(letter(fingerprint="a" * 12, failed_at_ms=1_000 * number, error_code=f"C{number % 2}"))
    for number in range(2):
        stock.file(
            letter(fingerprint="b" * 12, group=f"g{number}", error_message="user 'bob' owes 17"),
            partition=1,
            form="nested",
        )
    causes = by_cause(letter_topic(stock).letters())
    assert [(cause.fingerprint, cause.count) for cause in causes] == [("a" * 12, 5), ("b" * 12, 2)]
    assert (causes[0].first_ms, causes[0].last_ms) == (0, 4_000)
    assert causes[0].codes == {"C0": 3, "C1": 2}
    assert causes[1].groups == {"g0": 1, "g1": 1}
    assert causes[1].message == "user * owes #"
    assert causes[1].sample == "1:0"


def test_the_shape_of_json_has_names_and_kinds_and_no_values() -> None:
    value = {
        "id": "tok_secret",
        "amount": 17.5,
        "paid": True,
        "note": None,
        "lines": [{"sku": "x"}, {"sku": "y"}, 1, 2, 3],
        "4111111111111111": "card as a name",
        "bob@example.org": 1,
        "deep": {"a": {"b": {"c": {"d": {"e": {"f": 1}}}}}},
    }
    assert shape(json.dumps(value).encode()) == {
        "id": "<text of 10>",
        "amount": "<number>",
        "paid": "<boolean>",
        "note": None,
        "lines": [{"sku": "<text of 1>"}, {"sku": "<text of 1>"}, "<number>", "… 2 more"],
        "<name of 16>": "<text of 14>",
        "<name of 15>": "<number>",
        "deep": {"a": {"b": {"c": {"d": {"e": "<object of 1>"}}}}},
    }


@pytest.mark.parametrize(
    ("value", "reported"),
    [(None, "<null>"), (b"", "<0 bytes>"), (b"\xff\xfe", "<2 bytes>"), (b"[" * 100_000, "<100000 bytes>")],
)
def test_what_is_not_json_is_described_by_its_size(value: bytes | None, reported: str) -> None:
    assert shape(value) == reported


@given(compact_json)
def test_any_json_has_a_shape(value: bytes) -> None:
    json.dumps(shape(value))


def test_of_a_stack_only_the_places_are_shown() -> None:
    stack = (
        "Traceback (most recent call last):\n"
        '  File "/app/shop/work.py", line 12, in charge\n'
        '    raise ValueError(f"card {number}")\n'
        "ValueError: card 4111111111111111\n"
        "  at home 4111\n"
        "java.lang.IllegalStateException: secret\n"
        "\tat com.acme.Deals.close(Deals.java:17)\n"
        "\tat java.base/java.lang.Thread.run(Thread.java:840)\n"
    )
    assert frames(stack) == [
        'File "/app/shop/work.py", line 12, in charge',
        "at com.acme.Deals.close(Deals.java:17)",
        "at java.base/java.lang.Thread.run(Thread.java:840)",
    ]

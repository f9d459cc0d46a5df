"""What is told of letters without telling their payload."""

from __future__ import annotations

import json

import pytest
from hypothesis import given

from keepfast.core.records import RecordPlace
from keepfast.deadletters.letter import Letter
from keepfast.deadletters.reading import read
from keepfast.desk.case_filter import CaseFilter, Offsets
from keepfast.desk.cases import CaseState
from keepfast.desk.database import Database
from keepfast.desk.index import Index
from keepfast.desk.index_writer import IndexWriter
from keepfast.desk.letters import StoredLetter
from keepfast.desk.masking import frames, json_lines, shape
from tests.support.letters import compact_json, filed, letter

DLQ = "orders.payment.dlq"


def test_cases_are_counted_by_cause_the_most_frequent_first() -> None:
    index = indexed(
        *(letter(fingerprint="a" * 12, offset=n, failed_at_ms=1_000 * n, error_code=f"C{n % 2}") for n in range(5)),
        *(letter(fingerprint="b" * 12, group=f"g{n}", error_message="user 'bob' owes 17") for n in range(2)),
    )
    causes = index.causes(CaseFilter(), now_ms=5_000)
    assert [(cause.fingerprint, cause.count) for cause in causes] == [("a" * 12, 5), ("b" * 12, 2)]
    assert (causes[0].first_ms, causes[0].last_ms) == (0, 4_000)
    assert causes[0].codes == {"C0": 3, "C1": 2}
    assert causes[0].hours == (0,) * 23 + (5,)
    assert causes[1].groups == {"g0": 1, "g1": 1}
    assert causes[1].message == "user * owes #"
    assert causes[1].sample in ((DLQ, 0, 5), (DLQ, 0, 6))


FRAME = '  File "/srv/app/billing/charge.py", line 17, in charge\n'
LIBRARY = '  File "/usr/lib/python3.11/json/decoder.py", line 3, in decode\n'


def test_a_cause_names_the_place_in_the_users_code_and_the_missing_fields() -> None:
    index = indexed(
        letter(offset=1, fingerprint="1", error_type="KeyError", error_message="'amount'", stack_trace=FRAME + LIBRARY),
        letter(offset=2, fingerprint="2", error_message="the value does not match Order: field lines.sku is required"),
        letter(
            offset=3,
            fingerprint="3",
            stack_trace="at org.apache.kafka.X.y(X.java:3)\n at shop.Billing.charge(Billing.java:42)",
        ),
    )
    found = {cause.fingerprint: cause for cause in index.causes(CaseFilter(), now_ms=0)}
    assert (found["1"].place, found["1"].fields) == ("billing/charge.py:17", ("amount",))
    assert found["2"].fields == ("lines.sku",)
    assert found["3"].place == "Billing.java:42"


def test_a_cause_has_no_value_of_its_record() -> None:
    value = b'{"customer": "Ada Lovelace", "note": "x"}'
    index = indexed(letter(fingerprint="1", value=value, error_message="Ada Lovelace is not known to ledger"))
    [cause] = index.causes(CaseFilter(), now_ms=0)
    assert cause.message == "* is not known to ledger"


@pytest.mark.parametrize(
    ("where", "offsets"),
    [
        (CaseFilter(), {0, 1, 2, 3}),
        (CaseFilter(causes=frozenset(["aa"])), {0, 1}),
        (CaseFilter(causes=frozenset(["%"])), set()),
        (CaseFilter(groups=frozenset(["other"])), {3}),
        (CaseFilter(topics=frozenset(["orders.refund.v1"])), {2}),
        (CaseFilter(keys=frozenset(["key-1"])), {1}),
        (CaseFilter(error_types=frozenset(["shop.Closed"])), {2, 3}),
        (CaseFilter(codes=frozenset(["X"])), {0}),
        (CaseFilter(text="refund"), {2}),
        (CaseFilter(text="%"), set()),
        (CaseFilter(since_ms=2_000, until_ms=3_000), {2}),
        (CaseFilter(offsets=(Offsets(0, 1, 3),)), {1, 2}),
        (CaseFilter(states=frozenset([CaseState.RESOLVED])), set()),
        (CaseFilter(causes=frozenset(["aa"]), keys=frozenset(["key-0"])), {0}),
    ],
    ids=str,
)
def test_every_filter(where: CaseFilter, offsets: set[int]) -> None:
    index = indexed(
        letter(offset=0, fingerprint="aa1", key=b"key-0", error_code="X", failed_at_ms=0, error_type="Timeout"),
        letter(offset=1, fingerprint="aa2", key=b"key-1", failed_at_ms=1_000),
        letter(offset=2, fingerprint="bb1", topic="orders.refund.v1", error_class="shop.Closed", failed_at_ms=2_000),
        letter(offset=3, fingerprint="bb1", group="other", error_class="shop.Closed", failed_at_ms=3_000),
    )
    page = index.cases(where)
    assert {case.offset for case in page.cases} == offsets
    assert page.total == len(offsets) == len(list(index.selected(where)))
    assert sum(cause.count for cause in index.causes(where, now_ms=0)) == len(offsets)


def indexed(*letters: Letter) -> Index:
    database = Database()
    stored = [StoredLetter(one, RecordPlace(DLQ, 0, number), None) for number, one in enumerate(letters, 0)]
    IndexWriter(database).add_letters(stored, topic=DLQ, topic_id="", ends={0: len(stored)})
    return Index(database)


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


HALF = b'{"text": "half of a pair: \\ud83d"}'  # as a program writes it that cuts a text in the middle of an emoji


def test_half_of_a_surrogate_pair_is_shown_escaped_and_stored_as_a_question_mark() -> None:
    assert json_lines(HALF, indent=1) == HALF.decode().replace("{", "{\n ").replace("}", "\n}")
    fields = {"original_message": "cut \ud83d", "error_type": "Cut\ud83d", "error_message": "\ud83d", "error_code": "A"}
    found = read(filed(json.dumps(fields).encode(), ()))
    assert (found.error_type, found.error_message, found.value) == ("Cut?", "?", b"cut ?")
    found = read(filed(json.dumps({**fields, "original_message": json.loads(HALF)}).encode(), ()))
    assert (json.loads(found.value or b""), found.exact) == (json.loads(HALF), False)

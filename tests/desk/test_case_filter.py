"""Which cases are meant: offsets as they are written, and each condition, asked of an index."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast.core.errors import ConfigError
from keepfast.core.records import SPOOL_PARTITION, RecordPlace
from keepfast.desk.case_filter import CaseFilter, Offsets
from keepfast.desk.database import Database
from keepfast.desk.index import Index
from keepfast.desk.index_writer import IndexWriter
from keepfast.desk.letters import StoredLetter
from tests.support.letters import letter

DLQ = "orders.payment.dlq"
FRAME = '  File "/srv/shop/charge.py", line 17, in charge\n'


@pytest.mark.parametrize(
    ("text", "offsets"),
    [
        ("3:100-200", Offsets(3, 100, 201)),
        ("3:100", Offsets(3, 100, 101)),
        ("3:100-", Offsets(3, 100)),
        ("0:0-0", Offsets(0, 0, 1)),
        ("spool:7", Offsets(SPOOL_PARTITION, 7, 8)),
    ],
)
def test_offsets_are_written_as_partition_from_to(text: str, offsets: Offsets) -> None:
    assert Offsets.parse(text) == offsets
    assert Offsets.parse(str(offsets)) == offsets


@pytest.mark.parametrize("text", ["", "3", "3:", "a:1", "3:5-2", "-1:3", "3:-1", "3:1-2-3", "3:" + "9" * 30, "٣:1"])
def test_what_are_no_offsets_is_reported_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match="PARTITION:FROM-TO"):
        Offsets.parse(text)


@given(st.text())
def test_no_text_breaks_the_reading_of_offsets(text: str) -> None:
    with contextlib.suppress(ConfigError):
        Offsets.parse(text)


def taken(where: CaseFilter, **fields: Any) -> bool:
    """Whether a case with one letter like this, at 3:5, is selected."""
    partition, offset = fields.pop("at", (3, 5))
    stored = StoredLetter(letter(**fields), RecordPlace(DLQ, partition, offset), 1_700_000_002_000)
    database = Database()
    IndexWriter(database).add_letters([stored], topic=DLQ, topic_id="x", ends={partition: offset + 1})
    found = Index(database).cases(where).total
    database.close()
    return found == 1


@pytest.mark.parametrize(
    ("condition", "fits", "does_not"),
    [
        ({"error_types": {"ValueError"}}, {}, {"error_type": "KeyError", "error_class": "KeyError"}),
        ({"error_types": {"shop.errors.ValueError"}}, {}, {"error_class": "x.ValueError"}),
        ({"error_types": {"A", "B"}}, {"error_type": "B"}, {"error_type": "AB"}),
        ({"codes": {"RETRIES_EXHAUSTED"}}, {}, {"error_code": "REJECTED"}),
        ({"causes": {"0123"}}, {}, {"fingerprint": "123456789abc"}),
        ({"causes": {"0%"}}, {"fingerprint": "0%3456789abc"}, {"fingerprint": "0123456789ab"}),
        ({"groups": {"payments.charge"}}, {}, {"group": "other"}),
        ({"topics": {"orders.payment.v1"}}, {}, {"topic": "orders.payment.v2"}),
        ({"keys": {"key"}}, {"key": b"key"}, {"key": b"another"}),
        ({"text": "shop/charge.py"}, {"stack_trace": FRAME}, {"stack_trace": ""}),
        ({"since_ms": 1_700_000_001_500}, {}, {"failed_at_ms": 1_700_000_001_499}),
        ({"until_ms": 1_700_000_001_501}, {}, {"failed_at_ms": 1_700_000_001_501}),
        ({"since_ms": 1_700_000_002_000}, {"failed_at_ms": None}, {}),
    ],
    ids=lambda _: "",  # sets have no order that would be the same in every process
)
def test_every_condition_decides(condition: dict[str, Any], fits: dict[str, Any], does_not: dict[str, Any]) -> None:
    given: dict[str, Any] = {
        name: frozenset(value) if isinstance(value, set) else value for name, value in condition.items()
    }
    where = CaseFilter(**given)
    assert taken(where, **fits)
    assert not taken(where, **does_not)
    assert not where.is_everything


def test_all_conditions_must_be_met() -> None:
    where = CaseFilter(codes=frozenset({"RETRIES_EXHAUSTED"}), groups=frozenset({"other"}))
    assert not taken(where)
    assert taken(where, group="other")


def test_offsets_decide_by_partition_and_place() -> None:
    where = CaseFilter(offsets=(Offsets(3, 5, 7), Offsets(4, 0)))
    assert [taken(where, at=(3, offset)) for offset in (4, 5, 6, 7)] == [False, True, True, False]
    assert taken(where, at=(4, 99))
    assert not taken(where, at=(5, 5))


def test_a_letter_that_is_read_twice_counts_once() -> None:
    database = Database()
    writer, index = IndexWriter(database), Index(database)
    letters = [StoredLetter(letter(offset=n), RecordPlace(DLQ, 0, n), 1) for n in range(5)]
    again = StoredLetter(letter(offset=4), RecordPlace(DLQ, 0, 5), 2)
    for _ in range(2):
        writer.add_letters([*letters, again, letters[0]], topic=DLQ, topic_id="x", ends={0: 6})
    page = index.cases(CaseFilter())
    assert (page.total, sum(case.letters for case in page.cases)) == (5, 6)
    database.close()

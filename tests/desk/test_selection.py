"""Which letters are meant."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast.core.errors import ConfigError
from keepfast.core.records import TopicPartition
from keepfast.desk.selection import FiledLetter, Offsets, Selection
from tests.desk.letter_topics import DLQ, letter_topic, stocked
from tests.support.letters import letter


def stored(partition: int = 3, offset: int = 5, **fields: Any) -> FiledLetter:
    return FiledLetter(letter(**fields), TopicPartition(DLQ, partition), offset, 1_700_000_002_000)


@pytest.mark.parametrize(
    ("text", "offsets"),
    [
        ("3:100-200", Offsets(3, 100, 201)),
        ("3:100", Offsets(3, 100, 101)),
        ("3:100-", Offsets(3, 100)),
        ("0:0-0", Offsets(0, 0, 1)),
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


@pytest.mark.parametrize(
    ("selection", "fits", "does_not"),
    [
        (Selection(error_types=frozenset({"ValueError"})), {}, {"error_type": "KeyError", "error_class": "KeyError"}),
        (Selection(error_types=frozenset({"shop.errors.ValueError"})), {}, {"error_class": "x.ValueError"}),
        (Selection(error_types=frozenset({"A", "B"})), {"error_type": "B"}, {"error_type": "AB"}),
        (Selection(codes=frozenset({"RETRIES_EXHAUSTED"})), {}, {"error_code": "REJECTED"}),
        (Selection(fingerprints=frozenset({"0123"})), {}, {"fingerprint": "123456789abc"}),
        (Selection(groups=frozenset({"payments.charge"})), {}, {"group": "other"}),
        (Selection(since_ms=1_700_000_001_500), {}, {"failed_at_ms": 1_700_000_001_499}),
        (Selection(until_ms=1_700_000_001_501), {}, {"failed_at_ms": 1_700_000_001_501}),
        (Selection(since_ms=1_700_000_002_000), {"failed_at_ms": None}, {}),
    ],
    ids=lambda given: "",  # sets have no order that would be the same in every process
)
def test_every_condition_decides(selection: Selection, fits: dict[str, Any], does_not: dict[str, Any]) -> None:
    assert selection.takes(stored(**fits))
    assert not selection.takes(stored(**does_not))
    assert not selection.is_everything


def test_all_conditions_must_be_met() -> None:
    selection = Selection(codes=frozenset({"RETRIES_EXHAUSTED"}), groups=frozenset({"other"}))
    assert not selection.takes(stored())
    assert selection.takes(stored(group="other"))


def test_offsets_decide_by_partition_and_place() -> None:
    selection = Selection(offsets=(Offsets(3, 5, 7), Offsets(4, 0)))
    assert [selection.takes(stored(3, offset)) for offset in (4, 5, 6, 7)] == [False, True, True, False]
    assert selection.takes(stored(4, 99))
    assert not selection.takes(stored(5, 5))
    assert selection.spans({3: (0, 6), 4: (2, 9), 5: (0, 9)}) == {3: (5, 6), 4: (2, 9)}


def test_a_shelf_shows_what_was_there_when_it_was_opened_and_the_same_again() -> None:
    stock = stocked(4)
    opened = letter_topic(stock)
    stock.file(letter(offset=99))
    assert [one.letter.offset for one in opened.letters()] == [0, 2, 1, 3]
    assert [one.letter.offset for one in opened.letters()] == [0, 2, 1, 3]
    assert opened.offsets == 4
    assert len(list(letter_topic(stock).letters())) == 5


def test_what_is_left_keeps_to_the_offsets_that_were_meant() -> None:
    stock = stocked(20)
    opened = letter_topic(stock, Selection(offsets=(Offsets(0, 1, 3), Offsets(0, 6), Offsets(1, 0, 2))))
    assert opened.rest({0: 2, 1: 2}) == (Offsets(0, 2, 3), Offsets(0, 6, 10))
    assert letter_topic(stock).rest({0: 4, 1: 10}) == (Offsets(0, 4, 10),)

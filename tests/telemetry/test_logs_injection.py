"""Nothing that comes from outside can break out of its log line or pass for a field."""

from __future__ import annotations

import json
import logging
import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from keepfast.telemetry.logs import ConsoleFormatter, JsonFormatter, Logger, Sampler

UNSAFE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
ANY_TEXT = st.text(st.characters(exclude_categories=[])) | st.sampled_from(
    ["\n", "\r\n", "\x1b[2J", 'a" level=error b="', "a=b", "\\", '\\"', "x\ny", "\x85", "{", "}"]
)
ANY_VALUE = st.recursive(
    ANY_TEXT | st.integers() | st.floats() | st.binary() | st.none() | ANY_TEXT.map(ValueError),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(ANY_TEXT, children, max_size=3),
    max_leaves=6,
)
FIELDS = st.dictionaries(ANY_TEXT, ANY_VALUE, max_size=4)
QUOTED = r'"(?:[^"\\]|\\.)*"'
FIELD = re.compile(rf" [A-Za-z0-9_.\-]*=(?:{QUOTED}|\[.*\]|\{{.*\}}|[^\s\"'=\\{{}}\[\]]+)")


class Keeper(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.kept: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.kept.append(record)


def raised(error: ValueError) -> ValueError:
    try:
        raise error
    except ValueError as caught:
        return caught


def record_of(fields: dict[str, Any], event: str = "event") -> logging.LogRecord:
    keeper = Keeper()
    own = logging.Logger("keepfast.property", logging.INFO)  # noqa: LOG001  of its own, outside the tree of loggers
    own.addHandler(keeper)
    Logger(own, bound={}, sampler=Sampler()).info(event, **fields)
    return keeper.kept[0]


@given(FIELDS, ANY_TEXT)
def test_no_field_value_or_event_can_break_out_of_its_line(fields: dict[str, Any], event: str) -> None:
    record = record_of(fields, event)
    for text in (JsonFormatter().format(record), ConsoleFormatter().format(record), record.getMessage()):
        assert "\n" not in text
        assert not UNSAFE.search(text)
    assert isinstance(json.loads(JsonFormatter().format(record)), dict)


@given(st.dictionaries(st.sampled_from("abc"), ANY_TEXT, max_size=3))
def test_no_text_can_forge_a_field(fields: dict[str, Any]) -> None:
    record = record_of(fields)
    line = record.getMessage()
    assert line.startswith("event")
    found = FIELD.findall(line.removeprefix("event"))
    assert len(found) == len(fields)
    assert "".join(found) == line.removeprefix("event")
    assert json.loads(JsonFormatter().format(record)).keys() - fields.keys() == {"ts", "level", "logger", "event"}


@given(ANY_TEXT, ANY_TEXT)
def test_a_record_of_another_library_is_made_safe_too(message: str, reason: str) -> None:
    error = raised(ValueError(reason))
    record = logging.LogRecord("other", 40, "f.py", 1, message, (), (ValueError, error, error.__traceback__))
    for text in (JsonFormatter().format(record), ConsoleFormatter().format(record)):
        assert "\n" not in text
        assert not UNSAFE.search(text)


def test_a_record_of_another_library_with_a_wrong_format_is_still_logged() -> None:
    record = logging.LogRecord("other", 20, "f.py", 1, "%d of them", ("many",), None)
    assert json.loads(JsonFormatter().format(record))["event"] == "%d of them"

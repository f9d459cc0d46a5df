"""Logs: constant events and fields, one line each, no payload, no injection, quiet unless asked."""

from __future__ import annotations

import dataclasses
import decimal
import enum
import io
import json
import logging
import re
import subprocess
import sys
import timeit
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pydantic
import pytest

from keepfast.core.errors import ConfigError
from keepfast.core.records import Record, TopicPartition
from keepfast.telemetry.clean import MAX_TEXT, clean_error, clean_value
from keepfast.telemetry.logs import configure, get_logger

SECRET = "4111111111111111"


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger("keepfast")
    before = root.handlers[:], root.level, root.propagate
    yield
    root.handlers[:], root.propagate = before[0], before[2]
    root.setLevel(before[1])


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def written(shape: Literal["json", "console"] = "json", **fields: Any) -> str:
    stream = io.StringIO()
    configure(format=shape, stream=stream)
    get_logger("keepfast.test").info("something_happened", **fields)
    return stream.getvalue()


def test_a_json_line_has_time_level_logger_event_and_fields() -> None:
    line = json.loads(written(topic="orders", partition=3, ratio=0.5, paused=False, group=None))
    assert datetime.fromisoformat(line.pop("ts")).tzinfo == UTC
    assert line == {
        "level": "info",
        "logger": "keepfast.test",
        "event": "something_happened",
        "topic": "orders",
        "partition": 3,
        "ratio": 0.5,
        "paused": False,
        "group": None,
    }


def test_a_field_cannot_take_the_place_of_the_lines_own() -> None:
    line = json.loads(written(ts="never", level="x", logger="y", event="z"))
    assert (line["level"], line["level_"]) == ("info", "x")
    assert (line["event"], line["event_"]) == ("something_happened", "z")
    assert (line["logger_"], line["ts_"]) == ("y", "never")


def test_a_console_line_is_for_people() -> None:
    line = written("console", topic="orders", why="two words", empty="", n=3)
    assert re.fullmatch(
        r'\d\d:\d\d:\d\d\.\d{3} info     something_happened topic=orders why="two words" empty="" n=3\n', line
    )


@pytest.mark.parametrize(
    ("stream", "environ", "colours", "is_json"),
    [
        (Terminal, {}, True, False),
        (Terminal, {"NO_COLOR": "1"}, False, False),
        (Terminal, {"NO_COLOR": ""}, True, False),
        (Terminal, {"TERM": "dumb"}, False, False),
        (io.StringIO, {}, False, True),
    ],
)
def test_auto_is_console_on_a_terminal_and_json_elsewhere(
    stream: type[io.StringIO], environ: dict[str, str], colours: bool, is_json: bool
) -> None:
    target = stream()
    configure(stream=target, environ=environ)
    get_logger("keepfast.test").info("hello", a=1)
    assert ("\x1b[" in target.getvalue()) is colours
    assert target.getvalue().startswith("{") is is_json


def test_the_console_on_a_pipe_has_no_colours() -> None:
    target = io.StringIO()
    configure(format="console", stream=target, environ={})
    get_logger("keepfast.test").error("hello", a=1)
    assert "\x1b" not in target.getvalue()


class Colour(enum.Enum):
    RED = "red\n"


class Level(enum.IntEnum):
    LOW = 1


@dataclasses.dataclass
class Holder:
    payload: str = SECRET


class Broken(dict[str, str]):
    def items(self) -> Any:
        raise RuntimeError("no")


RECORD = Record("t", 0, 1, b"key", SECRET.encode(), (("h", SECRET.encode()),), None)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b"payload", "<7 bytes>"),
        (bytearray(3), "<3 bytes>"),
        (memoryview(b"ab"), "<2 bytes>"),
        ([b"payload", {"k": b"xy"}], ["<7 bytes>", {"k": "<2 bytes>"}]),
        ({b"key": 1}, {"<3 bytes>": 1}),
        ((1, "a"), [1, "a"]),
        ([[[[1]]]], [[["<list of 1>"]]]),
        (list(range(30)), [*range(20), "… +10"]),
        (Broken(a="b"), "<Broken>"),
        (RECORD, "<Record>"),
        (Holder(), "<Holder>"),
        (Holder, "Holder"),
        (TopicPartition("orders", 3), "orders[3]"),
        (Colour.RED, "red\\n"),
        (Level.LOW, 1),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (10**5000, "<int of 16610 bits>"),
        (decimal.Decimal("1.50"), "1.50"),
        (Path("a/b"), "a/b"),
        (uuid.UUID(int=0), "00000000-0000-0000-0000-000000000000"),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02 00:00:00+00:00"),
        ("x" * (MAX_TEXT + 7), "x" * MAX_TEXT + "… +7"),
        ("a\r\nb\x1b[31m\u2028\ud800", "a\\r\\nb\\x1b[31m\\u2028\\ud800"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_is_shown_safely_or_by_its_type_alone(value: Any, shown: Any) -> None:
    assert clean_value(value) == shown
    line = json.loads(written(value=value))
    assert line["value"] == shown


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except type(error) as caught:
        return caught


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


def test_an_exception_is_its_type_and_first_line() -> None:
    assert clean_error(ValueError("bad\x1b thing")) == "ValueError: bad\\x1b thing"
    assert clean_error(ValueError(f"refused\nparameters: {SECRET}")) == "ValueError: refused …"
    assert clean_error(KeyError()) == "KeyError"
    assert clean_error(Unprintable()) == "Unprintable: <no text>"
    assert len(clean_error(ValueError("x" * 10_000_000))) < MAX_TEXT + 40


def test_a_pydantic_error_shows_no_input() -> None:
    class Model(pydantic.BaseModel):
        amount: int

    with pytest.raises(pydantic.ValidationError) as refused:
        Model.model_validate_json(json.dumps({"amount": SECRET + "x"}))
    assert SECRET in str(refused.value)
    assert clean_error(refused.value) == "ValidationError: 1 validation error for Model …"


def test_an_error_entry_shows_where_the_exception_came_from() -> None:
    stream = io.StringIO()
    configure(format="json", stream=stream)
    get_logger("keepfast.test").error("it_broke", exc=raised(ValueError("why")))
    get_logger("keepfast.test").warning("it_wobbled", exc=raised(ValueError("why")))
    broke, wobbled = (json.loads(line) for line in stream.getvalue().splitlines())
    assert broke["exc"] == "ValueError: why"
    assert re.fullmatch(r"test_logs\.py:\d+ raised", broke["exc_at"])
    assert "exc_at" not in wobbled


def test_a_stream_that_cannot_take_a_character_gets_an_escape() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    configure(format="console", stream=stream)
    get_logger("keepfast.test").info("hello", name="grün")
    stream.flush()
    assert b"name=gr\\xfcn" in raw.getvalue()


def test_a_json_line_has_the_character_and_no_escape() -> None:
    stream = io.StringIO()
    configure(format="json", stream=stream)
    get_logger("keepfast.test").info("hello", hint="await asyncio.to_thread(…)")
    assert '"hint":"await asyncio.to_thread(…)"' in stream.getvalue()


def test_bound_fields_are_in_every_entry() -> None:
    stream = io.StringIO()
    configure(format="json", stream=stream)
    log = get_logger("keepfast.test").bind(group="g", topic="t").bind(topic="u")
    log.info("one", offset=1)
    line = json.loads(stream.getvalue())
    assert (line["group"], line["topic"], line["offset"]) == ("g", "u", 1)


def test_levels_below_the_configured_one_are_silent() -> None:
    stream = io.StringIO()
    configure(level="WARNING", format="json", stream=stream)
    log = get_logger("keepfast.test")
    log.debug("a")
    log.info("b")
    log.warning("c")
    log.error("d")
    log.critical("e")
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["c", "d", "e"]


def test_a_switched_off_level_costs_next_to_nothing() -> None:
    configure(level="error", format="json", stream=io.StringIO())
    log = get_logger("keepfast.test")
    best = min(timeit.repeat(lambda: log.info("event", a=1, b=2), number=10_000, repeat=5)) / 10_000
    assert best < 2e-6  # about 0.15 µs on a quiet machine; the rest is room for a busy one


def test_configuring_twice_writes_once_and_leaves_other_handlers_alone() -> None:
    users = logging.NullHandler()
    logging.getLogger("keepfast").addHandler(users)
    first, second = io.StringIO(), io.StringIO()
    configure(format="json", stream=first)
    configure(format="json", stream=second)
    get_logger("keepfast.test").info("once")
    assert first.getvalue() == ""
    assert len(second.getvalue().splitlines()) == 1
    assert users in logging.getLogger("keepfast").handlers


def test_wrong_settings_are_all_named() -> None:
    with pytest.raises(ConfigError) as refused:
        configure(level="loud", format="xml")  # type: ignore[arg-type]
    assert len(refused.value.problems) == 2


def test_a_users_own_set_up_is_not_touched_and_gets_event_fields_and_the_callers_line() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(funcName)s %(filename)s %(message)s %(event)s %(fields)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        get_logger("keepfast.test").warning("hello", who="a b", value=b"payload")
        get_logger("keepfast.test").sampled(logging.WARNING, "often", now=1.0, key=uuid.uuid4())
    finally:
        root.removeHandler(handler)
    name = "test_a_users_own_set_up_is_not_touched_and_gets_event_fields_and_the_callers_line test_logs.py"
    assert stream.getvalue().splitlines() == [
        f"{name} hello who=\"a b\" value=\"<7 bytes>\" hello {{'who': 'a b', 'value': '<7 bytes>'}}",
        f"{name} often often {{}}",
    ]


def test_as_a_library_nothing_is_printed() -> None:
    program = "from keepfast.telemetry.logs import get_logger; get_logger('keepfast.x').critical('event', a=1)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout == done.stderr == b""


def test_with_the_format_app_only_the_apps_handlers_write() -> None:
    ours, theirs = io.StringIO(), io.StringIO()
    handler = logging.StreamHandler(theirs)
    logging.getLogger().addHandler(handler)
    try:
        configure(format="json", stream=ours)
        get_logger("keepfast.test").info("first")
        configure(format="app", level="warning")
        get_logger("keepfast.test").info("quiet")
        get_logger("keepfast.test").warning("second", offset=3)
    finally:
        logging.getLogger().removeHandler(handler)
        configure(format="json", stream=io.StringIO())
    assert (ours.getvalue().count("\n"), theirs.getvalue()) == (1, "second offset=3\n")


def test_a_child_process_has_its_number_in_every_line() -> None:
    stream, console = io.StringIO(), io.StringIO()
    configure(format="json", stream=stream, process=3)
    get_logger("keepfast.test").info("mine")
    logging.getLogger("keepfast.app").info("the handler's")
    assert [json.loads(line)["process"] for line in stream.getvalue().splitlines()] == [3, 3]
    configure(format="console", stream=console, process=3, environ={})
    get_logger("keepfast.test").info("mine")
    assert console.getvalue().rstrip().endswith("mine process=3")


def test_a_traceback_stands_below_its_line_for_people_and_in_a_field_for_machines() -> None:
    stream, console = io.StringIO(), io.StringIO()
    for form, target in (("json", stream), ("console", console)):
        configure(format=form, stream=target, environ={})  # type: ignore[arg-type]
        get_logger("keepfast.test").warning("failed", traceback=["Traceback:", "ValueError: no"], offset=3)
    assert json.loads(stream.getvalue())["traceback"] == ["Traceback:", "ValueError: no"]
    first, *rest = console.getvalue().splitlines()
    assert first.endswith("failed offset=3")
    assert rest == ["    Traceback:", "    ValueError: no"]

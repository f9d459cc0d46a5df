"""What commands draw: on terminals of any width, with and without colours, and where there is no terminal."""

from __future__ import annotations

import re
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO

import pytest
from rich.console import RenderableType

from keepfast.cli import terminal
from keepfast.cli.terminal import Progress, console, live, table

ROWS = [("charge", "a" * 70, "123456789", "[red]\x1b[31mstopped")]
COLUMNS = ("NAME", "TEXT", "LAG", "STATE")


def printed(view: RenderableType) -> str:
    paper = StringIO()
    with redirect_stdout(paper):
        console().print(view)
    return paper.getvalue()


@pytest.fixture
def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Of 40 columns and 10 lines."""
    for name in ("NO_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"FORCE_COLOR": "1", "COLUMNS": "40", "LINES": "10", "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def test_without_a_terminal_nothing_is_cut_or_coloured_or_taken_for_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    head, row = printed(table(COLUMNS, ROWS, right=[2])).splitlines()
    assert head.split() == list(COLUMNS)
    assert row.split() == ["charge", "a" * 70, "123456789", "[red]\\x1b[31mstopped"]
    assert "\x1b" not in head + row


def test_a_narrow_terminal_cuts_the_widest_column_and_no_number(on_a_terminal: pytest.MonkeyPatch) -> None:
    shown = printed(table(COLUMNS, ROWS, right=[2], whole=[0]))
    assert "\x1b[1m" in shown, "the head is bold"
    lines = [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()]
    assert [len(line) <= 40 for line in lines] == [True, True]
    assert {"charge", "123456789"} <= set(lines[1].split())
    assert "aaa…" in lines[1]


def test_no_color_is_kept_to_on_a_terminal(on_a_terminal: pytest.MonkeyPatch) -> None:
    from rich.text import Text

    assert "\x1b[31m" in printed(Text("stopped", "red"))
    on_a_terminal.setenv("NO_COLOR", "1")
    assert "\x1b[31m" not in printed(Text("stopped", "red"))


def test_a_view_is_drawn_in_place_on_a_terminal_and_ctrl_c_leaves_the_cursor_there(
    on_a_terminal: pytest.MonkeyPatch,
) -> None:
    def look() -> None:
        with live(0.0) as looks:
            for number, draw in enumerate(looks):
                draw(f"look {number}\nof many lines")
                if number == 2:
                    raise KeyboardInterrupt

    paper = StringIO()
    with redirect_stdout(paper), pytest.raises(KeyboardInterrupt):
        look()
    shown = paper.getvalue()
    assert shown.index("look 0") < shown.index("\x1b[1A") < shown.index("look 1"), "the second is over the first"
    assert shown.index("\x1b[?25l") < shown.rindex("look 2") < shown.rindex("\x1b[?25h")


def test_a_view_that_is_higher_than_the_terminal_ends_with_it(on_a_terminal: pytest.MonkeyPatch) -> None:
    paper = StringIO()
    with redirect_stdout(paper), live(0.0) as looks:
        next(looks)("\n".join(map(str, range(50))))
        drawn = paper.getvalue()
    assert "\n8" in drawn
    assert "\n10" not in drawn
    assert "..." in drawn


def test_without_a_terminal_each_view_is_below_the_last() -> None:
    paper = StringIO()
    with redirect_stdout(paper), live(0.0) as looks:
        for number, draw in zip(range(2), looks, strict=False):
            draw(f"look {number}")
    assert paper.getvalue() == "look 0\nlook 1\n"


def test_progress_is_a_bar_on_a_terminal(on_a_terminal: pytest.MonkeyPatch) -> None:
    on_a_terminal.setenv("COLUMNS", "80")
    on_a_terminal.setattr(terminal, "REDRAW_S", 0.0)
    paper = StringIO()
    with redirect_stderr(paper):
        progress = Progress(2_000, done="sent")
        progress(500)
        progress.end(2_000)
    assert re.search(r"━+.*500 of 2,000 sent \(\S+/s\)", paper.getvalue())
    assert "2,000 of 2,000 sent" in paper.getvalue()


def test_progress_is_a_line_now_and_then_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    paper = StringIO()
    with redirect_stderr(paper):
        quick = Progress(2_000)
        quick(500)
        quick.end(2_000)
        assert paper.getvalue() == "", "it was over before there was anything to say"
        monkeypatch.setattr(terminal, "LINE_EVERY_S", 0.0)
        slow = Progress(2_000)
        slow(500)
        slow(600)
    lines = paper.getvalue().splitlines()
    assert [re.search(r"\S+ of 2,000 replayed", line) is not None for line in lines] == [True, True]
    assert "\x1b" not in paper.getvalue()

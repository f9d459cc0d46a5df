"""How the demo looks: live on a terminal, as lines elsewhere, and as a picture."""

from __future__ import annotations

import re
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from keepfast.cli.terminal import console
from keepfast.demo.picture import Note, Picture
from keepfast.demo.reconcile import Account
from keepfast.demo.screen import ScreenView
from keepfast.desk.causes import Cause

LOG: list[dict[str, Any]] = [
    {"event": "partitions_assigned", "partitions": ["shop.order.v1[0]"]},
    {"event": "retry_scheduled"},
    {"event": "breaker_opened"},
    {"event": "retry_held"},
    {"event": "breaker_closed", "held_s": 2.0},
    {"event": "child_ended", "ending": "SIGSEGV"},
    {"event": "partitions_assigned", "partitions": ["shop.order.v1[0]"]},
    {"event": "probation_started", "partition": 0},
    {"event": "dead_lettering", "code": "CRASHED", "partition": 0, "offset": 17},
    {"event": "dead_lettered", "code": "CRASHED"},
    {"event": "record_discarded"},
    {"event": "probation_ended", "partition": 0},
    {"event": "something else"},
    {},
]
ACCOUNT = Account(
    sent=10,
    processed=8,
    buried=1,
    discarded=1,
    lost=0,
    lost_orders=[],
    replayed=2,
    processed_after_replay=2,
    repeated=3,
    repeated_because={"in hand when the process died": 3},
    deaths=3,
    out_of_order=0,
    strangers=0,
)
LOSING = replace(
    ACCOUNT,
    discarded=0,
    lost=1,
    lost_orders=["order-7"],
    repeated_because={"not explained": 3},
    out_of_order=2,
    strangers=4,
)


def tell(view: ScreenView, account: Account) -> None:
    picture = Picture(sent=10, committed=5, at_s=9.0)
    for entry in LOG:
        picture.heard(entry, lambda about, text, mood: view.note(Note(1.0, about, text, mood)))
        view.show(picture)
    view.causes("shop.order.dlq", [Cause("abcdef123456", "ValueError", "bad", "0:0", count=7)], {"abcdef123456"})
    view.account(account)


def on_screen(account: Account = ACCOUNT, *, picture: str | None = None) -> str:
    paper = StringIO()
    console = Console(file=paper, force_terminal=True, width=100, color_system="standard", legacy_windows=False)
    with ScreenView(console, picture=picture) as view:
        tell(view, account)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", paper.getvalue())
    assert re.search(
        r"orders .*5 of 10 .*lanes .*retries +1 .*breaker .*process .*letters +1 .*CRASHED 1", text, re.DOTALL
    )
    return text


def in_lines(account: Account = ACCOUNT) -> str:
    paper = StringIO()
    with redirect_stdout(paper), ScreenView(console()) as view:
        tell(view, account)
    return paper.getvalue()


@pytest.mark.parametrize("told", [on_screen, in_lines])
def test_both_tell_the_whole_story(told: type[str]) -> None:
    text = told()
    for words in ("open: orders wait", "closed after 2.0 s", "died of SIGSEGV", "runs alone now", "at 0:17", "cleared"):
        assert words in text, words
    assert re.search(r"7 +abcdef123456 +ValueError", text)
    assert re.search(r"sent +10\b.*processed +8 .*buried +1 .*discarded +1 .*lost +0.*repeated +3", text, re.DOTALL)
    assert "3 in hand when the process died" in text
    assert "lost 0: all 10 orders are accounted for" in text


@pytest.mark.parametrize("told", [on_screen, in_lines])
def test_both_say_what_is_wrong(told: type[str]) -> None:
    text = told(LOSING)
    assert "lost 1: this must not happen" in text
    assert "order-7" in text
    assert re.search(r"disordered +2 .*strangers +4", text, re.DOTALL)


def test_lines_have_no_codes_for_terminals_and_no_view_that_is_drawn_again() -> None:
    text = in_lines()
    assert "\x1b" not in text
    assert text.count("finished and committed") == 1, "as it stood when all were through"


def test_the_picture_holds_what_stays_on_the_screen_and_asks_nobody_for_fonts(tmp_path: Path) -> None:
    path = tmp_path / "demo.svg"
    on_screen(picture=str(path))
    text = path.read_text().replace("&#160;", " ")
    assert "lost 0: all 10 orders are accounted for" in text
    assert "url(" not in re.sub(r"url\(#[\w-]+\)", "", text)

"""How the demo looks: live on a terminal, as lines elsewhere, and as a picture."""

from __future__ import annotations

import json
import re
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from keepfast.cli.terminal import console
from keepfast.core import events
from keepfast.core.records import RecordPlace, TopicPartition
from keepfast.core.verdicts import DeadLetter, RetryAfter
from keepfast.demo.picture import Note, Picture
from keepfast.demo.reconcile import Account
from keepfast.demo.screen import ScreenView
from keepfast.desk import CaseState, Cause
from keepfast.supervisor.supervisor import ChildExited, ChildStarted
from keepfast.telemetry.event_log import event_line

SHIP = ("ship", "shop.ship")
PLACE: dict[str, Any] = {"topic": "shop.order.v1", "partition": 0, "offset": 17}
FAILED: dict[str, Any] = {**PLACE, "attempt": 1, "error": ValueError("secret"), "error_type": "ValueError", "rule": "r"}
OUTAGE = {**FAILED, "kind": "retryable", "code": "NETWORK_ERROR"}
CRASHED = {**FAILED, "kind": "non-retryable", "code": "CRASHED"}
ASSIGNED = events.Assigned(*SHIP, partitions=(TopicPartition("shop.order.v1", 0),))
EVENTS = (
    ASSIGNED,
    events.RecordFailed(*SHIP, **OUTAGE, verdict=RetryAfter(1.0)),
    events.RetryScheduled(*SHIP, **OUTAGE, delay_s=1.0),
    events.BreakerOpened(*SHIP, outages=5, attempts=5, rule="network", next_probe_s=1.0),
    events.RecordFailed(*SHIP, **OUTAGE, verdict=None),
    events.BreakerClosed(*SHIP, by="probe", held_s=2.0),
    ChildStarted(0, 71, restarted=False),
    ChildExited(0, 71, "SIGSEGV", stopping=False),
    ASSIGNED,
    events.ProbationStarted(*SHIP, **PLACE, suspects=1),
    events.RecordFailed(*SHIP, **CRASHED, verdict=DeadLetter("it kills", "CRASHED")),
    events.DeadLettered(*SHIP, **CRASHED, reason="it kills", letter_topic="shop.order.dlq"),
    events.Discarded(*SHIP, **FAILED, kind="discard", code="DISCARDED", reason="a test"),
    events.ProbationEnded(*SHIP, topic="shop.order.v1", partition=0, handed_over=False),
    events.Held(*SHIP, hold="commit"),
)
ACCOUNT = Account(
    sent=10,
    processed=8,
    dead_lettered=1,
    discarded=1,
    lost=0,
    lost_orders=[],
    replayed=2,
    processed_after_replay=2,
    repeated=3,
    repeated_because={"in flight when the process died": 3},
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


CAUSE = Cause(
    fingerprint="abcdef123456",
    error_type="ValueError",
    message="bad",
    place="",
    fields=(),
    classification="",
    counts={CaseState.OPEN: 7},
    failed_again=0,
    first_ms=0,
    last_ms=0,
    codes={},
    groups={},
    topics={},
    dlqs={},
    sample=RecordPlace("shop.order.dlq", 0, 0),
)


def note(view: ScreenView, account: Account) -> None:
    picture = Picture(sent=10, committed=5, at_s=9.0)
    for event in EVENTS:
        picture.take(json.loads(event_line(event)), lambda about, text, mood: view.note(Note(1.0, about, text, mood)))
        view.show(picture)
    view.causes("shop.order.dlq", [CAUSE], {"abcdef123456"})
    view.account(account)


def on_screen(account: Account = ACCOUNT, *, picture: str | None = None) -> str:
    paper = StringIO()
    console = Console(file=paper, force_terminal=True, width=100, color_system="standard", legacy_windows=False)
    with ScreenView(console, picture=picture) as view:
        note(view, account)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", paper.getvalue())
    assert re.search(
        r"orders .*5 of 10 .*lanes .*retries +1 .*breaker .*process .*letters +1 .*CRASHED 1", text, re.DOTALL
    )
    return text


def in_lines(account: Account = ACCOUNT) -> str:
    paper = StringIO()
    with redirect_stdout(paper), ScreenView(console()) as view:
        note(view, account)
    return paper.getvalue()


@pytest.mark.parametrize("reported", [on_screen, in_lines])
def test_both_tell_the_whole_story(reported: type[str]) -> None:
    text = reported()
    for words in (
        "open: orders wait",
        "closed after 2.0 s",
        "crashed (SIGSEGV)",
        "runs alone now",
        "at 0:17",
        "cleared",
    ):
        assert words in text, words
    assert re.search(r"7 +abcdef123456 +ValueError", text)
    numbers = r"sent +10\b.*processed +8 .*dead-lettered +1 .*discarded +1 .*lost +0.*repeated +3"
    assert re.search(numbers, text, re.DOTALL)
    assert "secret" not in text
    assert "3 in flight when the process died" in text
    assert "lost 0: all 10 orders are accounted for" in text


@pytest.mark.parametrize("reported", [on_screen, in_lines])
def test_both_say_what_is_wrong(reported: type[str]) -> None:
    text = reported(LOSING)
    assert "lost 1: this must not happen" in text
    assert "order-7" in text
    assert re.search(r"disordered +2 .*strangers +4", text, re.DOTALL)


def test_lines_have_no_codes_for_terminals_and_no_view_that_is_drawn_again() -> None:
    text = in_lines()
    assert "\x1b" not in text
    assert text.count("finished and committed") == 1, "as it stood when all were through"


def test_the_picture_has_the_final_screen_and_loads_no_fonts(tmp_path: Path) -> None:
    path = tmp_path / "demo.svg"
    on_screen(picture=str(path))
    text = path.read_text().replace("&#160;", " ")
    assert "lost 0: all 10 orders are accounted for" in text
    assert "url(" not in re.sub(r"url\(#[\w-]+\)", "", text)

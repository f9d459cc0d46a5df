"""Output of the demo, with rich: live on a terminal; elsewhere the final lines only."""

from __future__ import annotations

import re
from collections.abc import Iterator
from io import StringIO
from typing import Any, Self

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from keepfast.demo.picture import Note, Picture
from keepfast.demo.reconcile import Account
from keepfast.demo.shop import LANES
from keepfast.desk import Cause

WIDTH = 100
_MOODS = {"good": "green", "bad": "yellow", "plain": "default"}


class ScreenView:
    """A panel with the current state below the notes; at the end the reconciliation. Leaves everything on the screen.
    Owner: the main thread.
    """

    def __init__(self, console: Console, *, picture: str | None = None) -> None:
        self._console = console
        self._save_to = picture
        self._picture = Picture()
        self._kept: list[RenderableType] = []
        self._live = Live(get_renderable=self._panel, console=console, refresh_per_second=12, transient=True)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *_: Any) -> None:
        self._live.__exit__(None, None, None)

    def note(self, note: Note) -> None:
        style = _MOODS[note.mood]
        line = Text.assemble(
            (f"{note.at_s:5.1f} s  ", "dim"), (f"{note.about:<12} ", f"bold {style}"), (note.text, style)
        )
        self._print(line)

    def show(self, picture: Picture) -> None:
        self._picture = picture

    def causes(self, topic: str, causes: list[Cause], fixed: set[str]) -> None:
        self._print(self._panel())  # the final state
        table = Table(title=f"Why orders are in {topic}", title_justify="left", title_style="bold", box=None)
        for name in ("orders", "cause", "error", "message", ""):
            table.add_column(
                name, style="dim" if name == "cause" else "", justify="right" if name == "orders" else "left"
            )
        for cause in causes:
            cure = Text("our bug", "bold yellow") if cause.fingerprint in fixed else Text("the sender's", "dim")
            table.add_row(str(cause.count), cause.fingerprint, cause.error_type, _short(cause.message, 42), cure)
        self._print(Padding(table, (1, 0), expand=False))

    def account(self, account: Account) -> None:
        self._live.stop()
        table = Table.grid(padding=(0, 2))
        table.add_column(justify="left", min_width=10)
        table.add_column(justify="right", style="bold")
        table.add_column(style="dim")
        for name, count, why in _lines(account):
            colour = {"sent": "bold", "lost": "bold green" if not count else "bold red"}.get(name, "default")
            table.add_row(Text(name, colour), Text(f"{count:,}", colour), why)
        colour = "green" if account.is_right else "red"
        body = Group(table, Text(), Text(_verdict(account), f"bold {colour}"))
        title = "[bold]The account[/], read from the topics by another process"
        self._print(Padding(self._framed(body, title, colour), (1, 0, 0, 0), expand=False))
        if self._save_to is not None:
            self._save_svg(self._save_to)

    def _save_svg(self, path: str) -> None:
        """Save the final screen as SVG. (The console itself would record every frame.)"""
        paper = Console(record=True, width=WIDTH, file=StringIO(), force_terminal=True, color_system="truecolor")
        for one in self._kept:
            paper.print(one)
        # Without web fonts: the SVG must load no resources.
        alone = re.sub(r"@font-face {{.*?}}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
        paper.save_svg(path, title="make demo", unique_id="keepfast-demo", code_format=alone)

    def _print(self, one: RenderableType) -> None:
        self._kept.append(one)
        self._console.print(one)

    def _panel(self) -> RenderableType:
        picture = self._picture
        grid = Table.grid(padding=(0, 2), expand=True)
        grid.add_column(style="bold", width=7)
        grid.add_column(width=LANES + 4)
        grid.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        share = ProgressBar(total=max(1, picture.sent), completed=picture.committed, width=LANES + 4)
        grid.add_row("orders", share, f"{picture.committed:,} of {picture.sent:,} finished and committed")
        lanes = Text.assemble(("■" * picture.lanes, "cyan"), ("□" * max(0, LANES - picture.lanes), "dim"))
        grid.add_row("lanes", lanes, "customers served in parallel, each in order")
        grid.add_row("retries", str(picture.retries), "in place: the lane waits, the others continue")
        grid.add_row("breaker", *self._breaker(picture))
        grid.add_row("process", *self._process(picture))
        letters = " · ".join(f"{code} {count}" for code, count in picture.letters.most_common(4))
        grid.add_row("letters", str(picture.letters.total()), Text(letters, "dim"))
        title = f"[bold]keepfast[/] · {picture.act} · {picture.at_s:.0f} s"
        return self._framed(grid, title, "cyan")

    def _framed(self, body: RenderableType, title: str, colour: str) -> Panel:
        width = min(WIDTH, self._console.width)
        return Panel(body, title=title, title_align="left", border_style=colour, width=width, padding=(0, 1))

    @staticmethod
    def _breaker(picture: Picture) -> tuple[Text, str]:
        is_open = picture.breaker == "open"
        state = Text(f"● {picture.breaker}", "yellow" if is_open else "green")
        if not picture.opened:
            return state, ""
        if is_open:
            return state, "the carrier is down: orders wait, none is dead-lettered for that"
        return (
            state,
            f"opened {_times(picture.opened)}, for {picture.held_s:.1f} s; no order was dead-lettered for that",
        )

    @staticmethod
    def _process(picture: Picture) -> tuple[Text, str]:
        colour = {"running": "green", "dead": "red"}.get(picture.process, "yellow")
        remark = f"crashed {_times(picture.deaths)}, restarted" if picture.deaths else ""
        if picture.suspected and picture.committed < picture.sent:
            remark += "; suspects run one at a time"
        return Text(f"● {picture.process}", colour), remark


def _short(text: str, most: int) -> str:
    """The first line of it, cut."""
    line = text.partition("\n")[0]
    return line if len(line) <= most else line[: most - 1] + "…"


def _lines(account: Account) -> Iterator[tuple[str, int, str]]:
    """Rows of the account: name, number, remark."""
    after = f"{account.processed_after_replay} of them after the replay" if account.replayed else ""
    yield "sent", account.sent, ""
    yield "processed", account.processed, after
    yield "dead-lettered", account.dead_lettered, "with their exact bytes, the reason, and a way to replay them"
    yield "discarded", account.discarded, "test orders: the handler raised Discard"
    yield "lost", account.lost, ", ".join(account.lost_orders)
    yield "repeated", account.repeated, ", ".join(f"{n} {why}" for why, n in account.repeated_because.items())
    if account.out_of_order:
        yield "disordered", account.out_of_order, "shipped before an earlier order of the same customer"
    if account.strangers:
        yield "strangers", account.strangers, "belong to no order that was sent, or do not hold its bytes"


def _verdict(account: Account) -> str:
    """The last line."""
    if account.is_right:
        return f"lost 0: all {account.sent:,} orders are accounted for, each customer's in order."
    return f"lost {account.lost}: this must not happen."


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")

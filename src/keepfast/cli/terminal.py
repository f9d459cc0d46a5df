"""What commands draw, with rich: tables, views that are drawn again and again, progress; and what they ask.

rich is imported when something is drawn: `--help` and commands that draw nothing do without it. Where there is no
terminal, nothing is coloured or drawn in place, and lines are as long as they are.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from keepfast.telemetry.clean import clean_text

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

MAX_CELL = 80
MAX_LINE = 10_000
LIVE_EVERY_S = 2.0
BAR_WIDTH = 30
REDRAW_S = 0.1
LINE_EVERY_S = 5.0


def console(*, stderr: bool = False) -> Console:
    """Nothing that is printed is taken for markup, and nothing is highlighted."""
    from rich.console import Console

    found = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not found.is_terminal:
        found.width = MAX_LINE  # programs that read it want whole lines
    return found


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str | Text]],
    *,
    right: Collection[int] = (),
    whole: Collection[int] = (),
) -> Table:
    """Columns as wide as needed, those of `right` aligned to the right. Where the terminal is too narrow, the widest
    are cut, but none of `right` or `whole`. A cell that is no Text is escaped.
    """
    from rich.table import Table
    from rich.text import Text

    def cell(content: str | Text) -> Text:
        found = Text(clean_text(content, MAX_CELL)) if isinstance(content, str) else content
        found.no_wrap, found.overflow = True, "ellipsis"
        return found

    found = Table(box=None, header_style="bold", pad_edge=False)
    for number, name in enumerate(columns):
        found.add_column(
            cell(name), justify="right" if number in right else "left", no_wrap=number in right or number in whole
        )
    for row in rows:
        found.add_row(*map(cell, row))
    return found


def confirmed(question: str) -> bool:
    """Ask for confirmation. Raises UsageError without a terminal."""
    if not sys.stdin.isatty():
        other = ", or use --dry-run" if _has_option("--dry-run") else ""
        raise click.UsageError(f"Standard input is not a terminal: confirm with --yes{other}.")
    try:
        return click.confirm(question)
    except click.Abort:
        click.echo(err=True)
        return False


def _has_option(name: str) -> bool:
    """Whether the command that runs has this option."""
    context = click.get_current_context(silent=True)
    return context is not None and any(name in param.opts for param in context.command.params)


class Drawing:
    """A view that is drawn again and again: in place on a terminal, one below the other elsewhere."""

    def __init__(self, *, stderr: bool = False) -> None:
        from rich.live import Live

        self.console = console(stderr=stderr)
        self._live = Live(console=self.console, auto_refresh=False)

    def __call__(self, view: RenderableType) -> None:
        if not self.console.is_terminal:
            self.console.print(view)
            return
        if not self._live.is_started:
            self._live.start()
        self._live.update(view, refresh=True)

    def end(self) -> None:
        """Leave what was drawn last."""
        self._live.stop()


@contextmanager
def live(every_s: float) -> Iterator[Iterator[Callable[[RenderableType], None]]]:
    """Again and again, until Ctrl-C: something to draw a view with."""
    drawing = Drawing()

    def looks() -> Iterator[Callable[[RenderableType], None]]:
        while True:
            begun = time.monotonic()
            yield drawing
            time.sleep(max(0.0, every_s - (time.monotonic() - begun)))

    try:
        yield looks()
    finally:
        drawing.end()


class Progress:
    """How far something has got, on standard error: drawn in place on a terminal, a line now and then elsewhere. Call
    it with how many are done; it decides when to draw.
    """

    def __init__(self, total: int, *, done: str = "replayed") -> None:
        self._total = total
        self._done = done
        self._drawing = Drawing(stderr=True)
        self._every_s = REDRAW_S if self._drawing.console.is_terminal else LINE_EVERY_S
        self._begun_at = self._drawn_at = time.monotonic()
        self._drawn = False

    def __call__(self, done: int) -> None:
        now = time.monotonic()
        if now - self._drawn_at >= self._every_s:
            self._drawn_at = now
            self._draw(done)

    def end(self, done: int) -> None:
        """Leave the bar as it stands."""
        if self._drawn:
            self._draw(done)
        self._drawing.end()

    def _draw(self, done: int) -> None:
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        self._drawn = True
        rate = f"{done / max(0.001, time.monotonic() - self._begun_at):,.0f}/s"
        bar = Table.grid(padding=(0, 1))
        bar.add_row(
            ProgressBar(total=max(1, self._total), completed=done, width=BAR_WIDTH),
            f"{done:,} of {self._total:,} {self._done} ({rate})",
        )
        self._drawing(bar)

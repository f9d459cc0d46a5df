"""Terminal output: tables and a live view. All cell text is escaped."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence

import click

from keepfast.telemetry.clean import clean_text

MAX_CELL = 80
LIVE_EVERY_S = 2.0
_NARROW = 80


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, right: Collection[int] = ()) -> str:
    """A table; the columns in `right` are right-aligned. On a terminal, lines are cut at its width."""
    cells = [list(columns), *([clean_text(cell, MAX_CELL) for cell in row] for row in rows)]
    widths = [max(len(row[number]) for row in cells) for number in range(len(columns))]
    room = max(_NARROW, shutil.get_terminal_size().columns) if sys.stdout.isatty() else 0
    lines = [
        "  ".join(
            cell.rjust(width) if number in right else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
    return "\n".join(line[: room - 1] + "…" if room and len(line) > room else line for line in lines)


Draw = Callable[[Sequence[str]], None]


def live(every_s: float) -> Iterator[Draw]:
    """Yield, every `every_s` seconds until Ctrl-C, a function that draws lines.

    On a terminal each view replaces the last without flicker; otherwise views are printed one after another.
    """
    in_place = sys.stdout.isatty()
    if in_place:
        click.clear()
    while True:
        begun = time.monotonic()
        yield _in_place if in_place else _below
        sys.stdout.flush()
        time.sleep(max(0.0, every_s - (time.monotonic() - begun)))


def _below(lines: Sequence[str]) -> None:
    click.echo("\n".join([*lines, ""]))


def _in_place(lines: Sequence[str]) -> None:
    room = shutil.get_terminal_size().lines - 1
    if len(lines) > room:
        lines = [*lines[: room - 1], f"and {len(lines) - room + 1:,} lines more"]
    # Cursor home; each line overwrites the old one and clears its rest; then clear everything below.
    click.echo("\x1b[H" + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J", nl=False)

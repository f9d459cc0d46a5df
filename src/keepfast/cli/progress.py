"""Progress of sending: a bar on a terminal, otherwise a line every few seconds."""

from __future__ import annotations

import sys
import time

import click

BAR_WIDTH = 30
REDRAW_S = 0.1
LINE_EVERY_S = 5.0


class Progress:
    """Writes to standard error. Call it with the number done as often as you like; it limits the output."""

    def __init__(self, total: int, *, done: str = "replayed") -> None:
        self._total = total
        self._done = done
        self._bar = sys.stderr.isatty()
        self._begun_at = self._shown_at = time.monotonic()
        self._drawn = False

    def __call__(self, done: int) -> None:
        now = time.monotonic()
        if now - self._shown_at < (REDRAW_S if self._bar else LINE_EVERY_S):
            return
        self._shown_at = now
        if self._bar:
            self._draw(done)
        else:
            click.echo(f"{done:,} of {self._total:,} {self._done} ({self._rate(done)})", err=True)

    def end(self, done: int) -> None:
        """Draw the bar a last time and leave it on the screen."""
        if self._bar and self._drawn:
            self._draw(done)
            click.echo(err=True)

    def _draw(self, done: int) -> None:
        self._drawn = True
        filled = BAR_WIDTH * done // max(1, self._total)
        bar = "█" * filled + "·" * (BAR_WIDTH - filled)
        click.echo(f"\r{bar} {done:,} of {self._total:,} ({self._rate(done)}) ", nl=False, err=True)

    def _rate(self, done: int) -> str:
        return f"{done / max(0.001, time.monotonic() - self._begun_at):,.0f}/s"

"""How far sending has got: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time

import click

BAR_WIDTH = 30
REDRAW_S = 0.1
LINE_EVERY_S = 5.0


class Progress:
    """Writes to standard error. Call it with how many are done; it decides when to say so."""

    def __init__(self, total: int, *, done: str = "replayed") -> None:
        self._total = total
        self._done = done
        self._bar = sys.stderr.isatty()
        self._begun_at = self._said_at = time.monotonic()
        self._drawn = False

    def __call__(self, done: int) -> None:
        now = time.monotonic()
        if now - self._said_at < (REDRAW_S if self._bar else LINE_EVERY_S):
            return
        self._said_at = now
        if self._bar:
            self._draw(done)
        else:
            click.echo(f"{done:,} of {self._total:,} {self._done} ({self._rate(done)})", err=True)

    def end(self, done: int) -> None:
        """Leave the bar as it stands."""
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

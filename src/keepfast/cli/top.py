"""`keepfast top`: a running app, live."""

from __future__ import annotations

import time
from typing import Any

import click
import msgspec

from keepfast.cli.controlling import Control, ControlRefused, control_options
from keepfast.cli.errors import said_plainly
from keepfast.cli.live_view import view_lines
from keepfast.cli.tables import LIVE_EVERY_S, live
from keepfast.cli.where import interrupted_quietly
from keepfast.core.errors import StartError
from keepfast.telemetry.shapes import AppState, ConsumerDetail, LaneState


@click.command(short_help="A live view of a running app.")
@click.option("--every", "every_s", type=click.FloatRange(0.2), default=LIVE_EVERY_S, help="Seconds between looks (2).")
@click.option("--once", is_flag=True, help="One view, with the rates between two looks.")
@click.option("--json", "as_json", is_flag=True, help="The state as JSON, one line a look.")
@control_options
def top(*, every_s: float, once: bool, as_json: bool, **options: Any) -> None:
    """A live view of an app that runs on this host: consumers with rates, lag, retries, letters, guards and holds; the
    partitions that lag most; the work that has been in hand for longest. Ctrl-C ends it.

    On a terminal the view is drawn in place; elsewhere one follows another.

    \b
    Examples:
      keepfast top
      keepfast top --once
      keepfast top --every 1 --url http://127.0.0.1:8081
    """
    with said_plainly(debug=options["debug"]), interrupted_quietly():
        control = Control.of(options["target"], options["url"])
        before, at = control.look(AppState, "state"), time.monotonic()
        if once and not as_json:
            time.sleep(every_s)
        for draw in live(every_s):
            try:
                now, seen_at = control.look(AppState, "state"), time.monotonic()
            except StartError as error:  # it may be starting anew; a look is no reason to end
                if once:
                    raise
                draw([click.style(str(error), fg="red")])
                continue
            if as_json:
                click.echo(msgspec.json.encode(now).decode())
            else:
                draw(view_lines(now, before, elapsed_s=seen_at - at, lanes=_lanes(control, now)))
            before, at = now, seen_at
            if once:
                return


def _lanes(control: Control, now: AppState) -> list[tuple[str, LaneState]]:
    """Of all consumers that answer; a loop that is stuck does not."""
    found: list[tuple[str, LaneState]] = []
    for name, state in now.consumers.items():
        if state.in_flight or state.waiting or state.settling:
            try:
                detail = control.look(ConsumerDetail, "consumers", name)
            except (ControlRefused, StartError):
                continue
            found += [(name, lane) for lane in detail.lanes]
    return found

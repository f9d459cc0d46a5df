"""`keepfast top`: a live view of a running app."""

from __future__ import annotations

import time
from typing import Any

import click
import msgspec

from keepfast.cli.connection import exit_on_interrupt
from keepfast.cli.control_client import ControlClient, control_options
from keepfast.cli.errors import report_errors
from keepfast.cli.terminal import LIVE_EVERY_S, live
from keepfast.core.errors import ControlRefused, StartError
from keepfast.telemetry.state import AppState, ConsumerDetail, LaneState


@click.command(short_help="Show a live view of a running app.")
@click.option(
    "--every", "every_s", type=click.FloatRange(0.2), default=LIVE_EVERY_S, help="Update interval in seconds (2)."
)
@click.option("--once", is_flag=True, help="Print one view, with rates over one interval.")
@click.option("--json", "as_json", is_flag=True, help="Print the state as JSON, one line per update.")
@control_options
def top(*, every_s: float, once: bool, as_json: bool, **options: Any) -> None:
    """Show a live view of an app that runs on this host, until Ctrl-C.

    It shows the consumers with rates, lag, retries, letters, guards and holds; the partitions with the most lag; and
    the records that have been in flight for longest.

    On a terminal the view is updated in place; otherwise each view is printed after the last.

    \b
    Examples:
      keepfast top
      keepfast top --once
      keepfast top --every 1 --url http://127.0.0.1:8081
    """
    from rich.text import Text

    from keepfast.cli.live_view import view_of

    with report_errors(debug=options["debug"]), exit_on_interrupt(), live(every_s) as updates:
        control = ControlClient.of(options["target"], options["url"])
        before, at = control.get(AppState, "state"), time.monotonic()
        if once and not as_json:
            time.sleep(every_s)
        for draw in updates:
            try:
                now, seen_at = control.get(AppState, "state"), time.monotonic()
            except StartError as error:  # it may be restarting; keep watching
                if once:
                    raise
                draw(Text(str(error), "red"))
                continue
            if as_json:
                click.echo(msgspec.json.encode(now).decode())
            else:
                draw(view_of(now, before, elapsed_s=seen_at - at, lanes=_lanes(control, now)))
            before, at = now, seen_at
            if once:
                return


def _lanes(control: ControlClient, now: AppState) -> list[tuple[str, LaneState]]:
    """The lanes of all consumers that answer; a consumer whose loop is stuck does not."""
    found: list[tuple[str, LaneState]] = []
    for name, state in now.consumers.items():
        if state.in_flight or state.waiting or state.settling:
            try:
                detail = control.get(ConsumerDetail, "consumers", name)
            except (ControlRefused, StartError):
                continue
            found += [(name, lane) for lane in detail.lanes]
    return found

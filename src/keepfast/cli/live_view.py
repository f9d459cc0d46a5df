"""A running app as text: consumers, partitions and lanes, from the answers of the control API. Pure functions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import click

from keepfast.cli.tables import table
from keepfast.telemetry.clean import clean_text
from keepfast.telemetry.shapes import AppState, ConsumerCounts, ConsumerDetail, ConsumerState, LaneState, PartitionState

CONSUMER_COLUMNS = (
    *("CONSUMER", "PHASE", "PARTS", "LAG", "LAG S", "REC/S", "ERR/S", "RETRY/S", "HELD BY"),
    *("LETTERS", "IN FLIGHT", "WAITING", "SETTLING", "BREAKER", "STORM"),
)
NUMBERS = (2, 3, 4, 5, 6, 7, 9, 10, 11, 12)
"""The right-aligned columns of a consumer."""
PARTITION_COLUMNS = (
    *("CONSUMER", "TOPIC", "PARTITION", "POSITION", "END", "LAG", "LAG S"),
    *("BUFFERED", "IN FLIGHT", "STATE"),
)
LANE_COLUMNS = ("CONSUMER", "TOPIC", "PARTITION", "OFFSET", "RECORDS", "ATTEMPT", "SECONDS", "STATE")
MAX_PARTITIONS = 20
MAX_LANES = 10
MAX_STUCK = 3

Lanes = Iterable[tuple[str, LaneState]]


def view_lines(
    now: AppState, before: AppState | None = None, *, elapsed_s: float = 0.0, lanes: Lanes = ()
) -> list[str]:
    """The whole view. Rates need an earlier state; without one they are dashes."""
    lines = [_head(now), ""]
    rows = []
    for name, state in now.consumers.items():
        then = before.counts.get(name) if before and elapsed_s > 0 else None
        rows.append(_consumer(name, state, now.counts.get(name, ConsumerCounts()), then, elapsed_s))
    lines += _table(CONSUMER_COLUMNS, rows, right=NUMBERS) if rows else ["No consumer yet."]
    for name, state in now.consumers.items():
        problems = (state.why, state.brokers, state.letters_refused.why, state.moves_refused.why, *_stuck(state))
        lines += [click.style(f"{clean_text(name)}: {clean_text(text, 300)}", fg="red") for text in problems if text]
        suspects = sum(one.suspects for one in state.partitions)
        if suspects:
            lines.append(click.style(f"{clean_text(name)}: probation, {suspects:,} records run alone", fg="red"))
    partitions = [(name, one) for name, state in now.consumers.items() for one in state.partitions]
    partitions.sort(key=lambda pair: -(pair[1].lag or 0))
    if partitions:
        shown = [_partition(*pair) for pair in partitions[:MAX_PARTITIONS]]
        lines += ["", *_table(PARTITION_COLUMNS, shown, right=range(2, 9))]
        if len(partitions) > MAX_PARTITIONS:
            lines.append(f"and {len(partitions) - MAX_PARTITIONS:,} partitions with less lag")
    return lines + _lanes(lanes)


def _stuck(state: ConsumerState) -> list[str]:
    """Handlers that do not return, and the event loop if it is blocked, each with its stack, innermost frame first."""
    lines = [
        f"its handler has been running {one.topic}[{one.partition}] offset {one.offset} for {_span(one.for_s)}:"
        f" {' < '.join(one.stack[::-1])}"
        for one in state.stuck[:MAX_STUCK]
    ]
    if state.stuck_handlers > len(lines):
        lines.append(f"and {state.stuck_handlers - len(lines):,} more handlers do not return")
    return [*lines, f"the event loop is blocked: {' < '.join(state.blocked_at[::-1])}"] if state.blocked_at else lines


def detail_lines(name: str, detail: ConsumerDetail) -> list[str]:
    """One consumer with all its partitions and lanes."""
    rows = [_consumer(name, detail.state, detail.counts, None, 0.0)]
    lines = _table(CONSUMER_COLUMNS, rows, right=NUMBERS)
    partitions = [_partition(name, one) for one in detail.state.partitions]
    lines += ["", *_table(PARTITION_COLUMNS, partitions, right=range(2, 9))] if partitions else []
    lines += _lanes(((name, lane) for lane in detail.lanes), limit=len(detail.lanes))
    return [*lines, f"and {detail.left_out:,} more"] if detail.left_out else lines


def _head(now: AppState) -> str:
    version = f" {clean_text(now.version)}" if now.version else ""
    process = f"pid {now.pid}" if now.pid else "several processes"
    head = f"{clean_text(now.app)}{version}, {now.phase} for {_span(now.uptime_s)}, {process}, keepfast {now.keepfast}"
    if now.spool is not None:
        stuck = f", {now.spool.stuck:,} stuck" if now.spool.stuck else ""
        refusing = ", refusing" if now.spool.refusing else ""
        head += f"; spool {now.spool.letters:,} letters{stuck}{refusing}"
    return click.style(head, bold=True)


def _consumer(
    name: str, state: ConsumerState, counts: ConsumerCounts, then: ConsumerCounts | None, elapsed_s: float
) -> tuple[str, ...]:
    def rate(field: str) -> str:
        if then is None:
            return "-"
        return f"{max(0, getattr(counts, field) - getattr(then, field)) / elapsed_s:,.1f}"

    lags = [one.lag for one in state.partitions if one.lag is not None]
    phase = state.phase if state.member or state.phase != "running" else "no member"
    return (
        name,
        phase,
        str(len(state.partitions)),
        f"{sum(lags):,}" if lags else "-",
        _seconds(max((one.lag_s for one in state.partitions if one.lag_s is not None), default=None)),
        rate("processed"),
        rate("errors"),
        rate("retries"),
        ", ".join(f"{hold.name} {_span(hold.for_s)}" for hold in state.holds) or "-",
        f"{counts.buried:,}",
        f"{state.in_flight:,}",
        f"{state.waiting:,}",
        f"{state.settling:,}",
        state.guards.breaker or "-",
        state.guards.storm or "-",
    )


def _partition(name: str, one: PartitionState) -> tuple[str, ...]:
    notes = [*(["stuck"] if one.stuck else []), *(f"held: {hold}" for hold in one.holds)]
    notes += [f"not fetched: {pause}" for pause in one.pauses] + (["closing"] if one.closing else [])
    notes += [f"{one.cases:,} failing"] if one.cases else []
    notes += [f"probation: {one.suspects:,} run alone"] if one.suspects else []
    return (
        name,
        one.topic,
        str(one.partition),
        "-" if one.position < 0 else str(one.position),
        "-" if one.end is None else str(one.end),
        "-" if one.lag is None else f"{one.lag:,}",
        _seconds(one.lag_s),
        f"{one.buffered:,}",
        f"{one.in_flight:,}",
        ", ".join(notes) or "-",
    )


def _lanes(lanes: Lanes, *, limit: int = MAX_LANES) -> list[str]:
    oldest = sorted(lanes, key=lambda pair: -pair[1].for_s)[:limit]
    if not oldest:
        return []
    rows = []
    for name, lane in oldest:
        why = f" after {lane.error_type} {lane.code}".rstrip() if lane.error_type or lane.code else ""
        place = (name, lane.topic, str(lane.partition), str(lane.offset))
        rows.append((*place, f"{lane.records:,}", str(lane.attempt), f"{lane.for_s:,.1f}", f"{lane.state}{why}"))
    return ["", *_table(LANE_COLUMNS, rows, right=range(2, 7))]


def _table(columns: tuple[str, ...], rows: Sequence[Sequence[str]], *, right: Collection[int]) -> list[str]:
    head, *body = table(columns, rows, right=right).splitlines()
    return [click.style(head, bold=True), *body]


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:,.0f}"


def _span(seconds: float) -> str:
    """A duration in its two largest units."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"

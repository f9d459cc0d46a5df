"""A running app as tables that fit 80 columns, from the answers of the control API. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from keepfast.cli.terminal import table
from keepfast.http.health import NOT_FETCHED_S, WINDOW_FULL_S
from keepfast.telemetry.clean import clean_text
from keepfast.telemetry.state import (
    HOLDS,
    QUEUE_NOTE,
    AppState,
    ConsumerCounts,
    ConsumerDetail,
    ConsumerState,
    LaneState,
    PartitionState,
)

RATE_COLUMNS = ("CONSUMER", "PHASE", "PARTS", "LAG", "LAG S", "REC/S", "ERR/S", "RETRY/S")
WORK_COLUMNS = ("CONSUMER", "IN FLIGHT", "WAITING", "SETTLING", "LETTERS", "FILTERED", "BREAKER", "STORM", "HELD BY")
FILTERED = WORK_COLUMNS.index("FILTERED")
PARTITION_COLUMNS = ("CONSUMER", "TOPIC", "PART", "POSITION", "LAG", "LAG S", "BUFFERED", "IN FLIGHT", "STATE")
LANE_COLUMNS = ("CONSUMER", "TOPIC", "PART", "OFFSET", "RECORDS", "ATTEMPT", "SECONDS", "STATE")
MAX_PARTITIONS = 20
MAX_LANES = 10
MAX_STUCK = 3

Lanes = Iterable[tuple[str, LaneState]]


def view_of(
    now: AppState, before: AppState | None = None, *, elapsed_s: float = 0.0, lanes: Lanes = ()
) -> RenderableType:
    """The whole app. Rates need an earlier state; without one they are dashes."""
    rates, work = [], []
    for name, state in now.consumers.items():
        then = before.counts.get(name) if before and elapsed_s > 0 else None
        rates.append(_rates(name, state, now.counts.get(name, ConsumerCounts()), then, elapsed_s))
        work.append(_work(name, state, now.counts.get(name, ConsumerCounts())))
    if not rates:
        return Group(_head(now), *_processes(now), "", "No consumer answers." if now.processes else "No consumer yet.")
    partitions = [(name, one) for name, state in now.consumers.items() for one in state.partitions]
    partitions.sort(key=lambda pair: -(pair[1].lag or 0))
    alone = len(now.consumers) == 1
    return Group(
        _head(now),
        *_processes(now),
        "",
        *_consumers(rates, work),
        *(line for name, state in now.consumers.items() for line in (*_problems(name, state), *_queue(name, state))),
        *_partitions(partitions[:MAX_PARTITIONS], alone=alone),
        *_left_out(len(partitions) - MAX_PARTITIONS, "partitions with less lag"),
        *_lanes(sorted(lanes, key=lambda pair: -pair[1].for_s)[:MAX_LANES], alone=alone),
    )


def detail_of(name: str, detail: ConsumerDetail) -> RenderableType:
    """One consumer with all its partitions and lanes."""
    return Group(
        *_consumers([_rates(name, detail.state, detail.counts, None, 0.0)], [_work(name, detail.state, detail.counts)]),
        *_queue(name, detail.state),
        *_partitions([(name, one) for one in detail.state.partitions], alone=True),
        *_lanes(sorted(((name, lane) for lane in detail.lanes), key=lambda pair: -pair[1].for_s), alone=True),
        *_left_out(detail.left_out, "more"),
    )


def _problems(name: str, state: ConsumerState) -> Iterator[Text]:
    held = [f"held by {hold.name}: {HOLDS[hold.name]}" for hold in state.holds if hold.name in HOLDS]
    missing = [f"there is no topic {topic}: nothing of it is read" for topic in state.missing_topics]
    texts = [
        *held,
        state.why,
        *missing,
        state.brokers,
        state.letters_refused.why,
        state.moves_refused.why,
        *_stuck(state),
    ]
    suspects = sum(one.suspects for one in state.partitions)
    texts += [f"probation, {suspects:,} suspects"] if suspects else []
    yield from (Text(f"{clean_text(name)}: {clean_text(text, 300)}", "red") for text in texts if text)


def _queue(name: str, state: ConsumerState) -> Iterator[Text]:
    """What a queue has in place of partitions and lag."""
    if (queue := state.queue) is not None:
        yield Text(
            f"{clean_text(name)}: {QUEUE_NOTE}. Locks of {queue.lock_s:g} s, {queue.locks_expired:,} ran out;"
            f" {queue.redelivered:,} records delivered again"
        )


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


def _head(now: AppState) -> Text:
    version = f" {clean_text(now.version)}" if now.version else ""
    process = f"pid {now.pid}" if now.pid else "several processes"
    head = f"{clean_text(now.app)}{version}, {now.phase} for {_span(now.uptime_s)}, {process}, keepfast {now.keepfast}"
    if now.spool is not None:
        stuck = f", {now.spool.stuck:,} stuck" if now.spool.stuck else ""
        refusing = ", refusing" if now.spool.refusing else ""
        head += f"; spool {now.spool.letters:,} letters{stuck}{refusing}"
    return Text(head, "bold")


def _processes(now: AppState) -> Iterator[Text]:
    """Child processes that do not answer: what they do is in no line below."""
    for one in now.processes.values():
        if not one.answers:
            yield Text(clean_text(one.text, 300), "red")


def _consumers(rates: list[tuple[str, ...]], work: list[tuple[str, ...]]) -> list[RenderableType]:
    columns: tuple[str, ...] = WORK_COLUMNS
    if all(row[FILTERED] == "0" for row in work):  # no consumer has a filter, or it let everything pass
        columns = (*columns[:FILTERED], *columns[FILTERED + 1 :])
        work = [(*row[:FILTERED], *row[FILTERED + 1 :]) for row in work]
    return [
        table(RATE_COLUMNS, rates, right=range(2, 8), whole=[1]),
        "",
        table(columns, work, right=range(1, len(columns) - 3), whole=[len(columns) - 3, len(columns) - 2]),
    ]


def _rates(
    name: str, state: ConsumerState, counts: ConsumerCounts, then: ConsumerCounts | None, elapsed_s: float
) -> tuple[str, ...]:
    def rate(field: str) -> str:
        if then is None:
            return "-"
        per_s = max(0, getattr(counts, field) - getattr(then, field)) / elapsed_s
        return f"{per_s:,.1f}" if per_s < 1000 else f"{per_s:,.0f}"

    lags = [one.lag for one in state.partitions if one.lag is not None]
    phase = state.phase if state.member or state.phase != "running" else "no member"
    return (
        name,
        phase,
        str(len(state.partitions)) if state.queue is None else "-",
        f"{sum(lags):,}" if lags else "-",
        _seconds(max((one.lag_s for one in state.partitions if one.lag_s is not None), default=None)),
        rate("processed"),
        rate("errors"),
        rate("retries"),
    )


def _work(name: str, state: ConsumerState, counts: ConsumerCounts) -> tuple[str, ...]:
    return (
        name,
        f"{state.in_flight:,}",
        f"{state.waiting:,}",
        f"{state.settling:,}",
        f"{counts.dead_lettered:,}",
        f"{counts.filtered:,}",
        state.guards.breaker or "-",
        state.guards.storm or "-",
        ", ".join(f"{hold.name} {_span(hold.for_s)}" for hold in state.holds) or "-",
    )


def _partitions(partitions: list[tuple[str, PartitionState]], *, alone: bool) -> list[RenderableType]:
    rows = [_partition(*pair) for pair in partitions]
    return ["", _of_consumers(PARTITION_COLUMNS, rows, right=range(2, 8), alone=alone)] if rows else []


def _partition(name: str, one: PartitionState) -> tuple[str, ...]:
    """The end of the partition is its position plus the lag."""
    notes = [*(["stuck"] if one.stuck else []), *(f"held: {hold}" for hold in one.holds)]
    notes += [f"records not fetched for {_span(one.not_fetched_s)}"] if one.not_fetched_s >= NOT_FETCHED_S else []
    notes += [f"beyond the end {one.end}"] if one.beyond_end else []
    notes += [f"{one.finished_above:,} finished above a gap"] if one.finished_above else []
    notes += [f"window full for {_span(one.window_full_s)}"] if one.window_full_s >= WINDOW_FULL_S else []
    notes += [f"not fetched: {pause}" for pause in one.pauses] + (["closing"] if one.closing else [])
    notes += [f"{one.failed_records:,} failing"] if one.failed_records else []
    notes += [f"probation: {one.suspects:,} suspects"] if one.suspects else []
    return (
        name,
        one.topic,
        str(one.partition),
        "-" if one.position < 0 else str(one.position),
        "-" if one.lag is None else f"{one.lag:,}",
        _seconds(one.lag_s),
        f"{one.buffered:,}",
        f"{one.in_flight:,}",
        ", ".join(notes) or "-",
    )


def _left_out(count: int, what: str) -> list[str]:
    return [f"and {count:,} {what}"] if count > 0 else []


def _lanes(lanes: Lanes, *, alone: bool) -> list[RenderableType]:
    rows = []
    for name, lane in lanes:
        why = f" after {lane.error_type} {lane.code}".rstrip() if lane.error_type or lane.code else ""
        place = (name, lane.topic, str(lane.partition), str(lane.offset))
        rows.append((*place, f"{lane.records:,}", str(lane.attempt), f"{lane.for_s:,.1f}", f"{lane.state}{why}"))
    return ["", _of_consumers(LANE_COLUMNS, rows, right=range(2, 7), alone=alone)] if rows else []


def _of_consumers(
    columns: Sequence[str], rows: Sequence[tuple[str, ...]], *, right: Iterable[int], alone: bool
) -> RenderableType:
    """Where there is only one consumer, its name need not be in every row."""
    first = int(alone)
    return table(columns[first:], [row[first:] for row in rows], right=[number - first for number in right])


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

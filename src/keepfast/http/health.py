"""The health of a running app with reasons: a pure function of the last recorded state of its consumers.

*Live*: false if a restart would help, which is so only for a stuck loop, for handlers that cannot be stopped, and for a
blocked event loop; never for lag, unreachable brokers, dead letters or guards. *Ready*: whether it can process records.
*Started*: whether every consumer has joined its group once. A pause by an operator is no problem.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from keepfast.core.commit_metadata import WINDOW
from keepfast.telemetry.clean import clean_text
from keepfast.telemetry.state import (
    HOLDS,
    QUEUE_NOTE,
    ConsumerHealth,
    ConsumerState,
    HealthReport,
    Level,
    OutboxState,
    Reason,
    Refused,
    SpoolState,
)

NOT_FETCHED_S = 10.0
"""For longer, records that are not fetched are a problem. They are fetched again at that moment."""

WINDOW_FULL_S = 10.0
"""For longer, one unfinished record that keeps all others of its partition from starting is a problem."""

OUTBOX_LATE_S = 60.0
"""An event that waits longer is a problem."""

_LEVELS: Sequence[Level] = ("ok", "degraded", "failing")  # the worst last


REGISTRY_S = 2.0
"""A new schema is fetched in less; what takes longer is worth a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthFacts:
    """The input. `starting`: what the app waits for before its consumers exist; empty once they do."""

    app: str
    uptime_s: float
    consumers: Mapping[str, ConsumerState]
    starting: str = ""
    draining: bool = False
    spool: SpoolState | None = None
    outbox: OutboxState | None = None


def worst_level(reasons: Iterable[Reason]) -> Level:
    """The worst of these; ok if there is none."""
    return _LEVELS[max((_LEVELS.index(reason.level) for reason in reasons), default=0)]


def health_of(facts: HealthFacts) -> HealthReport:
    reasons = tuple(_reasons(facts))
    return HealthReport(
        status=worst_level(reasons),
        live=not any(reason.fails_live for reason in reasons),
        ready=not any(reason.fails_ready for reason in reasons),
        started=not facts.starting and all(one.phase != "starting" for one in facts.consumers.values()),
        app=facts.app,
        uptime_s=round(facts.uptime_s, 3),
        reasons=reasons,
        consumers={name: _short(state) for name, state in facts.consumers.items()},
    )


def _short(state: ConsumerState) -> ConsumerHealth:
    return ConsumerHealth(
        group=state.group,
        phase=state.phase,
        member=state.member,
        partitions=len(state.partitions),
        lag_total=sum(lags) if (lags := [one.lag for one in state.partitions if one.lag is not None]) else None,
        behind_total=sum(parts)
        if (parts := [one.behind for one in state.partitions if one.behind is not None])
        else None,
        lag_s=max((one.lag_s for one in state.partitions if one.lag_s is not None), default=None),
        in_flight=state.in_flight,
        holds={hold.name: HOLDS.get(hold.name, "") for hold in state.holds},
        note=QUEUE_NOTE if state.queue is not None else "",
    )


def _reasons(facts: HealthFacts) -> Iterator[Reason]:
    if facts.starting:
        yield Reason(code="starting", level="degraded", text=facts.starting, fails_ready=True)
    if facts.draining:
        yield Reason(code="draining", level="degraded", text="It is shutting down.", fails_ready=True)
    if facts.spool is not None:
        yield from _spool(facts.spool)
    if facts.outbox is not None:
        yield from _outbox(facts.outbox)
    for state in facts.consumers.values():
        for reason in (
            *_loop(state),
            *_group(state),
            *_letters(state, facts.spool),
            *_handlers(state),
            *_stale(state),
            *_guards(state),
        ):
            yield _of(state, reason)


def _of(state: ConsumerState, reason: Reason) -> Reason:
    return Reason(
        code=reason.code,
        level=reason.level,
        text=clean_text(reason.text),
        consumer=state.name,
        fails_live=reason.fails_live,
        fails_ready=reason.fails_ready,
    )


def _failing(code: str, text: str, *, fails_live: bool = False) -> Reason:
    return Reason(code=code, level="failing", text=text, fails_live=fails_live, fails_ready=True)


def _spool(spool: SpoolState) -> Iterator[Reason]:
    if spool.refusing:
        waits = f". Kafka does not take those that it holds: {clean_text(spool.waits)}" if spool.waits else "."
        yield _failing("spool_refuses", f"The spool refuses letters: {clean_text(spool.refusing).rstrip('.')}{waits}")
    elif spool.letters:
        why = f": {clean_text(spool.waits)}" if spool.waits else "."
        text = f"{spool.letters} dead letters are in the spool because Kafka did not accept them{why}"
        yield Reason(code="spool_holds_letters", level="degraded", text=text)
    if spool.stuck:
        text = f"{spool.stuck} letters in the spool are refused by Kafka; see `keepfast spool list`."
        yield Reason(code="spool_stuck", level="degraded", text=text)


def _outbox(outbox: OutboxState) -> Iterator[Reason]:
    if outbox.unreachable:
        text = f"The outbox cannot be read: {clean_text(outbox.unreachable)}. Its events wait."
        yield Reason(code="outbox_unreachable", level="degraded", text=text)
    if outbox.refused:
        text = f"Kafka refuses an event of the outbox, and its key waits: {clean_text(outbox.refused)}"
        yield Reason(code="outbox_refused", level="degraded", text=text)
    if outbox.age_s is not None and outbox.age_s > OUTBOX_LATE_S:
        text = f"{outbox.rows} events are in the outbox, the oldest for {outbox.age_s:.0f} s."
        yield Reason(code="outbox_late", level="degraded", text=text)


def _loop(state: ConsumerState) -> Iterator[Reason]:
    if state.phase == "ended":
        yield _failing("ended", f"It has ended. {state.why}".strip())
    elif state.phase == "halted":
        yield _failing("halted", f"It was halted: {state.why}")
    elif state.phase != "draining" and state.turn_age_s > state.turn_limit_s:
        text = f"Its loop has been stuck for {state.turn_age_s:.0f} s and does not poll; restart the process."
        yield _failing("loop_stuck", text, fails_live=True)


def _group(state: ConsumerState) -> Iterator[Reason]:
    if state.producer_hangs:
        yield _failing("producer_hangs", state.producer_hangs, fails_live=True)
    if state.lost and not set(state.topics) <= set(state.missing_topics):
        yield _failing("group_lost", "It lost its partitions and has not rejoined its group yet.")
    elif state.phase == "starting":
        text = "It has not joined its group yet."
        yield Reason(code="joining", level="degraded", text=text, fails_ready=True)
    if state.pattern and not state.topics:
        text = f"No topic matches its pattern {state.pattern} yet; it waits for one."
        yield Reason(code="no_topics", level="ok", text=text)
    for topic, why in list(state.not_read.items())[:5]:
        text = f"The topic {topic} matches its pattern and is not read: {why}"
        yield Reason(code="topic_not_read", level="degraded", text=text)
    if state.missing_topics:
        text = f"Nothing is read from {', '.join(state.missing_topics[:5])}: there is no such topic."
        yield Reason(code="topic_missing", level="degraded", text=text)
    if state.unpositioned:
        text = f"The committed offsets of {state.unpositioned} partitions could not be read yet."
        yield Reason(code="offsets_unknown", level="degraded", text=text)
    if any(hold.name == "commit" for hold in state.holds):
        text = (
            "Commits fail or are not answered, as for a while in a rebalance; no record starts until one is confirmed."
        )
        yield _failing("commits_fail", text)
    refused = [f"{one.topic}[{one.partition}]" for one in state.partitions if "commit_refused" in one.holds]
    if refused:
        text = (
            f"The broker refuses commits of {', '.join(refused[:5])}; no record of these partitions starts until one is"
            " confirmed."
        )
        yield _failing("commit_refused", text)
    yield from _fetching(state)
    yield from _windows(state)
    if state.brokers:
        yield Reason(code="brokers_away", level="degraded", text=state.brokers)
    stuck = [f"{one.topic}[{one.partition}]" for one in state.partitions if one.stuck]
    if stuck:
        longest_s = max(one.stalled_s for one in state.partitions if one.stuck)
        text = f"No record of {', '.join(stuck[:5])} has finished for {longest_s:.0f} s, and the lag grows."
        yield _failing("stuck_partitions", text)


def _fetching(state: ConsumerState) -> Iterator[Reason]:
    missing = [one for one in state.partitions if one.not_fetched_s >= NOT_FETCHED_S]
    if missing:
        names = ", ".join(f"{one.topic}[{one.partition}] from offset {one.position}" for one in missing[:5])
        longest_s = max(one.not_fetched_s for one in missing)
        text = (
            f"There have been records for {longest_s:.0f} s that the client does not fetch, of {names}. They are"
            " fetched again, and then with a new client."
        )
        yield _failing("not_fetched", text)
    beyond = [
        f"{one.topic}[{one.partition}] ({one.position} > {one.end})" for one in state.partitions if one.beyond_end
    ]
    if beyond:
        text = (
            f"The position lies beyond the end of the log, of {', '.join(beyond[:5])}: the topic was deleted and"
            " created again, or records were lost. What is written next is not read before the position is reset."
        )
        yield Reason(code="beyond_end", level="degraded", text=text)


def _windows(state: ConsumerState) -> Iterator[Reason]:
    full = [one for one in state.partitions if one.window_full_s >= WINDOW_FULL_S]
    if full:
        records = ", ".join(f"{one.topic}[{one.partition}] offset {one.position}" for one in full[:5])
        longest_s = max(one.window_full_s for one in full)
        text = (
            f"No further record of these partitions has started for {longest_s:.0f} s, because the next one lies"
            f" {WINDOW:,} offsets or more above a record that is not finished: {records}."
        )
        yield Reason(code="window_full", level="degraded", text=text)


def _letters(state: ConsumerState, spool: SpoolState | None) -> Iterator[Reason]:
    refused, moves = state.letters_refused, state.moves_refused
    if refused.records:
        yield _failing("dead_letters_refused", f"{refused.records} dead letters cannot be published {_since(refused)}")
    missing = [topic for topic, depth in state.letter_topics.items() if depth is None]
    if missing and (spool is not None or not refused.records):  # with a spool, what is refused says why that refuses
        spools = spool is not None and not spool.refusing
        what = "dead letters are kept in the spool" if spools else "a dead letter blocks its lane"
        text = f"The topic {', '.join(missing[:5])} does not exist: {what} until it does."
        yield Reason(code="dead_letter_topic_missing", level="degraded", text=text)
    if moves.records:
        text = f"{moves.records} records cannot be moved to their retry topic {_since(moves)}"
        yield _failing("retry_topic_refuses", text)


def _since(refused: Refused) -> str:
    """For how long, the oldest record, and the reason."""
    record = f", first {refused.record}" if refused.record else ""
    return f"for {refused.for_s:.0f} s{record}: {refused.why}"


def _handlers(state: ConsumerState) -> Iterator[Reason]:
    if state.blocked:
        where = f" Stack: {' < '.join(state.blocked_at[:-4:-1])}." if state.blocked_at else ""
        text = f"A blocking call in an async handler stops the event loop; restart the process.{where}"
        yield _failing("event_loop_blocked", text, fails_live=True)
    if state.max_abandoned_reached:
        text = f"{state.abandoned} handlers do not return and no more may be abandoned; restart the process."
        yield _failing("handlers_stuck", text, fails_live=True)
    elif state.overdue:
        text = f"{state.overdue} handler calls exceed their timeout; their lanes wait for them."
        yield _failing("handlers_overdue", text)
    elif state.abandoned:
        text = f"{state.abandoned} abandoned handlers are still running."
        yield Reason(code="abandoned_threads", level="degraded", text=text)
    if state.stuck_handlers:
        yield Reason(code="handlers_hang", level="degraded", text=_hang(state))


def _hang(state: ConsumerState) -> str:
    """The number of stuck handlers, and the stacks of the oldest."""
    places = [
        f"{one.topic}[{one.partition}] offset {one.offset} for {one.for_s:.0f} s at {' < '.join(one.stack[:-4:-1])}"
        for one in state.stuck[:2]
    ]
    count = state.stuck_handlers
    return f"{'1 handler does' if count == 1 else f'{count:,} handlers do'} not return: {'; '.join(places)}."


def _stale(state: ConsumerState) -> Iterator[Reason]:
    waiting = [one for one in state.partitions if "stale_run" in one.holds]
    if waiting:
        places = ", ".join(f"{one.topic}[{one.partition}]" for one in waiting[:5])
        longest_s = max(one.stale_run_s for one in waiting)
        text = f"{places} has waited {longest_s:.0f} s for a handler that started before the last revocation."
        yield Reason(code="stale_run", level="degraded", text=text)


def _guards(state: ConsumerState) -> Iterator[Reason]:
    if state.guards.storm == "tripped":
        yield _failing("storm_guard", "The storm guard stopped it: too many of its records would be dead-lettered.")
    if state.guards.breaker in ("open", "half-open"):
        text = "The breaker is open: a downstream fails, and records wait for it."
        yield Reason(code="breaker_open", level="degraded", text=text)
    if any(hold.name == "registry" and hold.for_s > REGISTRY_S for hold in state.holds):
        text = "The schema registry does not answer: a record needs a schema, and the others wait with it."
        yield Reason(code="registry_away", level="degraded", text=text)
    suspects = sum(one.suspects for one in state.partitions)
    if suspects:
        text = f"Probation: {suspects} records are on probation, because a process crashed twice with them in flight."
        yield Reason(code="probation", level="degraded", text=text)
    if any(hold.name == "operator" for hold in state.holds):
        yield Reason(code="paused", level="ok", text="It was paused by an operator.")
    paused = [f"{one.topic}[{one.partition}]" for one in state.partitions if "operator" in one.holds]
    if paused:
        yield Reason(code="partitions_paused", level="ok", text=f"Paused by an operator: {', '.join(paused[:20])}.")

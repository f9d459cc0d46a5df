"""Whether a running app is well, and if not, why: a pure judgement of what its consumers showed last.

Three questions. *Live*: would a restart help? Only for a loop that does not turn, for threads that nobody can end, and
for an event loop that is blocked; never for lag, brokers that are away, dead letters or guards. *Ready*: can it do its
work? *Started*: has every consumer joined its group once? Pauses that somebody asked for are in good order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from keepfast.telemetry.clean import clean_text
from keepfast.telemetry.state import ConsumerHealth, ConsumerState, HealthReport, Level, Reason, Refused, SpoolState

_WORSE: Mapping[Level, int] = {"ok": 0, "degraded": 1, "failing": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthFacts:
    """What is judged. `starting`: what is waited for before consumers exist; empty once they do."""

    app: str
    uptime_s: float
    consumers: Mapping[str, ConsumerState]
    starting: str = ""
    draining: bool = False
    spool: SpoolState | None = None


def health_of(facts: HealthFacts) -> HealthReport:
    reasons = tuple(_reasons(facts))
    status: Level = max((reason.level for reason in reasons), key=_WORSE.__getitem__, default="ok")
    return HealthReport(
        status=status,
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
        lag=max((one.lag for one in state.partitions if one.lag is not None), default=None),
        lag_s=max((one.lag_s for one in state.partitions if one.lag_s is not None), default=None),
        in_flight=state.in_flight,
        holds=tuple(hold.name for hold in state.holds),
    )


def _reasons(facts: HealthFacts) -> Iterator[Reason]:
    if facts.starting:
        yield Reason(code="starting", level="degraded", text=facts.starting, fails_ready=True)
    if facts.draining:
        yield Reason(code="draining", level="degraded", text="It is about to end.", fails_ready=True)
    if facts.spool is not None:
        yield from _spool(facts.spool)
    for state in facts.consumers.values():
        for reason in (
            *_loop(state),
            *_group(state),
            *_letters(state),
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
        yield _failing("spool_refuses", f"The spool takes no letters: {clean_text(spool.refusing)}")
    elif spool.letters:
        text = f"{spool.letters} dead letters wait in the spool because Kafka does not take them."
        yield Reason(code="spool_holds_letters", level="degraded", text=text)
    if spool.stuck:
        text = f"{spool.stuck} letters in the spool are refused for themselves; see `keepfast spool list`."
        yield Reason(code="spool_stuck", level="degraded", text=text)


def _loop(state: ConsumerState) -> Iterator[Reason]:
    if state.phase == "ended":
        yield _failing("ended", f"It has ended. {state.why}".strip())
    elif state.phase == "halted":
        yield _failing("halted", f"A verdict halted it: {state.why}")
    elif state.phase != "draining" and state.turn_age_s > state.longest_turn_s:
        text = f"Its loop has not turned for {state.turn_age_s:.0f} s, so it does not poll; a restart is needed."
        yield _failing("loop_stuck", text, fails_live=True)


def _group(state: ConsumerState) -> Iterator[Reason]:
    if state.lost:
        yield _failing("group_lost", "Its partitions were taken from it, and it is not back in its group yet.")
    elif state.phase == "starting":
        text = "It has not joined its group yet."
        yield Reason(code="joining", level="degraded", text=text, fails_ready=True)
    if state.unpositioned:
        text = f"The committed offsets of {state.unpositioned} partitions cannot be read yet."
        yield Reason(code="offsets_unknown", level="degraded", text=text)
    if any(hold.name == "commit" for hold in state.holds):
        yield _failing("commits_fail", "Commits are not confirmed, so nothing new starts until one is.")
    refused = [f"{one.topic}[{one.partition}]" for one in state.partitions if "commit_refused" in one.holds]
    if refused:
        text = (
            f"The broker refuses commits of {', '.join(refused[:5])}, so nothing new of them starts; the others go on."
        )
        yield _failing("commit_refused", text)
    if state.brokers:
        yield Reason(code="brokers_away", level="degraded", text=state.brokers)
    stuck = [f"{one.topic}[{one.partition}]" for one in state.partitions if one.stuck]
    if stuck:
        longest_s = max(one.stalled_s for one in state.partitions if one.stuck)
        text = f"Nothing of {', '.join(stuck[:5])} has finished for {longest_s:.0f} s, and the lag grows."
        yield _failing("stuck_partitions", text)


def _letters(state: ConsumerState) -> Iterator[Reason]:
    refused, moves = state.letters_refused, state.moves_refused
    if refused.records:
        yield _failing("dead_letters_refused", f"{refused.records} dead letters cannot be published {_since(refused)}")
    missing = [topic for topic, depth in state.letter_topics.items() if depth is None]
    if missing and not refused.records:
        text = f"There is no topic {', '.join(missing[:5])}: a letter holds up its lane until it is there."
        yield Reason(code="dead_letter_topic_missing", level="degraded", text=text)
    if moves.records:
        text = f"{moves.records} records cannot be moved to their retry topic {_since(moves)}"
        yield _failing("retry_topic_refuses", text)


def _since(refused: Refused) -> str:
    """For how long, which record waits longest, and why."""
    record = f", first {refused.record}" if refused.record else ""
    return f"for {refused.for_s:.0f} s{record}: {refused.why}"


def _handlers(state: ConsumerState) -> Iterator[Reason]:
    if state.blocked:
        where = f" It is at {' < '.join(state.blocked_at[:-4:-1])}." if state.blocked_at else ""
        text = f"An async handler blocks the event loop, so nothing of it goes on; a restart is needed.{where}"
        yield _failing("event_loop_blocked", text, fails_live=True)
    if state.max_abandoned_reached:
        text = f"{state.abandoned} handlers hang and no more may be abandoned, so nothing starts; a restart is needed."
        yield _failing("handlers_stuck", text, fails_live=True)
    elif state.overdue:
        text = f"{state.overdue} records take longer than they may; their lanes wait for the handler."
        yield _failing("handlers_overdue", text)
    elif state.abandoned:
        text = f"{state.abandoned} handlers that were given up still run."
        yield Reason(code="abandoned_threads", level="degraded", text=text)
    if state.stuck_handlers:
        yield Reason(code="handlers_hang", level="degraded", text=_hang(state))


def _hang(state: ConsumerState) -> str:
    """How many handlers are stuck, and where the oldest of them are."""
    places = [
        f"{one.topic}[{one.partition}] offset {one.offset} for {one.for_s:.0f} s at {' < '.join(one.stack[:-4:-1])}"
        for one in state.stuck[:2]
    ]
    return f"{state.stuck_handlers} handlers do not end: {'; '.join(places)}."


def _stale(state: ConsumerState) -> Iterator[Reason]:
    waiting = [one for one in state.partitions if "stale_run" in one.holds]
    if waiting:
        places = ", ".join(f"{one.topic}[{one.partition}]" for one in waiting[:5])
        longest_s = max(one.stale_run_s for one in waiting)
        text = f"{places} has waited {longest_s:.0f} s for a handler from before it was revoked and assigned again."
        yield Reason(code="stale_run", level="degraded", text=text)


def _guards(state: ConsumerState) -> Iterator[Reason]:
    if state.guards.storm == "tripped":
        yield _failing("storm_guard", "The storm guard holds it: too many of its records would be buried.")
    if state.guards.breaker in ("open", "half-open"):
        text = "The breaker is open: a downstream is away, and records wait for it."
        yield Reason(code="breaker_open", level="degraded", text=text)
    suspects = sum(one.suspects for one in state.partitions)
    if suspects:
        text = f"Probation: {suspects} records run one at a time, alone, because a process died twice over them."
        yield Reason(code="probation", level="degraded", text=text)
    if any(hold.name == "operator" for hold in state.holds):
        yield Reason(code="paused", level="ok", text="It was paused by hand.")
    paused = [f"{one.topic}[{one.partition}]" for one in state.partitions if "operator" in one.holds]
    if paused:
        yield Reason(code="partitions_paused", level="ok", text=f"Paused by hand: {', '.join(paused[:20])}.")

"""Converts the integers of loops and workers to metrics, on request and on the requesting thread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from keepfast.classify.rules.codes import VALIDATION
from keepfast.core.names import TopicParts, topic_parts
from keepfast.deadletters.spool.worker import SpoolStatus
from keepfast.engine.counts import Labelled, TopicCounts
from keepfast.engine.fetch_watch import REFETCH_S
from keepfast.engine.hooks import HookCounts
from keepfast.engine.lifecycle import LoopThread
from keepfast.engine.loop import Loop
from keepfast.telemetry import catalogue as cat
from keepfast.telemetry.metrics import BOUNDS_S, Buckets, Exemplar, Metric, MetricFamily, Sample, Tallies
from keepfast.telemetry.state import ConsumerState

MAX_RETRIES = 10
"""Retries are counted by their number up to here; higher numbers share one label."""


@dataclass(frozen=True, slots=True)
class _Of:
    """One topic of one consumer, and the families that are named by it."""

    group: str
    topic: str
    parts: TopicParts

    def family(self, metric: Metric, samples: Iterable[Sample]) -> MetricFamily:
        return MetricFamily.of(metric, samples, domain=self.parts.domain, entity=self.parts.entity)

    def sample(self, value: float | Buckets, *labels: str, exemplar: Exemplar | None = None) -> Sample:
        return Sample((*labels, self.group, self.topic), value, exemplar=exemplar)


def consumer_families(thread: LoopThread, now: float, *, app: str) -> list[MetricFamily]:
    """All that one consumer has to say. Any thread may ask; counters may be a moment apart."""
    loop = thread.loop
    found: list[MetricFamily] = []
    topics = loop.subscription.topics
    for topic in topics:
        parts = loop.plan.names.get(topic) or topic_parts(topic, app=app)
        own = _Of(loop.plan.group, topic, parts)
        found += _topic(own, loop.counts[topic], thread.tallies, _sources(loop, topic))
        found += _aliases(own, loop.counts[topic], loop.plan.dead_letter_topics.get(topic, ""))
    found += [*_totals(loop), *_standing(thread.state, now - loop.status.turned_at, set(topics))]
    return [*found, MetricFamily.of(cat.ENDED, [Sample((loop.plan.group,), int(_has_failed(thread)))])]


def _has_failed(thread: LoopThread) -> bool:
    """Return True if the consumer has ended without being stopped. A stopped one may wait for others to drain."""
    if thread.ending is not None:
        return thread.ending.kind != "stopped"
    return thread.state.phase in ("ended", "halted")


def _sources(loop: Loop, topic: str) -> list[str]:
    """The topic, and the retry topics that its records come back from."""
    tiers = list(loop.plan.tiers.topics.values()) if loop.plan.tiers else ()
    return [topic, *(tier.topic for tier in tiers if tier.source == topic)]


def _topic(own: _Of, counts: TopicCounts, tallies: Sequence[Tallies], sources: list[str]) -> Iterator[MetricFamily]:
    failed = counts.dead_lettered + counts.discarded
    yield own.family(cat.PROCESSED, [own.sample(counts.processed, "success"), own.sample(failed, "failure")])
    times = [tally for each in list(tallies) for source in sources if (tally := each.get(source)) is not None]
    summed = [sum(column) for column in zip(*(list(tally.counts) for tally in times), strict=True)]
    total_s = sum(tally.total_s for tally in times)
    buckets = Buckets(summed or [0] * (len(BOUNDS_S) + 1), total_s, counts.slow.copy())
    yield own.family(cat.DURATION, [own.sample(buckets)])
    numbered = [(number, count) for number, count in enumerate(counts.retries_by_attempt) if number and count]
    yield own.family(cat.RETRIES, [own.sample(count, _numbered(number)) for number, count in numbered])
    delays = [
        own.sample(Buckets(list(tally.counts), tally.total_s), _numbered(number))
        for number, tally in sorted(counts.delays_by_attempt.copy().items())
    ]
    yield own.family(cat.RETRY_DELAY, delays)
    yield own.family(cat.DEAD_LETTERS, _by_error(own, counts.dead_lettered_by))
    yield own.family(cat.ERRORS, _by_error(own, counts.errors_by))
    yield own.family(cat.PUBLISH_FAILURES, [own.sample(counts.unpublished)])


def _numbered(number: int) -> str:
    return str(number) if number < MAX_RETRIES else f"{MAX_RETRIES}+"


def _by_error(own: _Of, counted: Labelled) -> list[Sample]:
    known = counted.exemplars.copy()
    return [own.sample(count, *labels, exemplar=known.get(labels)) for labels, count in counted.counts.copy().items()]


def _aliases(own: _Of, counts: TopicCounts, dead_letter_topic: str) -> Iterator[MetricFamily]:
    """The same by the names that others gave it."""
    yield MetricFamily.of(cat.DLQ_MESSAGES, [Sample((own.group, own.topic, dead_letter_topic), counts.dead_lettered)])
    types: Counter[tuple[str, str]] = Counter()
    for labels, count in counts.dead_lettered_by.counts.copy().items():
        types[labels.error_type, labels.code] += count
    yield MetricFamily.of(
        cat.DLQ_BY_TYPE, [own.sample(count, name, code, _reason(code)) for (name, code), count in types.items()]
    )
    yield MetricFamily.of(cat.EVENTS_PROCESSED, [own.sample(counts.processed)])
    yield MetricFamily.of(cat.EVENTS_FAILED, [own.sample(counts.dead_lettered + counts.discarded)])
    yield MetricFamily.of(cat.MOVED, [own.sample(counts.moved)])
    yield MetricFamily.of(cat.FILTERED, [own.sample(counts.filtered)])
    yield MetricFamily.of(cat.SKIPPED, [own.sample(counts.skipped)])
    yield MetricFamily.of(
        cat.DISCARDED,
        [own.sample(counts.discarded - counts.sensitive, "rule"), own.sample(counts.sensitive, "sensitive")],
    )


def _reason(code: str) -> str:
    return "validation_error" if code in VALIDATION else "unexpected_error"


def _totals(loop: Loop) -> Iterator[MetricFamily]:
    """Counters of a whole consumer."""
    group = loop.plan.group
    guards, committer = loop.guards.status(), loop.committer
    received = loop.intake.received.copy()
    yield MetricFamily.of(cat.CONSUMED, [Sample((group, topic), count) for topic, count in received.items()])
    yield MetricFamily.of(
        cat.REBALANCES, [Sample((event, group), count) for event, count in loop.status.rebalances.copy().items()]
    )
    plain: list[tuple[Metric, float]] = [
        (cat.COMMITS, committer.commits),
        (cat.COMMIT_FAILURES, committer.failed),
        (cat.BREAKER_OPENED, guards.breaker_opened),
        (cat.STORM_TRIPS, guards.storm_tripped),
        (cat.GUARD_WAITS, guards.waits),
        (cat.TIMED_OUT, loop.overdue.counts.timed_out),
        (cat.MOVE_FAILURES, loop.failures.forwarder.failures["move"]),
        (cat.OUTCOMES_LOST, loop.outcomes.lost),
        (cat.CLIENTS_REPLACED, loop.status.clients_replaced),
    ]
    if loop.locks is not None:
        plain += [(cat.LOCKS_EXPIRED, loop.locks.expired), (cat.REDELIVERED, loop.locks.redelivered)]
    for metric, value in plain:
        yield MetricFamily.of(metric, [Sample((group,), value)])


def _standing(state: ConsumerState, turn_age_s: float, own_topics: set[str]) -> Iterator[MetricFamily]:
    """Gauges, as the loop saw them at its last look."""
    group = state.group
    lags = {(one.topic, one.partition): one.lag for one in state.partitions if one.lag is not None}
    yield MetricFamily.of(cat.LAG, [Sample((group, topic, str(number)), lag) for (topic, number), lag in lags.items()])
    for metric, values in (
        (cat.BEHIND, [(one, one.behind) for one in state.partitions if one.behind is not None]),
        (cat.FINISHED_ABOVE, [(one, one.finished_above) for one in state.partitions if one.behind is not None]),
    ):
        samples = [Sample((group, one.topic, str(one.partition)), value) for one, value in values]
        yield MetricFamily.of(metric, samples)
    if state.queue is None:  # of a queue neither is known
        highest = max((lag for (topic, _), lag in lags.items() if topic in own_topics), default=0)
        yield MetricFamily.of(cat.LAG_MAX, [Sample((group,), highest)])
        assigned = Counter(one.topic for one in state.partitions)
        yield MetricFamily.of(cat.ASSIGNED, [Sample((group, topic), assigned[topic]) for topic in state.topics])
    places = [((group, one.topic, str(one.partition)), one) for one in state.partitions]
    aged = [Sample(labels, one.lag_s) for labels, one in places if one.lag_s is not None]
    yield MetricFamily.of(cat.LAG_AGE, aged)
    yield MetricFamily.of(cat.BUFFERED, [Sample(labels, one.buffered) for labels, one in places])
    yield MetricFamily.of(cat.BUFFERED_BYTES, [Sample(labels, one.held_bytes) for labels, one in places])
    depths = [Sample((group, topic), depth) for topic, depth in state.letter_topics.items() if depth is not None]
    yield MetricFamily.of(cat.DLQ_DEPTH, depths)
    yield MetricFamily.of(cat.HOLD, [Sample((hold.name, group), 1) for hold in state.holds])
    plain: list[tuple[Metric, float]] = [
        (cat.MEMBER, int(state.member)),
        (cat.IN_FLIGHT, state.in_flight),
        (cat.OLDEST, state.oldest_in_flight_s),
        (cat.WAITING, state.waiting),
        (cat.SETTLING, state.settling),
        (cat.REFUSED, state.letters_refused.records + state.moves_refused.records),
        (cat.PAUSED, sum(bool(one.pauses) for one in state.partitions)),
        (cat.PAUSE_AGE, state.paused_s),
        (cat.STUCK, sum(one.stuck for one in state.partitions)),
        (cat.NOT_FETCHED, sum(one.not_fetched_s >= REFETCH_S for one in state.partitions)),
        (cat.BREAKER_OPEN, int(state.guards.breaker in ("open", "half-open"))),
        (cat.STORM_HELD, int(state.guards.storm == "tripped")),
        (cat.STUCK_HANDLERS, state.stuck_handlers),
        (cat.BLOCKED, int(state.blocked)),
        (cat.ABANDONED, state.abandoned),
        (cat.LOOP_AGE, max(0.0, turn_age_s)),
    ]
    for metric, value in plain:
        yield MetricFamily.of(metric, [Sample((group,), value)])


def spool_families(status: SpoolStatus) -> list[MetricFamily]:
    values: list[tuple[Metric, float]] = [
        (cat.SPOOL_LETTERS, status.fill.letters),
        (cat.SPOOL_BYTES, status.fill.held_bytes),
        (cat.SPOOL_STUCK, len(status.stuck)),
        (cat.SPOOL_SENT_ON, status.sent_on),
        (cat.SPOOL_REFUSING, int(bool(status.refusing))),
    ]
    return [MetricFamily.of(metric, [Sample((), value)]) for metric, value in values]


def hook_families(counts: HookCounts) -> list[MetricFamily]:
    values = ((cat.HOOK_FAILURES, counts.failed), (cat.HOOK_DROPPED, counts.dropped))
    return [MetricFamily.of(metric, [Sample((), value)]) for metric, value in values]

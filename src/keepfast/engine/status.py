"""What a loop shows of itself: counted per run, looked at once a second. Owner: the loop thread; any thread may read.

Counters are integers that others read a little late. Everything else is a `ConsumerState` that is made new at each look
and replaced as a whole: the threads that serve health and metrics never touch what the loop works on, and never wait
for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Final

from keepfast.core.errors import Fault, SourceError
from keepfast.core.ports import NO_ANSWER, NO_ANSWER_EVERY_S, PRODUCER_HANGS
from keepfast.core.records import TopicPartition
from keepfast.core.runs import Partition, Run
from keepfast.engine.control import OPERATOR
from keepfast.engine.counts import exemplar_of
from keepfast.engine.forwarding import ForwardingStatus
from keepfast.engine.mailbox import DRAIN
from keepfast.engine.parts import LoopParts
from keepfast.engine.shutdown import Shutdown
from keepfast.engine.timeouts import STALE_RUN
from keepfast.telemetry.logs import get_logger
from keepfast.telemetry.state import ConsumerState, GuardState, Hold, PartitionState, Phase, QueueState, Refused

log = get_logger("keepfast.loop")

POLL_INTERVAL_S, POLL_COST_FACTOR, MAX_POLL_INTERVAL_S = 1.0, 100, 5.0
"""How often it looks; with many hundred partitions less often, so that it takes at most a hundredth of the time. But a
look that took long because the machine was busy must not leave an old state behind for minutes.
"""
MAX_TURN_S: Final = 30.0
"""Far more than the bounded waits of a turn take; to it comes what a revocation may take."""
STUCK_S: Final = 60.0
"""A partition of which nothing finishes for so long, while its lag grows, is stuck."""
AWAY_S: Final = 45.0
"""So long after the last error of the client the brokers count as unreachable, unless something came from them since.
The client repeats an error that persists within this time.
"""
SILENT_S: Final = 2 * NO_ANSWER_EVERY_S + 1.0
"""So long after the last report that a broker does not answer that counts, whatever comes from others."""
REMIND_S: Final = 10.0
"""How often a wait for the first partitions is logged."""
WAITING_HINT: Final = (
    "the partitions of a process that was killed are free when its session ends, on the embedded broker also those of"
    " one that was stopped; with a group_instance_id for each process, or under `keepfast run --processes`, a restarted"
    " process gets its own back at once, except on the embedded broker. Of more members than partitions some have none"
)
ASSIGNED, REVOKED, LOST = "assigned", "revoked", "lost"


@dataclass(slots=True)
class _Progress:
    """When a partition last finished something, or had nothing to finish; and where its end was then."""

    epoch: int
    position: int
    finished: int
    since: float
    end: int


class LoopStatus:
    """`turned_at`: when the last turn began, by the loop's clock. `state`: what was seen at the last look."""

    def __init__(self, parts: LoopParts, shutdown: Shutdown) -> None:
        self._parts = parts
        self._shutdown = shutdown
        self._source = parts.ports.source
        self._clock = parts.ports.clock
        self._letters = parts.letters
        self._counts = parts.counts
        self._look_at = float("-inf")
        self.sample_at = float("-inf")
        self._progress: dict[TopicPartition, _Progress] = {}
        self._windows: dict[TopicPartition, tuple[int, int, float]] = {}  # full ones: epoch, position, since when
        self.clients_replaced = 0
        self._brokers = ""
        self._away_at = float("-inf")
        self._reached = 0
        self._silent = False
        self.producer_hangs = ""  # the producer of its transactions, until partitions are assigned again
        self._began = self._reminded_at = self.turned_at = self._clock.monotonic()
        self.looked_at = self.turned_at
        self.member = self.lost = False
        self.rebalances = {ASSIGNED: 0, REVOKED: 0, LOST: 0}
        plan = parts.plan
        self.state = ConsumerState(
            name=plan.name,
            group=plan.group,
            topics=parts.subscription.every,
            pattern=plan.pattern or "",
            not_read=dict(parts.subscription.refused),
            order=plan.order,
            commit=plan.commit.mode,
            handler=plan.handler,
        )

    # -- reported by the loop

    def turn(self, now: float) -> None:
        """One more turn."""
        self.turned_at = now
        if now >= self._look_at:
            self.look(now)

    def sample(self, run: Run, now: float) -> None:
        """A run came back when a sample for the exemplars of the metrics was due (`sample_at`)."""
        if run.done == 1 == len(run.messages) and not run.filtered:
            self.sample_at = now + POLL_INTERVAL_S
            example = exemplar_of(run.messages[0], run.elapsed_s, self._clock.wall())
            if example is not None:
                self._counts[run.partition.place.topic].took(run.elapsed_s, example)

    def rebalanced(self, what: str) -> None:
        """Partitions came or went; lost: and the membership with them."""
        self.rebalances[what] += 1
        self.member, self.lost = what != LOST, what == LOST
        if what == ASSIGNED:
            self.producer_hangs = ""

    def client_error(self, error: SourceError, now: float) -> None:
        """The client reported an error."""
        if error.code == PRODUCER_HANGS:
            self.producer_hangs = str(error)
        elif error.fault is Fault.RETRY:
            self._brokers, self._away_at, self._reached = str(error), now, self._heard_from_brokers()
            self._silent = error.code == NO_ANSWER

    # -- looking

    def look(self, now: float) -> ConsumerState:
        """Make `state` new."""
        begun = self._clock.monotonic()
        parts, plan, ending = self._parts, self._parts.plan, self._shutdown.ending
        in_flight = list(parts.in_flight)
        overdue, failures = parts.overdue, parts.failures
        partitions = self._partitions(now) if plan.lock_s is None else ()
        self.state = ConsumerState(
            name=plan.name,
            group=plan.group,
            topics=parts.subscription.every,
            pattern=plan.pattern or "",
            not_read=dict(parts.subscription.refused),
            order=plan.order,
            commit=plan.commit.mode,
            handler=plan.handler,
            phase=self._phase(),
            why=(ending.reason if ending else parts.holds.halted) or "",
            member=self.member or (plan.lock_s is not None and self._phase() == "running"),
            lost=self.lost,
            producer_hangs=self.producer_hangs,
            partitions=partitions,
            missing_topics=tuple(sorted(parts.identities.missing)),
            unpositioned=len(parts.assignment.unpositioned),
            holds=tuple(Hold(name=name, for_s=now - since) for name, since in sorted(parts.holds.since.items())),
            paused_s=self._paused_s(now),
            clients_replaced=self.clients_replaced,
            in_flight=sum(map(_left, in_flight)),
            oldest_in_flight_s=max((now - run.begun_at for run in in_flight), default=0.0),
            waiting=self._waiting(),
            settling=len(failures.settling),
            letters_refused=_refused(failures.forwarder.status("dead-letter"), now),
            moves_refused=_refused(failures.forwarder.status("move"), now),
            letter_topics=self._letters.look(now) if self._letters else {},
            guards=self._guards(),
            abandoned=overdue.abandoned(now),
            max_abandoned_reached=overdue.max_abandoned_reached,
            overdue=len(overdue.held),
            blocked=overdue.blocked,
            blocked_at=overdue.reports.event_loop,
            stuck=overdue.reports.handlers,
            stuck_handlers=overdue.reports.count,
            brokers=self._brokers_away(now),
            queue=self._queue(),
            turn_limit_s=MAX_TURN_S + plan.revoke_timeout_s,
        )
        self._remind(now)
        if log.debugging:
            self._log_progress(now)
        self.looked_at = now
        took_s = self._clock.monotonic() - begun
        self._look_at = now + min(max(POLL_INTERVAL_S, POLL_COST_FACTOR * took_s), MAX_POLL_INTERVAL_S)
        return self.state

    def _log_progress(self, now: float) -> None:
        state, parts = self.state, self._parts
        next_s = parts.failures.next_in(now)
        log.debug(
            "progress",
            consumer=state.name,
            received=sum(parts.intake.received.values()),
            processed=self._counts.processed,
            buffered=sum(one.buffered for one in state.partitions),
            in_flight=state.in_flight,
            waiting=state.waiting,
            settling=state.settling,
            next_retry_s=round(next_s, 3) if isfinite(next_s) else None,
            holds=[hold.name for hold in state.holds],
            lag=sum(one.lag or 0 for one in state.partitions),
            commits=parts.committer.commits,
        )

    def _remind(self, now: float) -> None:
        """The wait for the first partitions may be long, and caused by other members: log it."""
        if self.state.phase == "starting" and now - self._reminded_at >= REMIND_S:
            self._reminded_at = now
            log.info(
                "waiting_for_partitions", consumer=self.state.name, for_s=round(now - self._began), hint=WAITING_HINT
            )

    def _waiting(self) -> int:
        """Failed records that are not being moved or dead-lettered, batches of them included."""
        batches = self._parts.lanes.kept
        failed_records = sum(len(one.failed_records) for one in self._parts.ownership)
        failed_records -= len(self._parts.failures.settling)
        return max(0, failed_records) + sum(batch.left for batch in batches)

    def _phase(self) -> Phase:
        holds = self._parts.holds
        if self._shutdown.ending is not None:
            return "ended"
        if holds.halted is not None:
            return "halted"
        if DRAIN in holds:
            return "draining"
        if self._parts.locks is not None:
            return "running" if self._parts.locks.has_polled else "starting"
        return "running" if self.rebalances[ASSIGNED] or self._parts.subscription.waits else "starting"

    def _queue(self) -> QueueState | None:
        locks = self._parts.locks
        if locks is None:
            return None
        return QueueState(lock_s=locks.lock_s, redelivered=locks.redelivered, locks_expired=locks.expired)

    def _guards(self) -> GuardState:
        status = self._parts.guards.status()
        return GuardState(
            breaker=status.breaker.value if status.breaker else None,
            breaker_opened=status.breaker_opened,
            storm=status.storm,
            storm_trips=status.storm_tripped,
            waits=status.waits,
        )

    def _partitions(self, now: float) -> tuple[PartitionState, ...]:
        owned = list(self._parts.ownership)
        before, self._progress = self._progress, {}
        if not owned:
            return ()
        ends = self._ends(owned)
        return tuple(self._partition(partition, ends.get(partition.place), before, now) for partition in owned)

    def _ends(self, owned: list[Partition]) -> dict[TopicPartition, int]:
        """As the last fetch of each saw it, or, of partitions that are not fetched, as the cluster was asked."""
        watch = self._parts.fetch_watch
        try:
            ends = self._source.seen_ends([partition.place for partition in owned])
        except SourceError:
            ends = {}
        asked = watch.ends
        ends |= {place: max(end, ends.get(place, 0)) for place, end in asked.items()}
        return ends | {one.place: asked[one.place] for one in owned if watch.is_beyond_end(one)}

    def _partition(
        self, partition: Partition, end: int | None, before: dict[TopicPartition, _Progress], now: float
    ) -> PartitionState:
        position = partition.ledger.watermark()
        lag = None if end is None or position < 0 else max(0, end - position)
        behind = None if lag is None or end is None else min(lag, partition.ledger.unfinished_below(end))
        fetched = not (partition.pauses or self._brokers_away(now))
        still_s, stuck = self._stands_still(partition, position, end, before.get(partition.place), now)
        return PartitionState(
            topic=partition.place.topic,
            partition=partition.place.partition,
            epoch=partition.epoch,
            position=position,
            committed=partition.committed[0],
            end=end,
            lag=lag,
            behind=behind,
            finished_above=(lag or 0) - (behind or 0),
            lag_s=None if lag is None or end is None else partition.behind_s(self._clock.wall(), end, fetched=fetched),
            buffered=len(partition.buffer),
            held_bytes=partition.held_bytes,
            in_flight=sum(map(_left, partition.running)),
            failed_records=len(partition.failed_records),
            pauses=tuple(sorted(partition.pauses)),
            holds=tuple(sorted(partition.holds | self._waits_for_stale(partition))),
            stale_run_s=self._parts.overdue.waiting.get(partition.place, 0.0),
            closing=partition.closing,
            stalled_s=still_s,
            stuck=stuck,
            not_fetched_s=self._parts.fetch_watch.missing_s(partition),
            beyond_end=self._parts.fetch_watch.is_beyond_end(partition),
            window_full_s=self._window_full_s(partition, position, now),
            suspects=self._parts.probation.suspects_of(partition),
        )

    def _waits_for_stale(self, partition: Partition) -> set[str]:
        """Only shown, not a hold of the partition's own: with order by key, other keys continue."""
        return {STALE_RUN} if partition.place in self._parts.overdue.waiting else set()

    def _stands_still(
        self, partition: Partition, position: int, end: int | None, before: _Progress | None, now: float
    ) -> tuple[float, bool]:
        """How long nothing has finished that could have, and whether that is too long. What is held on purpose stands
        still in good order.
        """
        ledger = partition.ledger
        finished = ledger.last + 1 - ledger.unfinished()
        idle = (end or 0) <= position and not ledger.unfinished()
        tiers = self._parts.plan.tiers
        waits = tiers is not None and partition.place.topic in tiers.topics  # that is what a retry topic is for
        intended = waits or bool(self._parts.holds or partition.holds) or partition.closing
        moved = before is None or (before.epoch, before.position, before.finished) != (
            partition.epoch,
            position,
            finished,
        )
        if before is None or moved or idle or intended:
            self._progress[partition.place] = _Progress(partition.epoch, position, finished, now, end or 0)
            return 0.0, False
        self._progress[partition.place] = before
        still_s = now - before.since
        return still_s, still_s >= STUCK_S and (end or 0) > before.end

    def _window_full_s(self, partition: Partition, position: int, now: float) -> float:
        """How long the unfinished record at `position` has kept all others of the partition from starting, because the
        next one lies outside the window. A partition in order waits for that record whatever the window is.
        """
        buffer, place = partition.buffer, partition.place
        in_order = self._parts.plan.order == "partition"
        if in_order or not buffer or not partition.startable or buffer[0].offset() < partition.window_end():
            self._windows.pop(place, None)
            return 0.0
        before = self._windows.get(place)
        if before is None or before[:2] != (partition.epoch, position):
            before = self._windows[place] = partition.epoch, position, now
        return now - before[2]

    def _paused_s(self, now: float) -> float:
        """How long the oldest pause by an operator has lasted, of the consumer or of a partition that is assigned."""
        since = self._parts.holds.since.get(OPERATOR, now)
        partitions_since = self._parts.ownership.held_since(OPERATOR)
        return now - (since if partitions_since is None else min(since, partitions_since))

    def _brokers_away(self, now: float) -> str:
        if self._silent:
            over = now - self._away_at >= SILENT_S
        else:
            over = now - self._away_at >= AWAY_S or self._heard_from_brokers() > self._reached
        if over:
            self._brokers = ""
        return self._brokers

    def _heard_from_brokers(self) -> int:
        """Grows whenever something came from them."""
        received = sum(self._parts.intake.received.values())
        return received + self._parts.committer.confirmed + self.rebalances[ASSIGNED]


def _left(run: Run) -> int:
    return max(0, len(run.messages) - run.done)


def _refused(status: ForwardingStatus, now: float) -> Refused:
    if not status.refused:
        return Refused()
    return Refused(records=status.refused, for_s=now - (status.since or now), why=status.why, record=status.record)

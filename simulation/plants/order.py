"""Plants in what starts, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from keepfast.core import lanes
from keepfast.core.errors import SinkError
from keepfast.core.lanes import KeyLanes, PartitionLanes
from keepfast.core.ledger import HeldBytes
from keepfast.core.records import Message
from keepfast.core.runs import Run
from keepfast.engine.failures import Failures
from keepfast.engine.forwarding import Forwarder, Settled
from keepfast.engine.intake import Intake
from keepfast.engine.loop import Loop
from keepfast.engine.mailbox import Stop
from keepfast.engine.shutdown import Shutdown
from simulation.plants.plant import Patch, plant


@plant
def never_pauses_a_full_partition(patch: Patch) -> None:
    patch.set(Intake, "_must_pause", lambda *_: False)
    patch.set(Intake, "has_room", property(lambda _: True))


@plant
def counts_the_bytes_of_values_alone(patch: Patch) -> None:
    def receive(self: HeldBytes, first: int, messages: Sequence[Message]) -> None:
        self._total += sum(map(len, messages))

    def finish(self: HeldBytes, seqs: Sequence[int], messages: Sequence[Message]) -> None:
        self._total -= sum(map(len, messages))

    patch.set(HeldBytes, "receive", receive)
    patch.set(HeldBytes, "finish", finish)


@plant
def p33_lets_the_retry_counter_survive_a_revoke(patch: Patch) -> None:
    counts: dict[tuple[Any, ...], int] = {}

    def failed(self: Failures, failed_record: Any, error: BaseException, now: float) -> None:
        key = (self, failed_record.partition.place, failed_record.message.offset())
        failed_record.failures = max(failed_record.failures, counts.get(key, 0))
        before(self, failed_record, error, now)
        counts[key] = failed_record.failures

    before = patch.set(Failures, "failed", failed)


@plant
def p38_puts_the_rest_of_a_run_at_the_end(patch: Patch) -> None:
    def put_back(run: Run, start: int) -> None:
        if run.messages[start:] and run.partition.live and not run.partition.closing:
            run.partition.buffer.extend(run.messages[start:])

    patch.set(lanes, "_put_back", put_back)


@plant
def p38_lets_the_lane_go_on_while_a_record_waits_for_its_retry(patch: Patch) -> None:
    def split(self: Any, run: Run, now: float) -> Any:
        failed_record = originals[type(self)](self, run, now)
        self.release(failed_record)
        return failed_record

    originals = {kind: patch.set(kind, "split", split) for kind in (KeyLanes, PartitionLanes)}


@plant
def p48_leaks_what_is_in_flight_after_a_revoke(patch: Patch) -> None:
    def returned(self: Loop, run: Run, now: float) -> None:
        stale = not self.ownership.is_current(run.partition)
        original(self, run, now)
        if stale:
            self.in_flight[run] = None

    original = patch.set(Loop, "_returned", returned)


@plant
def p50_runs_all_null_keys_in_one_lane(patch: Patch) -> None:
    def claim(self: KeyLanes, run: Run, chunk: list[Any], seqs: Any) -> Any:
        if not self._keyed:
            return chunk, seqs
        busy = self._busy.setdefault(run.partition.place.topic, {})
        free = []
        for message, seq in zip(chunk, seqs, strict=True):
            key = message.key() or b""
            if busy.setdefault(key, run) is run:
                run.keys[key] = None
                free.append((message, seq))
            else:
                self._lane(busy, key).queue.append((run.partition, seq, message))
        return [message for message, _ in free], [seq for _, seq in free]

    patch.set(KeyLanes, "_claim", claim)


@plant
def runs_the_handler_again_when_a_letter_fails(patch: Patch) -> None:
    def step(self: Failures, now: float) -> None:
        before(self, now)
        self.ready.extend(
            failed_record for failed_record in failed.pop(self.forwarder, []) if not failed_record.dropped
        )

    def settled(self: Forwarder, answer: Settled, now: float) -> None:
        record = answer.record
        if isinstance(answer.outcome, SinkError) and record.kind == "dead-letter" and not record.failed_record.dropped:
            self.drop(record.failed_record)
            failed.setdefault(self, []).append(record.failed_record)
        else:
            original(self, answer, now)

    failed: dict[Forwarder, list[Any]] = {}
    before = patch.set(Failures, "step", step)
    original = patch.set(Forwarder, "settled", settled)


@plant
def starts_new_work_while_it_drains(patch: Patch) -> None:
    def begin(self: Shutdown, stop: Stop, now: float) -> None:
        self.deadline = min(self.deadline, stop.deadline)
        self._parts.holds.add("drain")
        self._parts.intake.close()

    def dispatch(self: Loop, now: float, *, keep: bool) -> None:
        held: Any = self.holds
        self.holds = held - {"drain"}
        original(self, now, keep=keep)
        self.holds = held

    patch.set(Shutdown, "begin", begin)
    original = patch.set(Loop, "_dispatch", dispatch)


@plant
def p34_stops_polling_while_it_drains(patch: Patch) -> None:
    def poll(self: Loop, now: float) -> None:
        if "drain" not in self.holds:
            original(self, now)

    original = patch.set(Loop, "_poll", poll)

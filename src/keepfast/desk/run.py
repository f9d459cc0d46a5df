"""A replay run: sends the records of a plan, with the facts that say so in the same Kafka transaction.

After a crash the run is resumed: what is not committed was never sent, and what is sent is known. Readers with
`isolation.level=read_uncommitted` may see a record of an aborted transaction, and then see it again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from traceback import extract_tb
from typing import Final, Literal, Protocol

from keepfast.core.errors import ConfigError, Fault, SinkError
from keepfast.core.records import Outgoing, Receipt, Record, RecordPlace
from keepfast.core.replays import ReplayMark, replay_topic
from keepfast.core.retry_topics import Past, RetryOrigin, encode
from keepfast.deadletters import ours
from keepfast.deadletters.letter import TIMESTAMP_TYPES, Letter
from keepfast.deadletters.reading import read
from keepfast.desk.cases import CaseState
from keepfast.desk.facts import Fact, PlanItem, RunFact, RunStatus, Sent, fact_record
from keepfast.desk.index import Index
from keepfast.desk.plan import ReplayPolicy, settled_since
from keepfast.telemetry.clean import clean_error

BATCH: Final = 500
"""Records of one transaction, at most."""
BATCH_BYTES: Final = 16 * 1024 * 1024
STEP_S: Final = 0.5
"""With a rate: the records of so much time are one transaction."""
POLL_S: Final = 0.2
HEARTBEAT_S: Final = 5.0
"""A run that waits writes its status this often."""
ALIVE_S: Final = 30.0
"""A run that has written nothing for so long is dead, and can be resumed."""
CANARY_TIMEOUT_S: Final = 300.0
ENOUGH: Final = 10
"""So many records must be through before a share of failures counts."""
MAX_ERRORS: Final = 20

Transform = Callable[[Record], Record | None]
"""From the record as it was to the record to send; None leaves it out. Topic, partition and offset are the original's
and are not changed by it.
"""


class TransformError(ConfigError):
    """A transform has raised an exception, or returned neither a record nor None."""

    def __init__(self, place: RecordPlace, problem: str) -> None:
        super().__init__(
            f"The transform failed at {place.topic} {place.name}: {problem}. Correct it, or let it return None for this"
            " letter, which leaves it out."
        )


def transformed(transform: Transform, record: Record, place: RecordPlace) -> Record | None:
    """What the transform makes of the record of the letter at `place`. Raises TransformError."""
    try:
        changed = transform(record)
    except Exception as error:
        frames = extract_tb(error.__traceback__)[1:2]  # the transform itself, behind the call here
        where = "".join(f" ({PurePath(frame.filename).name}:{frame.lineno})" for frame in frames)
        raise TransformError(place, f"{clean_error(error)}{where}") from error
    if changed is not None and not isinstance(changed, Record):
        raise TransformError(place, f"it returned {type(changed).__name__} instead of Record or None")
    return changed


class RunSink(Protocol):
    """The part of `kafka.transactional_sink.TransactionalSink` that a run uses."""

    def open(self) -> None: ...
    def begin(self) -> None: ...
    def send(self, records: Sequence[Outgoing]) -> list[Receipt | SinkError]: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


class RunDesk(Protocol):
    """What a run needs of the desk."""

    index: Index

    def now_ms(self) -> int: ...
    def refresh(self) -> object: ...
    def refresh_facts(self) -> None: ...
    def infer_outcomes(self) -> int: ...
    def letters_at(self, dlq: str, places: Mapping[int, Sequence[int]]) -> dict[tuple[int, int], Record]: ...


@dataclass(slots=True)
class _Stopped(Exception):
    """The run ends before all is sent."""

    status: RunStatus
    why: str


@dataclass(frozen=True, slots=True)
class RunProgress:
    """How far a run is."""

    run: RunFact
    succeeded: int = 0
    failed_again: int = 0
    waiting: Literal["", "paused", "canary", "consumers"] = ""


class ReplayRun:
    """One run, on one thread; `stop` may be called by any thread or a signal handler."""

    def __init__(
        self,
        desk: RunDesk,
        fact: RunFact,
        sink: RunSink,
        *,
        desk_topic: str,
        transform: Transform | None = None,
        progress: Callable[[RunProgress], None] = lambda _: None,
        partitions_of: Callable[[str], int | None] = lambda _: None,
        not_before: float | None = None,
    ) -> None:
        self.fact = fact
        self.errors: list[str] = []
        """Records that could not be sent, the first few."""
        self._desk = desk
        self._sink = sink
        self._desk_topic = desk_topic
        self._policy = ReplayPolicy.of(fact.policy)
        self._transform = transform
        self._progress = progress
        self._partitions_of = partitions_of
        self._stop = threading.Event()
        self._counts: dict[str, int | None] = {}
        self._written_at = float("-inf")
        self._canary_left = self._policy.canary
        self._canary_pending = bool(self._policy.canary)
        self._failed_before = 0
        self._cases = 0
        """Cases that were sent: the index knows of them a little later."""
        self._before = (0, 0)
        self._not_before = not_before
        if self._policy.transform and transform is None:
            raise ConfigError(f"This run needs its transform: --transform {self._policy.transform}.")

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stop.is_set()

    def stop(self) -> None:
        """Stop after the open transaction. The run can be resumed."""
        self._stop.set()

    def execute(self) -> RunFact:
        """Blocks until all is sent, or something ends the run: `fact.status` and `fact.why` say what. Raises SinkError
        and SourceError if Kafka cannot be reached; the run can be resumed then, too.
        """
        status: RunStatus = "done"
        why = ""
        try:
            self._sink.open()
            self._desk.refresh()  # after `open`: whatever an earlier process had under way is decided
            self._wait_for_consumers()
            self._send_all(self._left())
        except _Stopped as stopped:
            status, why = stopped.status, stopped.why
        except SinkError as error:
            if error.code == "FENCED":
                self._sink.close()
                return self.fact.now("stopped", self._desk.now_ms(), why="another process has taken this run over")
            status, why = "stopped", str(error)
        try:
            self._say(status, why=why)
        finally:
            self._sink.close()
        return self.fact

    # -- what is left

    def _left(self) -> list[PlanItem]:
        sent = self._desk.index.sent_by(self.fact.run)
        items = self._desk.index.plan(self.fact.run)
        if len(items) < self.fact.total:
            raise _Stopped("stopped", "its plan is not complete in the desk's topic; plan again")
        # Who resumes a run knows what has failed until now: that does not stop it again, nor count for its canary.
        self._before = self._results()
        failed = self._desk.index.failed_by(self.fact.run)
        done = [item for item in items if any(case in sent for case, _ in item.cases)]
        self.fact = replace(self.fact, sent=len(done), skipped=0)
        self._cases = len(sent)
        self._failed_before = sum(any(case in failed for case, _ in item.cases) for item in done)
        canary = len(done) - self._failed_before
        self._canary_left = max(0, self._policy.canary - canary)
        self._canary_pending = bool(self._policy.canary) and canary <= self._policy.canary
        return [item for item in items if not any(case in sent for case, _ in item.cases)]

    def _send_all(self, items: Sequence[PlanItem]) -> None:
        at, next_at = 0, time.monotonic()
        while at < len(items):
            self._obey()
            if self._canary_pending and not self._canary_left:
                self._await_canary()
            size = self._size()
            some = items[at : at + size]
            sent = self._unresolved(some)
            self._send(sent)
            at += len(some)
            if at < len(items):
                self._judge()
            next_at = self._wait_for_rate(next_at, len(sent))

    def _size(self) -> int:
        rate = self._policy.rate_per_s
        size = BATCH if rate is None else max(1, min(BATCH, round(rate * STEP_S)))
        return min(size, self._canary_left) if self._canary_left else size

    def _unresolved(self, items: Sequence[PlanItem]) -> list[PlanItem]:
        """Without the cases that were marked, or sent by another run, since this one was planned."""
        standings = self._desk.index.standings(case for item in items for case, _ in item.cases)
        left = []
        for item in items:
            cases, problems = [], set()
            for case, n in item.cases:
                state, replays = standings.get(case, (CaseState.OPEN, 0))
                problem = settled_since(state, replays, n, self._policy)
                if problem:
                    problems.add(problem)
                else:
                    cases.append((case, max(n, replays + 1)))
            if cases:
                left.append(replace(item, cases=tuple(cases)))
            else:
                self._skip("; ".join(sorted(problems)), item)
        return left

    # -- sending

    def _send(self, items: Sequence[PlanItem]) -> None:
        """In one transaction; again without them if some are refused because of what they are."""
        places: dict[int, list[int]] = {}
        for item in items:
            places.setdefault(item.partition, []).append(item.offset)
        letters = self._desk.letters_at(self.fact.topic, places)
        pairs = []
        for item in items:
            made = self._outgoing(item, letters.get((item.partition, item.offset)))
            if made is None:
                continue
            pairs.append((item, made))
        for some in _within_bytes(pairs):
            left = some
            while left:
                refused = self._transaction(left)
                left = [pair for number, pair in enumerate(left) if number not in refused] if refused else []
        if self._canary_left:
            self._canary_left = max(0, self._canary_left - len(items))

    def _transaction(self, pairs: Sequence[tuple[PlanItem, Outgoing]]) -> set[int]:
        """Returns what was refused; then nothing was sent."""
        self._sink.begin()
        answers = self._sink.send([outgoing for _, outgoing in pairs])
        refused: set[int] = set()
        for number, answer in enumerate(answers):
            if isinstance(answer, SinkError):
                if answer.fault is not Fault.TOO_LARGE:
                    self._abort()
                    raise answer
                refused.add(number)
                self._skip(str(answer), pairs[number][0])
        if refused:
            self._abort()
            return refused
        at_ms = self._desk.now_ms()
        self.fact = self.fact.now("running", at_ms, sent=self.fact.sent + len(pairs), skipped=self.fact.skipped)
        facts: list[Fact] = [
            Sent(
                case=case,
                run=self.fact.run,
                n=n,
                at_ms=at_ms,
                topic=one.topic,
                partition=one.partition,
                offset=one.offset,
            )
            for (item, _), one in zip(pairs, answers, strict=True)
            if isinstance(one, Receipt)
            for case, n in item.cases
        ]
        facts.append(self.fact)
        records = [fact_record(self._desk_topic, fact) for fact in facts]
        failed = next((one for one in self._sink.send(records) if isinstance(one, SinkError)), None)
        if failed is not None:
            self._abort()
            raise failed
        self._sink.commit()
        self._cases += sum(len(item.cases) for item, _ in pairs)
        self._report()
        return set()

    def _abort(self) -> None:
        self._sink.abort()

    def _outgoing(self, item: PlanItem, record: Record | None) -> Outgoing | None:
        if record is None:
            self._skip("the letter is not there any more", item)
            return None
        letter = read(record)
        marks = [ReplayMark(case, self.fact.run, n) for case, n in item.cases]
        changed = self._changed(letter, RecordPlace(self.fact.topic, item.partition, item.offset))
        if changed is None:
            self._skip("left out by the transform", item)
            return None
        policy = self._policy
        topic = policy.topic or letter.topic or ""
        headers = ours.for_replay(replace(letter, headers=changed.headers, value=changed.value), *marks, topic=topic)
        if policy.to_group:
            return self._to_group(letter, replace(letter, key=changed.key, value=changed.value), headers)
        return Outgoing(
            topic=topic,
            value=changed.value,
            key=changed.key,
            headers=headers,
            partition=None if policy.topic else letter.partition,
            timestamp_ms=letter.timestamp_ms if policy.keep_timestamp else None,
        )

    def _changed(self, letter: Letter, place: RecordPlace) -> Record | None:
        """The record as it is sent: the original, or what the transform makes of it."""
        record = record_of(letter)
        if self._transform is None:
            return record
        try:
            changed = transformed(self._transform, record, place)
        except TransformError as error:
            raise _Stopped("stopped", str(error)) from error
        return None if changed is None else replace(changed, headers=ours.originals(changed.headers))

    def _to_group(self, letter: Letter, changed: Letter, headers: Sequence[tuple[str, bytes | None]]) -> Outgoing:
        """As if it came back from a retry topic without a delay: handler and letters see the original place."""
        source = letter.topic or ""
        topic = replay_topic(source, letter.group)
        origin = RetryOrigin(
            source,
            letter.partition or 0,
            letter.offset or 0,
            TIMESTAMP_TYPES.index(letter.timestamp_type),
            -1 if letter.timestamp_ms is None else letter.timestamp_ms,
        )
        past = Past(step=0, failures=0, due_ms=self._desk.now_ms(), origin=origin, attempts=(), headers=tuple(headers))
        count = self._partitions(topic)
        fits = letter.partition is not None and count is not None and letter.partition < count
        return Outgoing(
            topic=topic,
            value=changed.value,
            key=changed.key,
            headers=encode(past, group=letter.group),
            partition=letter.partition if fits else None,
        )

    def _partitions(self, topic: str) -> int | None:
        if topic not in self._counts:
            self._counts[topic] = self._partitions_of(topic)
        return self._counts[topic]

    def _skip(self, why: str, item: PlanItem) -> None:
        self.fact = replace(self.fact, skipped=self.fact.skipped + 1)
        if len(self.errors) < MAX_ERRORS:
            self.errors.append(f"{item.partition}:{item.offset}: {why}")

    # -- waiting

    def _wait_for_consumers(self) -> None:
        """The desk's topic is new: consumers report outcomes from when they have noticed it."""
        while self._not_before is not None and (left_s := self._not_before - time.monotonic()) > 0:
            self._obey()
            self._progress(RunProgress(self.fact, waiting="consumers"))
            self._pause(min(left_s, POLL_S))

    def _obey(self) -> None:
        """Read what persons ask for; wait while the run is paused. Raises _Stopped."""
        self._look()
        while (order := self._desk.index.order(self.fact.run)) is not None and order.kind == "pause":
            self._say("paused", why=f"paused by {order.by}")
            self._pause(POLL_S)
            self._look()
        if order is not None and order.kind == "cancel":
            raise _Stopped("cancelled", f"cancelled by {order.by}")
        if self.fact.status == "paused":
            self._say("running")

    def _look(self) -> None:
        if self._stop.is_set():
            raise _Stopped("stopped", "stopped by a signal")
        if self._policy.stop_if_failing is not None or self._policy.canary:
            self._desk.refresh()
        else:
            self._desk.refresh_facts()

    def _pause(self, wait_s: float) -> None:
        time.sleep(wait_s)  # not in the Event: a signal that comes just then could not set it
        self._report()
        if time.monotonic() - self._written_at >= HEARTBEAT_S:
            self._say(self.fact.status, why=self.fact.why)

    def _wait_for_rate(self, next_at: float, count: int) -> float:
        if self._policy.rate_per_s is None:
            return next_at
        now = time.monotonic()
        next_at = max(next_at, now - STEP_S) + count / self._policy.rate_per_s  # after a delay there is no burst
        while (left_s := next_at - time.monotonic()) > 0:
            if self._stop.is_set():
                raise _Stopped("stopped", "stopped by a signal")
            self._pause(min(left_s, POLL_S))
        return next_at

    def _await_canary(self) -> None:
        """Wait until each record of the canary is processed. Raises _Stopped if one failed again."""
        deadline, wanted = time.monotonic() + CANARY_TIMEOUT_S, self.fact.sent - self._failed_before
        which = f"the {'next' if self._failed_before else 'first'} {wanted} records"
        self._canary_pending = False
        while True:
            self._obey()
            self._desk.infer_outcomes()  # some groups report nothing, and ours nothing before they know the topic
            undecided = self._cases - self._desk.index.decided(self.fact.run)
            succeeded, failed = self._new_results()  # after that: other threads read what is new into the index, too
            if failed:
                why = f"{failed} of {which} failed again"
                raise _Stopped("stopped", f"{why}; see `keepfast dlq list {self.fact.topic} --run {self.fact.run}`")
            if undecided <= 0:
                return
            if time.monotonic() > deadline:
                why = f"only {max(0, wanted - undecided)} of {which} were processed within {CANARY_TIMEOUT_S:g} s"
                raise _Stopped("stopped", f"{why}; does the group run?")
            self._progress(RunProgress(self.fact, succeeded, failed, "canary"))
            self._pause(POLL_S)

    def _judge(self) -> None:
        """Raises _Stopped if too many fail again."""
        percent = self._policy.stop_if_failing
        if percent is None:
            return
        succeeded, failed = self._new_results()
        through = succeeded + failed
        if through >= ENOUGH and failed * 100 > percent * through:
            raise _Stopped("stopped", f"{failed} of {through} processed records failed again, more than {percent:g} %")

    def _results(self) -> tuple[int, int]:
        index, run = self._desk.index, self.fact.run
        return index.succeeded(run), index.failed_again(run)

    def _new_results(self) -> tuple[int, int]:
        """Those since the run was started or resumed."""
        succeeded, failed = self._results()
        return succeeded - self._before[0], failed - self._before[1]

    # -- reporting

    def _report(self) -> None:
        waiting: Literal["", "paused"] = "paused" if self.fact.status == "paused" else ""
        self._progress(RunProgress(self.fact, *self._results(), waiting))

    def _say(self, status: RunStatus, *, why: str = "") -> None:
        """Write the fact of the run, in a transaction of its own: a run that was taken over cannot."""
        if status == self.fact.status and time.monotonic() - self._written_at < HEARTBEAT_S:
            return
        self._written_at = time.monotonic()
        self.fact = self.fact.now(status, self._desk.now_ms(), why=why, sent=self.fact.sent, skipped=self.fact.skipped)
        self._sink.begin()
        answers = self._sink.send([fact_record(self._desk_topic, self.fact)])
        failed = next((one for one in answers if isinstance(one, SinkError)), None)
        if failed is not None:
            self._abort()
            raise failed
        self._sink.commit()


def _within_bytes(pairs: Sequence[tuple[PlanItem, Outgoing]]) -> Iterator[list[tuple[PlanItem, Outgoing]]]:
    """As many together as a transaction may hold."""
    held: list[tuple[PlanItem, Outgoing]] = []
    size = 0
    for pair in pairs:
        own = len(pair[1].value or b"") + len(pair[1].key or b"")
        if held and size + own > BATCH_BYTES:
            yield held
            held, size = [], 0
        held.append(pair)
        size += own
    if held:
        yield held


def record_of(letter: Letter) -> Record:
    """The original record, as a transform gets it."""
    place = letter.topic or "", letter.partition or 0, letter.offset or 0
    return Record(*place, letter.key, letter.value, letter.headers, letter.timestamp_ms)


def is_alive(fact: RunFact, now_ms: int) -> bool:
    """Whether a process executes it."""
    return fact.status in ("running", "paused") and now_ms - fact.updated_ms < ALIVE_S * 1000

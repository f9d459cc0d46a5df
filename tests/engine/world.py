"""A loop with a batch handler on ports that do as configured: no threads, no broker, a clock that is set by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from types import TracebackType
from typing import Any, cast

from keepfast.core.batches import Batch, lane_of
from keepfast.core.commit_metadata import METADATA_LIMIT
from keepfast.core.errors import DecodeError, Fault, SourceError
from keepfast.core.events import Observer
from keepfast.core.policies import BatchPolicy, CommitPolicy, Order, RetryPolicy
from keepfast.core.ports import AskEnds, CommitOutcome, CommittedOffset, Listener, Position, TopicIds
from keepfast.core.records import Message, Record, TopicPartition
from keepfast.core.runs import FilteredOut, Run, SelectedRecords
from keepfast.deadletters.publisher import Publisher
from keepfast.deadletters.reading import read
from keepfast.engine import parts
from keepfast.engine.calls import BatchCall, Call, RecordCall
from keepfast.engine.crash_guard import ExclusiveGate
from keepfast.engine.flight_recorder import NO_SLOT
from keepfast.engine.loop import Loop
from keepfast.engine.mailbox import QueueMailbox, Stop
from keepfast.engine.plan import Plan
from keepfast.engine.workers import Driver, Inline, Superseded
from keepfast.telemetry.metrics import Tally
from tests.support.fakes import FakeSink, ManualClock
from tests.support.messages import message

TOPIC = "orders"
FAST = RetryPolicy(max_retries=2, initial_delay_ms=1000, multiplier=1.0, jitter=False)

Handle = Callable[[list[str]], object]
"""Gets the values of a call, such as "0:3" for offset 3 of partition 0."""


class Mailbox(QueueMailbox):
    """Whoever waits in vain for word lets time pass."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._clock = clock

    def collect(self, timeout_s: float) -> list[Any]:
        items = super().collect(0)
        if not items:
            self._clock.now += timeout_s
        return items


class Source:
    """Implements `core.ports.Source`: hands over what was fed; commits are answered at once, or when told."""

    def __init__(self) -> None:
        self.listener: Listener | None = None
        self.waiting: list[Message] = []
        self.committed_at: dict[TopicPartition, Position] = {}
        self.found: dict[TopicPartition, str] = {}
        """The metadata of the commit at 0 that a partition is found with."""
        self.answers = True
        self.most_metadata = METADATA_LIMIT
        self.refused: dict[TopicPartition, Fault] = {}
        """Partitions whose commits the broker refuses, and why."""
        self.exact = False
        """Whether the answer tells which partitions of the request were refused."""
        self.requests: list[list[TopicPartition]] = []
        self.seen: dict[TopicPartition, int] = {}
        """The ends that the client knows of."""
        self.paused: set[TopicPartition] = set()
        self.left: bool | None = None
        self.reports_ends = True
        self.refetched: list[Position] = []
        self.renewals = 0
        self.logs: dict[TopicPartition, list[Message]] = {}
        """All that was fed, by partition; a reset hands it over again."""
        self.moved: list[Position] = []
        self._unanswered: list[Position] = []

    def subscribe(self, topics: Sequence[str], listener: Listener) -> None:
        self.listener = listener

    def poll(self, timeout_s: float) -> Message | None:
        self.answer()
        return self.waiting.pop(0) if self.waiting else None

    def sweep(self, limit: int) -> list[Message]:
        self.answer()
        taken, self.waiting = self.waiting[:limit], self.waiting[limit:]
        return taken

    @property
    def emptied(self) -> bool:
        return not self.waiting

    def serve(self, timeout_s: float) -> float:
        self.answer()
        return 0.0

    def answer(self) -> None:
        if self._unanswered and self.answers:
            assert self.listener is not None
            positions, self._unanswered = self._unanswered, []
            if any(len(position.metadata) > self.most_metadata for position in positions):
                refusal = SourceError("Too large.", fault=Fault.TOO_LARGE, code="OFFSET_METADATA_TOO_LARGE")
                self.listener.on_committed(CommitOutcome((), tuple((position, refusal) for position in positions)))
                return  # the client gives one partition's error to all of them
            faults = [self.refused[position.place] for position in positions if position.place in self.refused]
            taken = [position for position in positions if position.place not in self.refused]
            self.committed_at.update({position.place: position for position in taken})
            if faults:
                refusal = SourceError("Refused.", fault=faults[0], code=faults[0].value)
                confirmed = tuple(taken) if self.exact else ()
                failed = [position for position in positions if position not in confirmed]
                self.listener.on_committed(CommitOutcome(confirmed, tuple((one, refusal) for one in failed)))
                return
            self.committed_at.update({position.place: position for position in positions})
            self.listener.on_committed(CommitOutcome(tuple(positions)))

    def commit(self, positions: Sequence[Position]) -> None:
        assert not self._unanswered, "one request at a time"
        self._unanswered = list(positions)
        self.requests.append([position.place for position in positions])

    def committed(self, places: Sequence[TopicPartition], timeout_s: float) -> list[CommittedOffset]:
        return [CommittedOffset(place, 0, self.found.get(place, "")) for place in places]

    def edges(self, place: TopicPartition, timeout_s: float) -> tuple[int, int]:
        return 0, len(self.logs.get(place, ()))

    def ends(self, places: Sequence[TopicPartition], timeout_s: float) -> dict[TopicPartition, int]:
        return dict.fromkeys(places, 0)

    def beginnings(self, places: Sequence[TopicPartition], timeout_s: float) -> dict[TopicPartition, int]:
        return dict.fromkeys(places, 0)

    def at_time(self, place: TopicPartition, at_ms: int, timeout_s: float) -> int | None:
        log = self.logs.get(place, [])
        return next((one.offset() for one in log if one.timestamp()[1] >= at_ms), None)

    def seen_ends(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return {place: self.seen[place] for place in places if place in self.seen}

    def start(self, positions: Sequence[Position]) -> None: ...

    def reset(self, position: Position) -> None:
        self.moved.append(position)
        others = [one for one in self.waiting if TopicPartition(one.topic(), one.partition()) != position.place]
        self.waiting = others + self.logs.get(position.place, [])[max(0, position.offset) :]

    def refetch(self, position: Position) -> None:
        self.refetched.append(position)

    def renew(self) -> bool:
        self.renewals += 1
        return True

    def close(self, *, leave: bool = True) -> None:
        self.left = leave

    def pause(self, places: Sequence[TopicPartition]) -> None:
        self.paused |= set(places)

    def resume(self, places: Sequence[TopicPartition]) -> None:
        self.paused -= set(places)


class Workers:
    """Implements `core.ports.Executor`: what is handed over waits until the test lets it be done."""

    grace_s = 0.0

    def __init__(self) -> None:
        self.out: list[Run] = []
        self.given_up: list[Run] = []
        self.blocked_by: list[Run] | None = None
        """The event loop does not turn, because of these runs, as far as that is known."""

    def submit(self, runs: list[Run], out: int) -> None:
        self.out += runs

    def lively(self) -> bool:
        return self.blocked_by is None

    def where(self, run: Run) -> TracebackType | None:
        return None

    def blocker(self) -> tuple[TracebackType | None, list[Run]]:
        return None, self.blocked_by or []

    def give_up(self, run: Run) -> None:
        self.given_up.append(run)

    def regain(self, run: Run) -> None:
        self.given_up.remove(run)


class Here:
    """In place of `engine.workers.Inline`, as far as the loop uses it: the thread of the loop."""

    def __init__(self, call: Call, tally: Tally, clock: Callable[[], float], mailbox: Mailbox) -> None:
        self._call = call
        self._tally = tally
        self._mailbox = mailbox
        self._clock = clock
        self.driver = Driver(NO_SLOT)

    def walk(self, run: Run) -> None:
        driver = self.driver
        driver.begun.append(0.0)
        self._call.walk(run, self._tally, self._clock)
        if not driver.end():
            self._mailbox.post(run)
            raise Superseded

    def lose_the_loop(self) -> None:
        """The handler that runs has taken too long."""
        self.driver.begun.pop()
        self.driver = Driver(NO_SLOT)


class World:
    """`handle` is the user's function. Values are "partition:offset", those that are fed as bad cannot be decoded."""

    def __init__(
        self,
        handle: Handle,
        *,
        order: Order = "partition",
        size: int = 10,
        wait_s: float = 1.0,
        atomic: bool = True,
        retry: RetryPolicy = FAST,
        commit: CommitPolicy | None = None,
        capacity: int = 4,
        partitions: int = 2,
        found: Mapping[int, str] | None = None,
        gate: ExclusiveGate | None = None,
        inline: bool = False,
        observers: Sequence[Observer] = (),
        topic_ids: TopicIds | None = None,
        ask_ends: AskEnds | None = None,
        **guards: Any,
    ) -> None:
        self.clock, self.source, self.sink, self.workers = ManualClock(), Source(), FakeSink(), Workers()
        self.mailbox = Mailbox(self.clock)
        self.calls: list[list[str]] = []
        self.done: list[str] = []
        self.tally = Tally()
        self._handle = handle
        self._undecodable: set[str] = set()
        self.dropped_by_filter: set[str] = set()
        self._order = order
        plan = Plan(
            name="c",
            group="g",
            topics=(TOPIC,),
            order=order,
            capacity=capacity,
            commit=commit or CommitPolicy(mode="each"),
            retry=retry,
            atomic=atomic,
            revoke_timeout_s=0.05,
            dead_letter_topics={TOPIC: "dlq"},
            # One by one with batch=None; no commit before the first start, unless asked for.
            **{"batch": BatchPolicy(size=size, wait_s=wait_s), "max_deliveries": None, **guards},
        )
        publisher = Publisher(
            self.sink, topics=plan.dead_letter_topics, partitions={"dlq": 1}, group="g", handler="h", app_version="0"
        )
        self._worker = (
            RecordCall(self._call_one) if plan.batch is None else BatchCall(self._call, self._decode, lane_of(order))
        )
        self.here = Here(self._worker, self.tally, self.clock.monotonic, self.mailbox)
        ports: dict[str, Any] = {"source": self.source, "sink": self.sink, "clock": self.clock, "random": Random(1)}
        workers = parts.Workers(self.workers, self.mailbox, cast(Inline, self.here) if inline else None)
        asked: dict[str, Any] = {"topic_ids": topic_ids, "ask_ends": ask_ends}
        given = parts.Ports(**ports, **asked, gate=gate or ExclusiveGate(), observers=observers)
        self.loop = Loop(plan, workers, given, publisher)
        self.loop.start()
        self.places = [TopicPartition(TOPIC, number) for number in range(partitions)]
        self.source.found = {self.places[number]: metadata for number, metadata in (found or {}).items()}
        self.loop.on_assigned(self.places)
        self._ends = dict.fromkeys(self.places, 0)

    # -- records

    def feed(self, keys: str, *, partition: int = 0, bad: str = "") -> list[str]:
        """One record a letter, the letter its key; a dot is a null key. Letters in `bad` cannot be decoded."""
        place = self.places[partition]
        names = []
        for key in keys:
            offset = self._ends[place]
            self._ends[place] = offset + 1
            name = f"{partition}:{offset}"
            names.append(name)
            if key in bad:
                self._undecodable.add(name)
            record = message(offset, None if key == "." else key.encode(), place=place, value=name.encode())
            self.source.waiting.append(record)
            self.source.logs.setdefault(place, []).append(record)
        return names

    # -- time and work

    def step(self, *, pass_s: float = 0.0) -> None:
        self.clock.now += pass_s
        self.loop.step(self.clock.now)

    def work(self, which: int = 0) -> Run:
        """A worker does what it was handed, and hands it back."""
        run = self.workers.out.pop(which)
        self._worker.walk(run, self.tally, self.clock.monotonic)
        self.mailbox.post(run)
        return run

    def play(self, *, steps: int = 200, pass_s: float = 0.3) -> None:
        """Until nothing is left to do."""
        for _ in range(steps):
            self.step(pass_s=pass_s)
            while self.workers.out:
                self.work()
                self.step()

    def _decode(self, record: Message) -> str:
        name = (record.value() or b"").decode()
        if name in self.dropped_by_filter:
            raise FilteredOut
        if name in self._undecodable:
            raise DecodeError(name)
        return name

    def _call_one(self, record: Message, run: Run) -> None:
        self._call(SelectedRecords((record,), [self._decode(record)]), run)

    def _call(self, selection: SelectedRecords, run: Run) -> None:
        values = selection.value()
        assert [(record.value() or b"").decode() for record in selection.messages] == values
        self.calls.append(values)
        self._handle(values)
        self.done += values

    # -- what there is to see

    @property
    def out(self) -> list[list[str]]:
        """What workers have in flight."""
        return [[(one.value() or b"").decode() for one in run.messages] for run in self.workers.out]

    @property
    def batches(self) -> list[Batch]:
        return [run for run in self.workers.out if isinstance(run, Batch)]

    @property
    def dead_lettered(self) -> list[str]:
        """The values of the letters, in the order in which they were sent."""
        found = []
        for one in self.sink.sent:
            headers = tuple(one.headers)
            letter = read(Record(one.topic, one.partition or 0, 0, one.key, one.value, headers, None))
            found.append((letter.value or b"").decode())
        return found

    def committed(self, partition: int = 0) -> int:
        position = self.source.committed_at.get(self.places[partition])
        return position.offset if position is not None else 0

    def revoke(self, partition: int) -> None:
        self.loop.on_revoked([self.places[partition]])

    def stop(self, *, after_s: float = 10.0, leave: bool = False) -> None:
        self.mailbox.post(Stop(self.clock.now + after_s, leave=leave))


def refusing(*bad: str, error: Callable[[], BaseException] = lambda: ValueError("no")) -> Handle:
    """A handler that fails as soon as one of these is among what it gets."""

    def handle(values: list[str]) -> None:
        if set(bad) & set(values):
            raise error()

    return handle

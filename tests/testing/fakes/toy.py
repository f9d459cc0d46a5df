"""A small, correct consumer and a driver of random faults: to try the simulated world before the engine runs in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from keepfast.core.errors import Fault, SourceError
from keepfast.core.ports import CommitOutcome, Position
from keepfast.core.records import Message, TopicPartition
from keepfast.testing.fakes.faults import CommitFault, ReadFault, SendFault
from keepfast.testing.fakes.world import Seat, Step, World


class Toy:
    """Counts a record as finished when it is handed over; commits what is finished, one request at a time."""

    def __init__(self, seat: Seat, topic: str) -> None:
        self._source = seat.source
        self._mailbox = seat.mailbox
        self._finished: dict[TopicPartition, int] = {}
        self._confirmed: dict[TopicPartition, int] = {}
        self._unread: set[TopicPartition] = set()
        self._busy = False
        self._source.subscribe([topic], self)

    def step(self, now: float) -> object:
        for place in sorted(self._unread):
            self._unread.discard(place)
            self._begin(place)
        message = self._source.poll(0.1)
        for each in ([message] if message is not None else []) + self._source.sweep(50):
            self._finish(each)
        self._mailbox.collect(0.005)
        self._commit()
        return None

    def on_assigned(self, places: Sequence[TopicPartition]) -> None:
        for place in places:
            # Started and held before the offset is known, as an engine does when the coordinator does not answer.
            self._source.start([Position(place, 0)])
            self._source.pause([place])
            self._begin(place)

    def on_revoked(self, places: Sequence[TopicPartition]) -> None:
        self._commit()
        self._source.serve(0.3)
        self._forget(places)

    def on_lost(self, places: Sequence[TopicPartition]) -> None:
        self._forget(places)

    def on_committed(self, outcome: CommitOutcome) -> None:
        self._busy = False
        for position in outcome.confirmed:
            if position.place in self._confirmed:
                self._confirmed[position.place] = position.offset

    def on_replaced(self) -> None: ...

    def on_commit_repeated(self) -> None: ...

    def on_end(self, place: TopicPartition, offset: int, leader_epoch: int | None = None) -> None:
        if place in self._finished:
            self._finished[place] = max(offset, self._finished[place])

    def on_error(self, error: SourceError, place: TopicPartition | None) -> None:
        if error.fault is Fault.OUT_OF_RANGE and place is not None and place in self._finished:
            self._unread.add(place)
            del self._finished[place], self._confirmed[place]

    def _begin(self, place: TopicPartition) -> None:
        try:
            (committed,) = self._source.committed([place], 0.2)
            first, end = self._source.edges(place, 0.6)
        except SourceError:
            self._unread.add(place)
            return
        start = first if committed.offset is None or not first <= committed.offset <= end else committed.offset
        self._source.reset(Position(place, start))
        self._source.resume([place])
        self._finished[place] = self._confirmed[place] = start

    def _finish(self, message: Message) -> None:
        place = TopicPartition(message.topic(), message.partition())
        if place in self._finished:  # not after an error that the same call told: it is read again from the commit
            self._finished[place] = message.offset() + 1

    def _commit(self) -> None:
        due = [Position(p, offset) for p, offset in sorted(self._finished.items()) if offset != self._confirmed[p]]
        if due and not self._busy:
            self._busy = True
            self._source.commit(due)

    def _forget(self, places: Sequence[TopicPartition]) -> None:
        for place in places:
            self._finished.pop(place, None)
            self._confirmed.pop(place, None)
            self._unread.discard(place)


TOPIC, GROUP, PARTITIONS = "orders", "g", 5


def toy(seat: Seat) -> Step:
    return Toy(seat, TOPIC).step


class Chaos:
    """Pulls a random switch every now and then until it is asked to stop; keeps two or three processes running."""

    def __init__(self, world: World, rng: Random) -> None:
        self._world = world
        self._rng = rng
        self.active = True
        self._number = 0
        for _ in range(2):
            self._spawn()
        world.clock.after(0.5, self._pull)

    def _spawn(self) -> None:
        self._number += 1
        static = f"s{self._number % 2}" if self._rng.random() < 0.2 else None
        self._world.spawn(f"p{self._number}", toy, group=GROUP, instance_id=static)

    def _pull(self) -> None:
        if len(self._world.living()) < 2:
            self._spawn()
        self._world.clock.after(self._rng.uniform(0.05, 1.5), self._pull)
        if not self.active:
            return
        switches: list[Callable[[], None]] = [
            self._produce, self._produce, self._produce, self._crash, self._crash_soon, self._stop, self._freeze,
            self._fail_commits, self._fail_reads, self._join, self._delete, self._gap,
        ]  # fmt: skip
        self._rng.choice(switches)()

    def _place(self) -> TopicPartition:
        return TopicPartition(TOPIC, self._rng.randrange(PARTITIONS))

    def _victim(self) -> Seat:
        return self._rng.choice(self._world.living())

    def _produce(self) -> None:
        for _ in range(self._rng.randint(1, 60)):
            self._world.broker.produce(self._place(), value=b"v")

    def _crash(self) -> None:
        self._victim().process.crash()

    def _crash_soon(self) -> None:
        self._victim().process.crash_after(self._rng.randint(0, 30))

    def _stop(self) -> None:
        self._victim().process.stop(self._rng.choice([0.5, 3.0, 9.0, 30.0]))

    def _freeze(self) -> None:
        self._world.broker.freeze(
            self._rng.choice([0.2, 2.0, 8.0]), data=self._rng.random() < 0.5, expire_first=self._rng.random() < 0.3
        )

    def _fail_commits(self) -> None:
        kind = self._rng.choice(list(CommitFault))
        self._world.broker.faults.commits.order(kind, count=self._rng.randint(1, 4), duration_s=5.0)

    def _fail_reads(self) -> None:
        self._world.broker.faults.committed_reads.order(ReadFault.RETRY, count=self._rng.randint(1, 3))
        self._world.broker.faults.sends.order(SendFault.RETRY, count=1)

    def _join(self) -> None:
        if len(self._world.living()) < 3:
            self._spawn()

    def _delete(self) -> None:
        place = self._place()
        log = self._world.broker.existing(place)
        self._world.broker.delete_records(place, self._rng.randint(log.start, log.end))

    def _gap(self) -> None:
        place = self._place()
        log = self._world.broker.existing(place)
        self._world.broker.produce_gap(place, self._rng.randint(1, 3))
        self._world.broker.compact(place, self._rng.randint(log.start, log.end))


def chaotic_world(seed: int, *, chaos_s: float = 60.0, calm_s: float = 60.0) -> World:
    """A world after a while of faults and a while without."""
    world = World(seed)
    world.broker.create_topic(TOPIC, PARTITIONS)
    chaos = Chaos(world, world.rng)
    world.run(chaos_s)
    chaos.active = False
    world.broker.faults.clear()
    world.run(calm_s)
    return world

"""What goes wrong in a simulated world, and when: the random driver of one seed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

from keepfast.core.records import TopicPartition
from keepfast.core.retry_topics import Tier
from keepfast.testing.fakes.faults import (
    REFUSAL_CODES,
    ClientFault,
    CommitFault,
    IdFault,
    NetworkFault,
    ReadFault,
    SendFault,
    TransactionFault,
)
from keepfast.testing.fakes.sink import OUTPUT
from keepfast.testing.fakes.trace import Neglected
from keepfast.testing.fakes.world import Seat, Step, World
from simulation.discovery import existing
from simulation.member import Member
from simulation.oracle import Oracle
from simulation.setup import GROUP, Setup
from simulation.workload import Workload

RESTART_S = (0.05, 2.0)
PULL_S = (0.1, 1.2)
PRODUCE_S = (0.05, 0.8)
REFILLS, MAX_REFILLED = 0.6, 60
"""How often a recreated topic is filled at once, and how far."""
UNNOTICED_S = 7.0
"""For this long running members get no answer about a recreated topic."""
MAX_EARLY = 5
"""Records that a new partition has before it is read."""
BURST, BURSTS = 40, 0.02
"""So many records at once for one partition, with this probability."""

SEEKS_FORWARD, MAX_SKIPPED = 0.25, 10
"""How many of an operator's seeks skip records, and how many records at most."""

TRY_AGAIN_S = 0.001

NEGLECT_EVERY_S = 70.0
"""A client that was replaced is not replaced again for a minute: one partition after another is not fetched."""


class Chaos:
    """Keeps processes running, produces records, and pulls a random switch every now and then.

    When `active` goes False nothing new goes wrong; processes that are gone are still started again.
    """

    def __init__(self, world: World, setup: Setup, workload: Workload, oracle: Oracle, rng: Random) -> None:
        self._world = world
        self._setup = setup
        self._workload = workload
        self._oracle = oracle
        self._rng = rng
        self._names = 0
        self._neglect_at = 0.0
        tiers = setup.retry_topics()
        self._tiers = list(tiers.topics.values()) if tiers else []
        self.active = True
        self.members: dict[str, Member] = {}
        self.steps = 0
        self._switches: dict[str, Callable[[], None]] = {
            "crash": self._crash,
            "crash_soon": self._crash_soon,
            "stop": self._stop,
            "freeze": self._freeze,
            "cut_off": self._cut_off,
            "commits": self._fail_commits,
            "clients": self._end_client,
            "hang": self._hang_producer,
            "refuse": self._refuse_commits,
            "reads": self._fail_reads,
            "sends": self._fail_sends,
            "join": self._join,
            "leave": self._leave,
            "evict": self._evict,
            "evict_at_a_suspect": self._evict_at_a_suspect,
            "delete": self._delete,
            "gaps": self._gap,
            "compact": self._compact,
            "recreate": self._recreate,
            "grow": self._grow,
            "forge": self._forge,
            "ids": self._fail_ids,
            "unnoticed": self._recreate_unnoticed,
            "cancel": self._cancel_workers,
            "seek": self._seek,
            "neglect": self._neglect,
        }

    def begin(self) -> None:
        for topic, partitions in self._setup.partitions.items():
            self._world.broker.create_topic(f"{topic}.dlq")
            if topic not in self._setup.later:
                self._world.broker.create_topic(topic, partitions)
        for topic in self._setup.later:
            self._world.clock.after(self._rng.uniform(0.5, 0.8) * self._setup.chaos_s, partial(self._appear, topic))
        if self._setup.sends:
            self._world.broker.create_topic(OUTPUT)
        for tier in self._tiers:
            self._world.broker.create_topic(tier.topic, tier.partitions)
            for _ in range(self._setup.left_over):
                self._forge_in(tier)
        if self._setup.reset == "earliest":
            self._produce_some(self._rng.choice((0, 20, 90)))
        for _ in range(self._setup.members):
            self._world.clock.after(self._rng.uniform(0, 1.0), self._spawn)
        self._world.clock.after(0.2, self._produce)
        self._world.clock.after(0.5, self._pull)
        if self._setup.late_commits:
            self._hold_back_a_commit()

    # -- processes

    def _spawn(self) -> None:
        self._names += 1
        static = f"s{self._names}" if self._setup.static else None
        self._start(f"p{self._names}", static)

    def _start(self, name: str, static: str | None) -> None:
        def main(seat: Seat) -> Step:
            member = self.members[seat.process.name] = Member(
                seat, self._world, self._setup, self._workload, self._oracle
            )

            def step(now: float) -> object:
                self.steps += 1
                return member.step(now)

            return step

        seat = self._world.spawn(name, main, group=GROUP, instance_id=static)
        self._watch(seat, name, static)

    def _watch(self, seat: Seat, name: str, static: str | None) -> None:
        """Start it again when it is gone, as a supervisor does."""

        def look() -> None:
            member = self.members.get(seat.process.name)
            if seat.process.alive:
                self._world.clock.after(0.1, look)
            elif self._is_surplus(name) or (self._fenced(member) and self._has_heir(name)):
                return
            else:
                self._world.clock.after(self._rng.uniform(*RESTART_S), lambda: self._start(name, static))

        self._world.clock.after(0.1, look)

    @staticmethod
    def _fenced(member: Member | None) -> bool:
        return member is not None and member.loop.ending is not None and member.loop.ending.kind == "fenced"

    def _has_heir(self, name: str) -> bool:
        """A fenced member stays down, unless no other member replaced it: a late join of its own can fence it, too."""
        return any(seat.process.name.partition(".")[0] == name for seat in self._world.living())

    def _is_surplus(self, name: str) -> bool:
        """Those who joined later do not come back; the first ones always do."""
        return int(name[1:]) > self._setup.members

    def _living(self) -> list[Member]:
        return [self.members[s.process.name] for s in self._world.living() if s.process.name in self.members]

    def _victim(self) -> Member | None:
        living = self._living()
        return self._rng.choice(living) if living else None

    # -- records

    def place(self) -> TopicPartition:
        topic = self._rng.choice(existing(self._setup, self._world.broker))
        return TopicPartition(topic, self._rng.randrange(self._world.broker.partitions(topic) or 1))

    def _produce_some(self, count: int) -> None:
        for _ in range(count):
            self._oracle.produced(self._workload.produce(self.place()))

    def _produce(self) -> None:
        if not self.active:
            return
        share = self._setup.records / self._setup.chaos_s * (sum(PRODUCE_S) / 2)
        self._produce_some(self._rng.randint(0, max(1, round(2 * share))))
        if self._rng.random() < BURSTS:
            place = self.place()
            for _ in range(BURST):
                self._oracle.produced(self._workload.produce(place))
        self._world.clock.after(self._rng.uniform(*PRODUCE_S), self._produce)

    # -- switches

    def _pull(self) -> None:
        if not self.active:
            return
        if self._setup.faults:
            self._switches[self._rng.choice((*self._setup.faults, *self._setup.churn))]()
        self._world.clock.after(self._rng.uniform(*PULL_S), self._pull)

    def _crash(self) -> None:
        victim = self._victim()
        if victim is not None:
            victim.process.crash()

    def _crash_soon(self) -> None:
        victim = self._victim()
        if victim is not None:
            victim.process.crash_after(self._rng.randint(0, 60))

    def _stop(self) -> None:
        victim = self._victim()
        if victim is not None:
            self._stop_now(victim, self._rng.choice((0.3, 2.0, 8.0, 8.0)))

    def _stop_now(self, victim: Member, duration_s: float) -> None:
        """Not while its code lies above another's on the stack: that one would stand still, too."""
        if victim.process.on_top:
            self._world.clock.after(TRY_AGAIN_S, lambda: self._stop_now(victim, duration_s))
        else:
            victim.process.stop(duration_s)

    def _freeze(self) -> None:
        self._world.broker.freeze(
            self._rng.choice((0.2, 1.0, 4.0, 8.0)),
            data=self._rng.random() < 0.5,
            expire_first=self._rng.random() < 0.3,
        )

    def _cut_off(self) -> None:
        """First commits fail, then no member reaches the broker for longer than a session: everything is lost."""
        self._world.trace.fault("cut_off")
        self._world.broker.faults.commits.order(CommitFault.RETRY, count=9, duration_s=9.0)
        silent_s = self._world.broker.settings.session_s + 1.0
        self._world.clock.after(2.0, lambda: self._world.broker.freeze(silent_s, data=False, expire_first=True))

    def _fail_commits(self) -> None:
        kind = self._rng.choice(list(CommitFault))
        self._world.broker.faults.commits.order(kind, count=self._rng.choice((1, 2, 4, 9)), duration_s=8.0)

    def _end_client(self) -> None:
        self._world.broker.faults.clients.order(ClientFault.ENDED, count=1, duration_s=8.0)

    def _hang_producer(self) -> None:
        self._world.broker.faults.transactions.order(TransactionFault.HANGS, count=1, duration_s=8.0)

    def _refuse_commits(self) -> None:
        """Of one partition, whose topic is missing or whose right is withdrawn for a while; one at a time, so that
        others have to continue.
        """
        if self._world.broker.faults.refused.open:
            return
        code, duration_s = self._rng.choice(REFUSAL_CODES), self._rng.choice(self._setup.refused_s)
        self._world.broker.faults.refused.order(self.place(), code, duration_s=duration_s)

    def _fail_reads(self) -> None:
        self._world.broker.faults.committed_reads.order(ReadFault.RETRY, count=self._rng.randint(1, 3), duration_s=4.0)

    def _hold_back_a_commit(self) -> None:
        if self.active:
            self._world.broker.faults.network.order(NetworkFault.LATE, count=1)
            self._world.clock.after(self._world.broker.rng.uniform(0.3, 3.0), self._hold_back_a_commit)

    def _fail_sends(self) -> None:
        kind = self._rng.choice((SendFault.RETRY, SendFault.WRITTEN, SendFault.TOO_LARGE))
        self._world.broker.faults.sends.order(kind, count=self._rng.randint(1, 4), duration_s=4.0)

    def _join(self) -> None:
        if len(self._world.living()) < 4:
            self._world.trace.fault("join")
            self._spawn()

    def _leave(self) -> None:
        victim = self._victim()
        if victim is not None:
            victim.stop()

    def _evict(self) -> None:
        victim = self._victim()
        if victim is not None:
            self._world.broker.group(GROUP).evict(victim.name)

    def _evict_at_a_suspect(self) -> None:
        """A member whose count of a start is stored: the suspect runs, or is about to."""
        for member in self._living():
            if any(one.watch is not None and one.watch.known is not None for one in member.loop.ownership):
                self._world.broker.group(GROUP).evict(member.name)
                return

    def _cancel_workers(self) -> None:
        """All of a process, as a library does that cancels all tasks, or some."""
        victim = self._victim()
        if victim is not None:
            share, at_hand_over = self._rng.choice((1.0, 1.0, 0.3)), self._rng.random() < 0.6
            victim.executor.cancel_workers(share, at_hand_over=at_hand_over)

    def _seek(self) -> None:
        """An operator moves a partition, mostly back."""
        victim = self._victim()
        owned = [one for one in victim.loop.ownership if not one.closing] if victim is not None else []
        if victim is None or not owned:
            return
        partition = self._rng.choice(owned)
        log = self._world.broker.existing(partition.place)
        position = min(max(partition.ledger.watermark(), log.start), log.end)
        to = self._rng.randint(log.start, position)
        if self._rng.random() < SEEKS_FORWARD:
            to = self._rng.randint(position, min(log.end, position + MAX_SKIPPED))
        if self._oracle.seek_ordered(victim.name, partition.place, to):
            self._world.trace.fault("seek")
            victim.seek(partition.place, to, partial(self._oracle.seek_answered, victim.name, partition.place))

    def _neglect(self) -> None:
        """A member's client does not fetch one of its partitions any more."""
        victim, now = self._victim(), self._world.clock.monotonic()
        owned = [one.place for one in victim.loop.ownership if not one.closing] if victim is not None else []
        if victim is None or not owned or now < self._neglect_at:
            return
        self._neglect_at = now + NEGLECT_EVERY_S
        place = self._rng.choice(owned)
        self._world.trace.fault("not_fetched")
        self._world.trace.add(Neglected(now, victim.name, place))
        victim.seat.source.neglect(place, self._rng.choice(("refetch", "client")))
        for _ in range(self._rng.randint(1, 5)):
            self._oracle.produced(self._workload.produce(place))

    def _delete(self) -> None:
        place = self.place()
        log = self._world.broker.existing(place)
        self._world.broker.delete_records(place, self._rng.randint(log.start, log.end))

    def _gap(self) -> None:
        self._world.broker.produce_gap(self.place(), self._rng.randint(1, 3))

    def _compact(self) -> None:
        place = self.place()
        log = self._world.broker.existing(place)
        for _ in range(3):
            self._world.broker.compact(place, self._rng.randint(log.start, log.end))

    def _recreate(self) -> None:
        topic = self.place().topic
        broker = self._world.broker
        ends = {
            number: broker.existing(TopicPartition(topic, number)).end
            for number in range(broker.partitions(topic) or 0)
        }
        broker.recreate_topic(topic)
        self._oracle.recreated(topic, ends)
        for number, end in ends.items() if self._rng.random() < REFILLS else ():
            for _ in range(min(end, MAX_REFILLED) + 1):  # so that no position lies outside the new log
                self._oracle.produced(self._workload.produce(TopicPartition(topic, number)))

    def _recreate_unnoticed(self) -> None:
        """Running members do not learn of the new topic, those that start do, and partitions move back and forth."""
        deaf, now = self._world.broker.faults.deaf, self._world.clock.monotonic()
        if max(deaf.values(), default=0.0) > now or len(self._living()) < self._setup.members:
            return  # one after another
        deaf.update({member.name: now + UNNOTICED_S for member in self._living()})
        self._recreate()
        self._leave()
        for part in (0.45, 0.6, 0.75, 0.9):
            self._world.clock.after(part * UNNOTICED_S, self._end_one_that_noticed)

    def _end_one_that_noticed(self) -> None:
        """Then others get its partitions, with commits of a topic that they know nothing of."""
        reachable = [member for member in self._living() if member.name not in self._world.broker.faults.deaf]
        if self.active and reachable:
            self._rng.choice(reachable).stop()

    def _grow(self) -> None:
        topic = self.place().topic
        total = (self._world.broker.partitions(topic) or 0) + 1
        if total <= 8:
            self._world.trace.fault("partitions_added")
            self._world.broker.add_partitions(topic, total)
            if self._setup.reset == "latest":
                place = TopicPartition(topic, total - 1)  # records that arrive before the group learns of the partition
                for _ in range(self._rng.randint(0, MAX_EARLY)):
                    self._oracle.produced(self._workload.produce(place))

    def _appear(self, topic: str) -> None:
        """Once the group has begun with another topic; some records come before it hears of this one."""
        if not any(self._world.broker.group(GROUP).commits):
            self._world.clock.after(TRY_AGAIN_S, partial(self._appear, topic))
            return
        self._world.trace.fault("topic_appeared")
        partitions = self._setup.partitions[topic]
        self._world.broker.create_topic(topic, partitions)
        self._oracle.appeared(topic)
        for _ in range(self._rng.randint(1, 3 * MAX_EARLY)):
            place = TopicPartition(topic, self._rng.randrange(partitions))
            self._oracle.produced(self._workload.produce(place))

    def _fail_ids(self) -> None:
        self._world.broker.faults.topic_ids.order(IdFault.FAILED, count=self._rng.randint(1, 4), duration_s=4.0)

    def _forge(self) -> None:
        self._forge_in(self._rng.choice(self._tiers))

    def _forge_in(self, tier: Tier) -> None:
        self._world.trace.fault("forged_retry_headers")
        place = TopicPartition(tier.topic, self._rng.randrange(tier.partitions))
        self._oracle.produced(self._workload.forge(place))

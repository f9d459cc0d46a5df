"""Small stories about the crash guard, with the real loop in a simulated world in which nothing goes wrong by itself.

The oracle watches all of them, so here stands only what it cannot know: how much a death costs, and whom.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from keepfast.core import commit_metadata
from keepfast.core.commit_metadata import CompletionMap
from keepfast.core.crash_guard import read
from keepfast.core.policies import BatchPolicy, CommitPolicy, Order, RetryPolicy
from keepfast.core.ports import Position
from keepfast.core.records import TopicPartition
from keepfast.core.timeouts import TimeoutPolicy
from keepfast.engine import crash_guard
from keepfast.testing.fakes import acts, trace
from keepfast.testing.fakes.coordinator import Identity, State
from keepfast.testing.fakes.faults import SendFault
from simulation.member import Member
from simulation.oracle.cover import Cover
from simulation.oracle.letters import original
from simulation.scenario import Scenario, _tuned, quiet
from simulation.setup import setup_for
from simulation.workload import Entry

MOST = 3


@pytest.fixture(autouse=True)
def silent() -> Iterator[None]:
    """The log of a world in which processes die all the time is of no use."""
    with quiet():
        yield


class Story:
    """One consumer over some partitions; records are produced by the test."""

    def __init__(self, *, partitions: int = 1, **changes: Any) -> None:
        setup = replace(
            setup_for(0),
            **{
                "order": "partition",
                "commit": CommitPolicy(),
                "retry": RetryPolicy(max_retries=3, initial_delay_ms=20, max_delay_ms=100),
                "capacity": 8,
                "sweep": 50,
                "partitions": {"orders": partitions},
                "members": 1,
                "static": True,
                "reset": "earliest",
                "pace": (0.02, 0.05),
                "slow": 0.0,
                "trouble": 0.0,
                "faults": (),
                "churn": (),
                "killers": 0,
                "max_deliveries": MOST,
                "recorder": False,
                "alone_s": 300.0,
                **changes,
            },
        )
        self.scenario = Scenario(1, setup=setup)
        self.world, self.oracle = self.scenario.world, self.scenario.oracle
        self.scenario.chaos.active = False
        for topic, count in setup.partitions.items():
            self.world.broker.create_topic(topic, count)
            self.world.broker.create_topic(f"{topic}.dlq")
        self.records: list[Entry] = []

    def produce(self, count: int, *, partition: int = 0) -> list[Entry]:
        made = [self.scenario.workload.produce(TopicPartition("orders", partition)) for _ in range(count)]
        for entry in made:
            self.oracle.produced(entry)
        self.records += made
        return made

    def start(self) -> None:
        self.scenario.chaos._spawn()

    @property
    def member(self) -> Member:
        """The process that lives."""
        return next(member for member in self.scenario.chaos.members.values() if member.process.alive)

    def wait(self, condition: Callable[[], object], timeout_s: float = 120.0) -> None:
        clock = self.world.clock
        assert clock.wait(clock.monotonic() + timeout_s, lambda: self.oracle.violation or condition()), "it never came"
        assert self.oracle.violation is None, self.oracle.violation

    def wait_done(self, timeout_s: float = 120.0) -> None:
        self.wait(lambda: not self.oracle.unfinished(), timeout_s)

    def kill(self) -> None:
        name = self.member.name
        self.member.process.crash()
        self.wait(lambda: any(m.process.alive and m.name != name for m in self.scenario.chaos.members.values()))

    def events(self, kind: type[trace.Fact]) -> list[Any]:
        return [event for event in self.world.trace.events if type(event) is kind]

    def starts(self) -> Counter[int]:
        return Counter(event.number for event in self.events(acts.HandlerBegan))

    def letters(self) -> dict[int, str]:
        """The code of each record's letter."""
        found = {}
        for event in self.events(acts.LetterSent):
            outgoing, entry = self.oracle._book.letter(event.member, event.number)
            found[entry.number] = original(outgoing).error_code
        return found

    def commits(self) -> list[Cover]:
        return [Cover(event.offset, event.metadata) for event in self.events(trace.CommitAccepted)]

    def is_beyond(self, offset: int) -> bool:
        """Whether every partition is committed beyond that, and beyond the mark of any earlier death."""
        for number in range(self.world.broker.partitions("orders") or 0):
            stored = self.world.broker.stored("g", TopicPartition("orders", number))
            cover = Cover(stored.offset, stored.metadata) if stored else Cover(0)
            if cover.offset < offset or read(cover.guard, cover.offset).mark:
                return False
        return True

    def suspected(self) -> bool:
        """Whether there ever were suspects."""
        return any(read(commit.guard, commit.offset).until for commit in self.commits())


@pytest.mark.parametrize("mode", ["each", "interval"])
@pytest.mark.parametrize("order", ["partition", "key", "none"])
def test_a_killer_is_dead_lettered_after_its_deaths_and_all_others_are_done(order: Order, mode: str) -> None:
    story = Story(order=order, commit=CommitPolicy(mode=mode, every_s=0.1), partitions=3)  # type: ignore[arg-type]
    killer = story.produce(12)[5]
    story.produce(12, partition=1)
    killer.conduct = "kill"
    story.start()
    story.wait_done()
    assert story.letters() == {killer.number: "CRASHED"}
    assert story.starts()[killer.number] <= 2 + MOST
    assert story.starts()[killer.number] > MOST - 1
    assert all(entry.terminal == "handled" for entry in story.records if entry is not killer)


@pytest.mark.parametrize("most", [1, 2, 5])
def test_it_crashes_max_deliveries_times_and_twice_before_counting_starts(most: int) -> None:
    story = Story(max_deliveries=most)
    killer = story.produce(5)[2]
    killer.conduct = "kill"
    story.start()
    story.wait_done()
    assert story.starts()[killer.number] == 2 + most
    assert story.letters() == {killer.number: "CRASHED"}


def test_several_killers_are_found_one_after_the_other() -> None:
    story = Story(order="none", partitions=2)
    killers = [*story.produce(10)[3:5], *story.produce(10, partition=1)[2:4]]
    for killer in killers:
        killer.conduct = "kill"
    story.start()
    story.wait_done(300)
    assert story.letters() == {killer.number: "CRASHED" for killer in killers}


def test_without_the_guard_it_kills_for_ever() -> None:
    story = Story(max_deliveries=None)
    killer = story.produce(5)[2]
    killer.conduct = "kill"
    story.start()
    story.wait(lambda: story.starts()[killer.number] > 12)
    assert story.letters() == {}
    assert all(not commit.guard for commit in story.commits())


@pytest.mark.parametrize(("order", "records", "apart"), [("partition", 120, 20), ("key", 400, 60)])
def test_killed_five_times_at_different_places_no_record_is_suspected(order: Order, records: int, apart: int) -> None:
    story = Story(order=order, partitions=2)
    story.produce(records)
    story.produce(records, partition=1)
    story.start()
    for further in range(1, 6):
        story.wait(lambda n=further: story.is_beyond(apart * n))  # type: ignore[misc]
        story.kill()
    story.wait_done()
    assert not story.suspected()
    assert story.letters() == {}


def test_killed_repeatedly_at_the_same_place_between_records_no_record_is_dead_lettered() -> None:
    story = Story(partitions=2)
    story.produce(3)
    story.start()
    for _ in range(6):
        story.wait_done()
        story.kill()
    story.produce(5)
    story.wait_done()
    assert story.letters() == {}
    assert max(story.starts().values()) == 1


def test_a_death_costs_one_commit_and_nothing_else() -> None:
    story = Story()
    story.produce(30)
    story.start()
    story.wait(lambda: len(story.commits()) > 8)
    story.kill()
    story.wait_done()
    repeated = sum(count - 1 for count in story.starts().values())
    # One commit for each record, one before the first start of each life, and one for what was repeated.
    assert len(story.commits()) <= 30 + 2 + repeated


def test_a_record_that_fails_in_probation_is_retried_and_dead_lettered_for_its_error_not_as_a_killer() -> None:
    story = Story(order="key")
    doomed, killer, *_ = story.produce(6)
    doomed.conduct, killer.conduct = "doomed", "kill"
    story.start()
    story.wait_done(300)
    assert story.letters() == {doomed.number: "UNHANDLED_EXCEPTION", killer.number: "CRASHED"}


def test_marks_and_counts_survive_an_orderly_stop_in_the_middle_of_probation() -> None:
    story = Story()
    killer = story.produce(5)[2]
    killer.conduct = "kill"
    story.start()
    for deaths in range(3, 2 + MOST):
        story.wait(lambda n=deaths: story.starts()[killer.number] == n)  # type: ignore[misc]
        story.wait(lambda: any(member.process.alive for member in story.scenario.chaos.members.values()))
        story.member.stop()
    story.wait_done()
    assert story.starts()[killer.number] <= 2 + MOST + 2, "a stop takes at most the start back that it interrupts"
    assert story.letters() == {killer.number: "CRASHED"}


def test_after_an_orderly_stop_the_commit_has_no_records_in_flight() -> None:
    story = Story(partitions=2)
    story.produce(10)
    story.produce(10, partition=1)
    story.start()
    story.wait(lambda: len(story.commits()) > 6)
    member = story.member
    member.stop()
    story.wait(lambda: not member.process.alive)
    for number in range(2):
        stored = story.world.broker.stored("g", TopicPartition("orders", number))
        assert stored is not None
        printed = commit_metadata.read(stored.metadata, offset=stored.offset)
        assert (stored.offset > 0, printed) == (True, (CompletionMap(stored.offset), ""))


def test_a_suspect_that_takes_too_long_blocks_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crash_guard, "ALONE_S", 2.0)
    story = Story(order="key", alone_s=2.0, partitions=2)
    slow, *others = [*story.produce(4), *story.produce(4, partition=1)]
    slow.takes_s = 30.0
    for entry in others:
        entry.takes_s = 3.0
    story.start()
    for _ in range(2):
        before = story.starts()[slow.number]
        story.wait(lambda n=before: story.starts()[slow.number] > n)  # type: ignore[misc]
        story.kill()
    story.wait(lambda: all(entry.terminal for entry in others), 40.0)
    assert story.suspected()
    assert slow.terminal == ""
    story.wait_done()
    assert slow.terminal == "handled"


@pytest.mark.parametrize(("takes_s", "waited_s"), [(30.0, 4.0), (2.0, 2.0)])
def test_a_suspect_that_is_given_up_is_alone_until_its_thread_ends_or_takes_too_long(
    monkeypatch: pytest.MonkeyPatch, takes_s: float, waited_s: float
) -> None:
    monkeypatch.setattr(crash_guard, "ALONE_S", 4.0)
    story = Story(order="key", threads=True, timeout=TimeoutPolicy(timeout_s=0.5), alone_s=4.0, partitions=2)
    hangs, *others = [*story.produce(4), *story.produce(4, partition=1)]
    hangs.takes_s = takes_s
    story.start()
    for _ in range(2):
        before = story.starts()[hangs.number]
        story.wait(lambda n=before: story.starts()[hangs.number] > n)  # type: ignore[misc]
        story.kill()
    story.wait(lambda: all(entry.terminal for entry in others))
    assert story.suspected()
    assert story.letters() == {hangs.number: "TIMEOUT"}
    begun_at = max(start.at for start in story.events(acts.HandlerBegan) if start.number == hangs.number)
    next_at = min(start.at for start in story.events(acts.HandlerBegan) if start.at > begun_at)
    assert waited_s <= next_at - begun_at < waited_s + 0.5


def test_the_letter_of_a_killer_may_become_too_small_to_say_so() -> None:
    story = Story()
    killer = story.produce(5)[2]
    killer.conduct = "kill"
    story.world.broker.faults.sends.order(SendFault.TOO_LARGE, count=6)
    story.start()
    story.wait_done()
    assert list(story.letters()) == [killer.number]
    assert story.starts()[killer.number] == 2 + MOST


def test_a_killer_dies_once_more_if_a_former_owner_commits_over_what_its_death_left() -> None:
    """A group without members takes the commit of one that was stopped and does not know yet that it is out."""
    story = Story(static=False, recorder=True, commit=CommitPolicy(mode="interval", every_s=0.1))
    slow, killer = story.produce(2)
    slow.takes_s, killer.conduct = 3.0, "kill"
    story.start()
    story.wait(lambda: story.starts()[slow.number])
    former, group = story.member, story.world.broker.group("g")
    former.process.stop(40.0)
    group.evict(former.name)
    story.start()
    story.wait(lambda: story.events(trace.ProcessCrashed))
    story.wait(lambda: group.state is State.EMPTY)
    last = next(event for event in reversed(story.events(trace.CommitSent)) if event.member == former.name)
    story.world.trace.add(replace(last, at=story.world.clock.monotonic(), generation=-1))
    outside = Identity(former.name, "", -1, None)
    story.world.broker.commit(group, outside, (Position(last.place, last.offset, last.metadata),))
    story.wait_done()
    assert story.letters() == {killer.number: "CRASHED"}
    assert story.starts()[killer.number] == 1 + 2 + MOST


def test_a_suspect_that_was_given_up_is_waited_for_even_if_its_partition_is_lost() -> None:
    batch = BatchPolicy(size=2, wait_s=0.01)
    story = Story(
        threads=True, timeout=TimeoutPolicy(timeout_s=0.5), alone_s=20.0, static=False, batch=batch, partitions=2
    )
    hangs = story.produce(1)[0]
    hangs.takes_s = 60.0
    with _tuned(story.scenario.setup):
        story.start()
        for _ in range(2):
            before = len(story.events(acts.BatchBegan))
            story.wait(lambda n=before: len(story.events(acts.BatchBegan)) > n)  # type: ignore[misc]
            story.kill()
        story.wait(lambda: hangs.terminal)
        others = story.produce(4, partition=1)
        story.world.broker.group("g").evict(story.member.name)
        story.wait_done()
    assert story.suspected()
    begun_at = max(start.at for start in story.events(acts.BatchBegan) if hangs.number in start.numbers)
    assert min(start.at for start in story.events(acts.BatchBegan) if start.at > begun_at) >= begun_at + 20.0
    assert all(entry.terminal == "handled" for entry in others)

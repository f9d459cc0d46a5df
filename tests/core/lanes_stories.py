"""Two ways of playing with the model of the lanes: hypothesis finds short stories, long walks find long ones."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from keepfast.core.policies import Order
from keepfast.core.records import TopicPartition
from tests.core.lanes_model import GAPS, KEYS, LanesModel
from tests.core.lanes_watched import ALL, PLACES

numbers = st.integers(0, 1_000)
places = st.sampled_from(PLACES)
choices = st.lists(st.booleans(), min_size=1, max_size=6)
produced = st.lists(st.tuples(st.sampled_from(GAPS), st.sampled_from(KEYS)), min_size=1, max_size=8)


class Stories(RuleBasedStateMachine):
    """Each rule is a move of the model."""

    order: ClassVar[Order]

    def __init__(self) -> None:
        super().__init__()
        self.model = LanesModel(self.order)

    @initialize(inherited=st.lists(st.booleans(), max_size=10))
    def assign_all(self, inherited: list[bool]) -> None:
        self.model.assign_all(inherited)

    @rule(place=places, records=produced, count=st.integers(0, 8))
    def produce(self, place: TopicPartition, records: list[tuple[int, bytes | None]], count: int) -> None:
        self.model.produce(place, records, count)

    @rule(place=places, count=st.integers(1, 8))
    def fetch(self, place: TopicPartition, count: int) -> None:
        self.model.fetch(place, count)

    @rule(place=places)
    def hold_or_let_run(self, place: TopicPartition) -> None:
        self.model.hold_or_let_run(place)

    @rule(limit=st.integers(0, 4), size=st.integers(1, 5))
    def take(self, limit: int, size: int) -> None:
        self.model.take(limit, size)

    @rule(size=st.sampled_from([1, ALL]))
    def take_all(self, size: int) -> None:
        self.model.take_all(size)

    @rule(number=numbers)
    def work(self, number: int) -> None:
        self.model.work(number)

    @rule(number=numbers, at_once=st.booleans())
    def succeed(self, number: int, at_once: bool) -> None:
        self.model.succeed(number, at_once=at_once)

    @rule(number=numbers, after=st.integers(0, 3), at_once=st.booleans())
    def fail(self, number: int, after: int, at_once: bool) -> None:
        self.model.fail(number, after, at_once=at_once)

    @rule(number=numbers, at_once=st.booleans())
    def stop(self, number: int, at_once: bool) -> None:
        self.model.stop(number, at_once=at_once)

    @rule(number=numbers, between=st.booleans())
    def hang(self, number: int, between: bool) -> None:
        self.model.hang(number, between=between)

    @rule(number=numbers, at_once=st.booleans())
    def time_out(self, number: int, at_once: bool) -> None:
        self.model.time_out(number, at_once=at_once)

    @rule(size=st.integers(2, 12))
    def grow(self, size: int) -> None:
        self.model.grow(size)

    @rule(number=numbers, size=st.integers(2, 12))
    def lengthen(self, number: int, size: int) -> None:
        self.model.lengthen(number, size)

    @rule(number=numbers, chosen=choices, at_once=st.booleans())
    def do_some(self, number: int, chosen: list[bool], at_once: bool) -> None:
        self.model.do_some(number, chosen, at_once=at_once)

    @rule(number=numbers, chosen=choices)
    def fail_some(self, number: int, chosen: list[bool]) -> None:
        self.model.fail_some(number, chosen)

    @rule(place=places, number=numbers)
    def retry(self, place: TopicPartition, number: int) -> None:
        self.model.retry(place, number)

    @rule(place=places)
    def commit(self, place: TopicPartition) -> None:
        self.model.commit(place)

    @rule(place=places)
    def revoke(self, place: TopicPartition) -> None:
        self.model.revoke(place)

    @rule(place=places, clean=st.booleans())
    def rebalance_at_once(self, place: TopicPartition, clean: bool) -> None:
        self.model.rebalance_at_once(place, clean=clean)

    @invariant()
    def bytes_are_counted(self) -> None:
        self.model.check_bytes()

    def teardown(self) -> None:
        if self.model.tenures:
            self.model.come_to_an_end()


class ByPartition(Stories):
    order = "partition"


class ByKey(Stories):
    order = "key"


class Unordered(Stories):
    order = "none"


STORIES: dict[Order, type[Stories]] = {story.order: story for story in (ByPartition, ByKey, Unordered)}


def walk(order: Order, random: Random, steps: int) -> None:
    """A long walk, its moves weighted by how often an engine makes them."""
    model = LanesModel(order)
    model.assign_all([chance(random, 0.4) for _ in range(random.randint(0, 10))])
    moves = moves_of(model, random)
    for move in random.choices(list(moves), weights=list(moves.values()), k=steps):
        move()
        model.check_bytes()
    model.come_to_an_end()


def chance(random: Random, of: float) -> bool:
    return random.random() < of


def moves_of(model: LanesModel, random: Random) -> dict[Callable[[], None], int]:
    def place() -> TopicPartition:
        return random.choice(PLACES)

    def number() -> int:
        return random.randrange(1_000)

    def records() -> list[tuple[int, bytes | None]]:
        return [(random.choice(GAPS), random.choice(KEYS)) for _ in range(random.randint(1, 8))]

    def choice() -> list[bool]:
        return [chance(random, 0.5) for _ in range(6)]

    return {
        lambda: model.produce(place(), records(), random.randint(0, 8)): 10,
        lambda: model.fetch(place(), random.randint(1, 8)): 5,
        lambda: model.hold_or_let_run(place()): 2,
        lambda: model.take(random.randint(0, 4), random.randint(1, 5)): 15,
        lambda: model.take_all(random.choice([1, ALL])): 4,
        lambda: model.work(number()): 10,
        lambda: model.succeed(number(), at_once=chance(random, 0.5)): 15,
        lambda: model.fail(number(), random.randint(0, 3), at_once=chance(random, 0.5)): 8,
        lambda: model.stop(number(), at_once=chance(random, 0.5)): 5,
        lambda: model.hang(number(), between=chance(random, 0.5)): 4,
        lambda: model.time_out(number(), at_once=chance(random, 0.5)): 3,
        lambda: model.grow(random.randint(2, 12)): 10,
        lambda: model.lengthen(number(), random.randint(2, 12)): 5,
        lambda: model.do_some(number(), choice(), at_once=chance(random, 0.5)): 6,
        lambda: model.fail_some(number(), choice()): 4,
        lambda: model.retry(place(), number()): 10,
        lambda: model.commit(place()): 8,
        lambda: model.revoke(place()): 3,
        lambda: model.rebalance_at_once(place(), clean=chance(random, 0.7)): 2,
    }

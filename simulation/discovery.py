"""Topics of a pattern that appear while a simulated group runs, and who tells a process of them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from random import Random

from keepfast.core.records import TopicPartition
from keepfast.engine.plan import Plan
from keepfast.engine.subscription import TopicsFound
from keepfast.testing.fakes.broker import FakeBroker
from keepfast.testing.fakes.faults import IdFault
from keepfast.testing.fakes.process import Process
from simulation.setup import GROUP, Setup

APPEARING = (10, 25, 40)
"""The remainders by sixty of the seeds whose group reads by a pattern."""

REFRESH_S = 0.8


def discovering(setup: Setup, seed: int) -> Setup:
    """Some seeds read by a pattern, and topics appear. Drawn apart, and last."""
    if seed % 60 not in APPEARING:
        return setup
    rng = Random(seed * 31 + 19)
    later = {f"later{number}": rng.randint(1, 3) for number in range(rng.randint(1, 3))}
    return replace(
        setup,
        partitions={"orders": rng.randint(1, 3)} | later,
        later=tuple(later),
        left_over=0,
        reset=rng.choice(("latest", "latest", "earliest")),
        faults=(
            *(one for one in setup.faults if one not in ("recreate", "unnoticed")),
            "crash",
            "join",
            "leave",
            "ids",
        ),
        static=False,
    )


def existing(setup: Setup, broker: FakeBroker) -> tuple[str, ...]:
    return tuple(topic for topic in setup.partitions if broker.partitions(topic) is not None)


def appeared(setup: Setup, broker: FakeBroker) -> frozenset[str]:
    """As a process asks before it starts (`wiring.topic_discovery`): topics without an offset, if others have one."""
    topics = existing(setup, broker)
    read = {
        topic
        for topic in topics
        for number in range(broker.partitions(topic) or 0)
        if broker.stored(GROUP, TopicPartition(topic, number)) is not None
    }
    return frozenset(topics) - read if setup.later and read else frozenset()


class SimDiscovery:
    """Implements `engine.subscription.Discover`. `plan` makes the plan of topics. A frozen broker answers when it is
    thawed; some questions fail, as those for ids do.
    """

    def __init__(
        self, process: Process, broker: FakeBroker, setup: Setup, plan: Callable[[tuple[str, ...]], Plan]
    ) -> None:
        self._process = process
        self._broker = broker
        self._setup = setup
        self._plan = plan

    def __call__(self, known: Collection[str], answer: Callable[[TopicsFound], None]) -> None:
        def look() -> None:
            failed = self._broker.faults.topic_ids.take() is IdFault.FAILED
            topics = existing(self._setup, self._broker)
            new = tuple(topic for topic in topics if topic not in known)
            found = TopicsFound(matched=frozenset(topics), ready=self._plan(new) if new else None)
            self._process.background(lambda: answer(TopicsFound() if failed else found))

        self._broker.data.after(self._broker.rng.uniform(*self._broker.settings.latency_s), look)

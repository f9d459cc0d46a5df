"""A quiet simulated world for one story: nothing goes wrong that the story does not ask for. The oracle watches it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from keepfast.core.policies import BufferPolicy, CommitPolicy, RetryPolicy
from keepfast.core.records import TopicPartition
from keepfast.testing.fakes import acts
from keepfast.testing.fakes.settings import WorldSettings
from simulation.member import Member
from simulation.scenario import Scenario, _tuned, quiet
from simulation.setup import setup_for
from tests.support.waiting import wait_until


class Stage:
    """One member by default, `orders` with so many partitions, handlers of a millisecond that succeed.

    `error` may be set to a function that says what the handler raises for a record's number.
    """

    def __init__(self, *, partitions: int = 1, records: int = 0, **choices: Any) -> None:
        setup = replace(
            setup_for(0),
            **{
                "order": "partition",
                "commit": CommitPolicy(),
                "retry": RetryPolicy(max_retries=2, initial_delay_ms=100, jitter=False),
                "buffer": BufferPolicy(),
                "sweep": 100,
                "capacity": 8,
                "partitions": {"orders": partitions},
                "members": 1,
                "static": False,
                "threads": False,
                "reset": "earliest",
                "pace": (0.001, 0.001),
                "slow": 0.0,
                "trouble": 0.0,
                "keys": "many",
                "faults": (),
                "churn": (),
                "world": WorldSettings(),
                **choices,
            },
        )
        self.scenario = Scenario(1, setup=setup)
        self.world, self.workload, self.oracle = self.scenario.world, self.scenario.workload, self.scenario.oracle
        self.chaos = self.scenario.chaos
        self.error: Callable[[int], BaseException | None] = lambda _: None
        self.workload._error = lambda entry: self.error(entry.number)  # type: ignore[method-assign]
        self.chaos._rng = _Nothing()  # type: ignore[assignment]
        self.chaos.begin()
        self.chaos.active = False  # no records but ours
        self._partitions = partitions
        self.produce(records)

    def produce(self, count: int) -> None:
        """So many records, to each partition in turn."""
        for number in range(count):
            self.oracle.produced(self.workload.produce(TopicPartition("orders", number % self._partitions)))

    @property
    def now(self) -> float:
        return self.world.clock.monotonic()

    @property
    def member(self) -> Member:
        """The one that was started last."""
        return list(self.chaos.members.values())[-1]

    def run(self, seconds: float) -> None:
        """Let so much time pass; nothing may be broken."""
        with _tuned(self.scenario.setup), quiet():
            self.world.run(seconds)
        assert not self.world.failures, self.world.failures
        assert self.oracle.violation is None, self.oracle.violation

    def until(self, condition: Callable[[], object], timeout_s: float = 60.0) -> float:
        """Let time pass until then; returns how much did."""
        begun = self.now
        wait_until(condition, timeout_s=timeout_s, between=partial(self.run, 0.01), now=lambda: self.now)
        return self.now - begun

    def starts(self) -> list[acts.HandlerBegan]:
        return [event for event in self.world.trace.events if type(event) is acts.HandlerBegan]

    def letters(self) -> int:
        return len({event.letter for event in self.world.trace.events if type(event) is acts.LetterSent})

    def done(self) -> bool:
        """Whether everything is finished and committed."""
        return not self.oracle.unfinished()

    def terminals(self) -> list[str]:
        return [entry.terminal for entry in self.workload.entries]


class _Nothing:
    """Chance for a world in which nothing happens by chance."""

    def choice(self, options: Any) -> Any:
        return options[0]

    def uniform(self, low: float, high: float) -> float:
        return (low + high) / 2

    def random(self) -> float:
        return 0.5

    def randint(self, low: int, high: int) -> int:
        return low

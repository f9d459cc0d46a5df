"""What a harness runs: an app with its consumers, or a `KafkaConsumerRunner` with its hooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from keepfast.app import assembly as of_app
from keepfast.app.application import App
from keepfast.core.ports import Delivery, Sink
from keepfast.deadletters.letter import Letter
from keepfast.deadletters.publisher import Publisher
from keepfast.engine.calls import record_call
from keepfast.engine.lifecycle import Lifecycle, LoopThread
from keepfast.engine.plan import Plan
from keepfast.runner import KafkaConsumerRunner
from keepfast.runner import assembly as of_runner
from keepfast.runner.publishing import HookLetter, HookPublisher
from keepfast.settings import ConsumerSettings, Settings
from keepfast.wiring.cluster import ClusterFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One consumer, for the engine in memory."""

    plan: Plan
    call: Any
    publisher: Publisher | None = None
    """In place of letters of ours."""
    is_async: bool = False


class RunningHarness(Protocol):
    """Put together for a broker, and not yet started."""

    lifecycle: Lifecycle
    threads: list[LoopThread]

    def run(self) -> int: ...


class Tested(Protocol):
    """Owner: the harness."""

    settings: Settings
    noted: list[Letter]
    """Records that a publisher of the user's own has buried, as letters of ours would tell them."""

    def needs(self) -> list[ConsumerSettings]:
        """Whose topics must be there."""

    def members(self, cluster: ClusterFacts, sink: Sink) -> list[Member]: ...

    def assembled(self, settings: Settings) -> RunningHarness:
        """The same on a broker, with these settings in place of its own. Raises ConfigError or StartError."""


class TestedApp:
    __test__ = False

    def __init__(self, app: App, *, environ: Mapping[str, str], cwd: Path) -> None:
        self.settings = app.settings(environ=environ, cwd=cwd)
        self.noted: list[Letter] = []
        self._consumers = app.chosen()

    def needs(self) -> list[ConsumerSettings]:
        return [self.settings.consumers[consumer.name] for consumer in self._consumers]

    def members(self, cluster: ClusterFacts, sink: Sink) -> list[Member]:
        handlers = of_app.handlers_of(self._consumers, self.settings)
        return [self._member(consumer, handlers[consumer.name], cluster, sink) for consumer in self._consumers]

    def _member(self, consumer: Any, handler: Any, cluster: ClusterFacts, sink: Sink) -> Member:
        plan = of_app.plan_of(consumer, self.settings.consumers[consumer.name], self.settings, cluster)
        call: Any
        if consumer.shape.is_async:
            call = handler.call_async(sink, retry_topics=plan.tiers is not None)
        else:
            call = handler.call(sink, retry_topics=plan.tiers is not None)
        return Member(plan=plan, call=call, is_async=consumer.shape.is_async)

    def assembled(self, settings: Settings) -> RunningHarness:
        return of_app.assemble(self._consumers, settings, wait=False)


class TestedRunner:
    """Hooks on the way of a record are called as `run` would call them; those of the start and the end are not, and
    neither is `producer_factory`. A consumer that the factory makes is closed again at once.
    """

    __test__ = False

    def __init__(self, runner: KafkaConsumerRunner, *, environ: Mapping[str, str], cwd: Path) -> None:
        self.noted: list[Letter] = []
        self._blueprint = replace(runner.blueprint, producer_factory=None, serves=False, noted=self.noted.append)
        self.settings, self._made = of_runner.looked_at(self._blueprint, environ=environ, cwd=cwd)
        self._blueprint.hooks.deserialise = self._made.deserialise

    def needs(self) -> list[ConsumerSettings]:
        return [of_runner.needs(self._blueprint, own) for own in self.settings.consumers.values()]

    def members(self, cluster: ClusterFacts, sink: Sink) -> list[Member]:
        plan = of_runner.plan_of(self._blueprint, self.settings, cluster)
        call = record_call(self._blueprint.hooks.call, group=plan.group, retry_topics=plan.tiers is not None)
        publisher = None
        if self._blueprint.dlq_publisher is not None:
            publisher = of_runner.hook_publisher(PublisherAtOnce, self._blueprint, self.settings, sink)
        return [Member(plan=plan, publisher=publisher, call=call)]

    def assembled(self, settings: Settings) -> RunningHarness:
        return of_runner.build(self._blueprint, self._made, settings, _stay)


class PublisherAtOnce(HookPublisher):
    """Calls the user's publisher where it stands: in memory there are no threads."""

    def hand_over(self, letter: HookLetter, delivered: Delivery) -> None:
        delivered(self.outcome(letter))


def tested(subject: App | KafkaConsumerRunner, *, environ: Mapping[str, str], cwd: Path) -> Tested:
    """Raises ConfigError."""
    made: Callable[..., Tested] = TestedRunner if isinstance(subject, KafkaConsumerRunner) else TestedApp
    return made(subject, environ=environ, cwd=cwd)


def _stay(code: int) -> None:
    """A deadline that has passed does not end the test's process."""

"""The harness: send records, wait until they are settled, and inspect the outcome of every record.

A backend runs the app: in memory, or on a broker.
"""

from __future__ import annotations

import asyncio
import difflib
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol

from keepfast.core.errors import ConfigError, KeepfastError
from keepfast.core.inbox import RecordOrigin, noted_origin
from keepfast.core.ports import Delivery, Sink
from keepfast.core.records import Outgoing, Receipt, Record, RecordPlace, TopicPartition
from keepfast.core.replays import replay_topic
from keepfast.deadletters.letter import Letter
from keepfast.deadletters.reading import read
from keepfast.engine.context import to_bytes
from keepfast.testing.harness.event_recorder import EventRecorder

if TYPE_CHECKING:
    from keepfast.app.application import App
    from keepfast.app.inboxes import AppInboxes
    from keepfast.engine.middleware import Overrides
    from keepfast.inbox.relay import Relay
    from keepfast.runner import KafkaConsumerRunner
    from keepfast.settings import ConsumerSettings
    from keepfast.testing.harness.tested import Tested


class Backend(Protocol):
    """An app that runs. Owner: the test."""

    async def consumers(self) -> list[ConsumerSettings]:
        """What each consumer needs, with the topics that its pattern stands for now."""
        ...

    @property
    def sink(self) -> Sink:
        """What the app sends with."""
        ...

    async def produce(self, outgoing: Outgoing) -> Receipt:
        """Into the topic; returns the receipt."""
        ...

    async def records(self, topic: str) -> list[Record]:
        """What has come into the topic since the harness began, oldest first in each partition."""
        ...

    def topic_id(self, topic: str) -> str:
        """As the app knows it; empty if it knows none."""
        ...

    def unfinished(self) -> dict[TopicPartition, int]:
        """Partitions with records that no commit covers yet, and how many those are. Empty: nothing is left to do."""
        ...

    async def run_briefly(self) -> float:
        """Let it run for a moment; returns the seconds that passed on its own clock. Raises the error that ended the
        app.
        """
        ...

    async def settle_hooks(self) -> None:
        """Until hooks were called with every event so far."""

    async def close(self) -> None:
        """End the app."""


SETTLE_S = 2 * 86_400.0
"""How long records may take by the app's own clock, which is simulated in memory: the longest retry topic is a day."""

REAL_SETTLE_S = 60.0
KAFKA_VARIABLE = "KEEPFAST_TEST_KAFKA"
"""Set by `pytest --keepfast-kafka`: the address of a broker, for all harnesses."""


class NotSettled(KeepfastError, AssertionError):
    """Records were sent that have not been finished in the time they had."""


class Harness:
    """An app under test. Outcomes of records are known after `send` or `settle`."""

    def __init__(
        self, backend: Backend, tested: Tested, recorder: EventRecorder, *, topics: Sequence[str], settle_s: float
    ) -> None:
        self._backend = backend
        self._needs = [spec.needs for spec in tested.specs]
        self._topics = topics
        self._recorder = recorder
        self._settle_s = settle_s
        self._noted = tested.noted
        self._encode = tested.encode
        self._outbox: Relay | None = None if tested.inboxes is None else relay_of(tested.inboxes, backend.sink)
        self.dead: list[Letter] = []
        """Dead letters, as `keepfast dlq show` would read them; of a runner with its own `dlq_publisher`, the calls
        of it in the same form.
        """
        self.processed: list[Record] = []
        """Records that a handler has finished, once per record, whatever it took."""
        self.discarded: list[Record] = []
        self.filtered: list[Record] = []
        """Records that did not pass a consumer's filter, and that no other consumer has processed."""
        self.skipped: list[Record] = []
        """Records that the inbox of a consumer knew already: repetitions, whichever handler has seen the first."""

    async def send(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        headers: Mapping[str, bytes | str | None] | Sequence[tuple[str, bytes | None]] = (),
        partition: int | None = None,
        settle: bool = True,
    ) -> Record:
        """Produce a record, and wait until everything is finished, if `settle`. Returns it as it is in the topic.

        `value` may be bytes, text, None, or anything that JSON can represent; of a topic with a schema, what fits it.
        Raises ConfigError for a topic that no consumer reads, unless `harness` was given it in `topics`.
        """
        self._check_topic(topic)
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        encoded = tuple((name, to_bytes(one)) for name, one in pairs)
        data, own_key, sent = self._encode(topic, value, key, encoded)
        outgoing = Outgoing(topic, data, own_key, sent, partition)
        at = await self._backend.produce(outgoing)
        if settle:
            await self.settle()
        return Record(topic, at.partition, at.offset, outgoing.key, outgoing.value, tuple(sent), None)

    def _check_topic(self, topic: str) -> None:
        """Nothing would happen to a record that no consumer reads, and a test of what does not happen would pass."""
        if any(own.pattern is not None for own in self._needs):
            return
        read = sorted({name for own in self._needs for name in own.topics})
        known = {*self._topics, *read}
        for own in self._needs:
            known |= set(own.dead_letter_topics.values())
            for name in own.topics:
                known |= {replay_topic(name, own.group), *own.retry_topics.topics(name, own.group)}
        if topic in known:
            return
        near = difflib.get_close_matches(topic, [*read, *self._topics], n=1)
        raise ConfigError(
            f"No consumer reads {topic}.{f' Did you mean {near[0]}?' if near else ''} Topics that are read:"
            f" {', '.join(read) or 'none'}. One that only the test uses is named in harness(…, topics=[{topic!r}])."
        )

    async def repeat(self, record: Record) -> Record:
        """Produce a record once more, as a replay does, and wait: a consumer with an inbox skips it if it was
        processed. Returns the repetition.
        """
        origin = noted_origin(record.headers, topic=record.topic, value=record.value)
        if origin is None:
            source = self._backend.topic_id(record.topic) or record.topic
            origin = RecordOrigin(source, record.partition, record.offset)
        headers = [*record.headers, origin.header(record.topic, record.value)]
        return await self.send(record.topic, record.value, key=record.key, headers=headers, partition=record.partition)

    async def settle(self) -> None:
        """Let the app work until every record is processed, dead-lettered, discarded or filtered, and committed, and
        hooks were called. Raises NotSettled.
        """
        left_s = self._settle_s
        while self._backend.unfinished() or await self._sent_outbox():
            left_s -= await self._backend.run_briefly()
            if left_s <= 0 and self._backend.unfinished():
                left = ", ".join(f"{count} of {place}" for place, count in self._backend.unfinished().items())
                raise NotSettled(f"After {self._settle_s:g} s of the app's time these are not finished: {left}.")
        await self._backend.settle_hooks()
        await self._collect()

    async def _sent_outbox(self) -> int:
        """How many rows of the outbox were there to be sent."""
        return 0 if self._outbox is None else await asyncio.to_thread(self._outbox.step)

    def close(self) -> None:
        """End what the harness itself holds."""
        if self._outbox is not None:
            self._outbox.close()

    async def topic(self, name: str) -> list[Record]:
        """What has come into a topic: from handlers (`ctx.send`), or from the test."""
        return await self._backend.records(name)

    def retries(self, record: Record) -> int:
        """How often it was tried again in place."""
        return self._recorder.retries(_place(record))

    async def _collect(self) -> None:
        needs = await self._backend.consumers()
        topics = sorted({topic for own in needs for topic in own.topics})
        letter_topics = sorted({topic for own in needs for topic in own.dead_letter_topics.values()})
        found = [read(one) for topic in letter_topics for one in await self._backend.records(topic)]
        self.dead = found + self._noted
        dead = {(letter.topic, letter.partition, letter.offset) for letter in self.dead}
        records = [record for topic in topics for record in await self._backend.records(topic)]
        self.discarded = [record for record in records if _place(record) in self._recorder.discarded]
        processed = self._recorder.finished - self._recorder.discarded
        filtered = self._recorder.filtered - self._recorder.finished - self._recorder.discarded
        self.filtered = [record for record in records if (at := _place(record)) in filtered and at not in dead]
        self.skipped = [record for record in records if _place(record) in self._recorder.skipped]
        self.processed = [record for record in records if (at := _place(record)) in processed and at not in dead]


class _EventLoopSink:
    """Implements `core.ports.Sink` for the relay's thread: what is sent is sent on the event loop."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._loop = asyncio.get_running_loop()

    def send(self, outgoing: Outgoing, delivered: Delivery) -> None:
        self._loop.call_soon_threadsafe(self._sink.send, outgoing, delivered)

    def close(self, timeout_s: float) -> None:
        self._sink.close(timeout_s)


def relay_of(inboxes: AppInboxes, sink: Sink) -> Relay | None:
    """What sends the outbox of a test, if there is one: a step at a time, when the test waits."""
    return None if inboxes.service is None else inboxes.service.relay(_EventLoopSink(sink))


def _place(record: Record) -> RecordPlace:
    return RecordPlace(record.topic, record.partition, record.offset)


P = ParamSpec("P")


class _AsyncBlock(AbstractAsyncContextManager[Harness]):
    """The block of a harness, which says so where `async` is missing."""

    def __init__(self, block: AbstractAsyncContextManager[Harness]) -> None:
        self._block = block

    async def __aenter__(self) -> Harness:
        return await self._block.__aenter__()

    async def __aexit__(self, *raised: Any) -> bool | None:
        return await self._block.__aexit__(*raised)

    if not TYPE_CHECKING:  # a type checker refuses `with` by itself

        def __enter__(self) -> None:
            raise ConfigError("A harness is asynchronous: write `async with harness(app) as h:` in an `async def`.")

        def __exit__(self, *raised: object) -> None:
            """Never called; Python looks for it first."""


def _async_block(
    make: Callable[P, AbstractAsyncContextManager[Harness]],
) -> Callable[P, AbstractAsyncContextManager[Harness]]:
    @wraps(make)
    def block(*args: P.args, **kwargs: P.kwargs) -> AbstractAsyncContextManager[Harness]:
        return _AsyncBlock(make(*args, **kwargs))

    return block


@_async_block
@asynccontextmanager
async def harness(
    app: App | KafkaConsumerRunner,
    *,
    topics: Sequence[str] = (),
    partitions: int = 4,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    kafka: str | None = None,
    resources: object = None,
    overrides: Overrides | None = None,
) -> AsyncIterator[Harness]:
    """Run the app, or the runner, until the block ends: in memory, or on the broker at the address `kafka`.

    Settings come from `environ`, from the `keepfast.toml` of the working folder (or of `cwd`), retry profiles included,
    and from the code, as for `keepfast run`. Not from variables of this machine, `.env`, and what the file says about
    brokers and the host (`[kafka]`, `[spool]`, `[state]`, …), so that a test does not depend on where it runs. Its
    topics, and those in `topics` that handlers send to or that match a pattern, are made with so many partitions. Of a
    runner's hooks those on the way of a record are called; `producer_factory` and those of the start and the end are
    not.

    Inside the block the app is started: `app.send` sends into its topics, `app.resources` are there. `resources` are in
    place of what the app's lifespan yields, which is not entered then. `overrides` are functions in place of providers:
    `{rates: fake_rates}`, where a parameter is `Annotated[Rates, Provide(rates)]`. Raises ConfigError, and in memory
    Halt, if a handler does.
    """
    from keepfast.testing.harness.tested import tested

    async with _resources(app, resources) as given:
        subject = tested(app, environ=environ or {}, cwd=cwd or Path.cwd(), resources=given, overrides=overrides or {})
        if subject.inboxes is not None:
            await subject.inboxes.open_here()
        address = kafka or os.environ.get(KAFKA_VARIABLE)
        recorder = EventRecorder()
        backend: Backend
        if address:
            from keepfast.engine.workers import GivenEventLoop
            from keepfast.testing.harness.real import Real

            make = partial(Real, events=GivenEventLoop(), topics=topics, partitions=partitions)
            backend = await asyncio.to_thread(make, subject, address, recorder)
        else:
            from keepfast.testing.harness.memory import Memory

            backend = Memory(subject, recorder, topics=topics, partitions=partitions)
        try:
            with subject.started(backend.sink):
                settle_s = REAL_SETTLE_S if address else SETTLE_S
                running = Harness(backend, subject, recorder, topics=topics, settle_s=settle_s)
                try:
                    yield running
                finally:
                    running.close()
        finally:
            await backend.close()
            if subject.inboxes is not None:
                await subject.inboxes.close_here()


@asynccontextmanager
async def _resources(app: App | KafkaConsumerRunner, given: object) -> AsyncIterator[object]:
    """Those given; else what the app's lifespan yields, entered on this event loop, where handlers run as well."""
    lifespan = getattr(app, "lifespan", None)
    if given is not None or lifespan is None:
        yield given
        return
    manager = lifespan(app)
    if isinstance(manager, AbstractAsyncContextManager):
        async with manager as yielded:
            yield yielded
    else:
        with manager as yielded:
            yield yielded

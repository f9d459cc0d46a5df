"""The harness itself: send, let it settle, and look at what has become of every record.

Where a harness runs its app: in memory, or on a broker.

What the engine said in its log while a harness ran: which records were tried again, and which were discarded.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from keepfast.core.errors import KeepfastError
from keepfast.core.records import Outgoing, Receipt, Record, TopicPartition
from keepfast.deadletters.letter import Letter
from keepfast.deadletters.reading import read
from keepfast.engine.context import to_bytes
from keepfast.telemetry.logs import Entry

if TYPE_CHECKING:
    from keepfast.app.application import App
    from keepfast.runner import KafkaConsumerRunner
    from keepfast.testing.harness.tested import Tested


class Backend(Protocol):
    """An app that runs. Owner: the test."""

    @property
    def groups(self) -> Mapping[str, tuple[str, ...]]:
        """Each consumer group and everything that it reads, retry topics too."""

    async def produce(self, outgoing: Outgoing) -> Receipt:
        """Into the topic, acknowledged; says where."""

    async def records(self, topic: str) -> list[Record]:
        """What has come into the topic since the harness began, oldest first in each partition."""

    def unfinished(self) -> dict[TopicPartition, int]:
        """Partitions with records that no commit covers yet, and how many those are. Empty: nothing is left to do."""

    async def go_on(self) -> float:
        """Let it work for a moment; returns how many seconds passed on its own clock. Raises what ended the app."""

    async def close(self) -> None:
        """End the app."""


Place = tuple[str, int, int]
"""Topic, partition, offset."""


class EventRecorder(logging.Handler):
    """Listens to keepfast's loggers, whatever else does."""

    def __init__(self, groups: frozenset[str]) -> None:
        super().__init__(level=logging.INFO)
        self._groups = groups
        self.retries: Counter[Place] = Counter()
        self.discarded: set[Place] = set()
        self._logger = logging.getLogger("keepfast")
        self._level = self._logger.level

    def __enter__(self) -> EventRecorder:
        self._logger.addHandler(self)
        if self._logger.getEffectiveLevel() > logging.INFO:
            self._logger.setLevel(logging.INFO)
        return self

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)
        self._logger.setLevel(self._level)

    def emit(self, record: logging.LogRecord) -> None:
        entry = record.msg
        if not isinstance(entry, Entry) or entry.fields.get("consumer_group") not in self._groups:
            return
        fields = entry.fields
        place = (str(fields.get("topic")), fields.get("partition"), fields.get("offset"))
        if entry.event == "retry":
            self.retries[place] += 1  # type: ignore[index] # such entries have both numbers
        elif entry.event in ("discard", "sensitive_data_discarded"):
            self.discarded.add(place)  # type: ignore[arg-type]


SETTLE_S = 2 * 86_400.0
"""How long records may take by the app's own clock, which in memory costs nothing: the longest retry topic is a day."""

REAL_SETTLE_S = 60.0
NOWHERE = Path("/nonexistent")
"""A folder without `.env` and `keepfast.toml`."""

KAFKA_VARIABLE = "KEEPFAST_TEST_KAFKA"
"""Set by `pytest --keepfast-kafka`: the address of a broker, for all harnesses."""


class NotSettled(KeepfastError, AssertionError):
    """Records were sent that have not been finished in the time they had."""


class Harness:
    """An app under test. What has become of records is known after `send` or `settle`."""

    def __init__(self, backend: Backend, tested: Tested, said: EventRecorder, *, settle_s: float) -> None:
        self._backend = backend
        self._said = said
        self._settle_s = settle_s
        needs = [spec.needs for spec in tested.specs]
        self._topics = sorted({topic for own in needs for topic in own.topics})
        self._letter_topics = sorted({topic for own in needs for topic in own.dead_letter_topics.values()})
        self._noted = tested.noted
        self.dead: list[Letter] = []
        """Dead letters, as `keepfast dlq show` would read them; of a runner with a `dlq_publisher` of its own, what
        that was told, in the same words.
        """
        self.processed: list[Record] = []
        """Records that a handler has finished, once per record, whatever it took."""
        self.discarded: list[Record] = []

    async def send(
        self,
        topic: str,
        value: Any,
        *,
        key: bytes | str | None = None,
        headers: Mapping[str, bytes | str | None] | Sequence[tuple[str, bytes | None]] = (),
        partition: int | None = None,
        settle: bool = True,
    ) -> Record:
        """Produce a record, and wait until everything is finished, unless told not to. Returns it as it stands there.

        `value` may be bytes, text, None, or anything that JSON can say.
        """
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        encoded = tuple((name, to_bytes(one)) for name, one in pairs)
        outgoing = Outgoing(topic, to_bytes(value), to_bytes(key), encoded, partition)
        at = await self._backend.produce(outgoing)
        if settle:
            await self.settle()
        return Record(topic, at.partition, at.offset, outgoing.key, outgoing.value, encoded, None)

    async def settle(self) -> None:
        """Let the app work until every record is processed, buried or discarded, and committed. Raises NotSettled."""
        left_s = self._settle_s
        while self._backend.unfinished():
            left_s -= await self._backend.go_on()
            if left_s <= 0:
                left = ", ".join(f"{count} of {place}" for place, count in self._backend.unfinished().items())
                raise NotSettled(f"After {self._settle_s:g} s of the app's time these are not finished: {left}.")
        await self._sort_out()

    async def topic(self, name: str) -> list[Record]:
        """What has come into a topic: from handlers (`ctx.send`), or from the test."""
        return await self._backend.records(name)

    def retries(self, record: Record) -> int:
        """How often it was tried again in place."""
        return self._said.retries[_place(record)]

    async def _sort_out(self) -> None:
        found = [read(one) for topic in self._letter_topics for one in await self._backend.records(topic)]
        self.dead = found + self._noted
        dead = {(letter.topic, letter.partition, letter.offset) for letter in self.dead}
        records = [record for topic in self._topics for record in await self._backend.records(topic)]
        self.discarded = [record for record in records if _place(record) in self._said.discarded]
        gone = dead | self._said.discarded
        self.processed = [record for record in records if _place(record) not in gone]


def _place(record: Record) -> Place:
    return record.topic, record.partition, record.offset


@asynccontextmanager
async def harness(
    app: App | KafkaConsumerRunner,
    *,
    topics: Sequence[str] = (),
    partitions: int = 4,
    environ: Mapping[str, str] | None = None,
    kafka: str | None = None,
) -> AsyncIterator[Harness]:
    """Run the app, or the runner, until the block ends: in memory, or on the broker at the address `kafka`.

    Settings come from the code and from `environ` alone, so that a test does not depend on where it runs. Its
    topics, and those in `topics` that handlers send to, are made with so many partitions. Of a runner's hooks those on
    the way of a record are called; `producer_factory` and those of the start and the end are not. Raises ConfigError,
    and in memory whatever a handler's Halt says.
    """
    from keepfast.testing.harness.tested import tested

    subject = tested(app, environ=environ or {}, cwd=NOWHERE)
    address = kafka or os.environ.get(KAFKA_VARIABLE)
    backend: Backend
    if address:
        from keepfast.testing.harness.real import Real

        backend = await asyncio.to_thread(Real, subject, address, topics=topics, partitions=partitions)
    else:
        from keepfast.testing.harness.memory import Memory

        backend = Memory(subject, partitions=partitions)
    with EventRecorder(frozenset(backend.groups)) as said:
        try:
            yield Harness(backend, subject, said, settle_s=REAL_SETTLE_S if address else SETTLE_S)
        finally:
            await backend.close()

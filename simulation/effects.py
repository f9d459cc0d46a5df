"""Inbox and outbox under random faults: the engine's own call and relay on a database and a log in memory.

Coroutines of handlers are driven step by step, in an order that the seed decides. Processes are killed between any two
steps, several handle the same record at once, a COMMIT is lost before or after the server had it, records fail, are
replayed, derived with all headers, and in a topic that was recreated; the relay is killed at any statement, and events
are refused. At the end each event of the log has its effect once, each effect its event, in the order of its key.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Coroutine, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from random import Random
from types import SimpleNamespace
from typing import Any

from keepfast.core.batches import Batch
from keepfast.core.errors import Fault, SinkError
from keepfast.core.inbox import RecordIdentity, RecordOrigin
from keepfast.core.ports import Delivery
from keepfast.core.records import Headers, Outgoing, Receipt, TopicPartition
from keepfast.core.runs import Partition, Run
from keepfast.decode.signature import inspect_handler
from keepfast.engine.calls import Handler
from keepfast.engine.context import BatchContext, Context
from keepfast.engine.inbox import consumer_inbox
from keepfast.engine.middleware import Around
from keepfast.inbox.outbox import OUTBOX_ID, rows_of
from keepfast.inbox.relay import OutboxStatus, Relay
from keepfast.telemetry.metrics import Tally
from keepfast.testing.fakes.log import FakeMessage

GROUP, TOPIC, OUTPUT, APP = "g", "orders", "out", "app"
KEYS = 3
STEPS = 20_000


class Killed(BaseException):
    """The process is gone, in the middle of this."""


class Pause:
    """An awaitable: another coroutine may continue here."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class Tx:
    """An open transaction."""

    def __init__(self, new: set[RecordIdentity]) -> None:
        self.new = new
        self.effects: list[int] = []
        self.rows: list[Outgoing] = []


@dataclass(slots=True)
class Database:
    """What is committed, and what is open. Implements `core.inbox.OutboxInbox`."""

    rng: Random
    done: set[RecordIdentity] = field(default_factory=set)
    effects: list[int] = field(default_factory=list)
    rows: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    written: list[tuple[bytes | None, int]] = field(default_factory=list)
    """Key and number of each row of the outbox, in the order of COMMITs."""
    open: dict[Tx, set[RecordIdentity]] = field(default_factory=dict)
    lost: float = 0.1
    transaction = Tx
    outbox = True

    async def begin(self, identities: Sequence[RecordIdentity]) -> tuple[Tx, Collection[RecordIdentity]]:
        await Pause()
        while any(not held.isdisjoint(identities) for held in self.open.values()):
            await Pause()  # on the unique index
        new = set(identities) - self.done
        tx = Tx(new)
        self.open[tx] = new
        await self._pause(tx)
        return tx, new

    async def _pause(self, tx: Tx) -> None:
        """Who is killed here has its transaction rolled back by the server."""
        try:
            await Pause()
        except Killed:
            self.open.pop(tx, None)
            raise

    async def publish(self, tx: Tx, outgoing: Sequence[Outgoing]) -> None:
        await Pause()
        tx.rows += outgoing

    async def commit(self, tx: Tx) -> None:
        await self._pause(tx)
        fate = self.rng.random()
        if fate < self.lost:
            del self.open[tx]
            raise ConnectionError("lost before COMMIT")
        del self.open[tx]
        self.done |= tx.new
        self.effects += tx.effects
        for row, one in zip(zip(*rows_of(APP, tx.rows), strict=True), tx.rows, strict=True):
            self.rows[len(self.written)] = row
            self.written.append((one.key, int(one.value or b"")))
        if fate < 2 * self.lost:
            raise ConnectionError("lost after COMMIT")

    async def rollback(self, tx: Tx) -> None:
        self.open.pop(tx, None)

    async def prune(self, before: datetime) -> int:
        raise NotImplementedError(before)


@dataclass(slots=True)
class Connection:
    """What a relay needs of a connection. `dies`: it is killed at a statement now and then."""

    world: EffectsWorld
    dies: float
    locks: bool = False

    def execute(self, query: str, values: Sequence[Any]) -> Any:
        if self.world.rng.random() < self.dies:
            raise Killed
        rows = self.world.database.rows
        if "pg_try_advisory_lock" in query:
            self.locks = self.locks or not any(one.locks for one in self.world.connections if one is not self)
            return SimpleNamespace(fetchone=lambda: (self.locks,))
        if query.startswith("DELETE"):
            for number in values[0]:
                rows.pop(number - 1, None)
            return None
        _, after, limit = values
        found = [(number + 1, *rows[number][1:]) for number in sorted(rows) if number + 1 > after]
        return found[:limit]

    def close(self) -> None:
        self.locks = False
        if self in self.world.connections:
            self.world.connections.remove(self)


@dataclass(slots=True)
class Sink:
    """Implements `core.ports.Sink`: events reach the output at once, are refused, or the process dies."""

    world: EffectsWorld
    refuses: float = 0.2
    dies: float = 0.02

    def send(self, outgoing: Outgoing, delivered: Delivery) -> None:
        rng = self.world.rng
        if rng.random() < self.refuses:
            delivered(SinkError("refused", fault=Fault.RETRY, code=""))
            return
        self.world.output.append(outgoing)
        if rng.random() < self.dies:
            raise Killed
        delivered(Receipt(outgoing.topic, 0, len(self.world.output)))

    def close(self, timeout_s: float) -> None: ...


@dataclass(slots=True)
class Sent:
    """A record of the log. `number` is the event that it stands for: a replay has that of the first."""

    number: int
    key: bytes
    headers: Headers


class EffectsWorld:
    """One run of one seed: `run`, then `problems`."""

    def __init__(self, seed: int, *, batches: bool | None = None) -> None:
        self.rng = Random(seed)
        self.batches = self.rng.random() < 0.5 if batches is None else batches
        self.database = Database(self.rng)
        self.output: list[Outgoing] = []
        self.connections: list[Connection] = []
        self.logs: list[tuple[str, list[Sent]]] = []
        self._numbers = 0
        for topic_id in ("first", "second") if self.rng.random() < 0.5 else ("first",):
            self.logs.append((topic_id, self._log(topic_id)))
        self._sink = Sink(self)

    def _log(self, topic_id: str) -> list[Sent]:
        log: list[Sent] = []
        for _ in range(self.rng.randint(5, 15)):
            number, key = self._numbers, b"%d" % self.rng.randrange(KEYS)
            log.append(Sent(number, key, ()))
            self._numbers += 1
            kind = self.rng.random()
            first = self.rng.choice(log)
            if kind < 0.25:  # a replay, as of a letter
                at = next(offset for offset, one in enumerate(log) if one.number == first.number)
                header = RecordOrigin(topic_id, 0, at).header(TOPIC, b"%d" % first.number)
                log.append(Sent(first.number, first.key, (header,)))
            elif kind < 0.4:  # derived from the first, with all its headers, into another topic or with another value
                topic, value = self.rng.choice(((TOPIC, b"another"), ("other", b"%d" % self._numbers)))
                log.append(Sent(self._numbers, key, (RecordOrigin(topic_id, 0, 0).header(topic, value),)))
                self._numbers += 1
        return log

    # -- members

    def run(self) -> None:
        """Until everything is processed and sent."""
        for topic_id, log in self.logs:
            self._consume(topic_id, log)
        self.connections.clear()
        for _ in range(STEPS):
            if not self.database.rows:
                return
            self._relay_once(0.0)

    def _consume(self, topic_id: str, log: list[Sent]) -> None:
        """Two members on the same partition: an owner, and a zombie now and then."""
        committed = 0
        members: list[Coroutine[Any, Any, None]] = []
        finished: dict[Coroutine[Any, Any, None], Run] = {}
        for _ in range(STEPS):
            if committed >= len(log):
                break
            if len(members) < 2 and (not members or self.rng.random() < 0.1):
                coroutine, run = self._member(topic_id, log, committed)
                members.append(coroutine)
                finished[coroutine] = run
            one = self.rng.choice(members)
            if self.rng.random() < 0.02:
                self._kill(one, members)
                continue
            try:
                one.send(None)
            except StopIteration:
                members.remove(one)
                if self.rng.random() < 0.7:  # else its offset is never committed
                    committed = max(committed, finished[one].messages[0].offset() + finished[one].done)
            if self.rng.random() < 0.1:
                self._relay_once(0.05)
        for one in members:
            self._kill(one, members)

    def _kill(self, one: Coroutine[Any, Any, None], members: list[Coroutine[Any, Any, None]]) -> None:
        """The database rolls back what it had open."""
        members.remove(one)
        with suppress(Killed, StopIteration):
            one.throw(Killed())

    def _member(self, topic_id: str, log: list[Sent], start: int) -> tuple[Coroutine[Any, Any, None], Run]:
        count = self.rng.randint(1, 4)
        messages: list[Any] = [
            FakeMessage(
                TopicPartition(TOPIC, 0),
                offset,
                key=one.key,
                value=b"%d" % one.number,
                headers=one.headers,
                timestamp_ms=0,
            )
            for offset, one in enumerate(log[start : start + count], start)
        ]
        partition = Partition(TopicPartition(TOPIC, 0), epoch=1, start=start, topic_id=topic_id)
        run = Run(partition, messages, range(len(messages)), {})
        if self.batches:
            batch = Batch([run])
            batch.muster(0.0)
            run = batch
        return self._handler().call_async(self._sink).walk(run, Tally(), lambda: 0.0), run

    def _handler(self) -> Handler:
        rng = self.rng

        async def one(value: bytes, tx: Tx, ctx: Context) -> None:
            tx.effects.append(int(value))
            await Pause()
            ctx.send(OUTPUT, value, key=ctx.key)
            await Pause()
            if rng.random() < 0.1:
                raise LookupError

        async def many(values: list[bytes], tx: Tx, ctx: BatchContext) -> None:
            for value, own in zip(values, ctx, strict=True):
                await one(value, tx, own)

        function = many if self.batches else one
        shape = inspect_handler(function, context_type=Context, batch_context_type=BatchContext, namespace={"Tx": Tx})
        inbox = consumer_inbox(self.database, GROUP, handler_is_async=True, where="")
        return Handler(
            function,
            shape,
            order="partition",
            tombstones="dead-letter",
            group=GROUP,
            around=Around((), None, {}, inbox),
        )

    # -- relay

    def _relay_once(self, dies: float) -> None:
        """A process that sends a few pages, and may die."""
        connection = Connection(self, dies)
        self.connections.append(connection)
        self._sink.dies = dies / 2
        relay = Relay(lambda: connection, self._sink, APP, OutboxStatus())
        with suppress(Killed):
            for _ in range(self.rng.randint(1, 3)):
                relay.step()
        connection.close()

    # -- the oracle

    def problems(self) -> list[str]:
        """What is wrong at the end; empty if nothing is."""
        found: list[str] = []
        counts: dict[int, int] = defaultdict(int)
        for number in self.database.effects:
            counts[number] += 1
        found += [f"event {one} has {counts[one]} effects" for one in range(self._numbers) if counts[one] != 1]
        if self.database.rows:
            found.append(f"{len(self.database.rows)} rows are never sent")
        first: dict[bytes | None, list[int]] = defaultdict(list)
        ids: dict[bytes | None, int] = {}
        for one in self.output:
            number, own = int(one.value or b""), dict(one.headers).get(OUTBOX_ID)
            if number not in first[one.key]:
                first[one.key].append(number)
            if ids.setdefault(own, number) != number or own is None:
                found.append(f"event {number} has the id of another")
        sent = {number for numbers in first.values() for number in numbers}
        found += [f"effect {one} has no event, or the other way round" for one in sent ^ set(self.database.effects)]
        wanted: dict[bytes | None, list[int]] = defaultdict(list)
        for key, number in self.database.written:
            if number not in wanted[key]:
                wanted[key].append(number)
        for key in {*first, *wanted}:
            if first[key] != wanted[key]:
                found.append(f"events of key {key!r}: {first[key]}, rows: {wanted[key]}")
        return found


def problems_of(seed: int) -> list[str]:
    world = EffectsWorld(seed)
    world.run()
    return world.problems()

"""Seeds whose consumer has an inbox: a database in memory, in which identities and effects are one transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from random import Random

from keepfast.core.inbox import RecordIdentity
from keepfast.core.policies import CommitPolicy
from keepfast.testing.fakes.process import Process
from simulation.setup import Setup
from simulation.variants.transactions import transactional

STATEMENT_S = (1e-4, 5e-3)
WAIT_S = 0.01
IDLE_S = 2.0
"""A transaction that keeps others waiting for so long is rolled back by the server."""
LOST = 0.05
"""The share of COMMITs whose connection is cut before, and as many after the server has stored it."""


def inboxed(setup: Setup, seed: int) -> Setup:
    """Ten of every thousand seeds; in half of them, the ids of topics are not always known. Chosen apart: the other
    seeds stay what they are.
    """
    if not 890 <= seed % 1000 < 900:
        return setup
    rng = Random(seed * 37 + 23)
    plain = transactional(setup, seed)
    commit = rng.choice((CommitPolicy(mode="interval"), CommitPolicy(mode="each")))
    faults = tuple(fault for fault in (*plain.faults, "seek") if fault != "sends")
    if seed % 1000 >= 895:
        faults = (*faults, "ids", "ids", "crash")
    return replace(plain, once=False, sends=False, inbox=True, commit=commit, faults=faults)


@dataclass(eq=False, slots=True)
class SimTx:
    """An open transaction of one process. `over`: the server has ended it."""

    process: Process
    new: frozenset[RecordIdentity]
    effects: list[int] = field(default_factory=list)
    over: bool = False


class SimDatabase:
    """One for all processes. `effects` counts the effects of each record that are committed."""

    def __init__(self, blame: Callable[[str, str], None]) -> None:
        self._blame = blame
        self.done: set[RecordIdentity] = set()
        self.open: dict[SimTx, None] = {}
        self.effects: Counter[int] = Counter()

    def holder(self, identities: Collection[RecordIdentity]) -> SimTx | None:
        """Who has inserted one of these and may still commit it. What a dead process had open is rolled back."""
        for tx in [tx for tx in self.open if not tx.process.alive]:
            self.end(tx)
        return next((tx for tx in self.open if not tx.new.isdisjoint(identities)), None)

    def end(self, tx: SimTx) -> None:
        tx.over = True
        self.open.pop(tx, None)

    def store(self, tx: SimTx) -> None:
        self.end(tx)
        self.done |= tx.new
        self.effects.update(tx.effects)
        for number in tx.effects:
            if self.effects[number] > 1:
                self._blame("P14", f"record {number} has its effect {self.effects[number]} times")


class SimInbox:
    """Implements `core.inbox.Inbox` for one process, with coroutines; `pause` lets time pass."""

    transaction = SimTx

    def __init__(
        self, database: SimDatabase, process: Process, rng: Random, pause: Callable[[float], Awaitable[None]]
    ) -> None:
        self._database = database
        self._process = process
        self._rng = rng
        self._pause = pause

    async def begin(self, identities: Sequence[RecordIdentity]) -> tuple[SimTx, Collection[RecordIdentity]]:
        await self._statement()
        waited_s = 0.0
        while (holder := self._database.holder(identities)) is not None:  # on the unique index
            await self._pause(WAIT_S)
            waited_s += WAIT_S
            if waited_s > IDLE_S:
                self._database.end(holder)
        tx = SimTx(self._process, frozenset(identities) - self._database.done)
        self._database.open[tx] = None
        return tx, tx.new

    async def commit(self, tx: SimTx) -> None:
        await self._statement()
        fate = self._rng.random()
        if tx.over or fate < LOST:
            self._database.end(tx)
            self._process.trace.fault("inbox_commit_lost")
            raise OSError("the connection was lost before COMMIT")
        self._database.store(tx)
        if fate > 1 - LOST:
            self._process.trace.fault("inbox_commit_unknown")
            raise OSError("the connection was lost after COMMIT")

    async def rollback(self, tx: SimTx) -> None:
        self._database.end(tx)

    async def prune(self, before: datetime) -> int:  # noqa: ARG002 - nothing gets old here
        return 0

    async def _statement(self) -> None:
        await self._pause(self._rng.uniform(*STATEMENT_S))

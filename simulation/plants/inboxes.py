"""Plants in what an inbox lets through, and what it keeps."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from keepfast.core.inbox import RecordIdentity
from keepfast.core.records import Message
from keepfast.core.runs import Run
from keepfast.engine import middleware
from keepfast.engine.inbox import SKIPPED, CallTransaction, ConsumerInbox
from keepfast.engine.topic_ids import Identities
from simulation.plants.plant import Patch, plant


@plant
def hands_over_a_record_that_the_inbox_knows(patch: Patch) -> None:
    def begun(self: CallTransaction, new: Any) -> bool:
        return bool(before(self, set(self._identities)))

    before = patch.set(CallTransaction, "begun", begun)


@plant
def takes_records_of_two_partitions_for_the_same(patch: Patch) -> None:
    def identities(self: ConsumerInbox, selected: Sequence[Message], run: Run) -> list[RecordIdentity]:
        return [one._replace(partition=0) for one in before(self, selected, run)]

    before = patch.set(ConsumerInbox, "identities", identities)


@plant
def finishes_a_record_whose_transaction_it_rolls_back(patch: Patch) -> None:
    async def transaction(
        stage: ConsumerInbox, subject: Any, run: Run, enter: Callable[[CallTransaction], None]
    ) -> AsyncIterator[Any]:
        async for step in before(stage, subject, run, enter):
            yield step
            inbox: Any = stage.inbox
            if hasattr(step, "effects") and step.effects and step.effects[0] % 7 == 0:
                await inbox.rollback(step)
                return

    before = patch.set(middleware, "async_transaction", transaction)


@plant
def commits_the_transaction_of_an_attempt_that_failed_and_forgets_its_identity(patch: Patch) -> None:
    async def transaction(
        stage: ConsumerInbox, subject: Any, run: Run, enter: Callable[[CallTransaction], None]
    ) -> AsyncIterator[Any]:
        inbox: Any = stage.inbox
        call = CallTransaction(stage, subject, run)
        tx, new = await inbox.begin(call.asked)
        if not call.begun(new):
            await inbox.rollback(tx)
            yield SKIPPED
            return
        try:
            yield tx
        except BaseException:
            tx.new = frozenset()
            await inbox.commit(tx)
            raise
        await inbox.commit(tx)

    patch.set(middleware, "async_transaction", transaction)


@plant
def does_not_wait_for_the_id_of_a_topic(patch: Patch) -> None:
    patch.set(Identities, "lacks", lambda *_: False)

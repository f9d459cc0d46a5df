"""Plants in what a transaction has in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from keepfast.core.batches import Batch
from keepfast.core.errors import SourceError
from keepfast.core.ports import PRODUCER_HANGS
from keepfast.core.records import Message, Output
from keepfast.core.runs import Partition, Run
from keepfast.engine import calls
from keepfast.engine.commits import Committer
from keepfast.engine.context import BufferedSends
from keepfast.engine.forwarding import Forwarder
from keepfast.engine.status import LoopStatus
from keepfast.testing.fakes.commits import Commits
from keepfast.testing.fakes.membership import Membership
from simulation.plants.plant import Patch, plant


@plant
def produces_what_a_failed_attempt_has_sent(patch: Patch) -> None:
    def giving_async(handle: calls.Handle) -> calls.Handle:
        async def handle_giving(subject: Any, run: Run) -> None:
            try:
                await handle(subject, run)
            finally:
                if isinstance(run.sends, BufferedSends):
                    run.sends.give(run)

        return handle_giving

    bodies = calls._ASYNC
    patch.set(
        calls,
        "_ASYNC",
        calls._Bodies(bodies.direct, bodies.with_context, bodies.around, giving_async, bodies.with_steps),
    )

    def take_outputs(self: Partition, run: Run, messages: Sequence[Message]) -> None:
        for _, outgoing in run.outputs:
            self.add_output(Output(outgoing))

    patch.set(Partition, "take_outputs", take_outputs)


@plant
def forgets_the_outputs_of_a_transaction_that_was_aborted(patch: Patch) -> None:
    patch.set(Partition, "outputs_back", lambda self, outputs: None)


@plant
def keeps_the_outputs_of_a_transaction_that_was_committed(patch: Patch) -> None:
    def outputs_done(self: Partition, outputs: Sequence[Output]) -> None:
        self.outputs_back(outputs[:1])

    patch.set(Partition, "outputs_done", outputs_done)


@plant
def takes_a_transaction_of_which_nothing_is_known_for_one_that_was_aborted(patch: Patch) -> None:
    patch.set(Membership, "renew", lambda self: None)


@plant
def takes_a_transaction_that_hangs_for_one_that_was_aborted(patch: Patch) -> None:
    def give_up(self: Commits, request: Any) -> None:
        self._unknown = lambda: None
        before(self, request)

    before = patch.set(Commits, "_give_up", give_up)


@plant
def calls_itself_live_while_its_producer_hangs(patch: Patch) -> None:
    def client_error(self: LoopStatus, error: SourceError, now: float) -> None:
        if error.code != PRODUCER_HANGS:
            before(self, error, now)

    before = patch.set(LoopStatus, "client_error", client_error)


@plant
def forgets_the_outputs_of_a_record_that_failed_before(patch: Patch) -> None:
    def take_outputs(self: Partition, run: Run, messages: Sequence[Message]) -> None:
        if run.failed_record is None:
            before(self, run, messages)

    before = patch.set(Partition, "take_outputs", take_outputs)


@plant
def commits_outputs_of_records_that_are_not_finished(patch: Patch) -> None:
    def position(self: Committer, partition: Partition) -> Any:
        for run in partition.running:
            if isinstance(run.sends, BufferedSends):
                partition.outputs += [Output(outgoing) for _, outgoing in run.sends._sent]
        return before(self, partition)

    before = patch.set(Committer, "_position", position)


@plant
def forgets_the_letters_of_a_transaction_that_was_aborted(patch: Patch) -> None:
    def outputs_back(self: Partition, outputs: Sequence[Output]) -> None:
        before(self, [output for output in outputs if not output.kind])

    before = patch.set(Partition, "outputs_back", outputs_back)


@plant
def has_a_letter_in_its_transaction_twice(patch: Patch) -> None:
    def add_output(self: Partition, output: Output) -> None:
        if output.kind:
            self.outputs.insert(0, output)
        before(self, output)

    before = patch.set(Partition, "add_output", add_output)


@plant
def publishes_letters_and_moves_apart_from_the_transaction(patch: Patch) -> None:
    def init(self: Forwarder, *args: Any, **options: Any) -> None:
        before(self, *args, **options | {"in_transaction": False})

    before = patch.set(Forwarder, "__init__", init)


@plant
def has_letters_and_moves_in_the_transaction_after_that_of_their_record(patch: Patch) -> None:
    def position(self: Committer, partition: Partition) -> Any:
        later = [output for output in partition.outputs if output.kind]
        partition.outputs = [output for output in partition.outputs if not output.kind]
        found = before(self, partition)
        if found is not None and found.outputs:
            partition.outputs, found = [], replace(found, outputs=(*found.outputs, *self.__dict__.pop("later", ())))
        self.__dict__["later"] = [*self.__dict__.get("later", ()), *later]
        return found

    before = patch.set(Committer, "_position", position)


@plant
def has_the_outputs_of_a_whole_batch_in_the_commit_of_each_of_its_parts(patch: Patch) -> None:
    def take_outputs(self: Partition, run: Run, messages: Sequence[Message]) -> None:
        before(self, run, messages if run.batch is None else [message for message, _ in run.outputs])

    before = patch.set(Partition, "take_outputs", take_outputs)


@plant
def forgets_the_outputs_of_what_is_done_of_a_part_of_a_batch(patch: Patch) -> None:
    def take_outputs(self: Partition, run: Run, messages: Sequence[Message]) -> None:
        if not isinstance(run.batch, Batch) or run not in run.batch.heads:
            before(self, run, messages)

    before = patch.set(Partition, "take_outputs", take_outputs)

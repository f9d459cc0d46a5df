"""Inbox and outbox in the simulator: seeds without a bug are clean, and each planted bug is caught."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest

from keepfast.core import inbox as identities
from keepfast.core.records import Receipt
from keepfast.engine import inbox as engine_inbox
from keepfast.engine import middleware
from keepfast.engine.calls import Handler
from keepfast.engine.context import AcknowledgedSender
from keepfast.engine.inbox import SKIPPED, CallTransaction
from keepfast.inbox import outbox, relay
from keepfast.inbox.relay import OutboxRow, Relay, _Page
from simulation.effects import EffectsWorld, problems_of

Plant = Callable[[pytest.MonkeyPatch], None]
PLANTS: dict[str, Plant] = {}
SEEDS = range(400) if os.environ.get("THOROUGH_TESTS") else range(25)


def plant(function: Plant) -> Plant:
    PLANTS[function.__name__] = function
    return function


@plant
def believes_an_origin_whatever_topic_and_value_it_names(patch: pytest.MonkeyPatch) -> None:
    before = identities.noted_origin

    def noted_origin(headers: Any, *, topic: str, value: Any) -> Any:
        note = next((text for name, text in headers if name == identities.ORIGIN), b"")
        parts = note.decode().split("/")
        return before(headers, topic=parts[0], value=value) or (
            identities.RecordOrigin(parts[4], int(parts[2]), int(parts[3])) if note else None
        )

    patch.setattr(identities, "noted_origin", noted_origin)


@plant
def forgets_that_a_record_is_a_replay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(identities, "noted_origin", lambda headers, *, topic, value: None)


@plant
def knows_a_topic_by_its_name(patch: pytest.MonkeyPatch) -> None:
    before = identities.origin_of
    patch.setattr(engine_inbox, "origin_of", lambda message, topic_id: replace_source(before(message, topic_id)))


def replace_source(origin: identities.RecordOrigin) -> identities.RecordOrigin:
    return origin._replace(source="orders")


@plant
def commits_although_the_handler_failed(patch: pytest.MonkeyPatch) -> None:
    def begin(self: Any, *arguments: Any) -> Any:
        return self.inbox.begin(*arguments)

    async def transaction(stage: Any, subject: Any, run: Any, enter: Any) -> AsyncIterator[Any]:
        call = CallTransaction(stage, subject, run)
        tx, new = await begin(stage, call.asked)
        any_new = call.begun(new)
        if any_new and call.narrows:
            enter(call)
        try:
            yield tx if any_new else SKIPPED
        finally:
            outgoing = call.sent()
            if outgoing:
                await stage.inbox.publish(tx, outgoing)
            await (stage.inbox.commit(tx) if any_new else stage.inbox.rollback(tx))

    patch.setattr(middleware, "async_transaction", transaction)


@plant
def takes_a_lost_commit_for_done(patch: pytest.MonkeyPatch) -> None:
    class Stage:
        def __init__(self, inner: Any) -> None:
            self._inner = inner

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

        async def commit(self, tx: Any) -> None:
            try:
                await self._inner.commit(tx)
            except ConnectionError:
                return

    before = engine_inbox.async_transaction
    patch.setattr(
        middleware,
        "async_transaction",
        lambda stage, *rest: before(replace(stage, inbox=Stage(stage.inbox)), *rest),
    )


@plant
def skips_a_batch_of_which_one_record_is_known(patch: pytest.MonkeyPatch) -> None:
    before = CallTransaction.begun
    patch.setattr(CallTransaction, "begun", lambda self, new: before(self, new) and not self.narrows)


@plant
def drops_what_the_handler_sent(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CallTransaction, "sent", lambda self: [])


@plant
def sends_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Handler, "_sender", lambda self, sink, tracing: AcknowledgedSender(sink))


@plant
def removes_rows_before_they_are_sent(patch: pytest.MonkeyPatch) -> None:
    before = relay._Page.send

    def step(self: Relay) -> int:
        if not self._lead():
            return 0
        rows = self._read()
        self._connection.execute("DELETE FROM keepfast_outbox WHERE id = ANY(%s)", ([row.id for row in rows],))
        before(_Page(rows, self._sink))
        return len(rows)

    patch.setattr(Relay, "step", step)


@plant
def sends_rows_of_a_key_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OutboxRow, "lane", property(lambda self: self.id))


@plant
def goes_on_behind_a_row_that_was_refused(patch: pytest.MonkeyPatch) -> None:
    before = _Page._answered

    def answered(self: _Page, lane: Any, row: OutboxRow, answer: Any) -> None:
        before(self, lane, row, answer if not lane else Receipt("out", 0, 0))

    patch.setattr(_Page, "_answered", answered)


@plant
def makes_an_id_of_its_own_for_each_attempt_to_send(patch: pytest.MonkeyPatch) -> None:
    before = outbox.event_of
    patch.setattr(relay, "event_of", lambda event_id, *rest: before("the same for all", *rest))  # type: ignore[arg-type]


def test_without_a_bug_every_effect_happens_once_and_has_its_event() -> None:
    assert {seed: found for seed in SEEDS if (found := problems_of(seed))} == {}


@pytest.mark.parametrize("name", sorted(PLANTS))
def test_a_planted_bug_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulation.effects.STEPS", 3_000)  # some never end
    PLANTS[name](monkeypatch)
    for seed in range(40):
        world = EffectsWorld(seed)
        world.run()
        if world.problems():
            return
    raise AssertionError(f"{name} is not caught")

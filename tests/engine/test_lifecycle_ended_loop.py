"""What a loop saw last is not so any more when it has ended: no gauge and no reason of health may say so."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from keepfast.engine.lifecycle import LoopThread
from keepfast.engine.loop import Loop
from keepfast.engine.mailbox import Ending, QueueMailbox
from keepfast.engine.metrics import consumer_families
from keepfast.telemetry.state import ConsumerState, GuardState, Hold, PartitionState, Refused
from tests.engine.world import World

WHO = {"name": "charge", "group": "shop.charge", "topics": ("orders",), "order": "key", "commit": "confirmed"}


def test_it_has_no_partitions_no_work_and_no_trouble_but_what_it_counted_stays() -> None:
    guards = GuardState(breaker_opened=2)
    last = ConsumerState(
        **WHO,  # type: ignore[arg-type] # a table of texts
        phase="running",
        member=True,
        lost=True,
        partitions=(PartitionState(topic="orders", partition=0, epoch=1),),
        holds=(Hold(name="commit", for_s=3.0),),
        in_flight=4,
        settling=1,
        letters_refused=Refused(records=1, for_s=9.0, why="away"),
        letter_topics={"orders.dlq": None, "other.dlq": 7},
        guards=guards,
        brokers="away",
    )
    thread = LoopThread(cast(Loop, SimpleNamespace(status=SimpleNamespace(state=last))), QueueMailbox())
    assert thread.state is last
    thread.ending = Ending("failed", "it broke")
    assert thread.state == ConsumerState(**WHO, phase="ended", why="it broke", guards=guards)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ending", "failed"),
    [
        (None, 0),
        (Ending("stopped"), 0),
        (Ending("stopped", unfinished=2), 0),
        (Ending("failed", "it broke"), 1),
        (Ending("fenced", "a newer member"), 1),
        (Ending("halted", "look at it"), 1),
    ],
)
def test_a_consumer_that_was_stopped_has_not_failed_while_others_drain(ending: Ending | None, failed: int) -> None:
    thread = LoopThread(World(lambda _: None).loop, QueueMailbox())
    thread.ending = ending
    [family] = [one for one in consumer_families(thread, 0.0, app="shop") if one.name == "keepfast_consumer_ended"]
    assert [sample.value for sample in family.samples] == [failed]

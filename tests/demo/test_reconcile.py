"""The account at the end of the demo: right when all is well, and it sees everything that can be wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from keepfast.core.events import Discarded, Lost, Revoked
from keepfast.core.records import Record, TopicPartition
from keepfast.core.replays import ReplayMark
from keepfast.demo.orders import OrderPlan
from keepfast.demo.reconcile import PARTITIONS_LOST, PROCESS_DIED, UNEXPLAINED, Account, reconcile
from keepfast.demo.shop import ORDERS
from keepfast.supervisor.supervisor import ChildExited
from keepfast.telemetry.event_log import event_line

PLACE: dict[str, Any] = {"topic": ORDERS, "partition": 1, "offset": 0}
FAILED: dict[str, Any] = {"attempt": 1, "error": None, "error_type": "Discard", "kind": "discard", "rule": "discard"}
DEATH = event_line(ChildExited(0, 71, "SIGSEGV", stopping=False)).decode()
STOPPED = event_line(ChildExited(0, 71, "code 0", stopping=True)).decode()
LOST = event_line(Lost("ship", "shop.ship", partitions=(TopicPartition(ORDERS, 1),))).decode()
UNCONFIRMED = (TopicPartition(ORDERS, 1),)
REVOKED = event_line(Revoked("ship", "shop.ship", partitions=UNCONFIRMED)).decode()
REVOKED_EARLY = event_line(Revoked("ship", "shop.ship", partitions=UNCONFIRMED, unconfirmed=UNCONFIRMED)).decode()
DISCARD = event_line(Discarded("ship", "shop.ship", **PLACE, **FAILED, code="DISCARDED", reason="a test")).decode()


def order(number: int) -> bytes:
    return json.dumps({"id": f"order-{number}"}, separators=(",", ":")).encode()


def record(partition: int, offset: int, value: object, *, key: bytes = b"ada", replays: int = 0) -> Record:
    content = value if isinstance(value, bytes) else json.dumps(value).encode()
    headers = (ReplayMark("case", "run", replays).header,) if replays else ()
    return Record(ORDERS, partition, offset, key, content, headers, None)


def shipment(number: int, partition: int, offset: int, *, pid: int = 1) -> Record:
    return record(0, 0, {"id": f"order-{number}", "of": [partition, offset], "pid": pid})


def letter(number: int, partition: int, offset: int, **other: Any) -> Record:
    reported = {"original_topic": ORDERS, "original_partition": partition, "original_offset": offset}
    return record(
        0, 0, {**reported, "original_encoding": "json", "original_message": {"id": f"order-{number}"}, **other}
    )


SENT = [order(number) for number in range(5)]
ORDERED = [
    record(0, 0, order(0)),
    record(0, 1, order(1)),
    record(0, 2, order(2)),
    record(1, 0, order(3), key=b"bob"),
    record(1, 1, order(4), key=b"bob"),
    record(0, 3, order(2), replays=1),
]
"""Order 2 was replayed."""
SHIPPED = [shipment(0, 0, 0), shipment(1, 0, 1), shipment(2, 0, 3)]
LETTERS = [letter(2, 0, 2), letter(4, 1, 1)]

WELL = Account(
    sent=5,
    processed=3,
    dead_lettered=1,
    discarded=1,
    lost=0,
    lost_orders=[],
    replayed=1,
    processed_after_replay=1,
    repeated=0,
    repeated_because={},
    deaths=0,
    out_of_order=0,
    strangers=0,
)


def test_every_order_ends_in_exactly_one_place() -> None:
    assert reconcile(SENT, ORDERED, SHIPPED, LETTERS, [DISCARD, STOPPED, REVOKED]) == WELL
    assert WELL.is_right


@pytest.mark.parametrize(
    ("ordered", "shipped", "letters", "log", "name"),
    [
        (ORDERED, SHIPPED[:1] + SHIPPED[2:], LETTERS, [DISCARD], "order-1"),
        (ORDERED, SHIPPED, LETTERS[:1], [DISCARD], "order-4"),
        (ORDERED, SHIPPED, LETTERS, [], "order-3"),
        (ORDERED[1:], SHIPPED[1:], LETTERS, [DISCARD], "order-0"),
        (ORDERED, SHIPPED[:2], LETTERS, [DISCARD], "order-2"),
    ],
    ids=["not shipped", "no letter", "not discarded", "removed from the topic", "lost when it was replayed"],
)
def test_what_came_to_no_end_is_lost(
    ordered: list[Record], shipped: list[Record], letters: list[Record], log: list[str], name: str
) -> None:
    account = reconcile(SENT, ordered, shipped, letters, log)
    assert account.lost == 1
    assert name in account.lost_orders[0]
    assert account.sent == account.processed + account.dead_lettered + account.discarded + account.lost
    assert not account.is_right


@pytest.mark.parametrize(
    ("pid", "log", "reason"),
    [
        (2, [DEATH], PROCESS_DIED),
        (1, [DEATH], UNEXPLAINED),
        (2, [], UNEXPLAINED),
        (1, [DEATH, LOST], PARTITIONS_LOST),
        (2, [LOST], PARTITIONS_LOST),
        (2, [REVOKED_EARLY], PARTITIONS_LOST),
        (2, [REVOKED, STOPPED], UNEXPLAINED),
    ],
)
def test_a_repetition_needs_a_process_that_died_or_was_not_heard(pid: int, log: list[str], reason: str) -> None:
    again = [*SHIPPED, shipment(0, 0, 0, pid=pid)]
    account = reconcile(SENT, ORDERED, again, LETTERS, [DISCARD, *log])
    assert (account.repeated, account.repeated_because) == (1, {reason: 1})
    assert account.is_right == (reason != UNEXPLAINED)


def test_orders_of_a_customer_that_change_places_are_seen() -> None:
    account = reconcile(SENT, ORDERED, [SHIPPED[1], SHIPPED[0], SHIPPED[2]], LETTERS, [DISCARD])
    assert (account.lost, account.out_of_order, account.is_right) == (0, 1, False)


@pytest.mark.parametrize(
    ("ordered", "shipped", "letters"),
    [
        ([*ORDERED, record(3, 0, b"never sent")], SHIPPED, LETTERS),
        (ORDERED, [*SHIPPED, shipment(9, 0, 0)], LETTERS),
        (ORDERED, SHIPPED, [*LETTERS, letter(9, 0, 0)]),
        (ORDERED, SHIPPED, [*LETTERS, letter(2, 0, 2, original_topic="another")]),
    ],
    ids=["a record", "a shipment", "a letter with other bytes", "a letter of another topic"],
)
def test_what_belongs_to_no_order_is_detected(
    ordered: list[Record], shipped: list[Record], letters: list[Record]
) -> None:
    account = reconcile(SENT, ordered, shipped, letters, [DISCARD])
    assert replace(account, strangers=0) == WELL
    assert (account.strangers, account.is_right) == (1, False)


def test_the_same_seed_gives_the_same_orders_and_every_one_is_unique() -> None:
    plan = OrderPlan(records=2_000, seed=3)
    values = [value for _, value in plan.orders()]
    assert values == [value for _, value in plan.orders()]
    assert len(set(values)) == 2_000
    assert values != [value for _, value in replace(plan, seed=4).orders()]
    assert sum("🦊".encode() in value for value in values) == 1
    assert not any("🦊".encode() in value for _, value in replace(plan, calm=True).orders())

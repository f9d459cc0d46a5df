"""Reads the topics and accounts for every order by its identity, in a process of its own that shares no state with
the demo, and can report `lost 1`.

The input is generated again from the seed. Each record of the topic of orders, replayed ones included, must have an
outcome: a shipment that names its place, a letter with its exact bytes, or the engine's event that it was discarded
(a discarded record is in no other topic).

`python -m keepfast.demo.reconcile BROKERS LETTER_TOPIC EVENTS_FILE RECORDS SEED CALM` prints one JSON object.
"""

from __future__ import annotations

import json
import sys
from base64 import b64decode
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from keepfast.core.records import Record
from keepfast.deadletters import ours
from keepfast.demo.orders import OrderPlan
from keepfast.demo.shop import ORDERS, SHIPMENTS
from keepfast.kafka.browser import KafkaBrowser, browser_properties
from keepfast.kafka.config import Connection

Place = tuple[int, int]
"""Partition and offset in the topic of orders: the identity of a delivery. That of an order is its bytes."""

PROCESS_DIED = "in flight when the process died"
PARTITIONS_LOST = "in flight when the consumer lost its partitions"
UNEXPLAINED = "not explained"
MAX_NAMED = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Every order that was sent is in exactly one of processed, dead-lettered, discarded and lost."""

    sent: int
    processed: int
    dead_lettered: int
    discarded: int
    lost: int
    lost_orders: list[str]
    """The first few."""
    replayed: int
    processed_after_replay: int
    repeated: int
    """Outcomes beyond the first one of a delivery: the duplicates of at-least-once processing."""
    repeated_because: dict[str, int]
    deaths: int
    out_of_order: int
    """Orders of a customer that were shipped before an earlier one."""
    strangers: int
    """Records, shipments and letters that belong to no order, or do not hold its bytes."""

    @property
    def is_right(self) -> bool:
        return not (self.lost or self.strangers or self.out_of_order or self.repeated_because.get(UNEXPLAINED))


@dataclass(slots=True)
class Outcomes:
    """The outcomes of one delivery."""

    shipped_by: list[int] = field(default_factory=list)
    letters: int = 0
    discards: int = 0

    @property
    def count(self) -> int:
        return len(self.shipped_by) + self.letters + self.discards

    @property
    def state(self) -> str:
        if self.shipped_by:
            return "processed"
        return "dead-lettered" if self.letters else "discarded" if self.discards else "lost"


def reconcile(
    sent: Iterable[bytes],
    orders: Iterable[Record],
    shipments: Iterable[Record],
    letters: Iterable[Record],
    events: Iterable[str],
) -> Account:
    """From the generated input, the contents of the topics, and the lines with events."""
    deliveries: dict[bytes, list[Place]] = {value: [] for value in sent}
    values: dict[Place, bytes] = {}
    first: set[Place] = set()
    strangers = 0
    for record in orders:
        place, value = (record.partition, record.offset), record.value or b""
        if value not in deliveries:
            strangers += 1
            continue
        deliveries[value].append(place)
        values[place] = value
        if not ours.replays(record.headers):
            first.add(place)
    discards, deaths, losses = _reported(events)
    outcomes: dict[Place, Outcomes] = defaultdict(Outcomes, {place: Outcomes() for place in values})
    for place in discards:
        outcomes[place].discards += 1
    out_of_order, unknown = _ship(shipments, values, first, outcomes)
    strangers += unknown + _note_letters(letters, values, outcomes)
    finals = {value: _final(places, outcomes) for value, places in deliveries.items()}
    states = Counter(finals.values())
    lost = [value for value, state in finals.items() if state == "lost"]
    replayed = [value for value, places in deliveries.items() if not first.issuperset(places)]
    repeated = _repeated((outcomes[place] for place in values), deaths, losses)
    return Account(
        sent=len(deliveries),
        processed=states["processed"],
        dead_lettered=states["dead-lettered"],
        discarded=states["discarded"],
        lost=len(lost),
        lost_orders=[repr(value)[2:80] for value in lost[:MAX_NAMED]],
        replayed=len(replayed),
        processed_after_replay=sum(finals[value] == "processed" for value in replayed),
        repeated=repeated.total(),
        repeated_because=dict(repeated),
        deaths=deaths,
        out_of_order=out_of_order,
        strangers=strangers,
    )


def _final(places: list[Place], outcomes: Mapping[Place, Outcomes]) -> str:
    """The outcome of an order: that of its last delivery, unless one of its deliveries has none."""
    states = [outcomes[place].state for place in sorted(places)]
    return "lost" if not states or "lost" in states else states[-1]


def _reported(events: Iterable[str]) -> tuple[list[Place], int, int]:
    """Discarded records, number of crashes, and number of lost assignments."""
    discards: list[Place] = []
    deaths = losses = 0
    for event in map(json.loads, events):
        match event["event"]:
            case "Discarded" if event["topic"] == ORDERS:
                discards.append((int(event["partition"]), int(event["offset"])))
            case "ChildExited":
                deaths += not event["stopping"]
            case "Lost":
                losses += 1
            case "Revoked":
                losses += bool(event["unconfirmed"])
            case _:
                pass
    return discards, deaths, losses


def _ship(
    shipments: Iterable[Record], values: Mapping[Place, bytes], first: set[Place], outcomes: Mapping[Place, Outcomes]
) -> tuple[int, int]:
    """Note every shipment; returns how many are out of order, and how many belong to no order."""
    out_of_order = strangers = 0
    latest: dict[bytes | None, Place] = {}
    for record in shipments:
        fields = json.loads(record.value or b"{}")
        place = (int(fields["of"][0]), int(fields["of"][1]))
        if place not in values or json.loads(values[place])["id"] != fields["id"]:
            strangers += 1
            continue
        # Duplicates and replayed orders are late by nature.
        if not outcomes[place].shipped_by and place in first:
            out_of_order += place < latest.get(record.key, place)
            latest[record.key] = place
        outcomes[place].shipped_by.append(int(fields["pid"]))
    return out_of_order, strangers


def _note_letters(letters: Iterable[Record], values: Mapping[Place, bytes], outcomes: Mapping[Place, Outcomes]) -> int:
    """Note every letter; returns how many belong to no order, or do not contain its bytes."""
    strangers = 0
    for record in letters:
        fields: dict[str, Any] = json.loads(record.value or b"{}")
        place = (int(fields["original_partition"]), int(fields["original_offset"]))
        if fields["original_topic"] == ORDERS and values.get(place) == _original(fields):
            outcomes[place].letters += 1
        else:
            strangers += 1
    return strangers


def _original(letter: dict[str, Any]) -> bytes:
    if "original_bytes" in letter:
        return b64decode(letter["original_bytes"])
    if letter["original_encoding"] == "base64":
        return b64decode(letter["original_message"])
    return json.dumps(letter["original_message"], ensure_ascii=False, separators=(",", ":")).encode()


def _repeated(outcomes: Iterable[Outcomes], deaths: int, losses: int) -> Counter[str]:
    """Number of outcomes beyond the first, by reason: only interrupted work may be repeated."""
    reasons: Counter[str] = Counter()
    for one in outcomes:
        by_others = len(set(one.shipped_by)) == len(one.shipped_by)
        if one.count > 1 and deaths and by_others:
            reasons[PROCESS_DIED] += one.count - 1
        elif one.count > 1:
            reasons[PARTITIONS_LOST if losses else UNEXPLAINED] += one.count - 1
    return reasons


def main(brokers: str, letter_topic: str, events_file: str, *plan: str) -> str:
    records, seed, calm = (int(number) for number in plan)
    browser = KafkaBrowser(browser_properties(Connection(brokers=brokers.split(","), properties={"log_level": 0})))

    def whole(topic: str) -> list[Record]:
        return [record for record in browser.read(topic, browser.spans(topic, 15.0)) if record is not None]

    try:
        sent = [value for _, value in OrderPlan(records, seed, calm=bool(calm)).orders()]
        events = Path(events_file).read_text().splitlines()
        account = reconcile(sent, whole(ORDERS), whole(SHIPMENTS), whole(letter_topic), events)
    finally:
        browser.close()
    return json.dumps(asdict(account))


if __name__ == "__main__":
    sys.stdout.write(main(*sys.argv[1:]) + "\n")

"""Orders to a running consumer from the desk: read once, so that what is asked and what is ordered agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from keepfast.core.errors import KeepfastError
from keepfast.desk_page.processes import Processes
from keepfast.engine.guards import BREAKER, STORM

ADDRESSED: Final = ("process", "consumer")
MAX_DIGITS: Final = 19
MAX_WHY: Final = 1_000
GUARDS: Final = {STORM: "the storm guard", BREAKER: "the breaker"}


class InvalidOrder(KeepfastError):
    """The order has a field that is missing, invalid, or not one of its verb. The text is shown to the client."""


@dataclass(frozen=True, slots=True)
class OrderKind:
    """A verb: its title, its effect in words, and the fields that it takes beside process and consumer."""

    title: str
    effect: str
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    needs_reason: bool = True

    @property
    def fields(self) -> tuple[str, ...]:
        return self.required + self.optional


ORDERS: Final[Mapping[str, OrderKind]] = {
    "pause": OrderKind(
        "Pause",
        "No more records start. Records in flight finish; a restart of the process ends it.",
        optional=("topic", "partition"),
    ),
    "resume": OrderKind("Resume", "Records start again.", optional=("topic", "partition"), needs_reason=False),
    "release": OrderKind("Release", "Records start again. Remove the cause first, or it trips again.", ("hold",)),
    "dead-letter": OrderKind(
        "Dead-letter",
        "The record goes to its dead-letter topic, and records behind it continue. A handler that runs is abandoned:"
        " what it has done stays.",
        ("topic", "partition", "offset"),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOrder:
    """An order with the fields of its verb, all valid. `read_order` makes one."""

    verb: str
    process: str
    consumer: str
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    hold: str | None = None

    @property
    def kind(self) -> OrderKind:
        return ORDERS[self.verb]

    @property
    def body(self) -> dict[str, str | int]:
        """The fields of the verb that are given."""
        given = ((name, getattr(self, name)) for name in self.kind.fields)
        return {name: value for name, value in given if value is not None}

    @property
    def fields(self) -> dict[str, str | int]:
        """All fields of a form, from which `read_order` makes the same order."""
        return {"verb": self.verb, "process": self.process, "consumer": self.consumer} | self.body

    @property
    def label(self) -> str:
        """What kind of thing the order is about; empty for the whole consumer."""
        if self.hold is not None:
            return "Guard"
        if self.topic is None:
            return ""
        return "Topic" if self.partition is None else "Partition" if self.offset is None else "Record"

    @property
    def meant(self) -> str:
        """The record, the partition, the topic or the guard; empty for the whole consumer."""
        if self.hold is not None:
            return GUARDS[self.hold]
        place = self.topic or ""
        if self.partition is not None:
            place += f"[{self.partition}]"
        return place if self.offset is None else f"{place} offset {self.offset}"


def give(
    processes: Processes,
    order: ConsumerOrder,
    *,
    by: str,
    why: str,
    via: Literal["page", "api"],
    running: bool = False,
) -> str:
    """Send an order to its process; returns what it did. `running`: also dead-letter a record whose handler runs and is
    not stuck. Raises InvalidOrder without a reason where one is needed, and ControlRefused.
    """
    why = why.strip()[:MAX_WHY]
    if order.kind.needs_reason and not why:
        raise InvalidOrder(f"{order.kind.title} needs a reason. Nothing was done.")
    if running and order.verb != "dead-letter":
        raise InvalidOrder(f"{order.kind.title} does not take running.")
    more = {"unless_running": not running} if order.verb == "dead-letter" else {}
    return processes.order(order.process, order.consumer, order.verb, **order.body, **more, by=by, why=why, via=via)


def read_order(given: Mapping[str, object]) -> ConsumerOrder:
    """The order of the fields in `given`, texts or numbers. Raises InvalidOrder."""
    verb = _text(given, "verb")
    kind = ORDERS.get(verb)
    if kind is None:
        raise InvalidOrder(f"There is no such order: `verb` is one of {', '.join(ORDERS)}.")
    foreign = sorted(given.keys() - {"verb", *ADDRESSED, *kind.fields})
    if foreign:
        raise InvalidOrder(f"{kind.title} does not take {', '.join(foreign)}.")
    needed = (*kind.required, "topic") if "partition" in given else kind.required
    lacking = sorted(set(needed) - given.keys())
    if lacking:
        raise InvalidOrder(f"{kind.title} needs {', '.join(lacking)}.")
    order = ConsumerOrder(
        verb=verb,
        process=_text(given, "process"),
        consumer=_text(given, "consumer"),
        topic=_text(given, "topic") if "topic" in given else None,
        partition=_number(given, "partition", 2**31) if "partition" in given else None,
        offset=_number(given, "offset", 2**63) if "offset" in given else None,
        hold=_text(given, "hold") if "hold" in given else None,
    )
    if order.hold is not None and order.hold not in GUARDS:
        raise InvalidOrder(f"`hold` is one of {', '.join(GUARDS)}.")
    return order


def _text(given: Mapping[str, object], name: str) -> str:
    value = given.get(name)
    if not isinstance(value, str) or not value:
        raise InvalidOrder(f"`{name}` is missing.")
    return value


def _number(given: Mapping[str, object], name: str, end: int) -> int:
    """Below `end`. Raises InvalidOrder."""
    text = str(given[name])
    if not (text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS and int(text) < end):
        raise InvalidOrder(f"`{name}` is not a valid number.")
    return int(text)

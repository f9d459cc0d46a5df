"""A shelf without a broker: records in a list, and a sink that answers as configured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from keepfast.core.policies import LetterFormat
from keepfast.core.records import Record
from keepfast.deadletters.letter import Letter
from keepfast.deadletters.writing import write
from keepfast.desk.letter_topic import LetterTopic
from keepfast.desk.planning import ReplayPolicy, ReplayRouter
from keepfast.desk.selection import Selection
from keepfast.kafka.browser import Span
from tests.support.letters import letter

DLQ = "orders.payment.dlq"
SOURCE_PARTITIONS = 12


class Stock:
    """A dead-letter topic in memory; implements `desk.letter_topic.Browser`."""

    def __init__(self, *, partitions: int = 2) -> None:
        self.records: dict[int, list[Record]] = {number: [] for number in range(partitions)}

    def file(self, one: Letter, *, partition: int = 0, form: LetterFormat = "envelope") -> None:
        value, headers = write(one, form)
        self.add(Record(DLQ, partition, 0, one.key, value, headers, 1_700_000_002_000))

    def add(self, record: Record) -> None:
        place = self.records[record.partition]
        place.append(
            Record(DLQ, record.partition, len(place), record.key, record.value, record.headers, record.timestamp_ms)
        )

    def spans(self, topic: str, timeout_s: float) -> dict[int, Span]:
        return {partition: (0, len(records)) for partition, records in self.records.items()}

    def read(self, topic: str, spans: Mapping[int, Span]) -> Iterator[Record | None]:
        for partition, (low, high) in spans.items():
            yield None
            yield from self.records[partition][low:high]


def stocked(count: int, **fields: Any) -> Stock:
    """So many letters, in turn in two partitions; their offsets count up."""
    stock = Stock()
    for number in range(count):
        own = {"offset": number, "value": b"%d" % number, **fields}
        stock.file(letter(**own), partition=number % 2)
    return stock


def letter_topic(stock: Stock, selection: Selection | None = None) -> LetterTopic:
    return LetterTopic(stock, DLQ, selection)


def router(policy: ReplayPolicy | None = None, **topics: int) -> ReplayRouter:
    known: dict[str, int] = {"orders.payment.v1": SOURCE_PARTITIONS, "other": 3, **topics}
    return ReplayRouter(policy or ReplayPolicy(), partitions_of=known.get, letters_in=DLQ)

"""Ctrl-C while `keepfast send` is sending: what went is waited for, and it says where to go on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest

from keepfast.cli.send import SendProgress, where_to_go_on
from keepfast.core.ports import Delivery
from keepfast.core.records import Outgoing, Receipt
from keepfast.kafka.sink import KafkaSink


class Sink:
    """Acknowledges at once; Ctrl-C comes before it takes the record `stops_at`."""

    def __init__(self, stops_at: int) -> None:
        self.taken: list[Outgoing] = []
        self._stops_at = stops_at

    def send(self, outgoing: Outgoing, delivered: Delivery) -> None:
        if len(self.taken) == self._stops_at:
            raise KeyboardInterrupt
        self.taken.append(outgoing)
        delivered(Receipt(outgoing.topic, 0, len(self.taken)))

    def close(self, timeout_s: float) -> None: ...


def lines() -> Iterator[tuple[int, Outgoing]]:
    for number in (1, 2, 5, 6):  # 3 and 4 are empty
        yield number, Outgoing("orders", b"%d" % number, None, (), None)


@pytest.mark.timeout(20)
def test_what_was_not_sent_is_neither_counted_nor_waited_for() -> None:
    sink = Sink(stops_at=3)
    sending = SendProgress(cast(KafkaSink, sink))
    assert sending.run(lines(), None) is True
    assert (sending.acknowledged, sending.last) == (3, 5)


def test_it_says_how_to_send_the_rest() -> None:
    of_a_file = where_to_go_on(5, "orders", total=None, file="my orders.jsonl")
    assert of_a_file.startswith("Stopped by Ctrl-C after line 5 of my orders.jsonl.")
    assert of_a_file.endswith("tail -n +6 'my orders.jsonl' | keepfast send orders --file -")
    assert "the next to send is line 6" in where_to_go_on(5, "orders", total=None, file="<stdin>")
    assert where_to_go_on(300, "orders", total=1000, file=None) == "Stopped by Ctrl-C: 300 of 1,000 were sent."

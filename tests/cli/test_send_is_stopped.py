"""Ctrl-C while `keepfast send` is sending: what went is waited for, and it says where to continue."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest

from keepfast.cli.send import SendProgress, resume_hint
from keepfast.core.records import Outgoing, Receipt
from keepfast.kafka.sink import KafkaSink
from tests.support.fakes import FakeSink, acknowledge


def lines() -> Iterator[tuple[int, Outgoing]]:
    for number in (1, 2, 5, 6):  # 3 and 4 are empty
        yield number, Outgoing("orders", b"%d" % number, None, (), None)


@pytest.mark.timeout(60)
def test_what_was_not_sent_is_neither_counted_nor_waited_for() -> None:
    def stop_at_the_fourth(outgoing: Outgoing) -> Receipt:
        if len(sink.sent) == 3:
            raise KeyboardInterrupt
        return acknowledge(outgoing)

    sink = FakeSink(stop_at_the_fourth)
    sending = SendProgress(cast(KafkaSink, sink))
    assert sending.run(lines(), None) is True
    assert (sending.acknowledged, sending.last) == (3, 5)


def test_it_says_how_to_send_the_rest() -> None:
    of_a_file = resume_hint(5, "orders", total=None, file="my orders.jsonl")
    assert of_a_file.startswith("Stopped by Ctrl-C after line 5 of my orders.jsonl.")
    assert of_a_file.endswith("tail -n +6 'my orders.jsonl' | keepfast send orders --file -")
    assert "continue with line 6" in resume_hint(5, "orders", total=None, file="<stdin>")
    assert resume_hint(300, "orders", total=1000, file=None) == "Stopped by Ctrl-C: 300 of 1,000 were sent."

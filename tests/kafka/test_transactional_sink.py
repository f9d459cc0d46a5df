"""The transactions of the desk's runs, where a call of the producer does not return."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from keepfast.core.errors import Fault, SinkError
from keepfast.core.ports import PRODUCER_HANGS
from keepfast.core.records import Outgoing
from keepfast.kafka import transactional_sink
from keepfast.kafka.transactional_sink import TransactionalSink, transaction_properties
from keepfast.testing.broker import KafkaBroker
from tests.scenarios.outputs import committed_values
from tests.support.broker_proxy import BrokerProxy
from tests.support.members import connection

Topic = Callable[..., str]


def test_a_commit_that_hangs_is_an_error_and_the_next_sink_continues(
    kafka: KafkaBroker, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, identity = topic(), "replay"
    with BrokerProxy(kafka.bootstrap) as proxy:
        sink = TransactionalSink(transaction_properties(connection(proxy.bootstrap), identity))
        sink.open()
        sink.begin()
        assert [type(one).__name__ for one in sink.send([Outgoing(name, b"unknown")])] == ["Receipt"]
        monkeypatch.setattr(transactional_sink, "GIVE_UP_S", 0.5)
        proxy.hold()
        with pytest.raises(SinkError, match="has not answered") as caught:
            sink.commit()
        assert (caught.value.code, caught.value.fault) == (PRODUCER_HANGS, Fault.RETRY)
        monkeypatch.undo()
        sink.close()
    again = TransactionalSink(transaction_properties(connection(kafka.bootstrap), identity))
    again.open()
    again.begin()
    again.send([Outgoing(name, b"known")])
    again.commit()
    again.close()
    assert committed_values(kafka, name)[-1:] == [b"known"]

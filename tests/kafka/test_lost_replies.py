"""One reply that is lost while its connection lives, and connections that a NAT has forgotten: the client repeats its
request within seconds, and nothing is there twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from keepfast.core.ports import Position
from keepfast.core.records import Outgoing, Receipt, TopicPartition
from keepfast.kafka import KafkaSink, sink_properties
from keepfast.testing.broker import KafkaBroker
from tests.scenarios.outputs import committed_values
from tests.support.broker_client import Client
from tests.support.broker_proxy import (
    CONSUMER_GROUP_HEARTBEAT,
    FETCH,
    OFFSET_COMMIT,
    PRODUCE,
    SYNC_GROUP,
    BrokerProxy,
)
from tests.support.members import connection, drive, kafka_member, new_group, produce
from tests.support.waiting import wait_until

Topic = Callable[..., str]

MAX_STALL_S = 15.0
SESSION_MS = 45_000
RECORDS = 5


class Case:
    """A member behind a proxy of its own, with a session that outlives the stall and a heartbeat as in production.
    `progress` commits what it has received; `over_s` is when that was confirmed.
    """

    def __init__(self, kafka: KafkaBroker, topic: str, protocol: str, *, join: int | None = None) -> None:
        self.topic, self.group = topic, new_group()
        self.proxy = BrokerProxy(kafka.bootstrap)
        if join is not None:
            self.proxy.lose_reply(join)
        timings = {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": 3_000, "max_poll_interval_ms": 300_000}
        to = connection(self.proxy.bootstrap)
        self.member = kafka_member(to, topic, self.group, group_protocol=protocol, **timings)
        self.over_s = 0.0
        self._sent = 0

    def progress(self) -> None:
        member, place = self.member, TopicPartition(self.topic, 0)
        member.step()
        if self.over_s or len(member.records) < RECORDS:
            return
        if any(not outcome.failed for outcome in member.outcomes):
            self.over_s = time.monotonic()
        elif len(member.outcomes) == self._sent:
            member.source.commit([Position(place, RECORDS, "")])
            self._sent += 1

    def close(self) -> None:
        self.member.source.close()
        self.proxy.close()


@pytest.mark.timing
@pytest.mark.parametrize(("protocol", "joins"), [("classic", SYNC_GROUP), ("consumer", CONSUMER_GROUP_HEARTBEAT)])
def test_no_stall_of_a_consumer_is_longer_than_15_s(
    kafka: KafkaBroker, topic: Topic, protocol: str, joins: int
) -> None:
    began = time.monotonic()
    joining = Case(kafka, topic(), protocol, join=joins)
    produce(kafka, joining.topic, RECORDS)
    commits, fetches, forgotten = (Case(kafka, topic(), protocol) for _ in range(3))
    cases = [joining, commits, fetches, forgotten]
    drive([case.member for case in cases], lambda: all(case.member.owned for case in cases[1:]))
    commits.proxy.lose_reply(OFFSET_COMMIT)
    fetches.proxy.lose_reply(FETCH)
    forgotten.proxy.forget_connections()
    fault_at = time.monotonic()
    for case in cases[1:]:
        produce(kafka, case.topic, RECORDS)

    def progress() -> None:
        for case in cases:
            case.progress()

    wait_until(lambda: all(case.over_s for case in cases), between=progress)
    for case in cases:
        case.close()
    assert [case.proxy.lost for case in cases] == [[joins], [OFFSET_COMMIT], [FETCH], []]
    stalls = [case.over_s - (began if case is joining else fault_at) for case in cases]
    assert max(stalls) < MAX_STALL_S, stalls
    assert [Client(kafka).committed(case.group, case.topic, 0)[0] for case in cases] == [RECORDS] * 4


@pytest.mark.timing
def test_a_record_whose_acknowledgement_is_lost_is_delivered_once(kafka: KafkaBroker, topic: Topic) -> None:
    names, answers = [topic(), topic()], list[object]()
    with BrokerProxy(kafka.bootstrap) as losing, BrokerProxy(kafka.bootstrap) as forgetting:
        sinks = [KafkaSink(sink_properties(connection(proxy.bootstrap))) for proxy in (losing, forgetting)]
        for name, sink in zip(names, sinks, strict=True):
            sink.send(Outgoing(name, b"first"), answers.append)
        wait_until(lambda: len(answers) == 2)
        losing.lose_reply(PRODUCE)
        forgetting.forget_connections()
        began = time.monotonic()
        for name, sink in zip(names, sinks, strict=True):
            sink.send(Outgoing(name, b"second"), answers.append)
            sink.send(Outgoing(name, b"third"), answers.append)
        wait_until(lambda: len(answers) == 6)
        stalled_s = time.monotonic() - began
        for sink in sinks:
            sink.close(5.0)
        assert losing.lost == [PRODUCE]
    assert stalled_s < MAX_STALL_S
    assert [type(answer) for answer in answers] == [Receipt] * 6
    assert [committed_values(kafka, name) for name in names] == [[b"first", b"second", b"third"]] * 2

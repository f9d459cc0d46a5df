"""Which brokers do not answer, by the client's statistics; and how soon a frozen one is reported."""

from __future__ import annotations

import json
from typing import Any

import pytest

from keepfast.core.ports import NO_ANSWER
from keepfast.kafka import broker_watch
from keepfast.kafka.broker_watch import BrokerWatch
from keepfast.testing.broker import KafkaBroker
from tests.support.members import connection, drive, drive_for, kafka_member, new_group

LONG: dict[str, Any] = {"session_timeout_ms": 45_000, "max_poll_interval_ms": 60_000}


class Statistics:
    """Every 5 s; `rx` grows by one unless the broker is silent."""

    def __init__(self, *, fetch_ms: int = 500) -> None:
        self.watch = BrokerWatch({"statistics.interval.ms": 5_000, "fetch.wait.max.ms": fetch_ms})
        self.rx = 0

    def __call__(self, times: int = 1, *, answers: bool = False, **state: Any) -> dict[str, float]:
        seen: dict[str, float] = {}
        for _ in range(times):
            self.rx += answers
            broker: dict[str, Any] = {
                "nodename": "b:1",
                "source": "learned",
                "state": "UP",
                "rx": self.rx,
                "waitresp_cnt": 1,
            }
            broker["toppars"] = {"t-0": {"topic": "t"}}
            seen = self.watch.observe(json.dumps({"ts": 1, "brokers": {"b:1/1": broker | state}}))
        return seen


def test_a_broker_that_owes_an_answer_for_more_than_15_s_is_reported_until_it_answers() -> None:
    statistics = Statistics()
    assert statistics(4, answers=True) == {}
    assert statistics(3) == {}
    assert statistics() == {"b:1": 20.0}
    assert statistics() == {"b:1": 25.0}
    assert statistics(answers=True) == {}
    assert statistics(3) == {}


def test_a_request_to_the_coordinator_that_was_sent_again_is_reported_once() -> None:
    statistics = Statistics()
    seen = []
    for retries in (0, 0, 1, 1, 3):
        statistics(answers=True, source="logical", toppars={}, txretries=retries)
        seen.append(statistics.watch.repeated)
    assert seen == [False, False, True, False, True]
    statistics(answers=True, txretries=9)
    assert not statistics.watch.repeated, "it is not the coordinator"


@pytest.mark.parametrize(
    "idle",
    [
        pytest.param({"waitresp_cnt": 0}, id="nothing is asked"),
        pytest.param({"toppars": {}}, id="nothing is read from it"),
        pytest.param({"state": "DOWN"}, id="it is down, which the client reports"),
        pytest.param({"source": "logical", "toppars": {}}, id="the coordinator, as when a member waits to join"),
        pytest.param({"source": "configured", "toppars": {}}, id="an address that is known from the settings alone"),
    ],
)
def test_a_broker_that_owes_no_answer_may_be_silent(idle: dict[str, Any]) -> None:
    statistics = Statistics()
    statistics(answers=True)
    assert statistics(20, **idle) == {}


def test_a_fetch_may_wait_as_long_as_it_is_configured_to() -> None:
    statistics = Statistics(fetch_ms=20_000)
    statistics(answers=True)
    assert statistics(7) == {}
    assert statistics() == {"b:1": 40.0}


def test_a_coordinator_that_accepts_connections_and_does_not_answer_is_reported() -> None:
    statistics = Statistics()
    coordinator: dict[str, Any] = {"source": "logical", "toppars": {}}
    statistics(answers=True, **coordinator)
    assert statistics(3, state="APIVERSION_QUERY", **coordinator) == {}
    assert statistics(state="TRY_CONNECT", **coordinator) == {}, "between two attempts"
    assert statistics(state="APIVERSION_QUERY", **coordinator) == {"b:1": 20.0}
    statistics(state="TRY_CONNECT", **coordinator)
    assert statistics(state="TRY_CONNECT", **coordinator) == {}, "nothing is tried any more"


def test_a_broker_that_delays_its_answers_by_a_quota_is_named_while_it_does() -> None:
    statistics = Statistics()
    assert statistics(answers=True, throttle={"min": 0, "max": 1_500, "avg": 700}) == {}
    assert statistics.watch.throttled == {"b:1": 1.5}
    statistics(answers=True, throttle={"min": 0, "max": 0, "avg": 0})
    assert statistics.watch.throttled == {}


def test_the_clients_statistics_have_the_delay_of_each_broker(kafka: KafkaBroker, topic: Any) -> None:
    to, seen = connection(kafka.bootstrap, properties={"statistics.interval.ms": 200}), list[str]()
    member = kafka_member(to, topic(), new_group())
    watch, observe = member.source._brokers, member.source._brokers.observe

    def observed(text: str) -> Any:
        seen.append(text)
        return observe(text)

    watch.observe = observed
    drive([member], lambda: seen)
    member.source.close()
    assert {broker["throttle"]["max"] for broker in json.loads(seen[0])["brokers"].values()} == {0}
    assert watch.throttled == {}


@pytest.mark.timing
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_frozen_broker_is_reported_and_a_quiet_one_is_not(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With times of a third and less."""
    monkeypatch.setattr(broker_watch, "SILENT_S", 5.0)
    session = {"group.consumer.session.timeout.ms": "45000", "group.consumer.heartbeat.interval.ms": "5000"}
    with KafkaBroker(config=session) as broker:
        name = broker.create_topic("frozen.v1", partitions=2)
        to = connection(broker.bootstrap, properties={"statistics.interval.ms": 1_000})
        member = kafka_member(to, name, new_group(), group_protocol=protocol, **LONG)
        try:
            drive([member], lambda: member.owned)
            drive_for([member], 9.0)
            assert member.errors == [], "a topic without records is no broker without answers"
            broker.pause()
            drive([member], lambda: member.errors, timeout_s=15.0)
            assert member.errors[0][0].code == NO_ANSWER
        finally:
            broker.resume()
            member.source.close()


@pytest.mark.parametrize("statistics", ["", "{}", '{"brokers": []}', '{"brokers": {"b": {"nodename": "b:1"}}}'])
def test_statistics_in_another_format_say_nothing(statistics: str) -> None:
    """What they are looked at for must not end a consumer."""
    assert BrokerWatch({}).observe(statistics) == {}

"""A client that does not fetch one of its partitions and says nothing: the reason is in health, it is fetched anew, and
if that does not help, a new client continues. Nothing is lost, and nothing that was committed is repeated.
"""

from __future__ import annotations

import time
from collections import Counter

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as ClientPlace

from keepfast.engine import fetch_watch, status
from keepfast.http import health
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import Client, NewRecord
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import wait_until
from tests.support.web import web_of

STALL_S = 35.0


def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {
        "CHECK_INTERVAL_S": 0.1,
        "IDLE_S": 0.5,
        "ASK_S": 0.5,
        "REFETCH_S": 2.0,
        "RENEW_S": 4.0,
    }.items():
        monkeypatch.setattr(fetch_watch, name, seconds)
    monkeypatch.setattr(health, "NOT_FETCHED_S", 2.0)
    monkeypatch.setattr(status, "POLL_INTERVAL_S", 0.1)


def neglected(running: RunningApp, topic: str, *, given_up: bool) -> None:
    """The client stops fetching partition 0: paused by itself, or given up. Only a new client helps against that."""
    client, place = running.loop._source._open, ClientPlace(topic, 0)  # type: ignore[attr-defined]
    if given_up:
        client.incremental_unassign([place])
    else:
        client.pause([place])


def story(kafka: TopicAdmin, topic: TopicFactory, protocol: str, *, given_up: bool) -> float:
    """How long it took until the records came that were written in the meantime."""
    name, client, app = topic(partitions=2), Client(kafka), app_for(kafka)
    seen = Counter[bytes]()

    @app.consumer(name, group_protocol=protocol)  # type: ignore[arg-type]
    def work(value: bytes) -> None:
        seen[value] += 1

    def produce(first: int) -> set[bytes]:
        values = {b"%d" % number: number % 2 for number in range(first, first + 10)}
        client.produce(name, [NewRecord(value, partition=partition) for value, partition in values.items()])
        return set(values)

    with RunningApp(app) as running, web_of(running) as web:
        running.wait_assigned(2)
        wanted = produce(0)
        wait_until(lambda: set(seen) == wanted, "all is well")
        neglected(running, name, given_up=given_up)
        time.sleep(1.0)  # the last fetch is answered
        begun, wanted = time.monotonic(), wanted | produce(10)
        wait_until(lambda: "not_fetched" in web.get("/health").codes(), "the reason is there")
        assert web.get("/health/live").status == 200
        wait_until(lambda: set(seen) == wanted, "it is fetched again")
        took_s = time.monotonic() - begun
        wait_until(lambda: web.get("/health").codes() == set(), "and the reason is gone")
        assert set(seen.values()) == {1}, "what was committed is not repeated"
        state = running.loop.status.state
        assert (state.clients_replaced, state.lost) == (int(given_up), False)
        lines = running.log.fields("partition_not_fetched")
        assert {(one["topic"], one["partition"], one["position"], one["end"]) for one in lines} == {(name, 0, 5, 10)}
        assert len(lines) == 1 + given_up
    return took_s


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("given_up", [False, True], ids=["paused", "given up"])
def test_a_partition_that_its_client_does_not_fetch_is_fetched_again(
    kafka: TopicAdmin, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch, protocol: str, given_up: bool
) -> None:
    hurry(monkeypatch)
    story(kafka, topic, protocol, given_up=given_up)


@pytest.mark.long
@pytest.mark.timing
def test_and_the_stall_is_over_after_35_s(kafka: TopicAdmin, topic: TopicFactory) -> None:
    assert story(kafka, topic, "classic", given_up=True) < STALL_S


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_open_and_aborted_transactions_and_their_markers_are_none(
    kafka: TopicAdmin, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch, isolation: str
) -> None:
    hurry(monkeypatch)
    name, app, seen = topic(partitions=2), app_for(kafka), set[bytes]()

    @app.consumer(name, isolation_level=isolation)  # type: ignore[arg-type]
    def work(value: bytes) -> None:
        seen.add(value)

    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": name})
    producer.init_transactions(20)

    def write(value: bytes) -> None:
        producer.begin_transaction()
        producer.produce(name, value, partition=0)
        assert producer.flush(20) == 0

    with RunningApp(app) as running:
        running.wait_assigned(2)
        write(b"first")
        producer.commit_transaction(20)
        wait_until(lambda: b"first" in seen, "it is read")
        for end in (producer.abort_transaction, producer.abort_transaction, producer.commit_transaction):
            write(b"next")
            time.sleep(1.5 * fetch_watch.RENEW_S)  # the transaction is open, and then its end is the end of the log
            end(20)
        wait_until(lambda: b"next" in seen, "the last one is read")
        time.sleep(1.5 * fetch_watch.RENEW_S)
        assert running.log.of("partition_not_fetched") == []

"""What the probes say of a real app: paused, a downstream away, no dead-letter topic, a handler that hangs, a broker
that is frozen, a group that is lost, a drain. Lag and a broker outage never fail liveness.
"""

from __future__ import annotations

import threading
import time

import pytest
from confluent_kafka import Consumer

from keepfast import BreakerPolicy, Context, Reject, RetryPolicy
from keepfast.core.policies import DeadLetterPolicy
from keepfast.engine import counts, fetch_watch, status, topic_ids
from keepfast.testing import KafkaBroker
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import QUIET, Client, NewRecord
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import DEADLINE_S, wait_until
from tests.support.web import Web, web_of
from tests.support.wire import evict

CONSUMER = "work"
CONTROL = f"/api/consumers/{CONSUMER}"
QUICK = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 1000, "unsafe_timings": True}


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is shown is up to a second old otherwise."""
    monkeypatch.setattr(status, "POLL_INTERVAL_S", 0.1)
    monkeypatch.setattr(counts, "ASK_S", 0.2)
    monkeypatch.setattr(counts, "AGAIN_S", 0.2)


def statuses(web: Web) -> tuple[int, int, int, int]:
    """Of live, ready, startup and the whole."""
    live, ready, startup = (web.get(f"/health/{name}").status for name in ("live", "ready", "startup"))
    return live, ready, startup, web.get("/health").status


WELL, RED, DEAD = (200, 200, 200, 200), (200, 503, 200, 503), (503, 503, 200, 503)


def becomes(web: Web, wanted: tuple[int, int, int, int], codes: set[str]) -> None:
    wait_until(
        lambda: statuses(web) == wanted and web.get("/health").codes() == codes,
        f"{wanted} and {codes}; last: {web.get('/health').body.decode()}",
    )


def held_letters(web: Web) -> dict[str, float]:
    return {one.labels["dead_letter_topic"]: one.value for one in web.samples().get("kafka_dlq_depth", {}).values()}


def test_pauses_and_an_open_breaker_are_healthy_a_missing_dead_letter_topic_is_red(
    kafka: TopicAdmin, topic: TopicFactory
) -> None:
    name, client = topic(partitions=2), Client(kafka)
    letters = kafka.create_topic(f"{name}.dlq")
    app = app_for(kafka, librdkafka={"topic.metadata.propagation.max.ms": 200})
    away, gate, seen = threading.Event(), threading.Event(), list[int]()

    @app.consumer(
        name,
        order="key",
        breaker=BreakerPolicy(failures=1, open_s=0.2),
        retry=RetryPolicy(max_retries=0),
        dead_letter=DeadLetterPolicy(topic="{topic}.dlq", create_topic=False),
    )
    def work(value: bytes, ctx: Context) -> None:
        if value == b"calls" and away.is_set():
            raise ConnectionRefusedError
        if value == b"bad":
            raise Reject("no")
        if value == b"waits":
            gate.wait(DEADLINE_S)
        seen.append(ctx.partition)

    with RunningApp(app) as running, web_of(running, token="t") as web:
        becomes(web, WELL, set())

        # By hand: first one partition, then all of it.
        assert web.post(f"{CONTROL}/pause", {"topic": name, "partition": 0}).status == 200
        becomes(web, WELL, {"partitions_paused"})
        client.produce(name, [NewRecord(b"v", partition=0), NewRecord(b"v", partition=1)])
        wait_until(lambda: seen == [1], "the other partition continues")
        [held] = [one for one in web.get("/api/state").json["consumers"][CONSUMER]["partitions"] if one["holds"]]
        assert (held["partition"], held["holds"]) == (0, ["operator"])
        assert web.post(f"{CONTROL}/pause").json["changed"] == 1
        becomes(web, WELL, {"partitions_paused", "paused"})
        client.produce(name, [NewRecord(b"v", partition=1)])
        assert web.post(f"{CONTROL}/resume").json["changed"] == 1
        wait_until(lambda: sorted(seen) == [0, 1, 1], "everything continues")
        becomes(web, WELL, set())

        # The downstream is away: records wait, and nothing is wrong with this app.
        away.set()
        client.produce(name, [NewRecord(b"calls", b"c", partition=0)])
        becomes(web, WELL, {"breaker_open"})
        assert web.get("/health").json["status"] == "degraded"
        assert [lane["state"] for lane in web.get(CONTROL).json["lanes"]] == ["waiting"]
        away.clear()
        becomes(web, WELL, set())

        # No record is to be dead-lettered yet, and there is no topic for it: that is reported before it is needed.
        assert held_letters(web) == {letters: 0}
        kafka.delete_topic(letters)
        becomes(web, WELL, {"dead_letter_topic_missing"})
        kafka.create_topic(letters)
        becomes(web, WELL, set())

        # The letters cannot be published.
        kafka.delete_topic(letters)
        client.produce(name, [NewRecord(b"bad", b"b", partition=0)])
        becomes(web, RED, {"dead_letters_refused"})
        [reason] = web.get("/health/ready").json["reasons"]
        assert (reason["consumer"], letters in reason["text"]) == (CONSUMER, True)
        assert web.samples()["keepfast_refused_records"].popitem()[1].value == 1
        kafka.create_topic(letters)
        becomes(web, WELL, set())
        wait_until(lambda: held_letters(web) == {letters: 1}, "the letter is there, and counted")

        # A drain: live, and not ready any more.
        client.produce(name, [NewRecord(b"waits", partition=1)])
        wait_until(lambda: web.get("/api/state").json["consumers"][CONSUMER]["in_flight"] == 1, "in flight")
        running._assembled.lifecycle.stop()  # type: ignore[union-attr]
        wait_until(lambda: "draining" in web.get("/health").codes(), "it drains")
        assert statuses(web)[:2] == (200, 503)
        assert next(iter(web.samples()["keepfast_shutdown_duration_seconds"].values())).value > 0
        gate.set()
        wait_until(lambda: running.ended, "it ends")


def test_handlers_that_hang_for_good_fail_liveness_once_no_more_may_be_abandoned(
    kafka: TopicAdmin, topic: TopicFactory
) -> None:
    name, client, app, gate = topic(), Client(kafka), app_for(kafka), threading.Event()

    @app.consumer(name, order="key", timeout_s=0.3, max_abandoned=1, dead_letter="{topic}.dlq")
    def work(value: bytes) -> None:
        gate.wait(60)

    with RunningApp(app) as running, web_of(running) as web:
        client.produce(name, [NewRecord(b"1", b"a")])
        becomes(web, WELL, {"abandoned_threads"})
        client.produce(name, [NewRecord(b"2", b"b")])
        becomes(web, DEAD, {"handlers_stuck"})
        gate.set()
        becomes(web, WELL, set())


def test_a_frozen_broker_makes_it_unready_and_never_fails_liveness() -> None:
    with KafkaBroker() as broker:
        name, client, app = broker.create_topic("frozen"), Client(broker), app_for(broker)

        @app.consumer(name, **QUICK)  # type: ignore[arg-type]
        def work(value: bytes) -> None:
            time.sleep(0.01)

        with RunningApp(app) as running, web_of(running) as web:
            becomes(web, WELL, set())
            client.produce(name, [NewRecord(b"v")] * 2_000)
            wait_until(lambda: running.loop.processed > 20, "under load")
            broker.pause()
            frozen_at = time.monotonic()
            wait_until(lambda: web.get("/health/ready").status == 503, "it is not ready")
            assert "commits_fail" in web.get("/health").codes()
            while time.monotonic() < frozen_at + 7:  # longer than the session
                assert web.get("/health/live").status == 200
                time.sleep(0.1)
            wait_until(lambda: "group_lost" in web.get("/health").codes(), "it cannot be a member any more")
            assert statuses(web) == RED
            broker.resume()
            becomes(web, WELL, set())
            assert web.get("/health/live").json["consumers"][CONSUMER]["member"] is True


def test_a_member_that_is_put_out_of_its_group_is_not_ready_until_it_is_back(
    kafka: KafkaBroker, topic: TopicFactory
) -> None:
    name, client, app, seen = topic(partitions=2), Client(kafka), app_for(kafka), list[bytes]()

    @app.consumer(name, assignor="range", **QUICK | {"heartbeat_interval_ms": 300})  # type: ignore[arg-type]
    def work(value: bytes) -> None:
        seen.append(value)

    group = f"scenario.{CONSUMER}"
    other = Consumer(
        {"bootstrap.servers": kafka.bootstrap, "group.id": group, "partition.assignment.strategy": "range", **QUIET}
    )
    with RunningApp(app) as running, web_of(running) as web:
        becomes(web, WELL, set())
        other.subscribe([name])
        wait_until(lambda: other.poll(0.05) is None and len(other.assignment()) == 1, "each of the two has a partition")
        wait_until(lambda: web.get("/health").json["consumers"][CONSUMER]["partitions"] == 1, "and says so")
        [asked] = kafka.admin.describe_consumer_groups([group]).values()
        [own] = [one.member_id for one in asked.result(DEADLINE_S).members if one.member_id != other.memberid()]

        # The other one does not poll, so it does not join again, and nobody gets in before it has.
        evict(kafka.bootstrap, group, own)
        becomes(web, RED, {"group_lost"})
        [reason] = web.get("/health/ready").json["reasons"]
        assert (reason["consumer"], reason["level"]) == (CONSUMER, "failing")
        samples = web.samples()
        assert next(iter(samples["keepfast_group_member"].values())).value == 0
        assert samples["keepfast_rebalances_total"][frozenset({("event", "lost"), ("group", group)})].value == 1

        other.close()
        becomes(web, WELL, set())
        client.produce(name, [NewRecord(b"0", partition=0), NewRecord(b"1", partition=1)])
        wait_until(lambda: sorted(seen) == [b"0", b"1"], "it has both partitions, and works")


def test_a_topic_that_is_deleted_is_a_reason_though_the_client_does_not_notice(
    kafka: TopicAdmin, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_ids, "CHECK_INTERVAL_S", 3600.0)
    monkeypatch.setattr(topic_ids, "CONFIRM_S", 0.5)
    for name in ("IDLE_S", "ASK_S"):
        monkeypatch.setattr(fetch_watch, name, 0.5)
    name = topic(partitions=2)
    app = app_for(kafka, librdkafka={"topic.metadata.refresh.interval.ms": 3_600_000})

    @app.consumer(name, group_protocol="classic")
    def work(value: bytes) -> None: ...

    with RunningApp(app) as running, web_of(running) as web:
        becomes(web, WELL, set())
        running.wait_assigned(2)
        kafka.delete_topic(name)
        becomes(web, WELL, {"topic_missing"})
        assert name in web.get("/health").body.decode()

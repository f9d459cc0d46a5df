"""What the probes say of a real app: paused, a downstream away, no dead-letter topic, a handler that hangs, a broker
that is frozen, a drain. Lag and a broker outage never fail liveness.
"""

from __future__ import annotations

import threading
import time

from holdfast import BreakerPolicy, Context, Reject, RetryPolicy
from holdfast.core.policies import DeadLetterPolicy
from holdfast.testing import KafkaBroker
from holdfast.testing.pytest_plugin import TopicFactory
from holdfast.testing.topics import TopicAdmin
from tests.scenarios.inside import Client, Inside, Sent, app_for, until
from tests.scenarios.served import Web, web_of

CONSUMER = "work"
CONTROL = f"/api/consumers/{CONSUMER}"
QUICK = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 1000, "unsafe_timings": True}


def statuses(web: Web) -> tuple[int, int, int, int]:
    """Of live, ready, startup and the whole."""
    live, ready, startup = (web.get(f"/health/{name}").status for name in ("live", "ready", "startup"))
    return live, ready, startup, web.get("/health").status


WELL, RED, DEAD = (200, 200, 200, 200), (200, 503, 200, 503), (503, 503, 200, 503)


def becomes(web: Web, wanted: tuple[int, int, int, int], codes: set[str], timeout_s: float = 15) -> None:
    until(
        lambda: statuses(web) == wanted and web.get("/health").codes() == codes,
        timeout_s,
        f"{wanted} and {codes}; last: {web.get('/health').body.decode()}",
    )


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
            gate.wait(30)
        seen.append(ctx.partition)

    with Inside(app) as running, web_of(running, token="t") as web:
        becomes(web, WELL, set())

        # By hand: first one partition, then all of it.
        assert web.post(f"{CONTROL}/pause", {"topic": name, "partition": 0}).status == 200
        becomes(web, WELL, {"partitions_paused"})
        client.produce(name, [Sent(b"v", partition=0), Sent(b"v", partition=1)])
        until(lambda: seen == [1], 10, "the other partition goes on")
        [held] = [one for one in web.get("/api/state").json["consumers"][CONSUMER]["partitions"] if one["holds"]]
        assert (held["partition"], held["holds"]) == (0, ["operator"])
        assert web.post(f"{CONTROL}/pause").json["changed"] == 1
        becomes(web, WELL, {"partitions_paused", "paused"})
        client.produce(name, [Sent(b"v", partition=1)])
        assert web.post(f"{CONTROL}/resume").json["changed"] == 1
        until(lambda: sorted(seen) == [0, 1, 1], 10, "everything goes on")
        becomes(web, WELL, set())

        # The downstream is away: records wait, and nothing is wrong with this app.
        away.set()
        client.produce(name, [Sent(b"calls", b"c", partition=0)])
        becomes(web, WELL, {"breaker_open"})
        assert web.get("/health").json["status"] == "degraded"
        assert [lane["state"] for lane in web.get(CONTROL).json["lanes"]] == ["waiting"]
        away.clear()
        becomes(web, WELL, set())

        # The letters cannot be published.
        kafka.delete_topic(letters)
        client.produce(name, [Sent(b"bad", b"b", partition=0)])
        becomes(web, RED, {"dead_letters_refused"})
        [reason] = web.get("/health/ready").json["reasons"]
        assert (reason["consumer"], letters in reason["text"]) == (CONSUMER, True)
        assert web.samples()["holdfast_refused_records"].popitem()[1].value == 1
        kafka.create_topic(letters)
        becomes(web, WELL, set(), 40)

        # A drain: live, and not ready any more.
        client.produce(name, [Sent(b"waits", partition=1)])
        until(lambda: web.get("/api/state").json["consumers"][CONSUMER]["in_flight"] == 1, 10, "in hand")
        running._assembled.lifecycle.stop()  # type: ignore[union-attr]
        until(lambda: "draining" in web.get("/health").codes(), 10, "it drains")
        assert statuses(web)[:2] == (200, 503)
        assert next(iter(web.samples()["holdfast_shutdown_duration_seconds"].values())).value > 0
        gate.set()
        until(lambda: running.ended, 20, "it ends")


def test_handlers_that_hang_for_good_fail_liveness_once_no_more_may_be_abandoned(
    kafka: TopicAdmin, topic: TopicFactory
) -> None:
    name, client, app, gate = topic(), Client(kafka), app_for(kafka), threading.Event()

    @app.consumer(name, order="key", timeout_s=0.3, max_abandoned=1, dead_letter="{topic}.dlq")
    def work(value: bytes) -> None:
        gate.wait(60)

    with Inside(app) as running, web_of(running) as web:
        client.produce(name, [Sent(b"1", b"a")])
        becomes(web, WELL, {"abandoned_threads"})
        client.produce(name, [Sent(b"2", b"b")])
        becomes(web, DEAD, {"handlers_stuck"})
        gate.set()
        becomes(web, WELL, set())


def test_a_frozen_broker_makes_it_unready_and_never_fails_liveness() -> None:
    with KafkaBroker() as broker:
        name, client, app = broker.create_topic("frozen"), Client(broker), app_for(broker)

        @app.consumer(name, **QUICK)  # type: ignore[arg-type]
        def work(value: bytes) -> None:
            time.sleep(0.01)

        with Inside(app) as running, web_of(running) as web:
            becomes(web, WELL, set(), 30)
            client.produce(name, [Sent(b"v")] * 2_000)
            until(lambda: running.loop.processed > 20, 20, "under load")
            broker.pause()
            frozen_at = time.monotonic()
            until(lambda: web.get("/health/ready").status == 503, 20, "it is not ready")
            assert "commits_fail" in web.get("/health").codes()
            while time.monotonic() < frozen_at + 7:  # longer than the session
                assert web.get("/health/live").status == 200
                time.sleep(0.1)
            broker.resume()
            becomes(web, WELL, set(), 40)
            assert web.get("/health/live").json["consumers"][CONSUMER]["member"] is True

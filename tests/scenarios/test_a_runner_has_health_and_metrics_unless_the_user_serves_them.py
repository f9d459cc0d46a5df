"""Users of the pattern may have a health server of their own; who has none gets ours, with whatever client."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest
from kafka.errors import IllegalStateError

from keepfast.core.errors import ConfigError
from keepfast.runner import KafkaConsumerRunner
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.scenarios.runners import Kind, Running, factory_of
from tests.support.broker_client import Client, NewRecord
from tests.support.waiting import wait_until
from tests.support.web import Web


@pytest.mark.parametrize("kind", ["dict", "kafka-python"])
def test_a_runner_serves_its_health_and_its_lag(
    kafka: TopicAdmin, topic: TopicFactory, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEALTH_CHECK_ENABLED", "true")
    monkeypatch.setenv("HEALTH_CHECK_PORT", "0")
    name = topic()
    Client(kafka).produce(name, [NewRecord(json.dumps({"n": n}).encode()) for n in range(5)])
    hooks = {"process_message": lambda _: None, "dlq_publisher": lambda *_, **__: None}
    with Running(kind, kafka, name, **hooks) as running:
        wait_until(lambda: running.log.of("health_served"), "it is served")
        web = Web(str(running.log.of("health_served")[0].fields["url"]))
        wait_until(lambda: web.get("/health/ready").status == 200, "ready")
        wait_until(lambda: [one.value for one in web.samples().get("kafka_consumer_lag", {}).values()] == [0], "no lag")
        [done] = web.samples()["ingestion_events_processed_total"].values()
        assert done.value == 5


def test_a_runner_with_a_health_server_of_the_users_leaves_the_port_to_it_and_has_one_for_metrics(
    kafka: TopicAdmin, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEALTH_CHECK_ENABLED", "true")
    monkeypatch.setenv("KEEPFAST_METRICS_PORT", "0")
    started: list[str] = []
    name = topic()
    Client(kafka).produce(name, [NewRecord(b"{}")])
    hooks = {"process_message": lambda _: started.append("record"), "dlq_publisher": lambda *_, **__: None}
    with Running("dict", kafka, name, **hooks, health_server_start=lambda: started.append("server")) as running:
        wait_until(lambda: started == ["server", "record"], "it runs")
        assert running.log.of("health_served") == running.log.of("health_not_served") == []
        web = Web(str(running.log.of("metrics_served")[0].fields["url"]))
        done = "ingestion_events_processed_total"
        wait_until(lambda: [one.value for one in web.samples().get(done, {}).values()] == [1], "it is counted")


def test_the_port_for_metrics_is_9464_and_one_that_was_chosen_must_be_free(
    kafka: TopicAdmin, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {"bootstrap.servers": kafka.bootstrap, "group.id": "g"}
    hooks: dict[str, Any] = {"consumer_factory": lambda: config, "process_message": print, "topics": topic()}
    runner = KafkaConsumerRunner(**hooks, health_server_start=lambda: None)
    assert runner.settings(environ={}).metrics.port == 9464
    with socket.create_server(("0.0.0.0", 0)) as other:
        monkeypatch.setenv("KEEPFAST_METRICS_PORT", str(other.getsockname()[1]))
        with pytest.raises(ConfigError, match=r"Metrics cannot be served on .*KEEPFAST_METRICS_PORT"):
            runner.run()


@pytest.mark.parametrize("kind", ["confluent-kafka", "kafka-python"])
def test_a_health_server_that_does_not_start_leaves_no_consumer_behind(
    kafka: TopicAdmin, topic: TopicFactory, kind: Kind
) -> None:
    name = topic()
    factory, made = factory_of(kind, kafka, name), list[Any]()

    def consumer() -> Any:
        made.append(factory())
        return made[-1]

    def start() -> None:
        raise OSError("the port is taken")

    runner = KafkaConsumerRunner(
        consumer_factory=consumer,
        process_message=lambda _: None,
        dlq_publisher=lambda *_, **__: None,
        health_server_start=start,
        topics=None if kind == "kafka-python" else name,
    )
    with pytest.raises(OSError, match="the port is taken"):
        runner.run()
    [client] = made
    with pytest.raises((RuntimeError, IllegalStateError), match="closed"):
        client.poll(0)

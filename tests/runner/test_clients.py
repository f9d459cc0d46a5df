"""What factories may return, and what is refused, before any broker is asked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import kafka
import pytest
from confluent_kafka import Consumer

from keepfast.core.errors import ConfigError, StartError
from keepfast.runner import KafkaConsumerRunner
from keepfast.runner.clients import consumer_tree, made_consumer, producer_connection, sink_of
from tests.support.project_files import ROOT

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
BEHAVED = {"enable.auto.commit": False, "enable.auto.offset.store": False}


def test_a_dict_is_read_in_the_words_of_our_settings() -> None:
    tree = consumer_tree(
        {
            "bootstrap.servers": "a:1,b:2",
            "group.id": "billing",
            "auto.offset.reset": "smallest",
            "session.timeout.ms": "45000",
            "enable.auto.commit": False,
            "enable.auto.offset.store": "false",
            "auto.commit.interval.ms": 5000,
            "sasl.password": "s3cret",
            "socket.nagle.disable": True,
        }
    )
    assert tree == {
        "kafka": {"brokers": "a:1,b:2", "sasl_password": "s3cret", "librdkafka": {"socket.nagle.disable": True}},
        "consumer": {"group": "billing", "auto_offset_reset": "earliest", "session_timeout_ms": 45000},
    }


@pytest.mark.parametrize("name", ["enable.auto.commit", "enable.auto.offset.store"])
@pytest.mark.parametrize("value", [True, "true", 1])
def test_a_dict_that_lets_the_client_commit_by_itself_is_refused(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f'"{name}" is on'):
        consumer_tree({"bootstrap.servers": "a:1", name: value})


def test_a_dict_with_the_names_of_the_other_library_is_refused() -> None:
    with pytest.raises(ConfigError, match="'bootstrap_servers', 'group_id': a dict has the names of confluent-kafka"):
        consumer_tree({"bootstrap_servers": "a:1", "group_id": "g"})


@pytest.mark.parametrize("make", [made_consumer, sink_of])
def test_another_version_of_kafka_python_is_refused_in_one_sentence(
    make: Callable[[object], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka, "__version__", "2.3.3")
    name = "KafkaConsumer" if make is made_consumer else "KafkaProducer"
    given = type(name, (), {"__module__": "kafka", "subscription": None, "send": None})()  # not connected
    with pytest.raises(ConfigError, match=r"kafka-python 2\.3\.3 is not supported; install kafka-python 3") as caught:
        make(given)
    assert len(caught.value.problems) == 1


def test_a_producers_dict_says_how_to_reach_the_brokers() -> None:
    connection = producer_connection(
        {
            "bootstrap.servers": "a:1, b:2",
            "security.protocol": "SSL",
            "acks": "all",
            "enable.idempotence": True,
            "x.y": 1,
        }
    )
    assert (list(connection.brokers), connection.security_protocol) == (["a:1", "b:2"], "SSL")
    assert connection.properties == {"x.y": 1}
    with pytest.raises(ConfigError) as caught:
        producer_connection({"acks": 1, "group.id": "g", "transactional.id": "t"})
    assert len(caught.value.problems) == 4


class Stranger:
    """Of no library."""


@pytest.mark.parametrize("made", [None, Stranger(), "localhost:9092"])
def test_what_is_no_client_is_refused(made: object) -> None:
    with pytest.raises(ConfigError, match="consumer_factory returned something of type"):
        made_consumer(made)
    with pytest.raises(ConfigError, match="producer_factory returned something of type"):
        sink_of(made)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings but those of the test."""
    monkeypatch.chdir(tmp_path)
    for name in ("KAFKA_INPUT_TOPIC", "KAFKA_CONSUMER_GROUP", "KAFKA_BROKERS"):
        monkeypatch.delenv(name, raising=False)


def refused(**reported: Any) -> str:
    ended: list[str] = []
    runner = KafkaConsumerRunner(
        process_message=print, cleanup_callback=lambda: ended.append("cleaned up"), **{"topics": "a.b"} | reported
    )
    with pytest.raises(ConfigError) as caught:
        runner.run()
    assert ended == ["cleaned up"], "the end is the end, also of what never began"
    return " ".join(caught.value.problems)


@pytest.mark.usefixtures("elsewhere")
def test_what_is_missing_is_reported_before_anything_starts() -> None:
    named = NOWHERE | {"group.id": "g"}
    assert "no group is configured" in refused(consumer_factory=lambda: NOWHERE)
    assert "no topic to consume" in refused(consumer_factory=lambda: named, topics=None)
    assert "session_timeout_ms" in refused(consumer_factory=lambda: named | {"session.timeout.ms": 10})
    assert "no dead-letter destination configured" in refused(consumer_factory=lambda: Consumer(named | BEHAVED))
    assert "the consumer was made for 'g'" in refused(consumer_factory=lambda: Consumer(named | BEHAVED), group="h")
    assert '"enable.auto.offset.store": False' in refused(consumer_factory=lambda: Consumer(named))


@pytest.mark.usefixtures("elsewhere")
def test_what_a_factory_says_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_CONSUMER_GROUP", "from-outside")
    monkeypatch.setenv("KAFKA_BROKERS", "outside:9092")
    monkeypatch.setenv("KEEPFAST_SHUTDOWN_TIMEOUT_S", "7")
    reported = {"group.id": "reported"}
    runner = KafkaConsumerRunner(consumer_factory=lambda: NOWHERE | reported, process_message=print, topics="a.b")
    settings = runner.settings()
    own = settings.consumers["runner"]
    assert (settings.kafka.brokers, own.group, own.topics) == (("127.0.0.1:1",), "reported", ("a.b",))
    assert settings.shutdown.timeout_s == 7
    assert own.concurrency == 1
    reported.clear()
    assert runner.settings().consumers["runner"].group == "from-outside"


@pytest.mark.usefixtures("elsewhere")
def test_the_settings_of_a_runner_with_a_client_are_reported_without_a_broker() -> None:
    made = Consumer(NOWHERE | BEHAVED | {"group.id": "g"})
    runner = KafkaConsumerRunner(consumer_factory=lambda: made, process_message=print, topics="a.b")
    assert runner.settings(environ={}).consumers["runner"].group == "g"
    with pytest.raises(RuntimeError, match="closed"):
        made.poll(0)


runner = KafkaConsumerRunner(
    consumer_factory=lambda: {**NOWHERE, "group.id": "shop.charge"},
    topics="orders.payment.v1",
    process_message=lambda _: None,
)


def test_commands_that_need_settings_alone_take_a_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    from keepfast.cli.connection import settings_for

    monkeypatch.chdir(ROOT)
    own = settings_for("tests.runner.test_clients:runner").consumers["runner"]
    assert (own.group, own.topics) == ("shop.charge", ("orders.payment.v1",))


def test_a_client_that_connects_when_it_is_made_and_cannot_is_a_start_that_failed() -> None:
    def create_consumer() -> kafka.KafkaConsumer:
        raise kafka.errors.KafkaTimeoutError("Unable to bootstrap")  # as it does; then its sockets are left open

    runner = KafkaConsumerRunner(consumer_factory=create_consumer, process_message=print)
    for attempt in (runner.run, runner.settings):
        with pytest.raises(StartError, match="bootstrap_servers"):
            attempt()


def test_what_else_a_factory_raises_is_the_users() -> None:
    runner = KafkaConsumerRunner(consumer_factory=lambda: 1 / 0, process_message=print)
    with pytest.raises(ZeroDivisionError):
        runner.settings()

"""SASL, rights and TLS on the real broker."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, Producer

from keepfast.core.errors import StartError
from keepfast.testing import KafkaBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker(sasl_users={"alice": "secret"}, authorize=True, tls=True) as running:
        yield running


def outcome(config: dict[str, str], topic: str) -> str:
    """Produce one record: "ok", or the name of the error that the client reports."""
    errors: list[KafkaError] = []
    reports: list[KafkaError | None] = []
    producer = Producer({**config, "error_cb": errors.append, "log_level": 0, "message.timeout.ms": 20_000})
    producer.produce(topic, b"v", on_delivery=lambda error, _: reports.append(error))
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        producer.poll(0.05)
        if reports:
            return reports[0].name() if reports[0] else "ok"
        refused = [error.name() for error in errors if error.code() == KafkaError._AUTHENTICATION]
        if refused:
            producer.purge()
            producer.flush(5)
            return refused[0]
    return "nothing"


def login(broker: KafkaBroker, password: str) -> dict[str, str]:
    return {
        "bootstrap.servers": broker.bootstrap_sasl,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": password,
    }


def test_the_right_password_opens(broker: KafkaBroker) -> None:
    assert outcome(login(broker, "secret"), broker.create_topic("open")) == "ok"


def test_a_wrong_password_is_refused(broker: KafkaBroker) -> None:
    assert outcome(login(broker, "guess"), broker.create_topic("closed")) == "_AUTHENTICATION"


def test_a_denied_topic_is_refused_and_others_are_not(broker: KafkaBroker) -> None:
    broker.create_topic("allowed")
    broker.deny("alice", topic=broker.create_topic("denied"))
    assert outcome(login(broker, "secret"), "denied") == "TOPIC_AUTHORIZATION_FAILED"
    assert outcome(login(broker, "secret"), "allowed") == "ok"


def test_tls_works_with_the_certificate_that_was_made(broker: KafkaBroker) -> None:
    config = {
        "bootstrap.servers": broker.bootstrap_tls,
        "security.protocol": "SSL",
        "ssl.ca.location": str(broker.tls_ca),
    }
    assert outcome(config, broker.create_topic("encrypted")) == "ok"


def test_a_listener_that_was_not_asked_for_is_named() -> None:
    with pytest.raises(StartError, match="sasl_users"):
        _ = KafkaBroker().bootstrap_sasl

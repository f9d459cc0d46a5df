"""The broker, a topic or a right is not there: exit code 3, a sentence with what to do, nothing started."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined] # public, says its docstring

from keepfast.testing import ExistingBroker, KafkaBroker
from keepfast.testing.loopback import free_ports
from keepfast.testing.pytest_plugin import TopicFactory
from tests.support.command import APP, keepfast, running
from tests.support.waiting import DEADLINE_S, wait_until

ALICE = {
    "KEEPFAST_KAFKA_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
    "KEEPFAST_KAFKA_SASL_MECHANISM": "PLAIN",
    "KEEPFAST_KAFKA_SASL_USERNAME": "alice",
    "KEEPFAST_KAFKA_SASL_PASSWORD": "secret",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


@pytest.fixture(scope="module")
def strict() -> Iterator[KafkaBroker]:
    with KafkaBroker(sasl_users={"alice": "secret"}, authorize=True) as broker:
        yield broker


def test_a_topic_that_does_not_exist(project: Path, kafka: KafkaBroker | ExistingBroker) -> None:
    (project / "app.py").write_text(APP.replace("orders.payment.v1", "no.such.topic"))
    done = keepfast("run", "app:app", cwd=project, KAFKA_BROKERS=kafka.bootstrap)
    assert done.returncode == 3
    assert "no.such.topic does not exist" in done.stderr
    assert f"--create --topic no.such.topic --partitions 4 --bootstrap-server {kafka.bootstrap};" in done.stderr
    assert "--embedded" not in done.stderr, "that is another broker"
    assert "Traceback" not in done.stderr


def test_a_dead_letter_topic_that_may_not_be_made(
    project: Path, kafka: KafkaBroker | ExistingBroker, topic: TopicFactory
) -> None:
    name = topic()
    (project / "app.py").write_text(APP.replace("orders.payment.v1", name))
    variables = {"KAFKA_BROKERS": kafka.bootstrap, "KEEPFAST_DEAD_LETTER_CREATE_TOPIC": "false"}
    done = keepfast("run", "app:app", cwd=project, **variables)
    assert done.returncode == 3
    assert "dead-letter topic" in done.stderr
    assert "--create --topic" in done.stderr
    assert f"--bootstrap-server {kafka.bootstrap}\n" in done.stderr


def test_a_retry_topic_that_this_login_may_not_make(project: Path, strict: KafkaBroker) -> None:
    name = strict.create_topic("orders.guarded.v1")
    strict.deny("alice", topic=f"{name}.g.retry.5s", operation=AclOperation.CREATE)
    (project / "app.py").write_text(APP.replace("orders.payment.v1", name))
    done = keepfast(
        "run",
        "app:app",
        cwd=project,
        KAFKA_BROKERS=strict.bootstrap_sasl,
        KAFKA_CONSUMER_GROUP="g",
        KEEPFAST_RETRY_TOPICS_DELAYS="5s",
        KEEPFAST_RETRY_TOPICS_ALLOW_REORDER="true",
        **ALICE,
    )
    assert done.returncode == 3
    assert f"The retry topic {name}.g.retry.5s does not exist and could not be created" in done.stderr
    assert f"--create --topic {name}.g.retry.5s --partitions 1 --config cleanup.policy=delete" in done.stderr
    assert f"--bootstrap-server {strict.bootstrap_sasl}\n" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.timing
def test_a_login_that_is_refused(project: Path, strict: KafkaBroker) -> None:
    begun = time.monotonic()
    done = keepfast(
        "run",
        "app:app",
        cwd=project,
        KAFKA_BROKERS=strict.bootstrap_sasl,
        **{**ALICE, "KEEPFAST_KAFKA_SASL_PASSWORD": "a-wrong-guess"},
    )
    assert done.returncode == 3
    assert time.monotonic() - begun < 25  # it is not waited for: a login does not get better
    errors = [line for line in done.stderr.splitlines() if line.startswith("Error:")]
    assert len(errors) == 1
    assert strict.bootstrap_sasl in errors[0]
    assert "a-wrong-guess" not in done.stderr
    assert "Traceback" not in done.stderr


def test_a_right_that_is_missing(project: Path, strict: KafkaBroker) -> None:
    name = strict.create_topic("orders.closed.v1")
    strict.deny("alice", topic=name)
    (project / "app.py").write_text(APP.replace("orders.payment.v1", name))
    done = keepfast("run", "app:app", cwd=project, KAFKA_BROKERS=strict.bootstrap_sasl, **ALICE)
    assert done.returncode == 3
    [error] = [line for line in done.stderr.splitlines() if line.startswith("Error:")]
    assert f"Could not describe topic {name}: Broker: Topic authorization failed" in error
    assert "Grant this user the right (kafka-acls.sh --add); `keepfast doctor` lists the rights" in error


def test_a_broker_that_does_not_answer_after_saying_so_meanwhile(project: Path) -> None:
    (port,) = free_ports(1)
    done = keepfast("run", "app:app", "--log-format", "json", cwd=project, KAFKA_BROKERS=f"127.0.0.1:{port}")
    assert done.returncode == 3
    first, *others = [json.loads(line) for line in done.stderr.splitlines() if "waiting_for_broker" in line]
    assert (first["gives_up_after_s"], "`keepfast run --wait`" in first["hint"]) == (30, True)
    assert len(others) >= 2
    assert not any("hint" in line for line in others), "once is enough"
    errors = [line for line in done.stderr.splitlines() if line.startswith("Error:")]
    assert len(errors) == 1
    assert f"127.0.0.1:{port}" in errors[0]
    assert "Traceback" not in done.stderr


@pytest.mark.timing
def test_a_broker_that_is_waited_for_does_not_keep_a_signal_waiting(project: Path) -> None:
    (port,) = free_ports(1)
    printed = project / "printed"
    address = f"127.0.0.1:{port}"
    with running("run", "app:app", "--wait", cwd=project, printed=printed, KAFKA_BROKERS=address) as process:
        wait_until(lambda: "waiting_for_broker" in printed.read_text(), "it says that it waits")
        begun = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0
        assert time.monotonic() - begun < 10
    assert "Stopped before startup finished." in printed.read_text()

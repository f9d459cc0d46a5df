"""The hooks of the service on the engine in memory, and its parts, against a registry that misbehaves. The whole, on
kafka-python, is in the story.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg2
import pytest
from institution_enhancement.flows import consumer
from institution_enhancement.flows.health import set_consumer_running, start_health_server, stop_health_server
from institution_enhancement.tasks import cnpja, db_connection
from institution_enhancement.tasks.config import CnpjaConfig, Config, HealthCheckConfig
from institution_enhancement.tasks.dlq_publisher import letter, publish_to_dlq
from institution_enhancement.tasks.message import InstitutionUpsertedMessage
from institution_enhancement.tasks.processor import process_message
from neotool_common.consumer_base import KafkaConsumerRunner

from examples.institution_enhancement.fake_registry import FakeRegistry
from keepfast import ConfigError
from keepfast.testing.harness import Harness, harness
from keepfast.testing.loopback import free_ports

TOPIC = "financial_data.institution.v1"
USAGE = """
runner = KafkaConsumerRunner(
    consumer_factory=create_consumer,
    producer_factory=create_kafka_producer,
    retry_config=_config.retry,
    message_factory=InstitutionUpsertedMessage.from_dict,
    process_message=process_message,
    dlq_publisher=_publish_to_dlq,
    rate_limit_min_delay_ms=lambda: _config.cnpja.rate_limit_seconds * 1000,
    health_server_start=lambda: start_health_server(_config.health_check),
    health_server_stop=stop_health_server,
    running_flag_setter=set_consumer_running,
    cleanup_callback=close_pool,
    message_context=lambda message: f"bacen_cod_inst={message.bacen_cod_inst}",
    logger=logger,
)
"""
"""The pattern's own example."""
IMPORTS = """
from neotool_common.consumer_base import KafkaConsumerRunner
from institution_enhancement.tasks.config import Config
from institution_enhancement.tasks.message import InstitutionUpsertedMessage
from institution_enhancement.tasks.processor import process_message
"""
PACKAGE = """
Dockerfile .dockerignore pyproject.toml pytest.ini src/institution_enhancement/__init__.py
flows/consumer.py tasks/message.py tasks/processor.py tasks/dlq_publisher.py tasks/db_connection.py tasks/config.py
"""


@pytest.fixture(scope="module")
def companies() -> Iterator[FakeRegistry]:
    with FakeRegistry() as registry:
        yield registry


class Table(dict[str, str]):
    """Institutions in memory, of a database that is down a given number of times."""

    away = 0

    def execute(self, _: str, row: tuple[Any, ...]) -> None:
        if self.away:
            self.away -= 1
            raise psycopg2.OperationalError("the database is down")
        self[row[0]] = row[3]


class Letters(list[dict[str, Any]]):
    """A producer whose broker takes everything, but for the first few letters."""

    refuses = 0

    def send(self, topic: str, value: bytes, key: bytes | None) -> bool:
        assert topic == "dlq"
        self.refuses -= 1
        if self.refuses < 0:
            self.append(json.loads(value))
        return self.refuses < 0


@pytest.fixture
def table(companies: FakeRegistry, monkeypatch: pytest.MonkeyPatch) -> Table:
    """In place of the database; the registry is the fake one."""
    table = Table()

    @contextmanager
    def transaction() -> Iterator[Table]:
        yield table

    monkeypatch.setattr(db_connection, "transaction", transaction)
    monkeypatch.setattr(cnpja, "_config", lambda: CnpjaConfig(url=companies.url, timeout_seconds=0.8))
    return table


def played(letters: Letters, *values: object) -> Harness:
    """The hooks as the service wires them, on a consumer and a producer in memory."""
    runner = KafkaConsumerRunner(
        consumer_factory=lambda: {"bootstrap.servers": "memory", "group.id": "g"},
        topics=TOPIC,
        message_factory=InstitutionUpsertedMessage.from_dict,
        process_message=process_message,
        dlq_publisher=lambda message, error, retry_count: publish_to_dlq(letters, "dlq", message, error, retry_count),
        rate_limit_min_delay_ms=lambda: 12_000,
    )

    async def story() -> Harness:
        async with harness(runner) as h:
            for value in values:
                await h.send(TOPIC, value, settle=False)
            await h.settle()
            return h

    return asyncio.run(story())


def institution(number: int) -> dict[str, str]:
    return {"bacen_cod_inst": str(number), "cnpj": str(number), "name": "Bank"}


def test_it_is_the_package_that_the_pattern_draws_and_wired_word_for_word() -> None:
    source = Path(consumer.__file__)
    code = source.read_text()
    assert USAGE in code
    assert set(IMPORTS.split("\n")) <= set(code.split("\n"))
    package = source.parents[1]
    folders = (package, package.parents[1])
    assert [file for file in PACKAGE.split() if not any((folder / file).is_file() for folder in folders)] == []


@pytest.mark.parametrize(
    ("names", "defaults"),
    [
        ("POSTGRES_HOST POSTGRES_PORT POSTGRES_DB POSTGRES_USER", "localhost 5432 neotool_db neotool"),
        ("POSTGRES_POOL_MIN POSTGRES_POOL_MAX HEALTH_CHECK_PORT", "2 10 8080"),
        ("KAFKA_BROKERS KAFKA_INPUT_TOPIC", f"localhost:9092 {TOPIC}"),
        ("KAFKA_CONSUMER_GROUP", "financial_data.parent_institution.v1"),
    ],
)
def test_the_variables_of_the_pattern_configure_it(names: str, defaults: str) -> None:
    def values(config: Config) -> dict[str, str]:
        database, kafka = config.database, config.kafka
        return {
            "POSTGRES_HOST": database.host,
            "POSTGRES_PORT": str(database.port),
            "POSTGRES_DB": database.name,
            "POSTGRES_USER": database.user,
            "POSTGRES_POOL_MIN": str(database.pool_min),
            "POSTGRES_POOL_MAX": str(database.pool_max),
            "HEALTH_CHECK_PORT": str(config.health_check.port),
            "KAFKA_BROKERS": kafka.brokers,
            "KAFKA_INPUT_TOPIC": kafka.input_topic,
            "KAFKA_CONSUMER_GROUP": kafka.consumer_group,
        }

    for name, default in zip(names.split(), defaults.split(), strict=True):
        assert values(Config.from_environment({}))[name] == default
        assert values(Config.from_environment({name: "7"}))[name] == "7"


def test_each_answer_of_the_registry_has_its_outcome(table: Table) -> None:
    letters = Letters()
    numbers = {40: 0, 41: 1, 42: 1, 43: 1, 44: 0, 45: 0}  # and how often they are retried
    h = played(letters, *map(institution, numbers))
    retries = {int(json.loads(one.value or b"{}")["cnpj"]): h.retries(one) for one in h.processed}
    assert retries == {number: count for number, count in numbers.items() if number < 44}
    assert table == {str(number): f"Parent of {number}" for number in (40, 41, 42, 43)}
    ends = {one["original_message"]["cnpj"]: (one["error_type"], one["retry_count"]) for one in letters}
    assert ends == {"44": ("HTTPError", 0), "45": ("UnreadableAnswer", 0)}


def test_no_retry_comes_sooner_than_the_registrys_limit_allows(table: Table) -> None:
    letters = Letters()
    table.away = 99
    [dead] = played(letters, institution(50)).dead
    times = [attempt.at_ms for attempt in dead.attempts]
    waits = [later - at for at, later in pairwise(times)]
    assert (dead.retry_count, letters[0]["error_classification"]) == (3, "retryable")
    assert min(waits) >= 12_000, "5 a minute: the back-off alone would be 1 s, 2 s, 4 s"


def test_poison_becomes_a_letter_and_a_letter_that_is_not_taken_is_sent_again(table: Table) -> None:
    letters = Letters()
    letters.refuses = 2
    h = played(letters, b"not JSON", {"bacen_cod_inst": "p1"})
    originals = {str(one["original_message"]): one["error_message"] for one in letters}
    assert set(originals) == {"not JSON", "{'bacen_cod_inst': 'p1'}"}
    assert originals["{'bacen_cod_inst': 'p1'}"] == "missing: cnpj, name"
    assert (len(h.dead), h.processed, table) == (2, [], {})


@pytest.mark.parametrize("data", [{}, {"bacen_cod_inst": "1", "cnpj": "x", "name": "Bank"}, {"bacen_cod_inst": "1"}])
def test_an_institution_that_is_not_whole_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"missing|digits"):
        InstitutionUpsertedMessage.from_dict(data)


def test_a_letter_has_the_fields_of_the_standard() -> None:
    message = InstitutionUpsertedMessage("1", "2", "Bank")
    fields = letter(message, ConnectionError("refused"), 3, now=datetime(2026, 1, 1, tzinfo=UTC))
    assert fields.pop("stack_trace")
    assert fields == {
        "original_message": {"bacen_cod_inst": "1", "cnpj": "2", "name": "Bank", "version": 0},
        "error_type": "ConnectionError",
        "error_message": "refused",
        "failed_at": "2026-01-01T00:00:00Z",
        "retry_count": 3,
        "error_classification": "retryable",
    }


def test_health_says_whether_it_runs() -> None:
    import urllib.error
    import urllib.request

    (port,) = free_ports(1)
    start_health_server(HealthCheckConfig(port=port))
    try:
        with pytest.raises(urllib.error.HTTPError, match="503"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5)
        set_consumer_running(True)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            assert answer.status == 200
    finally:
        set_consumer_running(False)
        stop_health_server()


def test_the_configuration_says_everything_that_is_wrong() -> None:
    with pytest.raises(ConfigError, match=r"(?s)POSTGRES_POOL_MAX.*CNPJA_RATE_LIMIT_SECONDS"):
        Config.from_environment({"POSTGRES_POOL_MAX": "many", "CNPJA_RATE_LIMIT_SECONDS": "slow"})
    with pytest.raises(ConfigError, match=r"(?s)POSTGRES_POOL_MIN \(9\).*CNPJA_TIMEOUT_SECONDS"):
        Config.from_environment({"POSTGRES_POOL_MIN": "9", "POSTGRES_POOL_MAX": "3", "CNPJA_TIMEOUT_SECONDS": "0"})
    config = Config.from_environment({"POSTGRES_HOST": "db", "POSTGRES_PASSWORD": "s3cret", "POSTGRES_POOL_MAX": "20"})
    assert (config.database.host, config.database.pool_max, config.database.pool_min) == ("db", 20, 2)
    assert "s3cret" not in repr(config)

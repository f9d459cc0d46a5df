"""The service on the engine in memory, and its parts, against a registry that misbehaves. The whole is in the story."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import psycopg2
import pytest

from examples.institution_enhancement.config import Config
from examples.institution_enhancement.consumer import make_runner
from examples.institution_enhancement.fake_registry import FakeRegistry
from examples.institution_enhancement.health import Health
from examples.institution_enhancement.letters import LetterPublisher, letter
from examples.institution_enhancement.message import InstitutionUpserted
from examples.institution_enhancement.registry import Registry
from keepfast import ConfigError
from keepfast.testing.harness import Harness, harness


@pytest.fixture(scope="module")
def companies() -> Iterator[FakeRegistry]:
    with FakeRegistry() as registry:
        yield registry


class Kept(dict[str, str]):
    """Institutions in memory, of a database that is down a given number of times."""

    away = 0

    def keep(self, institution: InstitutionUpserted, parent: str) -> None:
        if self.away:
            self.away -= 1
            raise psycopg2.OperationalError("the database is down")
        self[institution.bacen_cod_inst] = parent

    def close(self) -> None:
        """There is no pool."""


class Letters(list[dict[str, Any]]):
    """A producer whose broker takes everything, but for the first few letters."""

    refuses = 0

    def produce(self, topic: str, value: bytes, key: bytes | None, *, on_delivery: Any) -> None:
        assert topic == "financial_data.institution.dlq"
        self.refuses -= 1
        if self.refuses < 0:
            self.append(json.loads(value))
        on_delivery("broker down" if self.refuses >= 0 else None, None)

    def flush(self, timeout: float) -> int:
        return 0


def played(companies: FakeRegistry, kept: Kept, letters: Letters, *values: object) -> Harness:
    """The service as it is wired, but for the database, the producer, and the limit that would take real time."""
    registry = Registry(companies.url, rate_limit_s=0, timeout_s=0.8)
    runner = make_runner(Config(), registry, kept, lambda: letters)

    async def story() -> Harness:
        async with harness(runner) as h:
            for value in values:
                await h.send("financial_data.institution.v1", value, settle=False)
            await h.settle()
            return h

    try:
        return asyncio.run(story())
    finally:
        registry.close()


def institution(number: int) -> dict[str, str]:
    return {"bacen_cod_inst": str(number), "cnpj": str(number), "name": "Bank"}


def test_each_answer_of_the_registry_has_its_outcome(companies: FakeRegistry) -> None:
    kept, letters = Kept(), Letters()
    numbers = {40: 0, 41: 1, 42: 1, 43: 1, 44: 0, 45: 0}  # and how often they are tried again
    h = played(companies, kept, letters, *map(institution, numbers))
    retries = {int(json.loads(one.value or b"{}")["cnpj"]): h.retries(one) for one in h.processed}
    assert retries == {number: count for number, count in numbers.items() if number < 44}
    assert kept == {str(number): f"Parent of {number}" for number in (40, 41, 42, 43)}
    ends = {one["original_message"]["cnpj"]: (one["error_type"], one["retry_count"]) for one in letters}
    assert ends == {"44": ("HTTPStatusError", 0), "45": ("UnreadableAnswer", 0)}


def test_no_retry_comes_sooner_than_the_registrys_limit_allows(companies: FakeRegistry) -> None:
    kept, letters = Kept(), Letters()
    kept.away = 99
    [letter] = played(companies, kept, letters, institution(50)).dead
    times = [attempt.at_ms for attempt in letter.attempts]
    waits = [later - at for at, later in pairwise(times)]
    assert (letter.retry_count, letters[0]["error_classification"]) == (3, "retryable")
    assert min(waits) >= 12_000, "5 a minute: the back-off alone would be 1 s, 2 s, 4 s"


def test_poison_becomes_a_letter_and_a_letter_that_is_not_taken_is_sent_again(companies: FakeRegistry) -> None:
    letters = Letters()
    letters.refuses = 2
    h = played(companies, Kept(), letters, b"not JSON", {"bacen_cod_inst": "p1"})
    assert sorted(
        (one["original_message"], one["error_type"]) for one in letters if isinstance(one["original_message"], str)
    ) == [("not JSON", "DecodeError")]
    assert [one["error_message"] for one in letters if isinstance(one["original_message"], dict)] == [
        "missing: cnpj, name"
    ]
    assert (len(h.dead), h.processed) == (2, [])


def test_health_says_whether_it_runs_and_metrics_are_those_of_the_runner() -> None:
    health = Health(None, lambda: "metrics of the runner")
    assert health.answer("/health")[0] == 503
    health.set_running(True)
    assert (health.answer("/health")[0], health.answer("/")[0]) == (200, 404)
    assert health.answer("/metrics") == (200, "metrics of the runner")


def test_requests_are_never_closer_together_than_the_limit(companies: FakeRegistry) -> None:
    now, waits = [100.0], list[float]()

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        now[0] += seconds

    registry = Registry(companies.url, rate_limit_s=12, timeout_s=5, clock=lambda: now[0], sleep=sleep)
    registry.parent_of("30")
    registry.parent_of("36")
    now[0] += 7
    registry.parent_of("37")
    now[0] += 60
    registry.parent_of("38")
    registry.close()
    assert waits == [12, 5]


@pytest.mark.parametrize("data", [{}, {"bacen_cod_inst": "1", "cnpj": "x", "name": "Bank"}, {"bacen_cod_inst": "1"}])
def test_an_institution_that_is_not_whole_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"missing|digits"):
        InstitutionUpserted.from_dict(data)


def test_a_letter_has_the_fields_of_the_standard() -> None:
    fields = letter(
        InstitutionUpserted("1", "2", "Bank"), ConnectionError("away"), 3, now=datetime(2026, 1, 1, tzinfo=UTC)
    )
    assert fields.pop("stack_trace")
    assert fields == {
        "original_message": {"bacen_cod_inst": "1", "cnpj": "2", "name": "Bank"},
        "error_type": "ConnectionError",
        "error_message": "away",
        "failed_at": "2026-01-01T00:00:00+00:00",
        "retry_count": 3,
        "error_classification": "retryable",
    }


@pytest.mark.parametrize("failed", [None, "broker down", "silence"])
def test_a_letter_counts_only_when_it_is_acknowledged(failed: str | None) -> None:
    class Producer:
        def produce(self, topic: str, value: bytes, key: bytes | None, *, on_delivery: Any) -> None:
            assert json.loads(value)["original_message"] == "raw"
            if failed != "silence":
                on_delivery(failed, None)

        def flush(self, timeout: float) -> int:
            return 0

    assert LetterPublisher(Producer, "dlq")(b"raw", ValueError("no"), retry_count=0) is (failed is None)


@pytest.mark.parametrize(("limit_s", "takes_s"), [(12.0, 47), (60.0, 95)])
def test_a_record_that_only_waits_for_its_turn_does_not_time_out(limit_s: float, takes_s: float) -> None:
    config = Config(rate_limit_s=limit_s)
    registry = Registry(config.registry_url, rate_limit_s=limit_s, timeout_s=config.registry_timeout_s)
    settings = make_runner(config, registry, Kept(), Letters).settings(environ={})
    [own] = settings.consumers.values()
    assert (own.timeout.timeout_s, settings.shutdown.timeout_s) == (takes_s, takes_s + 5)


def test_the_configuration_says_everything_that_is_wrong() -> None:
    with pytest.raises(ConfigError, match=r"(?s)POSTGRES_POOL_MAX.*REGISTRY_RATE_LIMIT_S"):
        Config.from_environment({"POSTGRES_POOL_MAX": "many", "REGISTRY_RATE_LIMIT_S": "slow"})
    with pytest.raises(ConfigError, match=r"(?s)POSTGRES_POOL_MIN \(9\).*REGISTRY_TIMEOUT_S"):
        Config(pool_min=9, pool_max=3, registry_timeout_s=0)
    institution = {
        "POSTGRES_HOST": "db",
        "POSTGRES_PASSWORD": "s3cret",
        "POSTGRES_POOL_MAX": "20",
        "HEALTH_CHECK_ENABLED": "false",
    }
    config = Config.from_environment(institution)
    assert (config.postgres_host, config.pool_max, config.health_enabled) == ("db", 20, False)
    assert "s3cret" not in repr(config)

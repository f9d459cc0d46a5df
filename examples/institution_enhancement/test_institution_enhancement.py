"""The parts of the service, against a registry that misbehaves. The whole is in the story."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from examples.institution_enhancement.config import Config
from examples.institution_enhancement.fake_registry import FakeRegistry
from examples.institution_enhancement.letters import LetterPublisher, letter
from examples.institution_enhancement.message import InstitutionUpserted
from examples.institution_enhancement.processor import Processor
from examples.institution_enhancement.registry import Registry
from holdfast import ConfigError
from holdfast.runner import is_retryable_error


@pytest.fixture(scope="module")
def companies() -> Iterator[FakeRegistry]:
    with FakeRegistry() as registry:
        yield registry


class Kept(dict[str, str]):
    def keep(self, institution: InstitutionUpserted, parent: str) -> None:
        self[institution.bacen_cod_inst] = parent


@pytest.mark.parametrize(
    ("cnpj", "outcome"),
    [
        ("10", "stored"),
        ("21", "retryable"),  # 429
        ("22", "retryable"),  # 503
        ("23", "retryable"),  # too slow
        ("24", "final"),  # 404
        ("25", "final"),  # garbage
    ],
)
def test_what_each_answer_means(companies: FakeRegistry, cnpj: str, outcome: str) -> None:
    kept = Kept()
    registry = Registry(companies.url, rate_limit_s=0, timeout_s=0.3)
    said = Processor(registry, kept)(InstitutionUpserted("1", cnpj, "Bank"))
    registry.close()
    assert said["success"] is (outcome == "stored")
    if said["success"]:
        assert kept == {"1": f"Parent of {cnpj}"}
    else:
        assert (is_retryable_error(said["error"]), kept) == (outcome == "retryable", {})


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
    told = letter(
        InstitutionUpserted("1", "2", "Bank"), ConnectionError("away"), 3, now=datetime(2026, 1, 1, tzinfo=UTC)
    )
    assert told.pop("stack_trace")
    assert told == {
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

    assert LetterPublisher(Producer(), "dlq")(b"raw", ValueError("no"), retry_count=0) is (failed is None)


def test_the_configuration_says_everything_that_is_wrong() -> None:
    with pytest.raises(ConfigError, match=r"(?s)POSTGRES_POOL_MAX.*REGISTRY_RATE_LIMIT_S"):
        Config.from_environment({"POSTGRES_POOL_MAX": "many", "REGISTRY_RATE_LIMIT_S": "slow"})
    assert Config.from_environment({"POSTGRES_POOL_MAX": "20"}).pool_max == 20

"""Generated requests against the API, from its own description: no answer is a 5xx, and all are as described."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error, response_schema_conformance, status_code_conformance

from keepfast.desk_page.access import RateLimiter
from keepfast.testing.topics import TopicAdmin
from tests.desk_page.conftest import ServedDesk
from tests.support.broker_client import Client
from tests.support.desk_scene import records


@pytest.mark.parametrize(
    ("role", "examples"),
    [("admin", 3), *(pytest.param(role, 40, marks=pytest.mark.long) for role in ("admin", "viewer"))],
)
def test_no_generated_request_is_answered_with_a_server_error(
    kafka: TopicAdmin, served: ServedDesk, monkeypatch: pytest.MonkeyPatch, role: Any, examples: int
) -> None:
    monkeypatch.setattr(RateLimiter, "take", lambda *_: 0.0)  # what is tested is the code behind it
    Client(kafka).produce(served.letters, records(20))
    with served.api(role) as api:
        described = api.get("/openapi.json").json()
    schema = schemathesis.openapi.from_dict(described)
    headers = {"Authorization": f"Bearer {served.tokens[role]}"}
    count = 0
    for result in schema.get_all_operations():
        operation: Any = result.ok()  # type: ignore[union-attr] # the description is valid
        for mode in GenerationMode:
            _check(operation.as_strategy(generation_mode=mode), served.address, headers, examples)
        count += 1
    assert count == sum(len(one) for one in described["paths"].values())


def _check(strategy: Any, address: str, headers: dict[str, str], examples: int) -> None:
    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=strategy)
    def check(case: Any) -> None:
        answer = case.call(base_url=address, headers=headers)
        case.validate_response(
            answer, checks=[not_a_server_error, status_code_conformance, response_schema_conformance]
        )

    check()

"""order="queue": what goes with it, and what is refused in one sentence each."""

from __future__ import annotations

from typing import Any

import pytest

from keepfast import CommitPolicy, RetryTopics
from tests.settings.loader import Loader


def test_a_queue_has_no_storm_guard_and_acknowledges_often(loader: Loader) -> None:
    own = loader.charge(order="queue", lock_s=20, configure_group=True, concurrency=4)
    assert (own.order, own.lock_s, own.configure_group, own.storm_guard) == ("queue", 20, True, None)
    assert own.commit.every_s == 0.05


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"exactly_once": True}, "takes no part in transactions"),
        ({"group_instance_id": "a"}, "no static members"),
        ({"commit": CommitPolicy(mode="each")}, "acknowledged on its own"),
        ({"retry_topics": RetryTopics(delays=("5m",))}, "inside its lock"),
        ({"breaker": True}, "longer than they are locked"),
        ({"storm_guard": True}, "longer than they are locked"),
        ({"auto_offset_reset": "error"}, "earliest or latest"),
        ({"max_deliveries": None}, "drops a record silently"),
    ],
)
def test_what_makes_no_sense_with_a_queue_is_refused(loader: Loader, options: dict[str, Any], part: str) -> None:
    problems = loader.problems(order="queue", **options)
    assert any("order is queue" in problem and part in problem for problem in problems), problems


def test_what_has_no_effect_is_warned_of(loader: Loader) -> None:
    def warnings(**options: Any) -> str:
        return "\n".join(loader.load(**options).warnings)

    assert "session_timeout_ms" in warnings(order="queue", session_timeout_ms=60_000)
    assert "lock_s" in warnings(order="key", lock_s=20)
    assert "has no effect" not in warnings(order="queue", lock_s=20)

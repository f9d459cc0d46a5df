"""P6, P8: SIGTERM while the breaker is open: nobody waits for the service; the next owner begins again."""

from __future__ import annotations

import pytest

from tests.scenarios.conftest import MakeScene
from tests.scenarios.scene import Work


@pytest.mark.timing
def test_sigterm_while_the_breaker_is_open_ends_within_a_second(make_scene: MakeScene) -> None:
    scene = make_scene(partitions=2)
    away = [Work(partition=number % 2, failures=1_000, error="away") for number in range(20)]
    scene.send(away)
    member = scene.member(
        {"breaker.enabled": True, "breaker.open_s": 50, "retry.initial_delay_ms": 10, "retry.max_retries": 3}
    )
    member.wait_event("breaker_opened")
    member.terminate()
    code, took_s = member.end()
    assert code == 0
    assert took_s < 1.0, "out, the leaving of the group included"
    assert scene.committed() == {}
    assert not member.events("dead_lettering")

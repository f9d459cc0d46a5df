"""P6, P4: SIGTERM while a record waits 30 s for its retry: nobody waits for that; the next owner begins again."""

from __future__ import annotations

import pytest

from tests.scenarios.conftest import MakeScene
from tests.scenarios.reconcile import reconcile
from tests.scenarios.scene import Work

EXIT_WITHIN_S = 1.0


@pytest.mark.timing
def test_sigterm_mid_wait_cuts_the_wait_short(make_scene: MakeScene) -> None:
    scene = make_scene(partitions=2)
    [waiting, done] = scene.send([Work(partition=0, failures=1), Work(partition=1)])
    delays = {"retry.initial_delay_ms": 30_000, "retry.max_delay_ms": 30_000}
    first = scene.member(delays)
    first.wait_event("retry_scheduled", offset=0, partition=0)
    scene.wait_all_ended([done])

    first.terminate()
    code, took_s = first.end()
    assert code == 0
    assert took_s < EXIT_WITHIN_S, "out, the leaving of the group included"
    assert scene.committed() == {1: 1}, "the record that waited is not committed, the finished one is"

    second = scene.member({"retry.initial_delay_ms": 10})
    scene.wait_all_ended()
    scene.wait_committed()
    starts = [(one.pid, one.attempt) for one in scene.journal.of("start") if one.id == waiting.id]
    assert starts == [(first.pid, 1), (second.pid, 1), (second.pid, 2)], "attempts are counted again by each owner"
    reconcile(scene, order="partition").assert_exactly_once()

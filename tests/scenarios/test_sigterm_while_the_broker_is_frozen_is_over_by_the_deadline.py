"""P6: SIGTERM is over by the deadline whatever the broker does. What was finished and could not be committed comes
again;
the exit code says that the deadline passed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from keepfast.testing import KafkaBroker
from tests.scenarios.reconcile import reconcile
from tests.scenarios.scene import Scene, Work
from tests.support.waiting import wait_until

DEADLINE_S = 4.0
SLACK_S = 1.0
RECORDS = 600


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker() as running:
        yield running


@pytest.mark.timing
def test_under_load_it_ends_with_code_5_and_the_next_member_does_the_rest(broker: KafkaBroker, tmp_path: Path) -> None:
    topic = broker.create_topic("sigterm.frozen", partitions=3)
    settings = {"shutdown.timeout_s": DEADLINE_S}
    with Scene(broker, tmp_path, topic=topic) as scene:
        scene.send(Work(key=b"%d" % (number % 30)) for number in range(RECORDS))
        member = scene.member(settings, variables={"SCENARIO_SLEEP_S": 0.003})
        wait_until(lambda: len(scene.journal.ended()) >= 100, "the member is at work")
        broker.pause()
        try:
            # Each lane has finished its record and waits for the answer to its commit, which does not come.
            before = wait_until(lambda: _still(scene), "the member has come to a stop")
            member.terminate()
            code, took_s = member.end()
        finally:
            broker.resume()
        assert code == 5
        assert took_s < DEADLINE_S + SLACK_S
        assert len(scene.journal.ended()) == before < RECORDS
        broker.wait_ready()

        again = scene.member(settings)
        scene.wait_all_ended()
        scene.wait_committed()
        again.stop()
        found = reconcile(scene, order="partition")
        found.assert_nothing_lost()
        assert len(found.repeated) <= 3, "one record per lane at most comes again"


@pytest.mark.timing
def test_a_second_signal_ends_it_at_once(broker: KafkaBroker, tmp_path: Path) -> None:
    topic = broker.create_topic("sigterm.twice")
    with Scene(broker, tmp_path, topic=topic) as scene:
        scene.send(Work() for _ in range(RECORDS))
        member = scene.member({"shutdown.timeout_s": 30}, variables={"SCENARIO_SLEEP_S": 0.003})
        wait_until(lambda: len(scene.journal.ended()) >= 20, "the member is at work")
        broker.pause()
        try:
            wait_until(lambda: _still(scene), "the member has come to a stop")
            member.terminate()
            member.wait_event("drain_started")
            member.terminate()
            code, took_s = member.end()
        finally:
            broker.resume()
        assert code == 143
        assert took_s < SLACK_S


def _still(scene: Scene) -> int:
    """How many records have ended, once nothing starts any more; 0 while something does."""
    first = len(scene.journal.of("start"))
    until = time.monotonic() + 0.5
    while time.monotonic() < until:
        if len(scene.journal.of("start")) != first:
            return 0
        time.sleep(0.05)
    return len(scene.journal.ended())

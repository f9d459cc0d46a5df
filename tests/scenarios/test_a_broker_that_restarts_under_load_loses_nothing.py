"""P1-P4: the only broker is killed and comes back on the same data while records are being handled and produced."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from keepfast.testing import KafkaBroker
from tests.scenarios.reconcile import reconcile
from tests.scenarios.scene import Scene, Work
from tests.support.waiting import DEADLINE_S, wait_until

RECORDS = 450


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker() as running:
        yield running


@pytest.mark.parametrize(("end", "order"), [pytest.param("stop", "partition", marks=pytest.mark.long), ("kill", "key")])
def test_nothing_is_lost_and_the_order_is_kept(broker: KafkaBroker, tmp_path: Path, end: str, order: str) -> None:
    topic = broker.create_topic(f"restart.{order}.{end}", partitions=3)
    with Scene(broker, tmp_path, topic=topic) as scene:
        scene.send(Work(key=b"%d" % (number % 40)) for number in range(RECORDS))
        settings = {"consumer.order": order, "consumer.session_timeout_ms": 30_000}
        takes_s = 0.003 if order == "partition" else 0.1  # many keys at once: there must be work left when it goes
        member = scene.member(settings, variables={"SCENARIO_SLEEP_S": takes_s})
        wait_until(lambda: len(scene.journal.ended()) >= 100, "the member is at work")
        if end == "kill":
            broker.kill()
        assert len(scene.journal.ended()) < RECORDS
        broker.restart()
        scene.wait_all_ended()
        scene.wait_committed()
        assert member.running
        assert member.events("partitions_lost") == []
        member.terminate()
        assert member.wait(DEADLINE_S) == 0
        found = reconcile(scene, order=order)
        found.assert_nothing_lost()
        assert found.repeated == {}, "the member kept its partitions: nothing had to be repeated"

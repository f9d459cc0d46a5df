"""P1, P2: a topic that is written in transactions, some of them aborted, under kill -9: no record is lost, no commit
runs ahead, and in the end the group has committed the end of each partition, markers included.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from confluent_kafka import Producer

from keepfast.testing.topics import TopicAdmin
from tests.scenarios.conftest import MakeScene
from tests.scenarios.journal import Id
from tests.scenarios.reconcile import reconcile
from tests.scenarios.scene import Scene, Sent, Work
from tests.support.broker_client import Client
from tests.support.waiting import wait_until

PARTITIONS, KEYS, TRANSACTIONS, KILLS = 2, 12, 60, 3


class Writer:
    """Writes transactions of a few records each; every third is aborted. What is committed counts as sent."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._producer = Producer(
            {"bootstrap.servers": scene.broker.bootstrap, "transactional.id": uuid.uuid4().hex, "log_level": 0}
        )
        self._producer.init_transactions(30)
        self._written = 0

    def write(self, count: int) -> None:
        for number in range(count):
            works = [Work(key=b"key-%d" % (key % KEYS), sleep_s=0.01) for key in range(number, number + 3)]
            self._transaction(works, commit=number % 3 != 2)

    def _transaction(self, works: Sequence[Work], *, commit: bool) -> None:
        found: list[Sent] = []
        self._producer.begin_transaction()
        for work in works:
            self._written += 1

            def delivered(error: object, message: object, work: Work = work) -> None:
                assert error is None, error
                found.append(Sent(Id(self._scene.topic, message.partition(), message.offset()), work.key, work))  # type: ignore[attr-defined]

            self._producer.produce(self._scene.topic, work.payload(self._written), key=work.key, on_delivery=delivered)
        self._producer.flush(30)
        if commit:
            self._producer.commit_transaction(30)
            self._scene.sent += found
        else:
            self._producer.abort_transaction(30)


def test_lag_becomes_0_behind_transactions_and_kills_lose_nothing(kafka: TopicAdmin, make_scene: MakeScene) -> None:
    scene, client = make_scene(partitions=PARTITIONS), Client(kafka)
    member = scene.member({"consumer.order": "key"}).wait_assigned(PARTITIONS)
    writer = Writer(scene)
    for kill in range(KILLS):
        writer.write(TRANSACTIONS // KILLS)
        begun = len(scene.journal.ended())
        wait_until(lambda so_far=begun: len(scene.journal.ended()) > so_far, f"work before kill {kill}")  # type: ignore[misc]
        member.kill()
        member = scene.member({"consumer.order": "key"})
    scene.wait_all_ended()

    def ends() -> dict[int, int]:
        return {number: client.edges(scene.topic, number)[1] for number in range(PARTITIONS)}

    wait_until(lambda: scene.committed() == ends(), "the end of each partition is committed, behind the last marker")
    assert all(one.id.offset + 1 < ends()[one.id.partition] for one in scene.sent), "each ends with a marker"
    reconcile(scene, order="key").assert_nothing_lost()
    assert member.stop() == 0

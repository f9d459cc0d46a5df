"""P1, P2, P13 on three brokers: a rolling restart and a coordinator that is killed, with each commit mode, idle and
under load. Nothing is lost, no output of exactly_once is there twice, and soon after the fault all is committed.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from keepfast.testing.broker import KafkaBroker
from keepfast.testing.pytest_plugin import TopicFactory
from tests.scenarios.conftest import MakeScene
from tests.scenarios.outputs import committed_values
from tests.scenarios.reconcile import reconcile
from tests.scenarios.scene import Scene, Work
from tests.support.waiting import wait_until

MAX_STALL_S = 35.0
"""Beyond the fault: a producer that hangs is given up after 15 s, and a rebalance follows."""
PARTITIONS = 3

Fault = Callable[[KafkaBroker], None]


@pytest.fixture(scope="module")
def kafka(cluster: KafkaBroker) -> KafkaBroker:
    """Three nodes instead of the session's one."""
    return cluster


class Group:
    """One member in a commit mode: "each", "interval" or "once"."""

    def __init__(self, mode: str, scene: Scene, output: str) -> None:
        self.mode = mode
        self.scene = scene
        self.output = output
        settings = {"commit.mode": "interval"} if mode == "interval" else {}
        if mode == "once":
            self.member = scene.member(app="once.py", variables={"SCENARIO_OUTPUT": output})
        else:
            self.member = scene.member(settings)

    def send(self, count: int) -> None:
        self.scene.send(Work(partition=number % PARTITIONS, key=b"k%d" % (number % 20)) for number in range(count))

    def verify(self, cluster: KafkaBroker) -> None:
        if self.mode == "once":
            found = [json.loads(value) for value in committed_values(cluster, self.output)]
            assert [one for one in found if one["failed"]] == [], "nothing of an attempt that failed"
            wanted = [one.id.offset * 1000 + one.id.partition for one in self.scene.sent]
            assert Counter(one["id"] for one in found) == Counter(wanted), "each output once"
        else:
            reconcile(self.scene, order="partition").assert_nothing_lost()


def roll(cluster: KafkaBroker) -> None:
    cluster.roll()


def kill_leader_of(topic: str) -> Fault:
    """The fault: the broker that leads `topic` is killed, until another one leads it."""

    def kill(cluster: KafkaBroker) -> None:
        killed = cluster.leader(topic)
        cluster.kill(killed)
        wait_until(lambda: cluster.leader(topic) not in (-1, killed), "another broker leads")

    return kill


@contextmanager
def load_on(groups: list[Group], *, loaded: bool) -> Iterator[None]:
    """Send to each group all the time, if `loaded`."""
    stop = threading.Event()

    def send(group: Group) -> None:
        while not stop.wait(0.1):
            group.send(10)

    threads = [threading.Thread(target=send, args=(group,)) for group in groups if loaded]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


FAULTS: dict[str, Fault] = {
    "rolling restart": roll,
    "coordinator of groups": kill_leader_of("__consumer_offsets"),
    "coordinator of transactions": kill_leader_of("__transaction_state"),
}


@pytest.mark.timing
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("fault", "loaded"),
    [
        pytest.param("rolling restart", False),
        pytest.param("rolling restart", True, marks=pytest.mark.long),
        pytest.param("coordinator of groups", False, marks=pytest.mark.long),
        pytest.param("coordinator of groups", True, marks=pytest.mark.long),
        pytest.param("coordinator of transactions", False, marks=pytest.mark.long),
        pytest.param("coordinator of transactions", True, marks=pytest.mark.long),
    ],
)
def test_consumers_outlive_it_idle_and_under_load(
    cluster: KafkaBroker, make_scene: MakeScene, topic: TopicFactory, fault: str, loaded: bool
) -> None:
    modes = ("each", "interval", "once")
    groups = [Group(mode, make_scene(partitions=PARTITIONS), topic(partitions=2)) for mode in modes]
    for group in groups:
        group.member.wait_assigned(PARTITIONS)
        group.send(30)
    for group in groups:
        group.scene.wait_committed()
    with load_on(groups, loaded=loaded):
        FAULTS[fault](cluster)
        over_at = time.monotonic()
    for group in groups:
        group.send(30)
    sent_after_s = time.monotonic() - over_at
    for group in groups:
        group.scene.wait_committed()
    stalled_s = time.monotonic() - over_at
    cluster.start()
    for group in groups:
        group.verify(cluster)
        assert group.member.stop() == 0
    assert stalled_s < MAX_STALL_S, f"{sent_after_s:.1f} s of it to send"

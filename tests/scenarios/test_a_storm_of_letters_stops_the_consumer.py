"""P8: when a consumer dead-letters records in masses, the storm guard stops it: the letters are bounded, the log says
loudly what to do, and it continues when a probe goes through, when it is started again, or when a person says so.
"""

from __future__ import annotations

import threading

from keepfast import App, Context, Reject, StormPolicy
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import Client, NewRecord
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import wait_until

PARTITIONS, RECORDS = 4, 200
GROUP = "scenario.work"


class Deploy:
    """A handler that rejects everything until it is repaired."""

    def __init__(self, broker: TopicAdmin, topic: str, guard: StormPolicy | bool) -> None:
        self.broken = True
        self.calls = 0
        self.done: set[tuple[int, int]] = set()
        self._lock = threading.Lock()
        self.app: App = app_for(broker)
        self.app.consumer(topic, name="work", dead_letter="{topic}.dlq", storm_guard=guard)(self.work)

    def work(self, value: bytes, ctx: Context) -> None:
        with self._lock:
            self.calls += 1
        if self.broken:
            raise Reject("the new version does not like it")
        with self._lock:
            self.done.add((ctx.partition, ctx.offset))


def letters(client: Client, topic: str) -> int:
    return sum(client.edges(f"{topic}.dlq", number)[1] for number in range(PARTITIONS))


def flood(client: Client, topic: str) -> None:
    client.produce(topic, [NewRecord(b"v", partition=number % PARTITIONS) for number in range(RECORDS)])


def committed(client: Client, topic: str) -> int:
    return sum(client.committed(GROUP, topic, number)[0] or 0 for number in range(PARTITIONS))


def test_it_stops_and_a_probe_lets_it_go_on(kafka: TopicAdmin, topic: TopicFactory) -> None:
    name, client = topic(partitions=PARTITIONS), Client(kafka)
    deploy = Deploy(kafka, name, StormPolicy(last=20, dead_lettered=10, share=0.5, probe_every_s=0.4))
    with RunningApp(deploy.app) as running:
        flood(client, name)
        wait_until(lambda: running.log.of("storm_guard_tripped"), "the guard trips")
        wait_until(lambda: len(running.log.of("storm_guard_probe_failed")) >= 3, "probes fail")
        (alarm,) = running.log.of("storm_guard_tripped")
        assert alarm.level == "error"
        assert "restart it or release the hold" in alarm.fields["what_to_do"]
        assert letters(client, name) == 10, "failed probes are not dead-lettered"
        assert committed(client, name) == 10
        assert deploy.calls <= 10 + PARTITIONS + len(running.log.of("probe_started"))
        assert set(running.loop.guards.status().holds) == {"storm"}
        deploy.broken = False
        wait_until(lambda: len(deploy.done) == RECORDS - 10, "the rest is processed")
        wait_until(lambda: committed(client, name) == RECORDS, "everything is committed")
        assert [printed.fields["by"] for printed in running.log.of("storm_guard_released")] == ["probe"]
    assert letters(client, name) == 10


def test_a_restart_lets_it_go_on(kafka: TopicAdmin, topic: TopicFactory) -> None:
    name, client = topic(partitions=PARTITIONS), Client(kafka)
    guard = StormPolicy(last=20, dead_lettered=10, share=0.5, probe_every_s=1000)
    with RunningApp(Deploy(kafka, name, guard).app) as running:
        flood(client, name)
        wait_until(lambda: running.log.of("storm_guard_tripped"), "the guard trips")
        wait_until(lambda: committed(client, name) == 10, "what was dead-lettered is committed")
    repaired = Deploy(kafka, name, guard)
    repaired.broken = False
    with RunningApp(repaired.app):
        wait_until(lambda: committed(client, name) == RECORDS, "everything is committed")
    assert len(repaired.done) == RECORDS - 10
    assert letters(client, name) == 10


def test_a_person_lets_it_go_on(kafka: TopicAdmin, topic: TopicFactory) -> None:
    name, client = topic(partitions=PARTITIONS), Client(kafka)
    deploy = Deploy(kafka, name, StormPolicy(last=20, dead_lettered=10, share=0.5, probe_every_s=1000))
    with RunningApp(deploy.app) as running:
        flood(client, name)
        wait_until(lambda: running.log.of("storm_guard_tripped"), "the guard trips")
        deploy.broken = False
        running.release("storm")
        wait_until(lambda: committed(client, name) == RECORDS, "everything is committed")
        assert [printed.fields["by"] for printed in running.log.of("storm_guard_released")] == ["operator"]


def test_without_configuration_a_bug_costs_at_most_200_letters(kafka: TopicAdmin, topic: TopicFactory) -> None:
    name, client = topic(partitions=PARTITIONS), Client(kafka)
    app, seen = app_for(kafka), set[int]()

    @app.consumer(name, dead_letter="{topic}.dlq")
    def work(value: int) -> None:  # the annotation is wrong: all records are objects
        seen.add(value)

    client.produce(name, [NewRecord(b'{"id": 1}', partition=number % PARTITIONS) for number in range(1000)])
    with RunningApp(app) as running:
        wait_until(lambda: running.log.of("storm_guard_tripped"), "the guard trips")
        wait_until(lambda: committed(client, name) == 200, "what was dead-lettered is committed")
    assert letters(client, name) == 200
    assert committed(client, name) == 200, "the other records are still there for a repaired handler"
    assert not seen


def test_without_the_guard_the_topic_is_drained_into_the_dead_letters(kafka: TopicAdmin, topic: TopicFactory) -> None:
    name, client = topic(partitions=PARTITIONS), Client(kafka)
    deploy = Deploy(kafka, name, guard=False)
    client.produce(name, [NewRecord(b"v", partition=number % PARTITIONS) for number in range(400)])
    with RunningApp(deploy.app):
        wait_until(lambda: committed(client, name) == 400, "everything is dead-lettered")
    assert letters(client, name) == 400

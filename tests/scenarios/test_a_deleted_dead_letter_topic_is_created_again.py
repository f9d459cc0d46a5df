"""P1: the dead-letter topic is deleted under a running app. What it held is gone, by whoever's hand; nothing that is
dead-lettered from then on is lost: the topic is made again as it was made at the start, and the letter is published.
"""

from __future__ import annotations

from keepfast import Context, Reject
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.scenarios.dead_letter_topic import letters
from tests.support.broker_client import Client, NewRecord
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import wait_until

GROUP = "scenario.work"


def test_letters_after_it_are_in_the_new_topic(kafka: TopicAdmin, topic: TopicFactory) -> None:
    name, client = topic(partitions=3), Client(kafka)
    dead_letter_topic = f"{name}.dlq"
    app = app_for(kafka, librdkafka={"topic.metadata.propagation.max.ms": 200})

    @app.consumer(name, dead_letter="{topic}.dlq")
    def work(value: bytes, ctx: Context) -> None:
        raise Reject("no")

    with RunningApp(app) as running:
        running.wait_assigned(3)
        client.produce(name, [NewRecord(b"before", partition=2)])
        wait_until(lambda: client.committed(GROUP, name, 2)[0] == 1, "the first letter is there")
        kafka.delete_topic(dead_letter_topic)
        client.produce(name, [NewRecord(b"after %d" % number, partition=number % 3) for number in range(30)])
        for partition, end in ((0, 10), (1, 10), (2, 11)):
            wait_until(lambda p=partition, e=end: client.committed(GROUP, name, p)[0] == e, "all are dead-lettered")  # type: ignore[misc]
        assert running.log.of("dead_letter_topic_recreated")
        assert not running.loop.failures.forwarder.status("dead-letter").red
    found = letters(kafka, dead_letter_topic, partitions=3)
    assert {letter.value for letter in found} == {b"after %d" % number for number in range(30)}
    assert all(letter.partition == int((letter.value or b"").split()[1]) % 3 for letter in found)

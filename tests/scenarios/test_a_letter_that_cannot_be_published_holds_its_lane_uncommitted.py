"""P1, P3: while a letter cannot be published, its record is not finished: the lane stays, nothing is committed past it,
the handler does not run again, and other lanes continue. When the letter gets through, everything is made up for.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from keepfast import Context, Reject
from keepfast.core.policies import DeadLetterPolicy
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.scenarios.dead_letter_topic import NOTHING, PLENTY, limit
from tests.support.broker_client import Client, NewRecord
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import wait_until

GROUP = "scenario.work"
BAD = 3


WAYS: dict[str, tuple[Callable[[TopicAdmin, str], object], Callable[[TopicAdmin, str], object]]] = {
    "the topic is deleted": (
        lambda broker, name: broker.delete_topic(name),
        lambda broker, name: broker.create_topic(name),
    ),
    "the letter is too large": (
        lambda broker, name: limit(broker, name, NOTHING),
        lambda broker, name: limit(broker, name, PLENTY),
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_lane_waits_and_the_others_go_on(kafka: TopicAdmin, topic: TopicFactory, way: str) -> None:
    obstruct, clear = WAYS[way]
    name, client = topic(), Client(kafka)
    letters = kafka.create_topic(f"{name}.dlq")
    app, seen = app_for(kafka, librdkafka={"topic.metadata.propagation.max.ms": 200}), list[int]()

    @app.consumer(name, order="key", dead_letter=DeadLetterPolicy(topic="{topic}.dlq", create_topic=False))
    def work(value: bytes, ctx: Context) -> None:
        seen.append(ctx.offset)
        if ctx.offset == BAD:
            raise Reject("no")

    # The bad record is of key "a", as is every second one.
    records = [NewRecord(b"v", b"a" if number % 2 else b"b") for number in range(40)]
    with RunningApp(app) as running:
        running.wait_assigned()
        obstruct(kafka, letters)
        client.produce(name, records)
        wait_until(
            lambda: len(running.log.of("dead_letter_publish_failed")) >= 2, "the letter is refused again and again"
        )
        wait_until(lambda: client.finished_above(GROUP, name) == {*range(4, 40, 2)}, "the other key is done")
        assert client.committed(GROUP, name)[0] == BAD
        status = running.loop.failures.forwarder.status("dead-letter")
        assert (status.red, status.refused) == (True, 1), "health is red while it lasts"
        assert letters in status.why
        assert sorted(seen) == sorted([0, 1, 2, BAD, *range(4, 40, 2)]), "the lane of the bad record waits behind it"
        clear(kafka, letters)
        wait_until(lambda: client.is_committed(GROUP, name, 40), "everything is committed")
        assert not running.loop.failures.forwarder.status("dead-letter").red
    assert sorted(seen) == list(range(40)), "no handler ran twice"
    assert [offset for offset in seen if offset % 2] == list(range(1, 40, 2))
    (letter,) = client.read(letters, 1)
    assert letter.key() == b"a"
    assert client.edges(letters) == (0, 1)

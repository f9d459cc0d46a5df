"""P1: with a spool, a letter that Kafka does not take is kept there, the record is finished and its lane continues.
When Kafka takes letters again, the spool is emptied into the dead-letter topic: each letter once, byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from keepfast import App, Context, Reject
from keepfast.core.policies import DeadLetterPolicy
from keepfast.deadletters.spool.service import SpoolService
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.scenarios.dead_letter_topic import NOTHING, PLENTY, letters, limit
from tests.support.broker_client import Client, NewRecord
from tests.support.running_app import RunningApp
from tests.support.s3 import S3
from tests.support.waiting import happens, wait_until

GROUP = "scenario.work"
BAD = range(0, 40, 5)

Ways = dict[str, tuple[Callable[[TopicAdmin, str], object], Callable[[TopicAdmin, str], object]]]
WAYS: Ways = {
    "deleted": (lambda broker, name: broker.delete_topic(name), lambda broker, name: broker.create_topic(name)),
    "too large": (lambda broker, name: limit(broker, name, NOTHING), lambda broker, name: limit(broker, name, PLENTY)),
}


@pytest.fixture(params=["file", "postgresql", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres"))
    if request.param == "s3":
        server: S3 = request.getfixturevalue("s3")
        return f"s3://{server.bucket()}/letters"
    return f"file://{tmp_path}/spool"


def empty_after_a_nudge(spool: SpoolService) -> bool:
    """Told to try again, not waiting for the end of its pauses."""
    spool.try_again()
    return happens(lambda: spool.status.fill.letters == 0, within_s=0.5)


@pytest.mark.parametrize("way", WAYS)
def test_the_lane_goes_on_and_the_letters_arrive_later(
    kafka: TopicAdmin, topic: TopicFactory, place: str, way: str
) -> None:
    obstruct, clear = WAYS[way]
    name, client = topic(), Client(kafka)
    dead_letter_topic, seen = kafka.create_topic(f"{name}.dlq"), list[int]()
    kafka_settings = {"brokers": kafka.bootstrap, "librdkafka": {"topic.metadata.propagation.max.ms": 200}}
    app = App("scenario", kafka=kafka_settings, shutdown={"timeout_s": 10}, spool=place)

    @app.consumer(name, dead_letter=DeadLetterPolicy(topic="{topic}.dlq", create_topic=False))
    def work(value: bytes, ctx: Context) -> None:
        seen.append(ctx.offset)
        if ctx.offset in BAD:
            raise Reject("no")

    with RunningApp(app) as running:
        running.wait_assigned()
        obstruct(kafka, dead_letter_topic)
        client.produce(name, [NewRecord(b"%d" % number, b"k", [("h", None)]) for number in range(40)])
        wait_until(lambda: client.committed(GROUP, name)[0] == 40, "everything is finished")
        spool = running.spool
        wait_until(lambda: spool.status.fill.letters == len(BAD), "the letters are in the spool")
        assert not running.loop.failures.forwarder.status("dead-letter").red
        assert len(running.log.of("dead_letter_spooled")) == len(BAD)
        assert running.log.of("dead_lettered") == []
        if way == "too large":
            wait_until(lambda: len(spool.status.stuck) == len(BAD), "each was tried and is known to be too large")
        clear(kafka, dead_letter_topic)
        wait_until(lambda: empty_after_a_nudge(spool), "the spool is empty")
    assert seen == list(range(40)), "no handler ran twice"
    found = letters(kafka, dead_letter_topic)
    if way == "too large":  # one that is refused for itself steps aside; its refusal may overlap with the new limit
        found.sort(key=lambda letter: letter.offset or 0)
    assert [letter.offset for letter in found] == list(BAD), "each letter once, oldest first"
    assert [(letter.key, letter.value, letter.headers) for letter in found] == [
        (b"k", b"%d" % number, (("h", None),)) for number in BAD
    ]
    assert all(letter.stack_trace for letter in found), "what had to be cut to try Kafka is there again"

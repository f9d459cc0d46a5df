"""A partition that an operator paused starts nothing until it is resumed, also when its topic is deleted and created
again meanwhile, so that it gets another position.
"""

from __future__ import annotations

from queue import SimpleQueue
from typing import Any

from keepfast import Context
from keepfast.engine.control import Answer, ControlOrder, Verb
from keepfast.telemetry.state import CommandDone
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import Client, numbered
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import DEADLINE_S, wait_until


def order(running: RunningApp, verb: Verb, **which: Any) -> Answer:
    assert running._assembled is not None
    answers: SimpleQueue[Answer] = SimpleQueue()
    running._assembled.threads[0].mailbox.post(ControlOrder(verb=verb, answer=answers.put, **which))
    return answers.get(timeout=DEADLINE_S)


def test_a_paused_partition_stays_paused_when_its_topic_is_created_again(
    kafka: TopicAdmin, topic: TopicFactory
) -> None:
    name, other, client, app = topic(), topic(), Client(kafka), app_for(kafka)
    seen = list[tuple[str, bytes]]()

    @app.consumer(name, other)
    def work(value: bytes, ctx: Context) -> None:
        seen.append((ctx.topic, value))

    with RunningApp(app) as running:
        running.wait_assigned(2)
        client.produce(name, numbered(20))
        wait_until(lambda: len(seen) == 20, "the first records are processed")
        paused = order(running, "pause", topic=name, partition=0)
        assert isinstance(paused, CommandDone)
        kafka.delete_topic(name)
        kafka.create_topic(name)
        client.produce(name, numbered(3, start=100))
        wait_until(lambda: running.loop.intake.received[name] >= 23, "the new topic is read", timeout_s=90)
        client.produce(other, numbered(5))
        wait_until(lambda: len(seen) == 25, "the other topic continues")
        assert {where for where, _ in seen[20:]} == {other}, "nothing of the paused partition has started"
        resumed = order(running, "resume")
        assert isinstance(resumed, CommandDone)
        wait_until(lambda: len(seen) == 28, "the paused one continues")
    assert [value for _, value in seen[25:]] == numbered(3, start=100)

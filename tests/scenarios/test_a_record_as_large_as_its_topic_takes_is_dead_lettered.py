"""P1, P9: a dead-letter topic that we make takes letters of the largest records of its source, in every format. One
that others made may take less: then health names the record that waits, and it continues once the limit is raised.
"""

from __future__ import annotations

import os

import pytest

from keepfast import Context, Reject
from keepfast.core.errors import Fault
from keepfast.core.policies import LETTER_FORMATS, DeadLetterPolicy, LetterFormat
from keepfast.http.health import HealthFacts, health_of
from keepfast.testing.plan import MAX_MESSAGE_BYTES
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.scenarios.dead_letter_topic import letters, limit
from tests.support.broker_client import Client, NewRecord
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import wait_until

GROUP = "scenario.work"
LARGE = MAX_MESSAGE_BYTES + 500_000
"""More than the broker gives a topic by default."""
SMALL = 200_000


def record(limit_bytes: int) -> NewRecord:
    """As large as a topic with this limit takes: bytes that grow by a third as base64, and cannot be compressed."""
    return NewRecord(os.urandom(limit_bytes - 200), b"key", (("producer", b"p" * 20),))


def reasons(running: RunningApp) -> dict[str, str]:
    """Of health: what is wrong, by its code."""
    seen = HealthFacts(app="scenario", uptime_s=1.0, consumers={"work": running.loop.status.state})
    return {one.code: one.text for one in health_of(seen).reasons}


@pytest.mark.parametrize("form", LETTER_FORMATS)
def test_a_dead_letter_topic_of_ours_takes_it(kafka: TopicAdmin, topic: TopicFactory, form: LetterFormat) -> None:
    name, client = topic(), Client(kafka)
    limit(kafka, name, LARGE)
    app = app_for(kafka)

    @app.consumer(name, dead_letter=DeadLetterPolicy(topic="{topic}.dlq", format=form))
    def work(value: bytes, ctx: Context) -> None:
        raise Reject("no" * 2_000)

    sent = record(LARGE)
    with RunningApp(app) as running:
        running.wait_assigned()
        client.produce(name, [sent])
        wait_until(lambda: client.is_committed(GROUP, name, 1), "it is dead-lettered")
        kafka.delete_topic(f"{name}.dlq")
        client.produce(name, [sent])
        wait_until(lambda: client.is_committed(GROUP, name, 2), "the topic is made again, for as large letters")
        cut = [
            printed for printed in running.log.of("dead_letter_adjusted") if printed.fields["fault"] == Fault.TOO_LARGE
        ]
        assert cut == []
    (found,) = letters(kafka, f"{name}.dlq")
    assert (found.key, found.value, found.headers) == (sent.key, sent.value, sent.headers)
    assert found.format == form


def test_a_smaller_one_is_warned_of_and_the_record_waits_by_name(kafka: TopicAdmin, topic: TopicFactory) -> None:
    name, client = topic(), Client(kafka)
    dead_letter_topic = kafka.create_topic(f"{name}.dlq")
    limit(kafka, name, SMALL)
    limit(kafka, dead_letter_topic, SMALL - 1_000)
    app = app_for(kafka)

    @app.consumer(name, dead_letter="{topic}.dlq")
    def work(value: bytes, ctx: Context) -> None:
        if ctx.offset == 1:
            raise Reject("no")

    sent = record(SMALL)
    with RunningApp(app) as running:
        running.wait_assigned()
        (warned,) = running.log.of("dead_letter_topic_too_small")
        assert (warned.fields["topic"], warned.fields["of_source"]) == (dead_letter_topic, SMALL)
        client.produce(name, [NewRecord(b"before"), sent, NewRecord(b"after")])
        wait_until(lambda: running.log.of("dead_letter_publish_failed"), "the letter is refused")
        wait_until(lambda: "dead_letters_refused" in reasons(running), "health says so")
        assert f"first {name}[0] offset 1" in reasons(running)["dead_letters_refused"]
        assert client.committed(GROUP, name)[0] == 1
        limit(kafka, dead_letter_topic, SMALL + 300)
        wait_until(lambda: client.is_committed(GROUP, name, 3), "it continues", timeout_s=90)
    (found,) = letters(kafka, dead_letter_topic)
    assert (found.key, found.value, found.headers) == (sent.key, sent.value, sent.headers)
    assert (found.id, found.format) == (f"{GROUP}/{name}/0/1", "headers")

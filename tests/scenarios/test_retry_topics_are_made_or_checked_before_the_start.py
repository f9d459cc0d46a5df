"""What must be true of retry topics before a consumer starts; and topics of delays that are not configured any more."""

from __future__ import annotations

from pathlib import Path

import pytest

from keepfast import App, Context, RetryPolicy, RetryTopics, StartError
from keepfast.app.assembly import assemble_app, specs_of
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.scenarios.test_a_dead_letter_keeps_the_bytes_of_its_record import config_of
from tests.support.broker_client import Client, NewRecord
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import wait_until

GROUP = "scenario.work"
NONE = RetryPolicy(max_retries=0)
WEEK_MS = 7 * 86_400_000


def app_with(kafka: TopicAdmin, name: str, way: RetryTopics | None) -> App:
    app = app_for(kafka)
    app.consumer(name, name="work", dead_letter="{topic}.dlq", retry=NONE, retry_topics=way or RetryTopics())(nothing)
    return app


def nothing(value: bytes) -> None: ...


def refusal(app: App) -> str:
    settings = app.settings(environ={}, cwd=Path("/nonexistent"))
    with pytest.raises(StartError) as caught:
        assemble_app(specs_of(app.chosen(), settings), settings, wait=False)
    return str(caught.value)


def test_topics_that_may_not_be_made_are_all_named_with_the_command(kafka: TopicAdmin, topic: TopicFactory) -> None:
    name = topic(partitions=2)
    printed = refusal(app_with(kafka, name, RetryTopics(delays=("5s", "1h"), allow_reorder=True, create_topics=False)))
    assert [line.partition(" does not exist")[0] for line in printed.splitlines()] == [
        f"The retry topic {name}.{GROUP}.retry.5s",
        f"The retry topic {name}.{GROUP}.retry.1h",
    ]
    command = f"kafka-topics.sh --create --topic {name}.{GROUP}.retry.1h --partitions 2 --config cleanup.policy=delete"
    assert f"{command} --config retention.ms={WEEK_MS + 3_600_000}" in printed


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({"cleanup.policy": "compact"}, "is compacted"),
        ({"cleanup.policy": "compact,delete", "retention.ms": "-1"}, "is compacted"),
        ({"retention.ms": "60000"}, "deletes records after 60000 ms, before they are due (1m)"),
        ({"retention.ms": "1"}, "deletes records after 1 ms"),
    ],
)
def test_a_topic_that_would_lose_what_it_is_given_is_refused_with_the_command(
    kafka: TopicAdmin, topic: TopicFactory, config: dict[str, str], complaint: str
) -> None:
    name = topic()
    kafka.create_topic(f"{name}.{GROUP}.retry.1m", config=config)
    printed = refusal(app_with(kafka, name, RetryTopics(delays=("1m",), allow_reorder=True)))
    assert complaint in printed
    assert (
        f"kafka-configs.sh --alter --entity-type topics --entity-name {name}.{GROUP}.retry.1m --add-config" in printed
    )


@pytest.mark.parametrize("config", [{"retention.ms": "-1"}, {"retention.ms": "60001"}, {}])
def test_a_topic_that_keeps_records_long_enough_is_taken_as_it_is(
    kafka: TopicAdmin, topic: TopicFactory, config: dict[str, str]
) -> None:
    name = topic()
    kafka.create_topic(f"{name}.{GROUP}.retry.1m", config=config)
    with RunningApp(app_with(kafka, name, RetryTopics(delays=("1m",), allow_reorder=True))) as running:
        running.wait_assigned(2)


def test_a_topic_of_large_records_gets_a_retry_topic_of_larger_ones(kafka: TopicAdmin, topic: TopicFactory) -> None:
    name = topic(config={"max.message.bytes": "5000000"})
    with RunningApp(app_with(kafka, name, RetryTopics(delays=("1m",), allow_reorder=True))) as running:
        assert config_of(kafka, f"{name}.{GROUP}.retry.1m")["max.message.bytes"] == "5020000"
        running.wait_assigned(2)


@pytest.mark.parametrize("now", [RetryTopics(delays=("1s",), allow_reorder=True), None], ids=["another", "none"])
def test_a_delay_that_is_not_configured_any_more_is_read_on(
    kafka: TopicAdmin, topic: TopicFactory, now: RetryTopics | None
) -> None:
    name, client = topic(), Client(kafka)
    before, after, seen = app_for(kafka), app_for(kafka), list[tuple[bytes, int]]()
    left_over = f"{name}.{GROUP}.retry.3s"

    def work(value: bytes, ctx: Context) -> None:
        seen.append((value, ctx.attempt))
        raise RuntimeError("never")

    way = RetryTopics(delays=("3s",), allow_reorder=True)
    before.consumer(name, dead_letter="{topic}.dlq", retry=NONE, retry_topics=way)(work)
    client.produce(name, [NewRecord(b"a")])
    with RunningApp(before):
        wait_until(lambda: client.committed(GROUP, name)[0] == 1, "it is moved")
    assert client.edges(left_over) == (0, 1)

    after.consumer(name, dead_letter="{topic}.dlq", retry=NONE, retry_topics=now or RetryTopics())(work)
    with RunningApp(after) as running:
        (printed,) = running.log.of("retry_topic_not_configured")
        assert printed.fields["topic"] == left_over
        wait_until(lambda: client.committed(GROUP, left_over)[0] == 1, "nothing is stranded")
        wait_until(lambda: client.edges(f"{name}.dlq") == (0, 1), "it has come to its end")
    assert [attempt for _, attempt in seen] == [1, 2], "the new delays are behind its step: it was its last attempt"

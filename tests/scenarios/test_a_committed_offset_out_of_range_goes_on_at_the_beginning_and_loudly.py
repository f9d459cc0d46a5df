"""P1, P2: records that retention deleted before they were processed are a loss that nobody can undo: it is said aloud,
and the group continues at the beginning of what is left. The position never moves silently.
"""

from __future__ import annotations

import pytest

from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import Client, numbered
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import wait_until


@pytest.fixture
def client(kafka: TopicAdmin) -> Client:
    return Client(kafka)


def deleted_past_the_commit(client: Client, name: str) -> None:
    """20 records; the group is at 3, the log begins at 8."""
    client.produce(name, numbered(20))
    client.commit("scenario.work", name, 3)
    client.broker.delete_records(name, partition=0, before=8)


@pytest.mark.parametrize("policy", ["earliest", "latest"])
def test_it_goes_on_at_the_beginning_also_with_latest(client: Client, topic: TopicFactory, policy: str) -> None:
    name, seen = topic(), list[bytes]()
    deleted_past_the_commit(client, name)
    app = app_for(client.broker)

    @app.consumer(name, auto_offset_reset=policy)  # type: ignore[arg-type]
    def work(value: bytes) -> None:
        seen.append(value)

    with RunningApp(app) as running:
        wait_until(lambda: client.committed("scenario.work", name)[0] == 20, "the end is committed")
        client.produce(name, numbered(5, start=20))
        wait_until(lambda: client.committed("scenario.work", name)[0] == 25, "new records are processed")
    assert seen == numbered(25)[8:]
    (printed,) = running.log.of("partition_reset")
    assert printed.level == "error"
    place = {"topic": name, "partition": 0, "offset": 3}
    assert printed.fields.items() >= {**place, "policy": policy, "reason": "offset_out_of_range"}.items()


def test_with_policy_error_the_app_halts_and_commits_nothing(client: Client, topic: TopicFactory) -> None:
    name, seen = topic(), list[bytes]()
    deleted_past_the_commit(client, name)
    app = app_for(client.broker)

    @app.consumer(name, auto_offset_reset="error")
    def work(value: bytes) -> None:
        seen.append(value)

    with RunningApp(app, code=4) as running:
        wait_until(lambda: running.ended, "the app ends by itself")
    assert seen == []
    assert client.committed("scenario.work", name)[0] == 3
    assert [printed.level for printed in running.log.of("partition_reset")] == ["error"]


def test_an_offset_beyond_the_end_is_reset_too(client: Client, topic: TopicFactory) -> None:
    name, seen = topic(), list[bytes]()
    client.produce(name, numbered(5))
    client.commit("scenario.work", name, 1000)
    app = app_for(client.broker)

    @app.consumer(name)
    def work(value: bytes) -> None:
        seen.append(value)

    with RunningApp(app) as running:
        wait_until(lambda: client.committed("scenario.work", name)[0] == 5, "it began again")
    assert seen == numbered(5)
    assert len(running.log.of("partition_reset")) == 1

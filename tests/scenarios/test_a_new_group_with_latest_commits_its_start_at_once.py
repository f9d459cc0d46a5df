"""P1, P2: a group that begins at the end commits that place before any record comes, so that a record which arrives
while none is there is not skipped by the next start.
"""

from __future__ import annotations

from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import Client, NewRecord, numbered
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import wait_until


def test_what_comes_between_two_runs_of_a_new_group_is_processed(kafka: TopicAdmin, topic: TopicFactory) -> None:
    name, client = topic(partitions=2), Client(kafka)
    app, seen = app_for(kafka), list[bytes]()

    @app.consumer(name, auto_offset_reset="latest")
    def work(value: bytes) -> None:
        seen.append(value)

    client.produce(name, [NewRecord(b"old", partition=0)] * 10)
    with RunningApp(app):
        wait_until(lambda: client.committed("scenario.work", name, 0)[0] == 10, "the start is committed")
        wait_until(lambda: client.committed("scenario.work", name, 1)[0] == 0, "that of an empty partition too")
    client.produce(name, [NewRecord(value, partition=number % 2) for number, value in enumerate(numbered(10))])
    with RunningApp(app):
        wait_until(lambda: client.committed("scenario.work", name, 0)[0] == 15, "the new ones are committed")
        wait_until(lambda: client.committed("scenario.work", name, 1)[0] == 5, "the new ones are committed")
    assert sorted(seen) == numbered(10)

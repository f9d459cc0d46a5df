"""P1: `auto_offset_reset="latest"` is for the first start of a group. What is written to a partition that is added
later is processed, also what came before the group heard of the partition.
"""

from __future__ import annotations

from keepfast import App
from keepfast.core.commit_metadata import origin_of
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import Client, NewRecord, numbered
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import wait_until

GROUP = "scenario.work"


def app_of(kafka: TopicAdmin, name: str, seen: list[bytes]) -> App:
    app = app_for(kafka)

    @app.consumer(name, auto_offset_reset="latest")
    def work(value: bytes) -> None:
        seen.append(value)

    return app


def test_what_was_written_to_it_before_the_group_heard_of_it_is_processed(
    kafka: TopicAdmin, topic: TopicFactory
) -> None:
    name, client, seen = topic(), Client(kafka), list[bytes]()
    client.produce(name, [b"before the group"] * 3)
    with RunningApp(app_of(kafka, name, seen)):
        wait_until(lambda: client.committed(GROUP, name)[0] == 3, "the start at the end is committed")
        kafka.grow_topic(name, partitions=3)
        client = Client(kafka)  # the producer of the first one still knows one partition
        client.produce(name, [NewRecord(value, partition=1) for value in numbered(10)])
    with RunningApp(app_of(kafka, name, seen)):
        wait_until(lambda: client.committed(GROUP, name, 1)[0] == 10, "the new partition is done")
        wait_until(lambda: client.committed(GROUP, name, 2)[0] == 0, "the start of an empty one is committed, too")
    assert seen == numbered(10)
    offset, metadata = client.committed(GROUP, name, 2)
    assert origin_of(metadata, offset=offset or 0).partitions == 1, "as many as there were at the first start"


def test_a_partition_that_was_there_at_the_first_start_and_has_no_commit_is_read_from_its_end(
    kafka: TopicAdmin, topic: TopicFactory
) -> None:
    name, client, seen = topic(partitions=2), Client(kafka), list[bytes]()
    with RunningApp(app_of(kafka, name, seen)):
        wait_until(lambda: client.committed(GROUP, name, 0)[0] == 0, "the start is committed")
    offset, metadata = client.committed(GROUP, name, 0)
    client.produce(name, [NewRecord(b"before the group", partition=1)] * 5)
    other = "another.group"  # one of which only the first partition has got as far as a commit
    client.commit(other, name, 0, metadata=metadata)
    app = app_for(kafka)

    @app.consumer(name, auto_offset_reset="latest", group=other)
    def work(value: bytes) -> None:
        seen.append(value)

    with RunningApp(app):
        wait_until(lambda: client.committed(other, name, 1)[0] == 5, "it starts at its end")
        client.produce(name, [NewRecord(b"new", partition=1)])
        wait_until(lambda: client.committed(other, name, 1)[0] == 6, "what comes then is processed")
    assert offset == 0
    assert seen == [b"new"]

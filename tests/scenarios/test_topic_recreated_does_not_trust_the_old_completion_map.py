"""P1: a topic that was deleted and made again has other records at the same offsets. What was written down about the
old ones (the completion map in the commit's metadata) must not make any of the new ones count as finished.
"""

from __future__ import annotations

from keepfast import Context, RetryLater
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import Client, NewRecord
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import wait_until

RECORDS = 20


def test_every_record_of_the_new_topic_is_handled(kafka: TopicAdmin, topic: TopicFactory) -> None:
    name, client = topic(), Client(kafka)
    app, seen, stuck = app_for(kafka), list[bytes](), True

    @app.consumer(name, order="key")
    def work(value: bytes, ctx: Context) -> None:
        if ctx.offset == 0 and stuck:
            raise RetryLater(after_s=600)
        seen.append(value)

    client.produce(name, [NewRecord(b"old-%d" % number, b"%d" % number) for number in range(RECORDS)])
    with RunningApp(app):
        wait_until(lambda: len(seen) == RECORDS - 1, "all but the first are handled")
    offset, metadata = client.committed("scenario.work", name)
    assert offset == 0
    assert metadata

    kafka.delete_topic(name)
    kafka.create_topic(name)
    # The broker forgets a deleted topic's commits; a member that still lived then would have written its own again.
    client.commit("scenario.work", name, 0, metadata=metadata)
    seen.clear()
    stuck = False
    client.produce(name, [NewRecord(b"new-%d" % number, b"%d" % number) for number in range(RECORDS)])
    with RunningApp(app):
        wait_until(lambda: client.is_committed("scenario.work", name, RECORDS), "everything is committed")
    assert sorted(seen) == sorted(b"new-%d" % number for number in range(RECORDS))

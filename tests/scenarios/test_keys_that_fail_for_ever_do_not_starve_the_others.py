"""P3: other keys continue, also when keys that are tried again and again could keep every worker busy."""

from __future__ import annotations

import time

from keepfast import Context, RetryPolicy
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import Client, NewRecord
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import wait_until

BAD, GOOD = 100, 50


def test_good_keys_are_handled_beside_more_retries_than_there_is_room_for(
    kafka: TopicAdmin, topic: TopicFactory
) -> None:
    name, client, app = topic(), Client(kafka), app_for(kafka)
    done, failures = list[int](), list[int]()
    forever = RetryPolicy(max_retries=None, initial_delay_ms=10, max_delay_ms=10, jitter=False)

    @app.consumer(name, order="key", concurrency=2, retry=forever)
    def work(value: bytes, ctx: Context) -> None:
        time.sleep(0.005)
        if value == b"bad":
            failures.append(ctx.offset)
            raise RuntimeError("never")
        done.append(ctx.offset)

    client.produce(name, [NewRecord(b"bad", b"bad %d" % number) for number in range(BAD)])
    with RunningApp(app):
        wait_until(lambda: len(failures) > 2 * BAD, "the bad keys keep both workers busy")
        client.produce(name, [NewRecord(b"good", b"good %d" % number) for number in range(GOOD)])
        wait_until(lambda: len(done) == GOOD, "the good keys are done")
        failed = len(failures)
        wait_until(lambda: len(failures) > failed + BAD, "and the bad ones are still tried")
    assert sorted(done) == list(range(BAD, BAD + GOOD))

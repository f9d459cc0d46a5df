"""order="queue": a handler that takes longer than the lock is reported, and its record is delivered again: nothing is
lost. One that never ends in time is dead-lettered from the third delivery on, without a call. A `timeout_s` that does
not end before the lock does is refused at the start.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

import pytest

from keepfast import Context, LockExpired
from keepfast.app import App
from keepfast.core.errors import StartError
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.scenarios.dead_letter_topic import letters
from tests.support.broker_client import Client, NewRecord
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import wait_until

LOCK_S = 6.0


def queue_app(kafka: TopicAdmin, name: str, **options: Any) -> tuple[App, Counter[bytes], list[LockExpired]]:
    """An app whose records "slow" (the first time) and "endless" (always) take longer than the lock."""
    app = app_for(kafka, name="locks")  # a group of other tests' consumers cannot become a share group
    calls: Counter[bytes] = Counter()
    expired: list[LockExpired] = []

    @app.consumer(
        name, order="queue", lock_s=LOCK_S, configure_group=True, concurrency=8, dead_letter=f"{name}.dlq", **options
    )
    def work(value: bytes, ctx: Context) -> None:
        calls[value] += 1
        if value == b"endless" or (value == b"slow" and calls[value] == 1):
            time.sleep(LOCK_S + 1)

    @app.on(LockExpired)
    def note(event: LockExpired) -> None:
        expired.append(event)

    return app, calls, expired


def shown(running: RunningApp) -> tuple[float, int] | None:
    """As it was at the loop's last look, which may be some seconds old."""
    queue = running.local.state().consumers["work"].queue
    return None if queue is None else (queue.lock_s, queue.locks_expired)


def test_a_handler_longer_than_the_lock_is_reported_and_its_record_repeated(
    kafka: TopicAdmin, topic: TopicFactory
) -> None:
    name, client = topic(), Client(kafka)
    app, calls, expired = queue_app(kafka, name, on_timeout="hold")
    quick = [b"quick %d" % number for number in range(3)]
    with RunningApp(app) as running:
        for value in (b"slow", b"endless", *quick):  # each in a batch of its own
            client.produce(name, [NewRecord(value)])
        wait_until(lambda: running.loop.counts.total().dead_lettered == 1, "the endless one is dead-lettered")
        assert calls == {b"slow": 2, b"endless": 2, **dict.fromkeys(quick, 1)}
        assert running.loop.locks is not None
        assert running.loop.locks.expired == 3
        wait_until(lambda: shown(running) == (LOCK_S, 3), "the state shows it")
        wait_until(lambda: sum(event.records for event in expired) == 3, "hooks hear of it")
        assert running.log.of("lock_expired")
    [letter] = letters(kafka, f"{name}.dlq")
    assert letter.error_code == "MAX_DELIVERIES"
    assert "delivered 3 times" in letter.reason


def test_a_timeout_that_does_not_end_before_the_lock_is_refused(kafka: TopicAdmin, topic: TopicFactory) -> None:
    app, _, _ = queue_app(kafka, topic(), timeout_s=LOCK_S)
    with pytest.raises(StartError, match=r"timeout_s of the consumer work is 6, .* it may be 1 at most"):
        RunningApp(app).assemble()


def test_a_group_that_starts_elsewhere_than_the_settings_say_is_refused(kafka: TopicAdmin, topic: TopicFactory) -> None:
    app = app_for(kafka)

    @app.consumer(topic(), order="queue", group=f"group-of-{threading.get_ident()}")
    def work(value: bytes) -> None: ...

    with pytest.raises(StartError, match=r"share.auto.offset.reset is latest.*--configure"):
        RunningApp(app).assemble()


def test_a_group_of_plain_consumers_is_no_queue(kafka: TopicAdmin, topic: TopicFactory) -> None:
    name, client = topic(), Client(kafka)
    client.produce(name, [NewRecord(b"1")])
    plain, queue, calls = app_for(kafka, name="both"), app_for(kafka, name="both"), list[bytes]()

    @plain.consumer(name)
    @queue.consumer(name, order="queue", configure_group=True)
    def work(value: bytes) -> None:
        calls.append(value)

    with RunningApp(plain):
        wait_until(lambda: calls, "it is a group")
        with pytest.raises(StartError, match="give this consumer another one"):
            RunningApp(queue).assemble()

"""P1: Kafka takes no letter and the spool's disk is full: the record stays unfinished, health is red, both are tried
again and again; other partitions continue. Room on either side, and everything is made up for.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from keepfast import App, Context, Reject
from keepfast.deadletters.spool.worker import WINDOW
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.scenarios.dead_letter_topic import NOTHING, PLENTY, copies, letters, limit, small_disk
from tests.support.broker_client import Client, NewRecord
from tests.support.running_app import RunningApp
from tests.support.waiting import wait_until

GROUP = "scenario.work"
BAD = 60
SIZE = 20_000


@pytest.mark.parametrize("relief", ["room on the disk", "kafka takes letters"])
def test_a_full_disk(kafka: TopicAdmin, topic: TopicFactory, tmp_path: Path, relief: str) -> None:
    name, client = topic(partitions=2), Client(kafka)
    dead_letter_topic = kafka.create_topic(f"{name}.dlq", partitions=2)
    limit(kafka, dead_letter_topic, NOTHING)
    with small_disk(tmp_path / "disk", 1_024) as disk:
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(600_000))
        app = App("scenario", kafka={"brokers": kafka.bootstrap}, spool=f"file://{disk}/spool")

        @app.consumer(name, dead_letter="{topic}.dlq")
        def work(value: bytes, ctx: Context) -> None:
            if ctx.partition == 0:
                raise Reject("no")

        with RunningApp(app) as running:
            assert "tmpfs" in running.log.of("spool_may_be_lost")[0].fields["why"]
            running.wait_assigned(2)
            client.produce(name, [NewRecord(bytes(SIZE), partition=0) for _ in range(BAD)])
            wait_until(lambda: running.loop.failures.forwarder.status("dead-letter").red, "the disk is full")
            assert "No space left" in running.loop.failures.forwarder.status("dead-letter").why
            stuck_at = client.committed(GROUP, name)[0] or 0
            assert 0 < stuck_at < BAD
            client.produce(name, [NewRecord(b"v", partition=1) for _ in range(50)])
            wait_until(lambda: client.committed(GROUP, name, 1)[0] == 50, "the other partition continues")
            wait_until(lambda: len(running.log.of("spool_write_failed")) >= 3, "it is tried again and again")
            assert client.committed(GROUP, name)[0] == stuck_at
            if relief == "room on the disk":
                ballast.unlink()
            else:
                limit(kafka, dead_letter_topic, PLENTY)
                running.spool.try_again()
            wait_until(lambda: not running.loop.failures.forwarder.status("dead-letter").red, "it is over")
            wait_until(
                lambda: running.spool.status.refusing == "", "and the spool does not call itself full any longer"
            )
            limit(kafka, dead_letter_topic, PLENTY)
            ballast.unlink(missing_ok=True)
            wait_until(lambda: client.committed(GROUP, name)[0] == BAD, "everything is finished")
            running.spool.try_again()
            wait_until(lambda: running.spool.status.fill.letters == 0, "the spool is empty")
    found = letters(kafka, dead_letter_topic, partitions=2)
    assert {letter.offset for letter in found} == set(range(BAD))
    assert copies(found) == 0


def test_a_disk_that_stays_full_keeps_no_letter_back(kafka: TopicAdmin, topic: TopicFactory, tmp_path: Path) -> None:
    """There is no room to note that a letter was sent. All are sent all the same, more than are in flight at once."""
    name, client = topic(), Client(kafka)
    dead_letter_topic = kafka.create_topic(f"{name}.dlq")
    limit(kafka, dead_letter_topic, NOTHING)
    with small_disk(tmp_path / "disk", 1_024) as disk:
        (disk / "ballast").write_bytes(bytes(600_000))
        app = App("scenario", kafka={"brokers": kafka.bootstrap}, spool=f"file://{disk}/spool")

        @app.consumer(name, dead_letter="{topic}.dlq")
        def work(value: bytes, ctx: Context) -> None:
            raise Reject("no")

        with RunningApp(app) as running:
            running.wait_assigned()
            client.produce(name, [NewRecord(bytes(SIZE // 4), partition=0) for _ in range(BAD)])
            wait_until(lambda: running.spool.status.refusing, "the disk is full")
            assert (client.committed(GROUP, name)[0] or 0) > WINDOW, "as many are in the spool"
            limit(kafka, dead_letter_topic, PLENTY)
            running.spool.try_again()
            wait_until(lambda: client.committed(GROUP, name)[0] == BAD, "everything is finished")
            wait_until(lambda: running.spool.status.fill.letters == 0, "the spool is empty")
            assert running.spool.status.sent_on > WINDOW
            assert not list(disk.rglob("*.letters"))
    found = letters(kafka, dead_letter_topic)
    assert {letter.offset for letter in found} == set(range(BAD))
    assert copies(found) == 0


def test_health_is_well_again_without_another_letter(kafka: TopicAdmin, topic: TopicFactory, tmp_path: Path) -> None:
    name, client = topic(), Client(kafka)
    dead_letter_topic = kafka.create_topic(f"{name}.dlq")
    limit(kafka, dead_letter_topic, NOTHING)
    with small_disk(tmp_path / "disk", 1_024) as disk:
        app = App("scenario", kafka={"brokers": kafka.bootstrap}, spool=f"file://{disk}/spool")

        @app.consumer(name, dead_letter="{topic}.dlq")
        def work(value: bytes, ctx: Context) -> None:
            raise Reject("no")

        with RunningApp(app) as running:
            running.wait_assigned()
            client.produce(name, [NewRecord(b"small", partition=0)])
            wait_until(lambda: client.committed(GROUP, name)[0] == 1, "it is in the spool")
            ballast = disk / "ballast"
            with suppress(OSError):
                ballast.write_bytes(bytes(2_000_000))
            client.produce(name, [NewRecord(bytes(SIZE), partition=0)])
            wait_until(lambda: running.spool.status.refusing, "the disk is full")
            limit(kafka, dead_letter_topic, PLENTY)
            wait_until(lambda: client.committed(GROUP, name)[0] == 2, "Kafka takes the letter that waits")
            assert "No space left" in running.spool.status.refusing
            ballast.unlink()
            wait_until(lambda: running.spool.status.refusing == "", "the spool sees by itself that there is room")
            wait_until(lambda: running.spool.status.fill.letters == 0, "and its letter is tried without a restart")
    found = letters(kafka, dead_letter_topic)
    assert {letter.offset for letter in found} == {0, 1}

"""P1, P2, P4, §4.2 of the standard: commits that fail are logged and tried again, nothing new starts while they keep
failing, and when they succeed again everything that was finished is committed, exactly once handled.

Commits are made to fail for real: the login loses the right that a commit needs, while it keeps the one to be a member.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined] # all of them public, says its docstring
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from keepfast import CommitPolicy, Context
from keepfast.testing import KafkaBroker
from tests.support.broker_client import Client, NewRecord
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import DEADLINE_S, wait_until

PARTITIONS = 3


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker(sasl_users={"alice": "secret"}, authorize=True) as running:
        yield running


def alice(broker: KafkaBroker) -> dict[str, Any]:
    """Settings of a login that can lose rights."""
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
    return login | {"sasl_username": "alice", "sasl_password": "secret", "brokers": broker.bootstrap_sasl}


def allow_again(broker: KafkaBroker, topic: str) -> None:
    denied = AclBindingFilter(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        "User:alice",
        None,  # type: ignore[arg-type] # any host
        AclOperation.ANY,
        AclPermissionType.DENY,
    )
    for future in broker.admin.delete_acls([denied]).values():
        future.result(DEADLINE_S)


@pytest.mark.parametrize(("mode", "records"), [("each", 1_500), ("interval", 6_000)])
def test_nothing_starts_while_they_fail_and_everything_is_committed_after(
    broker: KafkaBroker, mode: str, records: int
) -> None:
    name, client = broker.create_topic(f"refused.{mode}", partitions=PARTITIONS), Client(broker)
    client.produce(name, [NewRecord(b"v", partition=number % PARTITIONS) for number in range(records)])
    app, seen = app_for(broker, **alice(broker)), list[tuple[int, int]]()

    @app.consumer(name, idempotent=True, commit=CommitPolicy(mode=mode, every_s=0.1))  # type: ignore[arg-type]
    def work(value: bytes, ctx: Context) -> None:
        seen.append((ctx.partition, ctx.offset))
        time.sleep(0.001)

    def committed() -> list[int | None]:
        return [client.committed("scenario.work", name, number)[0] for number in range(PARTITIONS)]

    with RunningApp(app) as running:
        wait_until(lambda: len(seen) >= 150, "under load")
        broker.deny("alice", topic=name, operation=AclOperation.READ)
        wait_until(lambda: running.log.of("partition_held"), "commits keep failing, so the partitions are held")
        wait_until(lambda: not running.loop.in_flight, "what was in flight is finished")
        started, failures, before = len(seen), len(running.log.of("commit_failed")), committed()
        assert started < records
        wait_until(lambda: len(running.log.of("commit_failed")) >= failures + PARTITIONS, "they continue failing")
        assert (len(seen), committed()) == (started, before), "nothing new starts, nothing is committed"
        allow_again(broker, name)
        wait_until(lambda: running.log.of("partition_released"), "a commit succeeded")
        wait_until(lambda: committed() == [records // PARTITIONS] * PARTITIONS, "everything is committed")
        assert running.log.of("partitions_lost") == running.log.of("partitions_revoked") == [], (
            "it stayed a member all the time"
        )
    assert sorted(seen) == [(p, offset) for p in range(PARTITIONS) for offset in range(records // PARTITIONS)]
    for number in range(PARTITIONS):
        offsets = [offset for partition, offset in seen if partition == number]
        assert offsets == sorted(offsets)


def test_a_topic_that_was_deleted_while_its_commits_failed_does_not_hold_the_others(broker: KafkaBroker) -> None:
    """What cannot be committed any more because the partition is gone is nothing to wait for."""
    doomed, kept, client = broker.create_topic("doomed"), broker.create_topic("kept"), Client(broker)
    client.produce(doomed, [b"v"] * 5)
    seen, denied = list[tuple[str, int]](), threading.Event()
    app = app_for(broker, librdkafka={"topic.metadata.refresh.interval.ms": 2_000}, **alice(broker))

    @app.consumer(doomed, kept, dead_letter="letters", revoke_timeout_s=1.0)
    def work(value: bytes, ctx: Context) -> None:
        if ctx.topic == doomed:
            denied.wait(DEADLINE_S)
        seen.append((ctx.topic, ctx.offset))

    with RunningApp(app) as running:
        running.wait_assigned(2)
        wait_until(lambda: running.loop.in_flight, "a record of the topic is in flight")
        broker.deny("alice", topic=doomed, operation=AclOperation.READ)
        denied.set()
        wait_until(lambda: running.log.of("partition_held"), "its commits keep failing, so it is held")
        broker.delete_topic(doomed)
        wait_until(lambda: len(running.loop.ownership) == 1, "the partition is taken away")
        client.produce(kept, [b"v"] * 10)
        wait_until(lambda: client.committed("scenario.work", kept)[0] == 10, "the other topic continues")
    assert [offset for topic, offset in seen if topic == kept] == list(range(10))

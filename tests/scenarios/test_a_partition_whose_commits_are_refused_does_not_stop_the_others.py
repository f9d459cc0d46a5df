"""P4: the broker refuses the commits of one topic, because it was deleted or the right to read it was withdrawn. The
client reports that for every partition of the request; only the refused partitions wait, and they lose nothing.
"""

from __future__ import annotations

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
from tests.support.broker_client import Client
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import DEADLINE_S, wait_until

MORE = 400


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker(sasl_users={"alice": "secret"}, authorize=True) as running:
        yield running


def held(running: RunningApp) -> dict[str, set[str]]:
    return {partition.place.topic: set(partition.holds) for partition in running.loop.ownership}


def shown(running: RunningApp) -> dict[str, tuple[str, ...]]:
    """As it was at the loop's last look, which may be some seconds old."""
    return {one.topic: one.holds for one in running.loop.status.state.partitions}


@pytest.mark.parametrize("mode", ["each", "interval"])
def test_a_deleted_topic_is_held_alone(broker: KafkaBroker, mode: str) -> None:
    doomed, kept = broker.create_topic(f"doomed.{mode}"), broker.create_topic(f"kept.{mode}")
    client, seen, group = Client(broker), list[tuple[str, int]](), f"doomed-{mode}.work"
    client.produce(doomed, [b"v"] * 4_000)
    client.produce(kept, [b"v"] * 50)
    # The client itself looks for deleted topics so rarely that the partition stays ours during the test.
    app = app_for(broker, name=f"doomed-{mode}", librdkafka={"topic.metadata.refresh.interval.ms": 300_000})

    @app.consumer(
        doomed, kept, dead_letter="letters", idempotent=True, group_protocol="classic",
        commit=CommitPolicy(mode=mode, every_s=0.1),  # type: ignore[arg-type]
    )  # fmt: skip
    def work(value: bytes, ctx: Context) -> None:
        seen.append((ctx.topic, ctx.offset))
        time.sleep(0.05 if ctx.topic == doomed else 0.005)  # there is more to do of it when it is deleted

    with RunningApp(app, code=5) as running:  # what was finished of the deleted topic could not be committed
        wait_until(lambda: client.committed(group, kept)[0] == 50, "both are at work")
        broker.delete_topic(doomed)
        wait_until(
            lambda: "commit_refused" in held(running).get(doomed, ()), "commits of the deleted topic are refused"
        )
        client.produce(kept, [b"v"] * MORE)
        wait_until(lambda: client.committed(group, kept)[0] == 50 + MORE, "the other topic continues")
        assert held(running) == {doomed: {"commit_refused"}, kept: set()}
        assert not running.loop.holds
        wait_until(lambda: shown(running) == {doomed: ("commit_refused",), kept: ()}, "the state shows it, too")
    assert [offset for topic, offset in seen if topic == kept] == list(range(50 + MORE))
    assert not [entry for entry in running.log.of("consumer_held") if entry.fields["hold"] == "commit"]


def test_under_kip_848_a_deleted_topic_is_taken_away_and_the_other_goes_on(broker: KafkaBroker) -> None:
    doomed, kept = broker.create_topic("doomed.new"), broker.create_topic("kept.new")
    client, seen = Client(broker), list[tuple[str, int]]()
    client.produce(doomed, [b"v"] * 4_000)
    client.produce(kept, [b"v"] * 50)
    app = app_for(broker, name="doomed-new")

    @app.consumer(doomed, kept, dead_letter="letters", group_protocol="consumer")
    def work(value: bytes, ctx: Context) -> None:
        seen.append((ctx.topic, ctx.offset))
        time.sleep(0.05 if ctx.topic == doomed else 0.005)  # there is more to do of it when it is deleted

    with RunningApp(app) as running:
        wait_until(lambda: client.committed("doomed-new.work", kept)[0] == 50, "both are at work")
        broker.delete_topic(doomed)
        client.produce(kept, [b"v"] * MORE)
        wait_until(lambda: client.committed("doomed-new.work", kept)[0] == 50 + MORE, "the other topic continues")
        wait_until(lambda: set(held(running)) == {kept}, "the deleted topic is not ours any more")
        assert not running.loop.holds
        wait_until(lambda: running.loop.status.state.missing_topics == (doomed,), "the state shows what is missing")
        broker.create_topic(doomed)
        wait_until(lambda: running.loop.status.state.missing_topics == (), "it is there again")
    assert [entry.fields["topic"] for entry in running.log.of("topic_missing")] == [doomed]
    assert [offset for topic, offset in seen if topic == kept] == list(range(50 + MORE))


def test_a_topic_whose_right_is_withdrawn_goes_on_when_it_is_granted_again(broker: KafkaBroker) -> None:
    refused, kept = broker.create_topic("refused"), broker.create_topic("granted")
    client, seen, group = Client(broker), list[tuple[str, int]](), "refused.work"
    client.produce(refused, [b"v"] * 1_000)
    login: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
    login |= {"sasl_username": "alice", "sasl_password": "secret", "brokers": broker.bootstrap_sasl}
    app = app_for(broker, name="refused", **login)

    @app.consumer(refused, kept, dead_letter="letters")
    def work(value: bytes, ctx: Context) -> None:
        seen.append((ctx.topic, ctx.offset))
        time.sleep(0.001)

    with RunningApp(app) as running:
        wait_until(lambda: len(seen) > 50, "it is at work")
        broker.deny("alice", topic=refused, operation=AclOperation.READ)
        wait_until(lambda: "commit_refused" in held(running).get(refused, ()), "its commits are refused")
        client.produce(kept, [b"v"] * MORE)
        wait_until(lambda: client.committed(group, kept)[0] == MORE, "the other topic continues")
        assert not running.loop.holds
        allow_again(broker, refused)
        wait_until(lambda: client.committed(group, refused)[0] == 1_000, "everything of it is committed")
        assert held(running) == {refused: set(), kept: set()}
    for topic, count in ((refused, 1_000), (kept, MORE)):
        assert [offset for name, offset in seen if name == topic] == list(range(count)), "each once, and in order"


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

"""P1: a consumer of a pattern reads each topic that matches from its first record, also one that is made while it runs
or while the group is down; and never what keepfast itself writes.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from keepfast import App, Pattern, Reject, RetryPolicy, RetryTopics
from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import Client, NewRecord, numbered
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import happens, wait_until

PROTOCOLS = pytest.mark.parametrize("group_protocol", ["classic", "consumer"])


@pytest.fixture
def stem(kafka: TopicAdmin) -> Iterator[str]:
    """The beginning of names that no other test has; its topics are deleted afterwards."""
    stem = f"audit-{uuid.uuid4().hex[:8]}"
    yield stem
    for name in kafka.admin.list_topics(timeout=30).topics:
        if name.startswith(stem):
            kafka.delete_topic(name)


def app_of(kafka: TopicAdmin, stem: str, handler: Callable[[bytes], None], **options: Any) -> App:
    app = app_for(kafka)
    options = {"group": f"{stem}.group", "topics_refresh_s": 0.5, **options}

    @app.consumer(Pattern(rf"{stem}\..*"), **options)
    def work(value: bytes) -> None:
        handler(value)

    return app


def is_done(client: Client, stem: str, topic: str, count: int, partition: int = 0) -> bool:
    return client.committed(f"{stem}.group", topic, partition)[0] == count


def revoked(inside: RunningApp) -> set[str]:
    return {place for line in inside.log.of("partitions_revoked") for place in line.fields["partitions"]}


@PROTOCOLS
@pytest.mark.parametrize("policy", ["earliest", "latest", "error"])
def test_a_topic_made_while_it_runs_is_read_from_its_first_record(
    kafka: TopicAdmin, stem: str, group_protocol: str, policy: str
) -> None:
    client, seen = Client(kafka), list[bytes]()
    first, later = f"{stem}.first", f"{stem}.later"
    kafka.create_topic(first)
    client.commit(f"{stem}.group", first, 0)
    app = app_of(kafka, stem, seen.append, group_protocol=group_protocol, auto_offset_reset=policy)
    with RunningApp(app) as inside:
        client.produce(first, numbered(5))
        wait_until(lambda: is_done(client, stem, first, 5), "what was there is done")
        kafka.create_topic(later, partitions=3)
        client.produce(later, [NewRecord(b"later-%d" % number, partition=number % 3) for number in range(30)])
        wait_until(lambda: all(is_done(client, stem, later, 10, number) for number in range(3)), "the new one is done")
        client.produce(first, [b"on"])
        wait_until(lambda: is_done(client, stem, first, 6), "the other one goes on")
        (line,) = inside.log.of("subscription_changed")
        assert line.fields["added"] == [later]
        assert not revoked(inside), "what it had, it kept"
    assert sorted(seen) == sorted([*numbered(5), *(b"later-%d" % number for number in range(30)), b"on"])
    assert f"{stem}.later.dlq" in kafka.admin.list_topics(timeout=30).topics, "made before its first record"


def test_under_latest_topics_of_the_first_start_are_read_from_their_end_and_later_ones_from_their_beginning(
    kafka: TopicAdmin, stem: str
) -> None:
    client, seen = Client(kafka), list[bytes]()
    old, other, late = f"{stem}.old", f"{stem}.other", f"{stem}.late"
    for name in (old, other):
        kafka.create_topic(name)
        client.produce(name, [b"before the group"] * 3)
    with RunningApp(app_of(kafka, stem, seen.append, auto_offset_reset="latest")):
        wait_until(lambda: is_done(client, stem, old, 3), "it starts at the end")
        wait_until(lambda: is_done(client, stem, other, 3), "of each")
    kafka.create_topic(late, partitions=2)
    client.produce(late, [NewRecord(b"while it was down", partition=number % 2) for number in range(4)])
    with RunningApp(app_of(kafka, stem, seen.append, auto_offset_reset="latest")):
        wait_until(lambda: all(is_done(client, stem, late, 2, number) for number in range(2)), "all of it is read")
        client.produce(old, [b"and on"])
        wait_until(lambda: is_done(client, stem, old, 4), "the others go on where they were")
    assert sorted(seen) == [b"and on", *[b"while it was down"] * 4]


@PROTOCOLS
def test_it_never_sees_dead_letters_retries_or_replays(kafka: TopicAdmin, stem: str, group_protocol: str) -> None:
    client, seen = Client(kafka), list[bytes]()
    source, gone = f"{stem}.orders", f"{stem}.gone"
    foreign = [f"{gone}.failed", f"{gone}.DLT", f"{gone}-dlt", f"{gone}.dlq", f"{gone}.some.group.replay"]
    foreign += [f"{gone}.some.group.retry.5m", f"{gone}.some.group.parked"]
    for name in (source, *foreign):
        kafka.create_topic(name)
        client.produce(name, [b"bad" if name == source else name.encode()])

    def handle(value: bytes) -> None:
        seen.append(value)
        raise Reject("no") if value == b"worse" else RuntimeError("later")

    app = app_of(
        kafka,
        stem,
        handle,
        group_protocol=group_protocol,
        dead_letter="{topic}.failed",
        retry=RetryPolicy(max_retries=0),
        retry_topics=RetryTopics(delays=("1s",), allow_reorder=True),
        storm_guard=False,
    )
    with RunningApp(app) as inside:
        wait_until(lambda: client.edges(f"{source}.failed")[1] == 1, "it went through its retry topic to its letter")
        client.produce(source, [b"worse"])
        wait_until(lambda: client.edges(f"{source}.failed")[1] == 2, "another letter")
        looks = inside.loop.subscription._asked_at
        wait_until(lambda: inside.loop.subscription._asked_at > looks + 1, "topics were looked up since")
        assert inside.loop.subscription.topics == (source,)
        assert inside.loop.subscription.every == (source, f"{source}.{stem}.group.retry.1s")
    assert seen == [b"bad", b"bad", b"worse"]


@PROTOCOLS
def test_a_topic_deleted_while_it_runs_is_dropped_and_the_others_go_on(
    kafka: TopicAdmin, stem: str, group_protocol: str
) -> None:
    client, seen = Client(kafka), list[bytes]()
    stays, goes = f"{stem}.stays", f"{stem}.goes"
    for name in (stays, goes):
        kafka.create_topic(name)
        client.produce(name, [name.encode()])
    with RunningApp(app_of(kafka, stem, seen.append, group_protocol=group_protocol)) as inside:
        wait_until(lambda: is_done(client, stem, stays, 1) and is_done(client, stem, goes, 1), "both are done")
        kafka.delete_topic(goes)
        wait_until(lambda: inside.loop.subscription.topics == (stays,), "it is dropped")
        wait_until(lambda: len(inside.loop.ownership) == 1, "its partition, too")
        client.produce(stays, [b"on"])
        wait_until(lambda: is_done(client, stem, stays, 2), "the other one goes on")
        assert f"{stays}[0]" not in revoked(inside)
        kafka.create_topic(goes)
        client.produce(goes, [b"back"])
        wait_until(lambda: b"back" in seen, "made again, it is read from its beginning")
        wait_until(lambda: is_done(client, stem, goes, 1), "and committed")
    assert sorted(seen) == sorted([stays.encode(), goes.encode(), b"on", b"back"])


@PROTOCOLS
def test_without_any_topic_it_waits_and_says_so(kafka: TopicAdmin, stem: str, group_protocol: str) -> None:
    client, seen, name = Client(kafka), list[bytes](), f"{stem}.first"
    app = app_of(kafka, stem, seen.append, group_protocol=group_protocol, auto_offset_reset="latest")
    with RunningApp(app) as inside:
        wait_until(lambda: inside.log.of("waiting_for_topics"), "it says that it waits")
        wait_until(lambda: inside.health.ready, "that is no failure")
        health = inside.health
        assert (health.status, [reason.code for reason in health.reasons]) == ("ok", ["no_topics"])
        kafka.create_topic(name)
        client.produce(name, numbered(3))
        wait_until(lambda: is_done(client, stem, name, 3), "then it reads it, from its beginning")
        wait_until(lambda: not inside.health.reasons, "and waits for nothing any more")
        kafka.delete_topic(name)
        wait_until(lambda: inside.loop.subscription.waits and not len(inside.loop.ownership), "and waits again")
    assert seen == numbered(3)


def test_a_topic_whose_dead_letter_topic_cannot_be_made_is_not_read_until_it_can(kafka: TopicAdmin, stem: str) -> None:
    client, seen = Client(kafka), list[bytes]()
    first, later = f"{stem}.first", f"{stem}.later"
    for name in (first, f"{first}.dlq"):
        kafka.create_topic(name)
    app = app_of(kafka, stem, seen.append, dead_letter={"topic": "{topic}.dlq", "create_topic": False})
    with RunningApp(app) as inside:
        kafka.create_topic(later)
        client.produce(later, [b"later"])
        wait_until(lambda: inside.log.of("topic_not_read"), "it says why")
        wait_until(lambda: "topic_not_read" in [one.code for one in inside.health.reasons], "health says so, too")
        assert not happens(lambda: seen, within_s=1.5)
        kafka.create_topic(f"{later}.dlq")
        wait_until(lambda: seen == [b"later"], "as soon as it is there")
        wait_until(lambda: not inside.health.reasons, "all is well")


@PROTOCOLS
def test_two_members_share_the_topics_that_appear(kafka: TopicAdmin, stem: str, group_protocol: str) -> None:
    client, one, two = Client(kafka), list[bytes](), list[bytes]()
    kafka.create_topic(f"{stem}.0", partitions=2)
    options: dict[str, Any] = {"group_protocol": group_protocol, "auto_offset_reset": "latest"}
    with (
        RunningApp(app_of(kafka, stem, one.append, **options)) as first,
        RunningApp(app_of(kafka, stem, two.append, **options, topics_refresh_s=1.0)) as second,
    ):
        wait_until(lambda: len(first.loop.ownership) == len(second.loop.ownership) == 1, "each has a partition")
        wanted = []
        for number in range(1, 4):
            kafka.create_topic(f"{stem}.{number}", partitions=2)
            values = [b"%d-%d" % (number, count) for count in range(20)]
            wanted += values
            client.produce(f"{stem}.{number}", [NewRecord(value, partition=at % 2) for at, value in enumerate(values)])
        wait_until(lambda: {*one, *two} >= set(wanted), "all are processed")
        for number in range(1, 4):
            wait_until(lambda at=number: is_done(client, stem, f"{stem}.{at}", 10, 1), "and committed")  # type: ignore[misc]
        wait_until(lambda: len(first.loop.ownership) + len(second.loop.ownership) == 8, "all partitions are owned")
    assert sorted([*one, *two]) == sorted(wanted), "each once: nobody died"

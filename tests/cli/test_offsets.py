"""`keepfast offsets` on a broker: what a group has committed, and a reset of a group without members."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer, Producer, TopicCollection, TopicPartition

from keepfast.core.commit_metadata import CompletionMap, encode, origin_of
from keepfast.core.inbox import RecordIdentity
from keepfast.deadletters.checked import iso
from keepfast.desk import Desk, DeskOptions
from keepfast.inbox import tables
from keepfast.inbox.sqlite import SqliteInbox
from keepfast.kafka.config import Connection
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.command import keepfast
from tests.support.waiting import DEADLINE_S, wait_until

WRITTEN_MS = int(time.time() * 1000) - 3_600_000

WITH_INBOX = """
import psycopg
from keepfast import App, PostgresInbox

app = App("shop")

@app.consumer({topic!r}, group={group!r}, inbox=PostgresInbox())
def charge(payment: dict, tx: psycopg.Connection) -> None: ...
"""
APP = """
from keepfast import App

app = App("shop")

@app.consumer({topic!r}, group={group!r})
def charge(payment: dict) -> None: ...

@app.consumer("other")
def ship(order: dict) -> None: ...
"""


@pytest.fixture
def group(kafka: TopicAdmin, topic: TopicFactory, tmp_path: Path) -> str:
    """A group without members on a topic of its name: 10 records in both partitions, 4 and 10 of them committed."""
    name = topic(partitions=2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for partition in (0, 1):
        for number in range(10):
            producer.produce(name, b"%d" % number, partition=partition, timestamp=WRITTEN_MS + number * 1000)
    assert producer.flush(30) == 0
    done = CompletionMap.from_int(4, 0b110)  # 5 and 6 are done, 4 is not
    commit(kafka, name, TopicPartition(name, 0, 4, metadata=encode(done)), TopicPartition(name, 1, 10))
    (tmp_path / "shop.py").write_text(APP.format(topic=name, group=name))
    return name


def commit(kafka: TopicAdmin, group: str, *places: TopicPartition) -> None:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group})
    consumer.commit(offsets=list(places), asynchronous=False)
    consumer.close()


def committed(kafka: TopicAdmin, group: str) -> list[tuple[int, str]]:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group})
    found = consumer.committed([TopicPartition(group, 0), TopicPartition(group, 1)], timeout=DEADLINE_S)
    consumer.close()
    return [(one.offset, one.metadata or "") for one in found]


def test_show_tells_what_is_committed_and_done_above(kafka: TopicAdmin, group: str, tmp_path: Path) -> None:
    brokers = {"KAFKA_BROKERS": kafka.bootstrap}
    done = keepfast("offsets", "show", "shop:app", "--consumer", "charge", "--json", cwd=tmp_path, **brokers)
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert shown["group"] == group
    assert [(one["committed"], one["done_above"], one["lag"]) for one in shown["partitions"]] == [(4, 2, 6), (10, 0, 0)]
    by_name = keepfast("offsets", "show", group, cwd=tmp_path, **brokers)
    assert by_name.stdout.splitlines()[2].split() == [group, "0", "0", "4", "2", "10", "6"]


@pytest.mark.parametrize(
    ("where", "offsets"),
    [
        ("earliest", [0, 0]),
        ("latest", [10, 10]),
        ("7", [7, 7]),
        ("-3", [1, 7]),
        ("+2", [6, 10]),
        (iso(WRITTEN_MS + 4500), [5, 5]),
    ],
    ids=["earliest", "latest", "offset", "back", "forward", "time"],
)
def test_reset_moves_a_group_without_members(
    kafka: TopicAdmin, group: str, tmp_path: Path, where: str, offsets: list[int]
) -> None:
    done = keepfast("offsets", "reset", group, f"--to={where}", "--yes", cwd=tmp_path, KAFKA_BROKERS=kafka.bootstrap)
    assert done.returncode == 0, done.stderr
    found = committed(kafka, group)
    assert [offset for offset, _ in found] == offsets
    for before, (offset, metadata) in zip((4, 10), found, strict=True):
        if offset != before:
            assert origin_of(metadata, offset=offset).partitions == 2
            assert origin_of(metadata, offset=offset).topic_id


def test_a_dry_run_and_a_missing_confirmation_change_nothing(kafka: TopicAdmin, group: str, tmp_path: Path) -> None:
    before, brokers = committed(kafka, group), {"KAFKA_BROKERS": kafka.bootstrap}
    plan = keepfast("offsets", "reset", group, "--to", "latest", "--dry-run", cwd=tmp_path, **brokers)
    assert plan.returncode == 0, plan.stderr
    assert "1 partition to change, 1 unchanged" in plan.stdout
    assert plan.stdout.splitlines()[2].split() == [group, "0", "4", "10", "-", "6"]
    as_json = keepfast("offsets", "reset", group, "--to", "latest", "--dry-run", "--json", cwd=tmp_path, **brokers)
    assert (json.loads(as_json.stdout)["skipped"], json.loads(as_json.stdout)["done"]) == (6, False)
    not_asked = keepfast("offsets", "reset", group, "--to", "latest", cwd=tmp_path, **brokers)
    assert not_asked.returncode == 2
    assert "--yes" in not_asked.stderr
    assert committed(kafka, group) == before


def test_the_plan_names_an_offset_outside_of_the_log(kafka: TopicAdmin, group: str, tmp_path: Path) -> None:
    asked = ("offsets", "reset", group, "--partition", "0", "--dry-run", "--to=1200")
    plan = keepfast(*asked, cwd=tmp_path, KAFKA_BROKERS=kafka.bootstrap)
    assert f"Offset 1,200 is outside the log of {group}[0], which has 0 to 10: it becomes 10.\n" in plan.stdout
    as_json = json.loads(keepfast(*asked, "--json", cwd=tmp_path, KAFKA_BROKERS=kafka.bootstrap).stdout)
    assert [(one["wanted"], one["offset"]) for one in as_json["partitions"]] == [(1200, 10)]
    inside = keepfast(*asked, "--to=10", cwd=tmp_path, KAFKA_BROKERS=kafka.bootstrap)
    assert "outside the log" not in inside.stdout


def test_a_group_with_members_is_refused_and_they_are_named(kafka: TopicAdmin, group: str, tmp_path: Path) -> None:
    member = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group, "client.id": "worker-7"})
    member.subscribe([group])
    try:
        wait_until(lambda: member.poll(0.1) is None and bool(member.assignment()), "the member has partitions")
        done = keepfast(
            "offsets", "reset", group, "--to", "earliest", "--yes", cwd=tmp_path, KAFKA_BROKERS=kafka.bootstrap
        )
    finally:
        member.close()
    assert done.returncode == 3
    assert "has 1 member: worker-7" in done.stderr
    assert "Stop them first" in done.stderr


def test_what_is_missing_is_named(kafka: TopicAdmin, group: str, tmp_path: Path) -> None:
    brokers = {"KAFKA_BROKERS": kafka.bootstrap}
    several = keepfast("offsets", "show", "shop:app", cwd=tmp_path, **brokers)
    assert several.returncode == 2
    assert "--consumer: charge, ship" in several.stderr
    unknown = keepfast("offsets", "reset", "no-such-group", "--to", "earliest", "--yes", cwd=tmp_path, **brokers)
    assert unknown.returncode == 2
    assert "has committed nothing; name what to look at with --topic" in unknown.stderr
    bad = keepfast("offsets", "reset", group, "--to", "yesterday", cwd=tmp_path, **brokers)
    assert bad.returncode == 2
    assert "is not a time" in bad.stderr


def test_a_reset_keeps_the_partition_count_that_the_group_has_recorded(
    kafka: TopicAdmin, group: str, tmp_path: Path
) -> None:
    """With `latest`, partitions from that number on start at their beginning: they were added later."""
    recorded = encode(CompletionMap(4), partitions=1)
    commit(kafka, group, TopicPartition(group, 0, 4, metadata=recorded))
    done = keepfast(
        "offsets", "reset", group, "--partition", "0", "--to", "2", "--yes", cwd=tmp_path, KAFKA_BROKERS=kafka.bootstrap
    )
    assert done.returncode == 0, done.stderr
    offset, metadata = committed(kafka, group)[0]
    assert (offset, origin_of(metadata, offset=offset).partitions) == (2, 1)


def test_a_reset_counts_an_inbox_in_sqlite_and_refuses_one_with_keys(
    kafka: TopicAdmin, group: str, tmp_path: Path
) -> None:
    inbox = SqliteInbox(tmp_path / "inbox.db")
    tx, _ = inbox.begin([RecordIdentity(group, group, 0, offset) for offset in range(4)])
    inbox.commit(tx)
    inbox.close()

    def reset(how: str, *options: str) -> subprocess.CompletedProcess[str]:
        text = WITH_INBOX.format(topic=group, group=group).replace("PostgresInbox()", f'SqliteInbox("inbox.db"{how})')
        (tmp_path / "shop.py").write_text(text.replace("PostgresInbox", "SqliteInbox").replace("psycopg", "sqlite3"))
        asked = ("offsets", "reset", "shop:app", "--to", "2", "--partition", "0", "--yes", *options)
        return keepfast(*asked, cwd=tmp_path, KAFKA_BROKERS=kafka.bootstrap)

    assert "The inbox knows 2 records from there on" in reset("", "--dry-run").stdout
    keyed = ", key=lambda record: record.key"
    assert "Its inbox knows events by a key of their own" in reset(keyed, "--dry-run").stdout
    refused = reset(keyed, "--reprocess")
    assert refused.returncode == 2
    assert "delete their rows" in refused.stderr
    assert "The inbox forgets 2 records" in reset("", "--reprocess").stdout
    assert "The inbox knows 0 records" in reset("", "--dry-run").stdout


def test_a_reset_says_what_the_inbox_skips_and_reprocess_lets_it_forget(
    kafka: TopicAdmin, group: str, tmp_path: Path, postgres: str
) -> None:
    (tmp_path / "shop.py").write_text(WITH_INBOX.format(topic=group, group=group))
    [(_, facts)] = kafka.admin.describe_topics(TopicCollection([group])).items()
    cluster = kafka.admin.list_topics(timeout=DEADLINE_S).cluster_id
    source = f"{facts.result(DEADLINE_S).topic_id}@{cluster}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        tables.migrate(connection, outbox=False)
        insert = "INSERT INTO keepfast_inbox SELECT %s, %s, %s, n FROM generate_series(0, %s) AS n"
        connection.execute(insert, (group, source, 0, 3))
        connection.execute(insert, (group, source, 1, 9))
        connection.execute(insert, ("another", source, 1, 9))

        def reset(*options: str, **variables: str) -> dict[str, Any]:
            asked = ("offsets", "reset", "shop:app", "--to", "2", "--yes", "--json", *options)
            done = keepfast(*asked, cwd=tmp_path, KAFKA_BROKERS=kafka.bootstrap, **variables)
            assert done.returncode == 0, done.stderr
            return dict(json.loads(done.stdout))

        assert reset("--dry-run")["known_to_inbox"] is None, "no database is named"
        assert reset("--dry-run", POSTGRES_URL=postgres)["known_to_inbox"] == 2 + 8
        shown = keepfast(
            *("offsets", "reset", "shop:app", "--to", "2", "--dry-run", "--dsn", postgres),
            cwd=tmp_path,
            KAFKA_BROKERS=kafka.bootstrap,
        )
        assert "The inbox knows 10 records from there on and skips them" in shown.stdout
        assert reset("--reprocess", "--partition", "1", POSTGRES_URL=postgres)["known_to_inbox"] == 8
        left = connection.execute("SELECT consumer_group, partition, count(*) FROM keepfast_inbox GROUP BY 1, 2")
        assert sorted(left) == sorted([(group, 0, 4), (group, 1, 2), ("another", 1, 10)])
    assert [offset for offset, _ in committed(kafka, group)] == [4, 2]
    desk = Desk(Connection(brokers=[kafka.bootstrap]), DeskOptions(topics=(), by="test"))
    try:
        entry = next(one for one in desk.audit() if group in one.what and "forgot" in one.result)
    finally:
        desk.close()
    assert (entry.action, entry.count, entry.topic, entry.result) == (
        "offsets",
        1,
        group,
        "done; the inbox forgot 8 records",
    )
    refused = keepfast(
        *("offsets", "reset", "shop:app", "--to", "2", "--yes", "--reprocess"),
        cwd=tmp_path,
        KAFKA_BROKERS=kafka.bootstrap,
    )
    assert refused.returncode == 2
    assert "POSTGRES_HOST" in refused.stderr

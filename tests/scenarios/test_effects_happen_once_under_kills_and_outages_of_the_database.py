"""With an inbox each record has its effect once, and each effect its event: members are killed at random points,
connections are cut at COMMIT, PostgreSQL crashes. Without an inbox the same run repeats effects.

The relay of the outbox dies with its member. Order per key: events of a key come in the order of its records.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest

from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.scenarios.member import APPS, SHORT_SESSION, Member
from tests.support.broker_client import Client, NewRecord
from tests.support.postgres import CuttingProxy, PostgresServer, serving
from tests.support.waiting import wait_until

PARTITIONS, KEYS = 4, 50
SMALL = {"records": 400, "kills": 2, "cuts": 6, "restarts": 1}
LARGE = {"records": 20_000, "kills": 30, "cuts": 100, "restarts": 3}


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with serving() as server:
        yield server


@dataclass(slots=True)
class Chaos:
    """Two members of one app under faults."""

    kafka: TopicAdmin
    server: PostgresServer
    topic: str
    output: str
    folder: Path
    inbox: bool
    proxy: CuttingProxy
    rng: random.Random = field(default_factory=lambda: random.Random(17))
    members: list[Member] = field(default_factory=list)

    def start(self) -> Member:
        variables = {
            "SCENARIO_INBOX": "yes" if self.inbox else "no",
            "SCENARIO_OUTPUT": self.output,
            "POSTGRES_URL": self.proxy.url,
        }
        settings = {
            "kafka.brokers": self.kafka.bootstrap,
            "consumer.topics": self.topic,
            "health.enabled": False,
            "consumer.concurrency": 16,
            "retry.max_retries": 20,
            "retry.max_delay_ms": 2000,
            "state.dir": str(self.folder),
            **SHORT_SESSION,
        }
        name = f"member-{len(self.members) + 1}"
        member = Member(app=APPS / "charging.py", folder=self.folder, name=name, settings=settings, variables=variables)
        self.members.append(member.start())
        return member

    def run(self, records: int, kills: int, cuts: int, restarts: int) -> None:
        client = Client(self.kafka)
        client.produce(
            self.topic, (NewRecord(b"%d" % number, key=b"key-%d" % (number % KEYS)) for number in range(records))
        )
        running = [self.start(), self.start()]
        at_kill = sorted(self.rng.randint(1, int(records * 0.9)) for _ in range(kills))
        at_restart = {kills * (number + 1) // (restarts + 1) for number in range(restarts)}
        for number, wanted in enumerate(at_kill):
            self.wait_effects(wanted)
            self.proxy.cuts = cuts // kills
            time.sleep(self.rng.random() * 0.2)
            victim = running.pop(self.rng.randrange(2))
            victim.kill()
            running.append(self.start())
            if number in at_restart:
                self.server.restart()
        wait_until(lambda: self.distinct() == records, "every record has its effect", timeout_s=180)
        if self.inbox:
            wait_until(lambda: self.count("SELECT count(*) FROM keepfast_outbox") == 0, "the outbox is empty")
        for member in running:
            member.stop()

    def wait_effects(self, wanted: int) -> None:
        wait_until(lambda: self.effects() >= wanted, f"{wanted} effects", timeout_s=120)

    def count(self, query: str) -> int:
        try:
            with psycopg.connect(self.server.url) as connection:
                [(found,)] = connection.execute(query).fetchall()
                return int(found)
        except psycopg.OperationalError:
            return -1

    def effects(self) -> int:
        return self.count("SELECT count(*) FROM effects")

    def distinct(self) -> int:
        return self.count("SELECT count(DISTINCT source) FROM effects")

    def repeated(self) -> int:
        return self.count("SELECT count(*) - count(DISTINCT source) FROM effects")

    def close(self) -> None:
        for member in self.members:
            member.close()


def chaos_on(
    kafka: TopicAdmin, topic: TopicFactory, server: PostgresServer, folder: Path, *, inbox: bool, sizes: dict[str, int]
) -> Chaos:
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
        connection.execute("CREATE TABLE effects (source bigint, place text)")
    names = topic(partitions=PARTITIONS), topic(partitions=PARTITIONS)
    with CuttingProxy(server) as proxy:
        chaos = Chaos(kafka, server, *names, folder=folder, inbox=inbox, proxy=proxy)
        try:
            chaos.run(**sizes)
        finally:
            chaos.close()
    return chaos


def judge_events(chaos: Chaos, records: int) -> None:
    """Every row has its event, no event is without its row, and the first events of a key are in the order of its
    records.
    """
    client = Client(chaos.kafka)
    there = sum(client.edges(chaos.output, partition)[1] for partition in range(PARTITIONS))
    events = client.read(chaos.output, there, partitions=PARTITIONS)
    ids = [json.loads(message.value() or b"")["id"] for message in events]
    assert set(ids) == set(range(records))
    by_key: dict[Any, list[int]] = defaultdict(list)
    seen: set[int] = set()
    by_event: dict[bytes, set[int]] = defaultdict(set)
    for message, number in zip(events, ids, strict=True):
        by_event[dict(message.headers() or ())["keepfast-outbox-id"]].add(number)
        if number not in seen:
            seen.add(number)
            by_key[message.key()].append(number)
    assert all(numbers == sorted(numbers) for numbers in by_key.values()), "events of a key are in order"
    assert len(by_event) == records, "a repeated event has the id of the first"
    assert all(len(numbers) == 1 for numbers in by_event.values())
    sys.stdout.write(f"{len(ids)} events for {records} rows; sent so often: {Counter(Counter(ids).values())}\n")


@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param(SMALL, id="small"),
        pytest.param(LARGE, id="large", marks=[pytest.mark.long, pytest.mark.timeout(1500)]),
    ],
)
def test_each_effect_happens_once_and_has_its_event(
    kafka: TopicAdmin, topic: TopicFactory, server: PostgresServer, tmp_path: Path, sizes: dict[str, int]
) -> None:
    chaos = chaos_on(kafka, topic, server, tmp_path, inbox=True, sizes=sizes)
    proxy = chaos.proxy
    sys.stdout.write(f"cut before COMMIT: {proxy.cut_before}, after it: {proxy.cut_after}\n")
    assert chaos.repeated() == 0
    assert chaos.count("SELECT count(*) FROM keepfast_inbox") == sizes["records"]
    judge_events(chaos, sizes["records"])


@pytest.mark.long
@pytest.mark.timeout(900)
def test_without_an_inbox_the_same_faults_repeat_effects(
    kafka: TopicAdmin, topic: TopicFactory, server: PostgresServer, tmp_path: Path
) -> None:
    sizes = {"records": 4_000, "kills": 6, "cuts": 20, "restarts": 1}
    chaos = chaos_on(kafka, topic, server, tmp_path, inbox=False, sizes=sizes)
    sys.stdout.write(f"repeated without an inbox: {chaos.repeated()} of {sizes['records']}\n")
    assert chaos.repeated() > 0

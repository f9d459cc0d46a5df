"""Letters written by hand as Spring writes them, in a topic; `keepfast dlq` reads and replays them."""

from __future__ import annotations

import json
from pathlib import Path

from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import Client, NewRecord
from tests.support.command import keepfast
from tests.support.spring import OWN, letters

PARTITIONS = 3


def test_every_record_comes_back_as_it_was_and_nothing_of_spring_with_it(
    kafka: TopicAdmin, topic: TopicFactory, tmp_path: Path
) -> None:
    source, client = topic(partitions=PARTITIONS), Client(kafka)
    dlt = topic(partitions=PARTITIONS, suffix=".DLT")
    kinds = list(letters(source, 0, 0))
    originals = [
        NewRecord(bytes([number, 0, 255]) * 40, b"key\x00%d" % number, OWN, partition=number % PARTITIONS)
        for number in range(len(kinds))
    ]
    written = [letters(source, number % PARTITIONS, 1_000 + number)[kind] for number, kind in enumerate(kinds)]
    client.produce(
        dlt,
        [
            NewRecord(one.value, one.key, letter.headers, one.partition)
            for one, letter in zip(originals, written, strict=True)
        ],
    )
    brokers = ("--brokers", kafka.bootstrap)
    listed = keepfast("dlq", "causes", dlt, "--json", *brokers, cwd=tmp_path)
    causes = json.loads(listed.stdout)
    assert {"OrderClosedException", "DeserializationException"} == {one["error_type"] for one in causes["causes"]}
    replayed = keepfast("dlq", "replay", dlt, "--all", "--yes", *brokers, cwd=tmp_path)
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    found = {message.key(): message for message in client.read(source, len(originals), partitions=PARTITIONS)}
    for kind, one in zip(kinds, originals, strict=True):
        message = found[one.key]
        assert (message.value(), message.partition()) == (one.value, one.partition), kind
        assert tuple(message.headers())[: len(OWN)] == OWN, kind
        ours = {name for name, _ in message.headers()[len(OWN) :]}
        assert ours == {"keepfast-replay"}, kind

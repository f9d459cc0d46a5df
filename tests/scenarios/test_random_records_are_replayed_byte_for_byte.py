"""P9 on a real broker: random keys, values and headers die, are dead-lettered in each of the formats, and are replayed
by the command; what comes back is what was sent.
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

from keepfast import Context, DeadLetterPolicy, Reject
from keepfast.core.policies import LETTER_FORMATS
from keepfast.core.records import read_headers
from keepfast.core.replays import ReplayMark
from keepfast.deadletters.ours import originals
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import Client, NewRecord
from tests.support.command import keepfast
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import wait_until

COUNT, PARTITIONS = 300, 3
NAMES = [
    "",
    "trace",
    "trace",
    "nämé \u2603",
    "kafka_dlt-original-topic",
    "__connect.errors.topic",
    "traceparent",
    "x" * 300,
]


def random_bytes(random: Random) -> bytes | None:
    match random.randrange(7):
        case 0:
            return None
        case 1:
            return b""
        case 2:
            return json.dumps({"id": random.randrange(10**9), "text": "ünïcødé"}, ensure_ascii=False).encode()
        case 3:
            return b'{"spaces": 1,  "a":1.50}'
        case 4:
            return b"\xff\xfe\x00" + random.randbytes(random.randrange(20))
        case _:
            return random.randbytes(random.randrange(300))


def random_records(random: Random) -> list[NewRecord]:
    return [
        NewRecord(
            random_bytes(random),
            random_bytes(random),
            [(random.choice(NAMES), random_bytes(random)) for _ in range(random.randrange(5))],
            partition=random.randrange(PARTITIONS),
        )
        for _ in range(COUNT)
    ]


def test_what_is_replayed_is_what_was_sent(kafka: TopicAdmin, topic: TopicFactory, tmp_path: Path) -> None:
    name, client, app = topic(partitions=PARTITIONS), Client(kafka), app_for(kafka)
    for form in LETTER_FORMATS:
        letters = DeadLetterPolicy(topic=f"{{topic}}.{form}", format=form)

        @app.consumer(name, name=form, dead_letter=letters, storm_guard=False)
        def reject(value: bytes | None, ctx: Context) -> None:
            raise Reject("not today")

    records = random_records(Random(20_240_404))
    places = client.produce(name, records)
    ends = [sum(1 for partition, _ in places if partition == one) for one in range(PARTITIONS)]
    with RunningApp(app):
        for form in LETTER_FORMATS:
            for number, end in enumerate(ends):
                group = f"scenario.{form}"
                done = lambda group=group, n=number, end=end: client.committed(group, name, n)[0] == end  # noqa: E731
                wait_until(done, f"{group} has dead-lettered everything")
    for form in LETTER_FORMATS:
        again = topic(partitions=PARTITIONS)
        answer = keepfast(
            "dlq", "replay", f"{name}.{form}", "--all", "--yes", "--topic", again, cwd=tmp_path,
            KAFKA_BROKERS=kafka.bootstrap,
        )  # fmt: skip
        assert answer.returncode == 0, answer.stderr
        found = {}
        for message in client.read(again, COUNT, partitions=PARTITIONS):
            reported = list(read_headers(message))
            mark = ReplayMark.of(reported[-1:])
            assert mark is not None
            partition, offset = mark.case.split("/")[-3:-1]
            found[int(partition), int(offset)] = message.key(), message.value(), list(originals(reported))
        assert len(found) == COUNT
        for record, place in zip(records, places, strict=True):
            assert found[place] == (record.key, record.value, list(record.headers)), (form, place)

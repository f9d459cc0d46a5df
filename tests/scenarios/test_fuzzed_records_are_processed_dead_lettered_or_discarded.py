"""P1: 3,000 records of fuzzed keys, values and headers, near to what the consumer expects and far from it, with headers
that pretend to be ours, in a group whose committed metadata is nonsense: each ends processed, dead-lettered or
discarded.
"""

from __future__ import annotations

import json
from collections import Counter
from random import Random
from typing import Any

from pydantic import BaseModel

from keepfast import CardNumbers, Context, Discard, RetryPolicy
from keepfast.core.records import Record, read_headers
from keepfast.deadletters.reading import read
from keepfast.deadletters.writing import write
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import Client, NewRecord
from tests.support.letters import letter
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import wait_until

COUNT, PARTITIONS = 3_000, 3
LETTERS = [write(letter(headers=(("mine", b"1"),)), form) for form in ("envelope", "nested", "headers")]
NAMES = [name for _, headers in LETTERS for name, _ in headers]
NAMES += ["keepfast-replay-count", "keepfast-retry-step", "keepfast-retry-headers", "traceparent", "", "\u2603"]
ODD = [
    None,
    b"",
    b"0",
    b"-1",
    b"9" * 40,
    b"\xff" * 8,
    b"../..",
    b"[" * 500,
    b"4111111111111111",
    b"\x00",
    b"00-" + b"0" * 60,
]
PIECES = [
    b"{",
    b"}",
    b'"id"',
    b":",
    b"1",
    b",",
    b'"act"',
    b'"fail"',
    b'"drop"',
    b"\xff",
    b"\\ud800",
    b"1e999",
    b"[",
    b"null",
]


class Order(BaseModel):
    id: int
    act: str = ""


def fuzzed_value(random: Random) -> bytes | None:
    match random.randrange(6):
        case 0:
            return random.choice(ODD)
        case 1:
            return b"".join(random.choice(PIECES) for _ in range(random.randrange(12)))
        case 2:
            return LETTERS[random.randrange(3)][0]
        case 3:
            whole = json.dumps({"id": random.randrange(100), "act": random.choice(["", "fail", "drop"])}).encode()
            at = random.randrange(len(whole))
            return whole[:at] + random.randbytes(random.randrange(3)) + whole[at + random.randrange(3) :]
        case _:
            return json.dumps({"id": random.randrange(100), "act": random.choice(["", "fail", "drop"])}).encode()


def fuzzed(random: Random) -> NewRecord:
    headers = [(random.choice(NAMES), random.choice(ODD)) for _ in range(random.randrange(6))]
    if random.random() < 0.1:
        headers += LETTERS[random.randrange(3)][1]
    return NewRecord(fuzzed_value(random), random.choice(ODD), headers, partition=random.randrange(PARTITIONS))


def test_each_ends_once(kafka: TopicAdmin, topic: TopicFactory) -> None:
    name, client, app, random = topic(partitions=PARTITIONS), Client(kafka), app_for(kafka), Random(20_240_505)
    done = Counter[tuple[int, int]]()

    @app.consumer(
        name,
        name="work",
        order="key",
        retry=RetryPolicy(max_retries=1, initial_delay_ms=1),
        dead_letter="{topic}.dlq",
        sensitive=CardNumbers(),
    )
    def work(order: Order | None, ctx: Context) -> None:
        if order is not None and order.act == "fail":
            raise RuntimeError(f"cannot do {order.id}")
        if order is not None and order.act == "drop":
            raise Discard("a test")
        done[ctx.partition, ctx.offset] += 1

    records = [fuzzed(random) for _ in range(COUNT)]
    places = client.produce(name, records)
    for number, metadata in enumerate(["kf1;0;;;;////;00000000", "x" * 4000, "kf1;0;\u2603;3;g;AA;ffffffff"]):
        client.commit("scenario.work", name, 0, partition=number, metadata=metadata)
    ends = [sum(1 for partition, _ in places if partition == one) for one in range(PARTITIONS)]
    with RunningApp(app) as running:
        for number, end in enumerate(ends):
            finished = lambda n=number, end=end: client.committed("scenario.work", name, n)[0] == end  # noqa: E731
            wait_until(finished, f"partition {number} is through")
    printed = [*running.log.of("record_discarded"), *running.log.of("sensitive_data_discarded")]
    discarded = Counter((one.fields["partition"], one.fields["offset"]) for one in printed)
    count = sum(client.edges(f"{name}.dlq", number)[1] for number in range(PARTITIONS))
    dead_lettered = Counter[tuple[Any, Any]]()
    sent = dict(zip(places, records, strict=True))
    for message in client.read(f"{name}.dlq", count, partitions=PARTITIONS):
        found = read(Record.of(message))
        assert found.partition is not None
        assert found.offset is not None
        dead_lettered[found.partition, found.offset] += 1
        original = sent[found.partition, found.offset]
        assert (found.key, found.value) == (original.key, original.value)
        assert list(read_headers(message))[: len(found.headers)] == list(found.headers)
    assert done + dead_lettered + discarded == Counter(places), "each record once, in one of the three ways"
    assert min(len(done), len(dead_lettered), len(discarded)) > 100
    assert running.log.of("consumer_halted") == []

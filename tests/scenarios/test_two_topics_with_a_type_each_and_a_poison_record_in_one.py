"""One consumer of two topics, a type for each: a record that does not fit its own topic's type is dead-lettered, though
it fits the other's, and everything else is processed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from keepfast import BatchPolicy, Context, Record
from keepfast.deadletters.reading import read
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import Client, NewRecord
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import wait_until

COUNT, POISONED = 60, 17


@dataclass
class Invoice:
    id: int


@dataclass
class Payment:
    of: int


@pytest.mark.parametrize("kind", ["def", "async def", "batch"])
def test_each_record_becomes_the_type_of_its_topic_and_the_poison_is_dead_lettered(
    kafka: TopicAdmin, topic: TopicFactory, kind: str
) -> None:
    invoices, payments, client = topic(), topic(), Client(kafka)
    app, seen = app_for(kafka), list[Any]()
    topics = {invoices: Invoice, payments: Payment}
    options: dict[str, Any] = {"name": "work", "dead_letter": "{topic}.dlq"}
    if kind == "def":

        @app.consumer(topics, **options)
        def one(value: Invoice | Payment, ctx: Context) -> None:
            seen.append((ctx.topic, value))

    elif kind == "async def":

        @app.consumer(topics, **options)
        async def awaited(value: Invoice | Payment, ctx: Context) -> None:
            seen.append((ctx.topic, value))

    else:

        @app.consumer(topics, **options, batch=BatchPolicy(size=20, wait_s=0.05), idempotent=True)
        def several(values: list[Invoice | Payment]) -> None:
            seen.extend((invoices if isinstance(value, Invoice) else payments, value) for value in values)

    client.produce(invoices, [json.dumps({"id": number}).encode() for number in range(COUNT)])
    poison = b'{"id": 17}'  # an invoice among the payments
    good = [NewRecord(json.dumps({"of": number}).encode()) for number in range(COUNT)]
    client.produce(payments, [*good[:POISONED], NewRecord(poison, b"k"), *good[POISONED:]])
    with RunningApp(app) as running:
        wait_until(lambda: client.is_committed("scenario.work", invoices, COUNT), "all invoices are committed")
        wait_until(lambda: client.is_committed("scenario.work", payments, COUNT + 1), "all payments are committed")
        assert running.loop.counts.total().dead_lettered == 1
    [letter] = client.read(f"{payments}.dlq", 1)
    found = read(Record.of(letter))
    assert (found.value, found.offset, found.error_code) == (poison, POISONED, "MISSING_REQUIRED_FIELD")
    wanted = [(invoices, Invoice(number)) for number in range(COUNT)]
    assert sorted(seen, key=repr) == sorted(wanted + [(payments, Payment(number)) for number in range(COUNT)], key=repr)

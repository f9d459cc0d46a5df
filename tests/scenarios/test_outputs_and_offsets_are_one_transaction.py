"""P13: with exactly_once, what a handler sends, its letter or its copy for a retry topic, and its offset are one
transaction: a reader that reads committed records sees each output once, and none of an attempt that failed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from keepfast import BatchContext, BatchPolicy, Context, Reject, RetryPolicy, RetryTopics
from keepfast.core.exit_codes import EXIT_DEADLINE, EXIT_UNEXPECTED
from keepfast.kafka import transactions
from keepfast.testing.broker import KafkaBroker
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import ExistingBroker, TopicAdmin
from tests.scenarios.outputs import committed_values
from tests.support.broker_client import Client, NewRecord, numbered
from tests.support.broker_proxy import ADD_OFFSETS_TO_TXN, TXN_OFFSET_COMMIT, BrokerProxy
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import wait_until

ONCE: dict[str, Any] = {
    "exactly_once": True,
    "storm_guard": False,
    "retry": RetryPolicy(max_retries=1, initial_delay_ms=1),
}
PROTOCOLS = pytest.mark.parametrize("group_protocol", ["classic", "consumer"])


@PROTOCOLS
def test_an_output_of_each_attempt_that_went_well_and_none_of_those_that_failed(
    kafka: TopicAdmin, topic: TopicFactory, group_protocol: Any
) -> None:
    source, out, letters = topic(partitions=3), topic(partitions=2), topic(partitions=1)
    client, app, failed = Client(kafka), app_for(kafka), set[bytes]()

    @app.consumer(source, name="work", order="key", group_protocol=group_protocol, dead_letter=letters, **ONCE)
    async def work(value: bytes, ctx: Context) -> None:
        ctx.send(out, value, key=ctx.key)
        await asyncio.sleep(0)
        if value.endswith(b"7"):
            raise Reject("no use")
        if value.endswith(b"3") and value not in failed:
            failed.add(value)
            raise OSError("once")
        ctx.send(out, value + b"!", key=ctx.key)

    values = numbered(60)
    client.produce(source, [NewRecord(value, key=b"k%d" % (number % 5)) for number, value in enumerate(values)])
    good = [value for value in values if not value.endswith(b"7")]
    with RunningApp(app):
        wait_until(lambda: len(committed_values(kafka, out)) >= 2 * len(good), "all outputs are there")
    assert Counter(committed_values(kafka, out)) == Counter([*good, *(value + b"!" for value in good)])
    assert len(committed_values(kafka, letters)) == 6
    ends = [client.edges(source, number)[1] for number in range(3)]
    assert [client.committed("scenario.work", source, number)[0] for number in range(3)] == ends


def test_a_record_that_is_moved_leaves_its_topic_and_arrives_in_one_transaction(
    kafka: TopicAdmin, topic: TopicFactory
) -> None:
    source, out = topic(partitions=1), topic(partitions=1)
    client, app, tries = Client(kafka), app_for(kafka), Counter[bytes]()
    moves = RetryTopics(delays=("1s",), allow_reorder=True)

    @app.consumer(source, name="work", retry_topics=moves, **ONCE | {"retry": RetryPolicy(max_retries=0)})
    def work(value: bytes, ctx: Context) -> None:
        tries[value] += 1
        ctx.send(out, value)
        if value == b"2" and tries[value] == 1:
            raise OSError("once")

    client.produce(source, numbered(5))
    with RunningApp(app):
        wait_until(lambda: len(committed_values(kafka, out)) >= 5, "it came back")
    assert sorted(committed_values(kafka, out)) == numbered(5)
    assert tries[b"2"] == 2


def test_a_batch_gives_what_it_sent_for_each_record(kafka: TopicAdmin, topic: TopicFactory) -> None:
    source, out = topic(partitions=2), topic(partitions=1)
    client, app = Client(kafka), app_for(kafka)

    @app.consumer(source, name="work", idempotent=True, batch=BatchPolicy(size=10, wait_s=0.1), **ONCE)
    def work(values: list[bytes], ctx: BatchContext) -> None:
        for value, one in zip(values, ctx, strict=True):
            one.send(out, value)
        if b"7" in values:
            raise Reject("no use", index=values.index(b"7"))

    client.produce(source, [NewRecord(value, partition=int(value) % 2) for value in numbered(20)])
    with RunningApp(app):
        wait_until(lambda: len(committed_values(kafka, out)) >= 19, "all outputs are there")
    assert sorted(committed_values(kafka, out)) == sorted(value for value in numbered(20) if value != b"7")


def test_an_output_that_is_refused_holds_its_partition_and_no_other(kafka: TopicAdmin, topic: TopicFactory) -> None:
    source, out = topic(partitions=2), topic(partitions=1, config={"max.message.bytes": "2000"})
    client, app, large = Client(kafka), app_for(kafka, shutdown_s=2.0), b"x" * 3000

    @app.consumer(source, name="work", **ONCE)
    def work(value: bytes, ctx: Context) -> None:
        ctx.send(out, large if value == b"large" else value)

    client.produce(source, [NewRecord(b"large", partition=0)])
    client.produce(source, [NewRecord(value, partition=1) for value in numbered(5)])
    with RunningApp(app, code=EXIT_DEADLINE) as inside:
        wait_until(lambda: sorted(committed_values(kafka, out)) == numbered(5), "the other partition goes on")
        wait_until(lambda: any("commit_refused" in one.holds for one in inside.loop.ownership), "it is held")
        client.produce(source, [NewRecord(b"more", partition=1)])
        wait_until(lambda: b"more" in committed_values(kafka, out), "and on")
    assert client.committed("scenario.work", source, 0)[0] in (None, 0)


def test_a_drain_whose_transaction_is_not_answered_says_so_in_its_exit_code(
    kafka: KafkaBroker, topic: TopicFactory
) -> None:
    """All records are committed; what is left to commit is that the process ends."""
    source, out = topic(partitions=1), topic(partitions=1)
    client = Client(kafka)
    with BrokerProxy(kafka.bootstrap) as proxy:
        app = app_for(ExistingBroker(proxy.bootstrap), shutdown_s=2.0)

        @app.consumer(source, name="work", **ONCE)
        def work(value: bytes, ctx: Context) -> None:
            ctx.send(out, value)

        client.produce(source, numbered(5))
        with RunningApp(app, code=EXIT_DEADLINE):
            wait_until(lambda: client.committed("scenario.work", source, 0)[0] == 5, "all is committed")
            proxy.lose_reply(ADD_OFFSETS_TO_TXN, TXN_OFFSET_COMMIT, count=100)
    assert committed_values(kafka, out) == numbered(5)


def test_too_many_producers_that_hang_end_the_process_with_code_1(
    kafka: KafkaBroker, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "GIVE_UP_S", 1.0)
    monkeypatch.setattr(transactions, "MAX_HUNG", 2)
    source, out = topic(partitions=1), topic(partitions=1)
    with BrokerProxy(kafka.bootstrap) as proxy:
        # Until then a call whose reply is lost does not return.
        app = app_for(ExistingBroker(proxy.bootstrap), librdkafka={"socket.timeout.ms": 10_000})

        @app.consumer(source, name="work", **ONCE)
        def work(value: bytes, ctx: Context) -> None:
            ctx.send(out, value)

        proxy.lose_reply(TXN_OFFSET_COMMIT, count=100)
        Client(kafka).produce(source, numbered(1))
        with RunningApp(app, code=EXIT_UNEXPECTED) as inside:
            wait_until(lambda: inside.ended, "the second one hangs, too")
        assert len(inside.log.fields("client_error")) >= 1
    assert committed_values(kafka, out) == []

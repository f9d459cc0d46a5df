"""What a handler sees of a record that came back from a retry topic."""

from __future__ import annotations

import asyncio

import pytest

from keepfast.core.errors import Discard
from keepfast.core.records import Headers, Message, TopicPartition
from keepfast.core.retry_topics import GROUP, OWN_HEADERS, Returned, Tier, Tiers, moved
from keepfast.core.runs import FailedRecord, Partition, Run
from keepfast.engine.returning import returning, returning_async
from keepfast.testing.fakes.log import FakeMessage

TOPIC = "orders.g.retry.5s"
TIERS = Tiers(group="g", delays_s=(5,), topics={TOPIC: Tier(TOPIC, "orders", 5, 4)})
PLAIN = FakeMessage(TopicPartition("orders", 2), 7, key=b"k", value=b"v", headers=[("a", b"1")])

Seen = tuple[str, int, int, int]


def returned(headers: Headers | None = None) -> Returned:
    out = moved(PLAIN, tiers=TIERS, step=1, wall_s=0.0, failures=4, attempts=())
    message = FakeMessage(
        TopicPartition(TOPIC, 2), 99, key=b"k", value=b"v", headers=out.headers if headers is None else headers
    )
    return Returned(message, TIERS.topics[TOPIC], TIERS)


def run_of(message: Message, case: FailedRecord | None = None) -> Run:
    partition = Partition(TopicPartition(TOPIC, 2), epoch=1, start=0)
    return Run(partition, [message], [0], {}, case)


def seen_by(message: Message, run: Run, *, is_async: bool) -> Seen:
    found: list[Seen] = []

    def handle(message: Message, run: Run) -> None:
        found.append((message.topic(), message.partition(), message.offset(), run.attempt))

    async def handle_async(message: Message, run: Run) -> None:
        handle(message, run)

    if is_async:
        asyncio.run(_awaited(returning_async(handle_async)(message, run)))
    else:
        returning(handle)(message, run)
    return found[0]


async def _awaited(awaitable: object) -> None:
    await awaitable  # type: ignore[misc] # an Awaitable, which asyncio.run does not take


@pytest.mark.parametrize("is_async", [False, True], ids=["def", "async def"])
def test_it_sees_the_original_and_the_count_goes_on(is_async: bool) -> None:
    message = returned()
    assert seen_by(message, run_of(message), is_async=is_async) == ("orders", 2, 7, 5)


@pytest.mark.parametrize("is_async", [False, True], ids=["def", "async def"])
def test_other_records_are_handed_on_as_they_are(is_async: bool) -> None:
    assert seen_by(PLAIN, run_of(PLAIN), is_async=is_async) == ("orders", 2, 7, 1)


def test_a_case_counts_by_itself() -> None:
    message = returned()
    case = FailedRecord(Partition(TopicPartition(TOPIC, 2), epoch=1, start=0), 0, message, (), 0.0)
    assert case.failures == 4
    case.failures = 6
    assert seen_by(message, run_of(message, case), is_async=False)[-1] == 7


def test_a_record_of_another_group_never_reaches_the_handler() -> None:
    foreign = returned([(GROUP, b"another"), (OWN_HEADERS, b"0")])
    with pytest.raises(Discard, match="another group"):
        seen_by(foreign, run_of(foreign), is_async=False)

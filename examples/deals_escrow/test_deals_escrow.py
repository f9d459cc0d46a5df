"""The ten groups on the engine in memory. Effects that happen once, and the database, are in the story."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import datetime

import httpx
import psycopg
import pytest

from examples.database import Connection
from examples.deals_escrow.books import NotFunded
from examples.deals_escrow.messages import Deadline, Message
from examples.deals_escrow.service import DEAL_TIMEOUT_S, make_app
from examples.deals_escrow.story import GROUPS, READING, command
from keepfast import App, RecordIdentity
from keepfast.testing.harness import Harness, harness


class Ledger:
    """Books in memory."""

    def __init__(self) -> None:
        self.done: set[tuple[str, str]] = set()
        self.funded: set[str] = set()
        self.deadlines: dict[str, float] = {}

    def note(self, tx: Connection, consumer: str, message: Message, kind: str) -> None:
        self.done.add((consumer, message.idempotency_key))

    def schedule(self, tx: Connection, consumer: str, deadline: Deadline) -> None:
        self.deadlines[deadline.deal_id] = deadline.ends_at
        self.note(tx, consumer, deadline, "scheduled")

    def fund(self, tx: Connection, consumer: str, message: Message) -> None:
        self.funded.add(message.deal_id)

    def pay(self, tx: Connection, consumer: str, message: Message) -> None:
        if message.deal_id not in self.funded:
            raise NotFunded(message.deal_id)
        self.note(tx, consumer, message, "paid")

    refund = pay


class NoDatabase:
    """An inbox that forgets, and has no transactions."""

    transaction = psycopg.Connection

    def begin(self, identities: Sequence[RecordIdentity]) -> tuple[None, Sequence[RecordIdentity]]:
        return None, identities

    def commit(self, tx: None) -> None: ...
    def rollback(self, tx: None) -> None: ...
    def prune(self, before: datetime) -> int:
        return 0


class Bot:
    def __init__(self, *statuses: int) -> None:
        self.answers = list(statuses)
        self.asked = 0

    def write(self, chat: str, text: str) -> None:
        self.asked += 1
        if self.answers:
            response = httpx.Response(self.answers.pop(0), request=httpx.Request("POST", "http://bot"))
            response.raise_for_status()


def app_in_memory(ledger: Ledger | None = None, bot: Bot | None = None) -> App:
    return make_app(ledger or Ledger(), bot or Bot(), inbox=NoDatabase())


def played(topic: str, *values: bytes, ledger: Ledger | None = None, bot: Bot | None = None) -> Harness:
    async def story() -> Harness:
        async with harness(app_in_memory(ledger, bot), partitions=1) as h:
            for value in values:
                await h.send(topic, value, key="d1", settle=False)
            await h.settle()
            return h

    return asyncio.run(story())


def test_each_group_of_the_table_reads_its_topic() -> None:
    settings = app_in_memory().settings(environ={})
    assert sorted((own.group, topic) for own in settings.consumers.values() for topic in own.topics) == sorted(READING)
    assert {own.assignor for own in settings.consumers.values()} == {"cooperative-sticky"}


@pytest.mark.parametrize(
    ("consumer", "retries", "first_ms", "longest_ms", "lag"),
    [
        ("payout_executor", 5, 5000, 60_000, (100, 1000)),
        ("notification_sender", 3, 1000, 10_000, (500, 5000)),
        ("deal_events", 3, 1000, 30_000, (1000, 10_000)),
        ("reconciliation", 0, 1000, 30_000, (1000, 10_000)),
    ],
)
def test_each_kind_has_its_retries_and_its_thresholds_of_lag(
    consumer: str, retries: int, first_ms: int, longest_ms: int, lag: tuple[int, int]
) -> None:
    settings = app_in_memory().settings(environ={}).consumers[consumer]
    assert settings.alerts.lag == lag
    own = settings.retry
    assert (own.max_retries, own.initial_delay_ms, own.max_delay_ms, own.multiplier) == (
        retries,
        first_ms,
        longest_ms,
        2,
    )


@pytest.mark.parametrize("ending", ["PAYOUT", "REFUND"])
def test_a_deal_is_funded_and_settled_and_both_are_confirmed(ending: str) -> None:
    ledger = Ledger()
    h = played("escrow.commands", command("d1", "WATCH_DEPOSIT"), command("d1", ending), ledger=ledger)
    assert h.dead == []
    assert ledger.funded == {"d1"}
    assert ("cg-deposit-handler", f"d1-{ending}/{ending}_CONFIRMED") in ledger.done


def test_a_payout_without_a_deposit_is_tried_again_and_then_dead_lettered_for_its_group_alone() -> None:
    [letter] = played("escrow.commands", command("d1", "PAYOUT")).dead
    assert (letter.error_type, letter.group, letter.retry_count) == ("NotFunded", "cg-payout-executor", 5)


@pytest.mark.parametrize(("given", "seconds"), [(None, DEAL_TIMEOUT_S), (2.5, 2.5)])
def test_a_deal_that_is_created_has_a_deadline_which_is_the_same_when_it_comes_again(
    given: float | None, seconds: float
) -> None:
    ledger = Ledger()
    fields = json.loads(command("d1", "DEAL_CREATED")) | {"timeout_s": given}
    h = played("deal.events", json.dumps(fields).encode(), ledger=ledger)
    [record] = [one for one in h.processed if one.topic == "deal.events"]
    assert record.timestamp_ms is not None
    assert ledger.deadlines == {"d1": pytest.approx(record.timestamp_ms / 1000 + seconds)}


@pytest.mark.parametrize("topic", GROUPS)
@pytest.mark.parametrize("value", [b"{", b'{"deal_id": "d1"}', command("d1", "NO_SUCH_KIND")])
def test_poison_is_dead_lettered_at_once_by_each_group_that_reads_it(topic: str, value: bytes) -> None:
    letters = played(topic, value).dead
    assert sorted(letter.group for letter in letters) == sorted(GROUPS[topic])
    assert {(letter.value, letter.retry_count) for letter in letters} == {(value, 0)}


@pytest.mark.parametrize(("status", "asked", "dead_lettered"), [(429, 2, 0), (503, 2, 0), (400, 1, 1)])
def test_a_bot_that_is_busy_is_asked_again_and_one_that_refuses_is_not(
    status: int, asked: int, dead_lettered: int
) -> None:
    bot = Bot(status)
    fields = json.loads(command("d1", "NOTIFY")) | {"chat": "c"}
    h = played("notifications.outbox", json.dumps(fields).encode(), bot=bot)
    assert (bot.asked, len(h.dead)) == (asked, dead_lettered)

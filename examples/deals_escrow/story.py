"""All ten groups: duplicates, poison in every topic, a bot that is limited, down or unknown, payouts
without a deposit, deals that time out, kill -9; then an operator mends what can be mended and replays.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

from examples.stage.account import Account
from examples.stage.http import Answer, HttpServer
from examples.stage.postgres import rows
from examples.stage.process import Process, until
from examples.stage.stage import Stage

GROUPS = {
    "deal.events": ("cg-deal-events",),
    "escrow.commands": ("cg-deposit-watcher", "cg-payout-executor"),
    "escrow.confirmations": ("cg-deposit-handler",),
    "delivery.commands": ("cg-auto-publisher", "cg-delivery-verifier"),
    "delivery.results": ("cg-delivery-handler",),
    "notifications.outbox": ("cg-notification-sender",),
    "deal.deadlines": ("cg-deadline-handler",),
    "reconciliation.triggers": ("cg-reconciliation",),
}
READING = [(group, topic) for topic, groups in GROUPS.items() for group in groups]
DEALS, FEW = 40, 8
UNFUNDED = ("d5", "d25")
SETTLED = "d4"
"""Paid out, then a refund is requested."""
OVERDUE = {"overdue": [0, 0], "overdue-funded": [0, 1]}
"""Neither is settled in time; of one there is a deposit. How often each is paid and refunded."""
POISON = b'{"idempotency_key": "poison", "deal_id": '
SCHEMA = Path(__file__).with_name("schema.sql")
QUICK = {
    "KEEPFAST_RETRY_PROFILES_FINANCIAL_INITIAL_DELAY_MS": "100",  # in production 5 s to 60 s
    "KEEPFAST_RETRY_PROFILES_FINANCIAL_MAX_DELAY_MS": "400",
    "KEEPFAST_RETRY_PROFILES_NOTIFICATION_INITIAL_DELAY_MS": "100",
}


def command(deal: str, kind: str, key: str = "") -> bytes:
    return json.dumps({"idempotency_key": key or f"{deal}-{kind}", "deal_id": deal, "kind": kind}).encode()


def ending(deal: str) -> str:
    """One deal of ten is not fulfilled."""
    return "REFUND" if deal.endswith("6") else "PAYOUT"


class Telegram(HttpServer):
    """Limited for one chat of ten, down for another, the first time; the owner of d7 is unknown."""

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.asked: Counter[str] = Counter()

    def _answer(self, _: str, body: bytes) -> Answer:
        chat = str(json.loads(body)["chat_id"])
        self.asked[chat] += 1
        if chat.endswith("-d7"):
            return Answer(400)
        if self.asked[chat] == 1 and chat[-1] in "13":
            return Answer(429, headers={"Retry-After": "1"}) if chat[-1] == "1" else Answer(503)
        return Answer()


def expectations(account: Account, deals: Sequence[str]) -> None:
    """Who must have done what, by the keys that the senders give."""
    for deal in deals:
        created, watch, pay = f"{deal}-DEAL_CREATED", f"{deal}-WATCH_DEPOSIT", f"{deal}-{ending(deal)}"
        account.expect(f"cg-deal-events: {created}", "done")
        account.expect(f"cg-deadline-handler: {created}/DEADLINE", "done")
        notified = "dead-lettered HTTPStatusError" if deal == "d7" else "done"
        account.expect(f"cg-notification-sender: {created}/NOTIFY", notified)
        account.expect(f"cg-deposit-watcher: {watch}", "done")
        account.expect(f"cg-deposit-handler: {watch}/DEPOSIT_CONFIRMED", "done")
        account.expect(f"cg-payout-executor: {pay}", "done", *(["dead-lettered NotFunded"] if deal in UNFUNDED else []))
        account.expect(f"cg-deposit-handler: {pay}/{ending(deal)}_CONFIRMED", "done")
        for group, kind, result in (
            ("cg-auto-publisher", "PUBLISH", "PUBLISHED"),
            ("cg-delivery-verifier", "VERIFY", "VERIFIED"),
        ):
            account.expect(f"{group}: {deal}-{kind}", "done")
            account.expect(f"cg-delivery-handler: {deal}-{kind}/{result}", "done")
    account.expect(f"cg-payout-executor: {SETTLED}-REFUND", "dead-lettered AlreadySettled")
    account.expect("cg-reconciliation: nightly-RECONCILE", "done")
    for group, _ in READING:
        account.expect(f"{group}: poison", "dead-lettered DecodeError")


def expect_timeouts(account: Account) -> None:
    for deal in OVERDUE:
        for group, key in (
            ("cg-deal-events", "-DEAL_CREATED"),
            ("cg-deadline-handler", "-DEAL_CREATED/DEADLINE"),
            ("cg-notification-sender", "-DEAL_CREATED/NOTIFY"),
            ("cg-deal-events", "/TIMEOUT"),
            ("cg-notification-sender", "/TIMEOUT/NOTIFY"),
        ):
            account.expect(f"{group}: {deal}{key}", "done")
    account.expect("cg-payout-executor: overdue-PAYOUT", "dead-lettered AlreadySettled")
    for group, key in (
        ("cg-deposit-watcher", "-WATCH_DEPOSIT"),
        ("cg-deposit-handler", "-WATCH_DEPOSIT/DEPOSIT_CONFIRMED"),
        ("cg-payout-executor", "/TIMEOUT/REFUND"),
        ("cg-deposit-handler", "/TIMEOUT/REFUND/REFUND_CONFIRMED"),
    ):
        account.expect(f"{group}: overdue-funded{key}", "done")


def let_deals_time_out(stage: Stage, service: Process, database: str) -> None:
    """Two that are due in a second; then a payout of one is requested."""
    for deal in OVERDUE:
        created = json.loads(command(deal, "DEAL_CREATED")) | {"timeout_s": 1}
        stage.send("deal.events", [(deal, json.dumps(created).encode())])
    stage.send("escrow.commands", [("overdue-funded", command("overdue-funded", "WATCH_DEPOSIT"))])
    settled = (
        "SELECT count(*) FROM deals WHERE ended_at IS NOT NULL AND refunded = funded::integer AND refunding = funded"
    )
    until(lambda: service.check() and rows(database, settled)[0][0] == len(OVERDUE), "overdue deals are ended")
    stage.send("escrow.commands", [("overdue", command("overdue", "PAYOUT"))])


def send_all(stage: Stage, deals: Sequence[str]) -> None:
    """Every fifth deal twice."""
    records: defaultdict[str, list[tuple[str, bytes]]] = defaultdict(list)
    for deal in deals:
        for _ in range(2 if deal.endswith("5") else 1):
            records["deal.events"].append((deal, command(deal, "DEAL_CREATED")))
            if deal not in UNFUNDED:
                records["escrow.commands"].append((deal, command(deal, "WATCH_DEPOSIT")))
            records["escrow.commands"].append((deal, command(deal, ending(deal))))
            records["delivery.commands"] += [(deal, command(deal, "PUBLISH")), (deal, command(deal, "VERIFY"))]
    records["reconciliation.triggers"].append(("nightly", command("nightly", "RECONCILE")))
    for topic in GROUPS:
        stage.send(topic, [*records[topic], ("poison", POISON)])


def story(stage: Stage, *, short: bool = False) -> Account:
    """Short: without the kill."""
    account = Account("deals_escrow")
    deals = [f"d{number}" for number in range(FEW if short else DEALS)]
    database = stage.postgres.create("deals", SCHEMA.read_text())
    stage.topics(*GROUPS, partitions=2)
    expectations(account, deals)
    expect_timeouts(account)
    with Telegram() as telegram:
        service = stage.app(
            "examples.deals_escrow.service:app",
            DATABASE_URL=database,
            TELEGRAM_URL=telegram.url,
            TIMEOUT_CHECK_S="0.5",
            **QUICK,
        )
        service.start()
        send_all(stage, deals)
        if not short:
            effects = "SELECT count(*) FROM effects"
            until(lambda: service.check() and rows(database, effects)[0][0] > 60, "60 effects are there")
            service.kill()
            service.start()
        until_quiet(stage, service, database)
        unfunded = [deal for deal in UNFUNDED if deal in deals]
        late = [command(deal, "WATCH_DEPOSIT") for deal in unfunded]
        stage.send("escrow.commands", [*zip(unfunded, late, strict=True), (SETTLED, command(SETTLED, "REFUND"))])
        until_quiet(stage, service, database)
        stage.keepfast("dlq", "replay", "escrow.commands.DLT", "--error-type", "NotFunded", "--to", "topic", "--yes")
        let_deals_time_out(stage, service, database)
        until_quiet(stage, service, database)
        account.check("the service did not end cleanly", right=service.stop() == 0)
    return reconcile(stage, account, database, len(deals))


def until_quiet(stage: Stage, service: Process, database: str) -> None:
    """Until everything is read, and what was sent on meanwhile, too: a message goes through three groups at most."""
    waiting = "SELECT count(*) FROM keepfast_outbox"
    for _ in range(3):
        stage.until_read(service, *READING)
        until(lambda: service.check() and rows(database, waiting)[0][0] == 0, "the outbox is empty")
    stage.until_read(service, *READING)


def reconcile(stage: Stage, account: Account, database: str, deals: int) -> Account:
    for group, key in rows(database, "SELECT consumer, idempotency_key FROM effects"):
        account.note("done", [f"{group}: {key}"])
    for topic in GROUPS:
        for record in stage.records(f"{topic}.DLT"):
            account.check(f"a letter in {topic}.DLT lacks Spring's headers", right=_is_springs(record.headers, topic))
        for letter in stage.letters(f"{topic}.DLT"):
            poison = letter.value == POISON
            key = "poison" if poison else json.loads(letter.value or b"{}").get("idempotency_key")
            account.note(f"dead-lettered {letter.error_type}", [f"{letter.group}: {key}"])
    for deal, *moved in rows(database, "SELECT id, paid, refunded FROM deals"):
        right = moved == OVERDUE.get(deal, [0, 1] if ending(deal) == "REFUND" else [1, 0])
        account.check(f"{deal} was paid {moved[0]} times and refunded {moved[1]} times", right=right)
    account.check(
        "not all deals are there", right=rows(database, "SELECT count(*) FROM deals")[0][0] == deals + len(OVERDUE)
    )
    ended = {deal for (deal,) in rows(database, "SELECT id FROM deals WHERE ended_at IS NOT NULL")}
    account.check(f"these timed out: {ended}", right=ended == set(OVERDUE))
    account.remarks.append(
        f"{len(READING)} groups; every deal was paid, refunded or ended at its deadline, exactly once"
    )
    return account


def _is_springs(headers: tuple[tuple[str, bytes | None], ...], topic: str) -> bool:
    fields = dict(headers)
    names = ("exception-fqcn", "exception-message", "exception-stacktrace", "original-partition", "original-offset")
    there = all(f"kafka_dlt-{name}" in fields for name in (*names, "original-timestamp"))
    return there and fields["kafka_dlt-original-topic"] == topic.encode()

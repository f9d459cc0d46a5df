"""Deals and escrow: ten consumer groups in one app. Run it with `keepfast run examples.deals_escrow.service:app`, or
one of them with `--consumer payout_executor`.

Every message has an idempotency key from its sender. The inbox notes it in the transaction of the work, and the outbox
has what the consumer sends on: key, work and messages are one fact, and a repetition is skipped.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from psycopg_pool import ConnectionPool

from examples.database import Connection, Database, Lifespan
from examples.deals_escrow.books import AlreadySettled, Books, NotFunded, PostgresBooks
from examples.deals_escrow.deadlines import TimeoutWorker
from examples.deals_escrow.messages import (
    Deadline,
    DealEvent,
    DeliveryCommand,
    DeliveryResult,
    EscrowCommand,
    EscrowConfirmation,
    Message,
    Notification,
    ReconciliationTrigger,
)
from examples.deals_escrow.telegram import Bot, TelegramBot
from keepfast import App, Context, Inbox, PostgresInbox, RawRecord

# The deposit that a payout needs may still come; one that went out does not come back.
BUSINESS: dict[type[BaseException] | str, str] = {NotFunded: "retryable", AlreadySettled: "non-retryable"}

DEAL_TIMEOUT_S = float(os.environ.get("DEAL_TIMEOUT_S", "259200"))
TIMEOUT_CHECK_S = float(os.environ.get("TIMEOUT_CHECK_S", "5"))

database = Database(os.environ.get("DATABASE_URL", "postgresql://localhost/deals"))
telegram = TelegramBot(os.environ.get("TELEGRAM_URL", "http://localhost:8082"))


@contextmanager
def lifespan(app: App) -> Iterator[ConnectionPool[Connection]]:
    """Pool and client are open, and overdue deals are ended, while the app runs. The inbox uses the pool."""

    def send(topic: str, value: bytes, key: str) -> None:
        app.send(topic, value, key=key).result(10)

    with database, telegram, TimeoutWorker(database, send, every_s=TIMEOUT_CHECK_S):
        yield database.pool


def key_of(record: RawRecord) -> str:
    """Of the event, as its sender named it: the same message may come in two records."""
    return msgspec.json.decode(record.value or b"", type=Message).idempotency_key


def make_app(
    books: Books, bot: Bot, lifespan: Lifespan | None = None, inbox: Inbox | PostgresInbox | None = None
) -> App:
    app = App(
        "deals",
        lifespan=lifespan,
        consumer={"timeout_s": 20},
        dead_letter={"topic": "{topic}.DLT", "format": "headers"},
    )
    once = inbox or PostgresInbox(key=key_of, outbox=True)
    _add_deals(app, books, bot, once)
    _add_escrow(app, books, once)
    _add_delivery(app, books, once)
    return app


def _add_deals(app: App, books: Books, bot: Bot, once: Inbox | PostgresInbox) -> None:
    @app.consumer("deal.events", group="cg-deal-events", inbox=once)
    def deal_events(event: DealEvent, tx: Connection, ctx: Context) -> None:
        books.note(tx, "cg-deal-events", event, event.kind)
        chat = f"owner-of-{event.deal_id}"
        ctx.send("notifications.outbox", event.followed_by("NOTIFY", chat=chat), key=event.deal_id)
        if event.kind == "DEAL_CREATED":
            timeout_s = DEAL_TIMEOUT_S if event.timeout_s is None else event.timeout_s
            # The record's time: the same, however often it comes.
            created_s = time.time() if ctx.timestamp_ms is None else ctx.timestamp_ms / 1000
            ends_at = created_s + timeout_s
            ctx.send("deal.deadlines", event.followed_by("DEADLINE", ends_at=ends_at), key=event.deal_id)

    @app.consumer("notifications.outbox", group="cg-notification-sender", inbox=once, retry="notification")
    def notification_sender(notification: Notification, tx: Connection) -> None:
        bot.write(notification.chat, f"News about deal {notification.deal_id}")  # twice is a nuisance, never is worse
        books.note(tx, "cg-notification-sender", notification, "sent")

    @app.consumer("deal.deadlines", group="cg-deadline-handler", inbox=once)
    def deadline_handler(deadline: Deadline, tx: Connection) -> None:
        books.schedule(tx, "cg-deadline-handler", deadline)

    @app.consumer("reconciliation.triggers", group="cg-reconciliation", inbox=once, retry="none")
    def reconciliation(trigger: ReconciliationTrigger, tx: Connection) -> None:
        books.note(tx, "cg-reconciliation", trigger, "reconciled")  # if it fails, the schedule triggers it again


def _add_escrow(app: App, books: Books, once: Inbox | PostgresInbox) -> None:
    @app.consumer("escrow.commands", group="cg-deposit-watcher", inbox=once, retry="financial")
    def deposit_watcher(command: EscrowCommand, tx: Connection, ctx: Context) -> None:
        if command.kind == "WATCH_DEPOSIT":
            books.note(tx, "cg-deposit-watcher", command, "watched")
            ctx.send("escrow.confirmations", command.followed_by("DEPOSIT_CONFIRMED"), key=command.deal_id)

    @app.consumer("escrow.commands", group="cg-payout-executor", inbox=once, retry="financial", rules=BUSINESS)
    def payout_executor(command: EscrowCommand, tx: Connection, ctx: Context) -> None:
        if command.kind in ("PAYOUT", "REFUND"):
            (books.pay if command.kind == "PAYOUT" else books.refund)(tx, "cg-payout-executor", command)
            ctx.send("escrow.confirmations", command.followed_by(f"{command.kind}_CONFIRMED"), key=command.deal_id)

    @app.consumer("escrow.confirmations", group="cg-deposit-handler", inbox=once, retry="financial")
    def deposit_handler(confirmation: EscrowConfirmation, tx: Connection) -> None:
        if confirmation.kind == "DEPOSIT_CONFIRMED":
            books.fund(tx, "cg-deposit-handler", confirmation)
        else:
            books.note(tx, "cg-deposit-handler", confirmation, "settled")


def _add_delivery(app: App, books: Books, once: Inbox | PostgresInbox) -> None:
    @app.consumer("delivery.commands", group="cg-auto-publisher", inbox=once)
    def auto_publisher(command: DeliveryCommand, tx: Connection, ctx: Context) -> None:
        if command.kind == "PUBLISH":
            books.note(tx, "cg-auto-publisher", command, "published")
            ctx.send("delivery.results", command.followed_by("PUBLISHED"), key=command.deal_id)

    @app.consumer("delivery.commands", group="cg-delivery-verifier", inbox=once)
    def delivery_verifier(command: DeliveryCommand, tx: Connection, ctx: Context) -> None:
        if command.kind == "VERIFY":
            books.note(tx, "cg-delivery-verifier", command, "verified")
            ctx.send("delivery.results", command.followed_by("VERIFIED"), key=command.deal_id)

    @app.consumer("delivery.results", group="cg-delivery-handler", inbox=once)
    def delivery_handler(result: DeliveryResult, tx: Connection) -> None:
        books.note(tx, "cg-delivery-handler", result, result.kind)


app = make_app(PostgresBooks(), telegram, lifespan)

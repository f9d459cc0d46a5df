"""Deals and escrow: ten consumer groups in one app. Run it with `keepfast run examples.deals_escrow.service:app`, or
one of them with `--consumer payout_executor`.

What a consumer sends on it sends each time it sees a message, also when the work itself was done before: the process
may have died between the two. Receivers tell repetitions by the idempotency key.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from examples.database import Database, Lifespan
from examples.deals_escrow.books import AlreadySettled, Books, NotFunded, PostgresBooks
from examples.deals_escrow.deadlines import TimeoutWorker
from examples.deals_escrow.messages import (
    Deadline,
    DealEvent,
    DeliveryCommand,
    DeliveryResult,
    EscrowCommand,
    EscrowConfirmation,
    Notification,
    ReconciliationTrigger,
)
from examples.deals_escrow.telegram import Bot, TelegramBot
from keepfast import App, Context

# The deposit that a payout needs may still come; one that went out does not come back.
BUSINESS: dict[type[BaseException] | str, str] = {NotFunded: "retryable", AlreadySettled: "non-retryable"}

DEAL_TIMEOUT_S = float(os.environ.get("DEAL_TIMEOUT_S", "259200"))
TIMEOUT_CHECK_S = float(os.environ.get("TIMEOUT_CHECK_S", "5"))

database = Database(os.environ.get("DATABASE_URL", "postgresql://localhost/deals"))
telegram = TelegramBot(os.environ.get("TELEGRAM_URL", "http://localhost:8082"))


@contextmanager
def lifespan(app: App) -> Iterator[None]:
    """Pool and client are open, and overdue deals are ended, while the app runs."""

    def send(topic: str, value: bytes, key: str) -> None:
        app.send(topic, value, key=key).result(10)

    with database, telegram, TimeoutWorker(database, send, every_s=TIMEOUT_CHECK_S):
        yield


def make_app(books: Books, bot: Bot, lifespan: Lifespan | None = None) -> App:
    app = App(
        "deals",
        lifespan=lifespan,
        # The books tell repetitions by their keys; a notification that comes twice is borne (below).
        consumer={"idempotent": True, "timeout_s": 20},
        dead_letter={"topic": "{topic}.DLT", "format": "headers"},
    )
    _add_deals(app, books, bot)
    _add_escrow(app, books)
    _add_delivery(app, books)
    return app


def _add_deals(app: App, books: Books, bot: Bot) -> None:
    @app.consumer("deal.events", group="cg-deal-events")
    def deal_events(event: DealEvent, ctx: Context) -> None:
        books.note("cg-deal-events", event, event.kind)
        chat = f"owner-of-{event.deal_id}"
        ctx.send("notifications.outbox", event.followed_by("NOTIFY", chat=chat), key=event.deal_id)
        if event.kind == "DEAL_CREATED":
            timeout_s = DEAL_TIMEOUT_S if event.timeout_s is None else event.timeout_s
            # The record's time: the same, however often it comes.
            created_s = time.time() if ctx.timestamp_ms is None else ctx.timestamp_ms / 1000
            ends_at = created_s + timeout_s
            ctx.send("deal.deadlines", event.followed_by("DEADLINE", ends_at=ends_at), key=event.deal_id)

    @app.consumer("notifications.outbox", group="cg-notification-sender", retry="notification")
    def notification_sender(notification: Notification) -> None:
        bot.write(notification.chat, f"News about deal {notification.deal_id}")  # twice is a nuisance, never is worse
        books.note("cg-notification-sender", notification, "sent")

    @app.consumer("deal.deadlines", group="cg-deadline-handler")
    def deadline_handler(deadline: Deadline) -> None:
        books.schedule("cg-deadline-handler", deadline)

    @app.consumer("reconciliation.triggers", group="cg-reconciliation", retry="none")
    def reconciliation(trigger: ReconciliationTrigger) -> None:
        books.note("cg-reconciliation", trigger, "reconciled")  # if it fails, the schedule triggers it again


def _add_escrow(app: App, books: Books) -> None:
    @app.consumer("escrow.commands", group="cg-deposit-watcher", retry="financial")
    def deposit_watcher(command: EscrowCommand, ctx: Context) -> None:
        if command.kind == "WATCH_DEPOSIT":
            books.note("cg-deposit-watcher", command, "watched")
            ctx.send("escrow.confirmations", command.followed_by("DEPOSIT_CONFIRMED"), key=command.deal_id)

    @app.consumer("escrow.commands", group="cg-payout-executor", retry="financial", rules=BUSINESS)
    def payout_executor(command: EscrowCommand, ctx: Context) -> None:
        if command.kind in ("PAYOUT", "REFUND"):
            (books.pay if command.kind == "PAYOUT" else books.refund)("cg-payout-executor", command)
            ctx.send("escrow.confirmations", command.followed_by(f"{command.kind}_CONFIRMED"), key=command.deal_id)

    @app.consumer("escrow.confirmations", group="cg-deposit-handler", retry="financial")
    def deposit_handler(confirmation: EscrowConfirmation) -> None:
        if confirmation.kind == "DEPOSIT_CONFIRMED":
            books.fund("cg-deposit-handler", confirmation)
        else:
            books.note("cg-deposit-handler", confirmation, "settled")


def _add_delivery(app: App, books: Books) -> None:
    @app.consumer("delivery.commands", group="cg-auto-publisher")
    def auto_publisher(command: DeliveryCommand, ctx: Context) -> None:
        if command.kind == "PUBLISH":
            books.note("cg-auto-publisher", command, "published")
            ctx.send("delivery.results", command.followed_by("PUBLISHED"), key=command.deal_id)

    @app.consumer("delivery.commands", group="cg-delivery-verifier")
    def delivery_verifier(command: DeliveryCommand, ctx: Context) -> None:
        if command.kind == "VERIFY":
            books.note("cg-delivery-verifier", command, "verified")
            ctx.send("delivery.results", command.followed_by("VERIFIED"), key=command.deal_id)

    @app.consumer("delivery.results", group="cg-delivery-handler")
    def delivery_handler(result: DeliveryResult) -> None:
        books.note("cg-delivery-handler", result, result.kind)


app = make_app(PostgresBooks(database), telegram, lifespan)

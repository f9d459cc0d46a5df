"""The inboxes of one start of an app: their pools, and what runs in the background for them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from keepfast.app.options import Consumer
from keepfast.core.ports import Sink
from keepfast.engine.inbox import ConsumerInbox, consumer_inbox
from keepfast.engine.middleware import LATER, resources_in, takes_transaction
from keepfast.engine.workers import HandlerLoop
from keepfast.inbox.postgres import PostgresInbox, PostgresPools
from keepfast.inbox.relay import OutboxStatus
from keepfast.inbox.service import InboxService
from keepfast.settings import Settings
from keepfast.telemetry.logs import get_logger

log = get_logger("keepfast.inbox")

STOP_S = 2.0
"""For what the relay has on its way."""
OPEN_S, CLOSE_S = 40.0, 2.0


def in_transaction(consumer: Consumer, stage: ConsumerInbox) -> bool:
    """Whether what the handler does can be part of the inbox's transaction: its own writes, or what it sends by the
    outbox.
    """
    return takes_transaction(consumer.shape, stage) or (stage.outbox and consumer.shape.context is not None)


def has_outbox(consumer: Consumer) -> bool:
    return bool(getattr(consumer.inbox, "outbox", False))


class AppInboxes:
    """Owner: one start of an app, or a test harness. `of` for each consumer, then `open`, `start`, and `close`."""

    def __init__(self, settings: Settings, events: HandlerLoop | None = None) -> None:
        self._app = settings.app.name
        self._events = events
        self._pools = PostgresPools(settings.postgres, self._app, self._wake)
        self._bound: dict[tuple[int, bool], Any] = {}
        self._beside: dict[str, str] = {}  # consumers that do not take the transaction, and its type
        self._loop: asyncio.AbstractEventLoop | None = None
        self.service: InboxService | None = None

    def of(self, consumer: Consumer, group: str, resources: Any) -> ConsumerInbox | None:
        """The inbox of a consumer; before there are resources (LATER), of the same shape. Raises ConfigError."""
        inbox: Any = consumer.inbox
        is_async = consumer.shape.is_async
        if inbox is None:
            return None
        if isinstance(inbox, PostgresInbox):
            if resources is LATER:
                inbox = inbox.unbound(is_async=is_async)
            else:
                inbox = self._bind(inbox, resources, is_async=is_async)
        elif resources is not LATER:
            self._bound[id(inbox), is_async] = inbox
        where = f"handler {consumer.shape.name}()"
        stage = consumer_inbox(inbox, group, handler_is_async=is_async, where=where)
        if not in_transaction(consumer, stage):
            self._beside[consumer.name] = stage.inbox.transaction.__name__
        return stage

    def _bind(self, inbox: PostgresInbox, resources: Any, *, is_async: bool) -> Any:
        at = id(inbox), is_async
        if at not in self._bound:
            candidates = [one.value for one in resources_in(resources)]
            self._bound[at] = inbox.bind(
                resources=resources, candidates=candidates, pools=self._pools, is_async=is_async
            )
        return self._bound[at]

    @property
    def inboxes(self) -> Sequence[Any]:
        return list(self._bound.values())

    @property
    def status(self) -> OutboxStatus | None:
        return None if self.service is None else self.service.status

    def open(self) -> None:
        """Open our own pools, and make tables that are missing. Any thread but the event loop's. Raises StartError."""
        if not self._bound:
            return
        for consumer, transaction in self._beside.items():
            log.warning(
                "inbox_without_transaction",
                consumer=consumer,
                consequence="what the handler writes is not in the transaction that notes the record: after a crash"
                " between the two it happens twice, or not at all",
                advice=f"take the transaction as a parameter: tx: {transaction}",
            )
        if self._events is not None and self._pools.needs_event_loop:
            self._loop = self._events.start(lambda _: None)
            asyncio.run_coroutine_threadsafe(self._pools.open_async(), self._loop).result(OPEN_S)
        self._pools.open()
        self._prepare()

    async def open_here(self) -> None:
        """As `open`, on the event loop of the handlers."""
        if not self._bound:
            return
        self._loop = asyncio.get_running_loop()
        await self._pools.open_async()
        await asyncio.to_thread(self._pools.open)
        await asyncio.to_thread(self._prepare)

    def _prepare(self) -> None:
        self.service = InboxService(self.inboxes, self._app, lambda: self._loop)
        self.service.prepare()

    def start(self, sink: Sink) -> None:
        """Begin what runs in the background; the outbox is sent with `sink`."""
        if self.service is not None:
            if self._loop is None and self._events is not None and any(map(_is_async, self.inboxes)):
                self._loop = self._events.start(lambda _: None)
            self.service.start(sink)

    def stop(self, timeout_s: float = STOP_S) -> None:
        """End what runs in the background."""
        if self.service is not None:
            self.service.stop(timeout_s)

    def close(self) -> None:
        """After `stop`. Any thread but the event loop's; the loop still runs."""
        loop = self._loop
        if loop is not None and self._pools.needs_event_loop and not loop.is_closed():
            closing = asyncio.run_coroutine_threadsafe(self._pools.close_async(), loop)
            try:
                closing.result(CLOSE_S)
            except TimeoutError:
                closing.cancel()
        self._pools.close()

    async def close_here(self) -> None:
        """As `close`, on the event loop."""
        await self._pools.close_async()
        await asyncio.to_thread(self._pools.close)

    def _wake(self) -> None:
        if self.service is not None:
            self.service.wake()


def _is_async(inbox: Any) -> bool:
    return asyncio.iscoroutinefunction(inbox.prune)

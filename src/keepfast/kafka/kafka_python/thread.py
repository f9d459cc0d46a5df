"""A thread that polls a kafka-python consumer on request, and puts the results into an inbox.

Why a thread: the library calls a rebalance listener on its own I/O thread while the caller of `poll` is blocked, and a
listener that blocks stops the heartbeats and every answer to a commit. So the listener here only posts a message and
awaits a future; the owner, which waits at this thread's inbox and not in `poll`, does the work on its own thread and
then resolves the future.

Also, the library does not work with short polls: a join that completes between two polls is not noticed but started
again (measured; kafka-python 3.0.12), so short polls never complete it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, Literal

from kafka.consumer.subscription_state import (
    AsyncConsumerRebalanceListener,  # pyright: ignore[reportAttributeAccessIssue] - of version 3
)
from kafka.future import Future
from kafka.structs import MemberState  # pyright: ignore[reportAttributeAccessIssue] - of version 3

from keepfast.core.errors import SourceError
from keepfast.kafka.commits import CommitRequest
from keepfast.kafka.kafka_python.internals import positions_of, sockets_of, wake

POLL_S = 0.2
"""The longest wait of a poll, and so the longest time that a seek or `close` waits for it."""

Callback = Literal["assigned", "revoked", "lost"]


@dataclass(frozen=True, slots=True)
class Fetched:
    """A poll is over. `records` by the library's partitions; or `error`, what it raised. `positions`: if there were no
    records, the next offset of each partition, behind markers of transactions, too.
    """

    records: Mapping[Any, list[Any]]
    positions: Mapping[Any, int] = field(default_factory=dict)
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class CallbackTurn:
    """A rebalance callback, to be served by the owner, which then calls `done`."""

    what: Callback
    places: tuple[Any, ...]
    done: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer to a commit request; without an error it was stored."""

    request: CommitRequest
    error: SourceError | None


@dataclass(frozen=True, slots=True)
class ThreadClosed:
    """The consumer has left its group and released its resources, or failed to."""

    error: BaseException | None = None


ThreadMessage = Fetched | CallbackTurn | Answered | ThreadClosed


class ClientThread:
    """Owner: its creator; one job at a time. A daemon thread: a poll that hangs does not keep the process alive."""

    def __init__(self, client: Any, *, name: str) -> None:
        self.inbox: SimpleQueue[ThreadMessage] = SimpleQueue()
        self.listener = _Listener(self.inbox, lambda: wake(client))
        self.idle = True
        self._client = client
        self._closing = False
        self._jobs: SimpleQueue[Callable[[], ThreadMessage] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def poll(self, limit: int) -> None:
        """Only when idle. Ends with `Fetched`, after POLL_S or when a join is complete; callbacks may come before."""
        self.idle = False
        self._jobs.put(lambda: self._poll(limit))

    def close(self, timeout_s: float) -> None:
        """Close the consumer, after the poll under way. Ends with `ThreadClosed`; the thread ends too."""
        self._closing = True
        self._jobs.put(lambda: self._close(timeout_s))
        self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            self.inbox.put(job())

    def _poll(self, limit: int) -> ThreadMessage:
        try:
            while True:
                records = self._client.poll(timeout_ms=int(POLL_S * 1000), max_records=limit)
                joining = self._client.group_metadata().state == MemberState.REBALANCING
                if records or not joining or self._closing:
                    return Fetched(records, {} if records else positions_of(self._client))
        except BaseException as error:  # noqa: BLE001 - the thread's edge: the owner gets it
            return Fetched({}, error=error)

    def _close(self, timeout_s: float) -> ThreadMessage:
        sockets = sockets_of(self._client)
        try:
            self._client.close(autocommit=False, timeout_ms=int(timeout_s * 1000))
            for one in sockets:
                one.close()  # the library forgets those that it was just writing to
        except BaseException as error:  # noqa: BLE001 - the thread's edge: the owner gets it
            return ThreadClosed(error)
        return ThreadClosed()


class _Listener(AsyncConsumerRebalanceListener):  # type: ignore[misc]  # the library brings no types
    """Runs on the library's I/O thread; never raises, never blocks."""

    def __init__(self, inbox: SimpleQueue[ThreadMessage], wake: Callable[[], None]) -> None:
        self._inbox = inbox
        self._wake = wake

    async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        await self._hand_over("assigned", assigned)

    async def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        await self._hand_over("revoked", revoked)

    async def on_partitions_lost(self, lost: Iterable[Any]) -> None:
        await self._hand_over("lost", lost)

    async def _hand_over(self, what: Callback, places: Iterable[Any]) -> None:
        over: Any = Future()

        def done() -> None:
            over.success(None)
            self._wake()  # the I/O thread may be asleep: resolving the future does not wake it

        self._inbox.put(CallbackTurn(what, tuple(sorted(places)), done))
        await over

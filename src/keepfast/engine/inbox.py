"""The transaction around a handler whose consumer has an inbox: identity first, what it sent last, COMMIT.

It begins after all providers and ends before they do. A record that was processed before is not handed over: it is
finished, and `run.skipped` has its position. Of a batch, the handler gets the others, in one transaction.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeVar

from keepfast.core.errors import Abandoned, ConfigError
from keepfast.core.inbox import Inbox, OutboxInbox, RecordIdentity, key_origin, origin_of
from keepfast.core.records import Message, Outgoing
from keepfast.core.retry_topics import original
from keepfast.core.runs import Run, SelectedRecords
from keepfast.core.serial_gate import SerialGate
from keepfast.engine.context import BatchContext, BufferedSends, RawRecord

KeyOf = Callable[[RawRecord], str | bytes]
T = TypeVar("T")

SKIPPED: Final = object()
"""In place of a transaction: all records of the call were processed before."""
_METHODS: Final = ("begin", "commit", "rollback", "prune")


@dataclass(frozen=True, slots=True)
class ConsumerInbox:
    """The inbox of one consumer. `outbox`: its transaction also takes what the handler sends. `gate`: of a database
    that has one transaction at a time; calls begin when it is their turn. `abort`: see `core.inbox.Inbox`.
    """

    inbox: Inbox | OutboxInbox
    group: str
    is_async: bool
    key: KeyOf | None = None
    outbox: bool = False
    gate: SerialGate | None = None
    abort: Callable[[Any], None] | None = None

    def identities(self, selected: Sequence[Message], run: Run) -> list[RecordIdentity]:
        """Of each record of the call."""
        group, key = self.group, self.key
        if key is not None:
            return [RecordIdentity(group, *key_origin(_key(key, message))) for message in selected]
        ids = {part.partition.place: part.partition.topic_id for part in run.parts}
        return [
            RecordIdentity(group, *origin_of(one, ids.get((one.topic(), one.partition()), "")))  # type: ignore[call-overload] # a TopicPartition is such a pair
            for one in selected
        ]


def consumer_inbox(inbox: Any, group: str, *, handler_is_async: bool, where: str) -> ConsumerInbox:
    """Of an inbox that is ready to be used. Raises ConfigError for what is none, or none for this handler."""
    missing = [name for name in _METHODS if not callable(getattr(inbox, name, None))]
    if missing or not isinstance(getattr(inbox, "transaction", None), type):
        lacks = ", ".join(missing) or "the attribute transaction, a type"
        raise ConfigError(f"{where}: inbox={type(inbox).__name__} is no Inbox: it lacks {lacks}")
    is_async = inspect.iscoroutinefunction(inbox.begin)
    if is_async and not handler_is_async:
        raise ConfigError(f"{where}: the methods of inbox={type(inbox).__name__} are async; make the handler async def")
    if handler_is_async and not is_async:
        raise ConfigError(
            f"{where}: the methods of inbox={type(inbox).__name__} would block the event loop; make the handler a plain"
            " def, or use an inbox with async methods, such as PostgresInbox"
        )
    outbox = bool(getattr(inbox, "outbox", False)) and hasattr(inbox, "publish")
    gate, abort = getattr(inbox, "serial_gate", None), getattr(inbox, "abort", None)
    return ConsumerInbox(
        inbox,
        group,
        is_async,
        getattr(inbox, "key", None),
        outbox,
        gate if isinstance(gate, SerialGate) and not is_async else None,
        abort if callable(abort) and not is_async else None,
    )


def _key(key: KeyOf, message: Message) -> str | bytes:
    found = key(RawRecord(original(message)))
    if not found or not isinstance(found, str | bytes):
        raise TypeError(
            f"key=… of the inbox returned {found!r} for {message.topic()}[{message.partition()}] offset"
            f" {message.offset()}; it must return the event's key, as str or bytes"
        )
    return found


class CallTransaction:
    """The transaction of one call. `values` of the call are changed for records that are skipped."""

    __slots__ = ("_ending", "_identities", "_is_over", "_new", "_run", "_selected", "_stage", "_whole")

    def __init__(self, stage: ConsumerInbox, subject: Any, run: Run) -> None:
        self._stage = stage
        self._run = run
        self._whole = subject if isinstance(subject, SelectedRecords) else None
        self._selected = [run.messages[run.current]] if self._whole is None else self._whole.messages
        self._identities = stage.identities(self._selected, run)
        self._new: Sequence[int] = ()
        self._ending = threading.Lock()  # guards the next field
        self._is_over = False

    @property
    def asked(self) -> list[RecordIdentity]:
        """Each of them once, in an order that is the same for all processes: two that have records in common wait for
        each other, and must not deadlock.
        """
        return self._identities if len(self._identities) == 1 else sorted(set(self._identities))

    def may_abort(self, tx: Any) -> None:
        """From here on, if the call is abandoned, another thread rolls the transaction back."""
        abort = self._stage.abort
        if abort is not None:
            self._run.abort = lambda: self._abort(abort, tx)

    def begun(self, new: Any) -> bool:
        """With these identities new, the others are skipped; of equal ones the first counts. Whether any is new.

        Raises Abandoned if the call timed out while it waited for its transaction.
        """
        self._require_counted()
        left = set(new)
        found: list[int] = []
        for position, identity in enumerate(self._identities):
            if identity in left:
                left.discard(identity)
                found.append(position)
        self._new = found
        if self.narrows:
            known = frozenset(found)
            self._run.skip(position for position in range(len(self._selected)) if position not in known)
        return bool(found)

    def narrowed(self, values: list[T]) -> list[T]:
        """Those of the records that are new."""
        return values if len(self._new) == len(values) else [values[position] for position in self._new]

    @property
    def narrows(self) -> bool:
        return len(self._new) < len(self._selected)

    def context(self, context: Any) -> Any:
        """For the handler, of those records of a batch that are new."""
        return context.only(self._new) if isinstance(context, BatchContext) else context

    def sent(self) -> list[Outgoing]:
        """What the handler has sent for the transaction. Raises Abandoned if the call does not count any more."""
        sends = self._run.sends
        sent = sends.take() if isinstance(sends, BufferedSends) else []
        self._require_counted()
        return [outgoing for _, outgoing in sent]

    def end(self) -> None:
        """From here on its worker alone has the transaction. Raises Abandoned if it was aborted before."""
        if not self.close():
            self._refuse()

    def close(self) -> bool:
        """As `end`: False if it was aborted before."""
        if self._run.abort is None:
            return True
        with self._ending:
            aborted, self._is_over = self._is_over, True
        self._run.abort = None
        return not aborted

    def _abort(self, abort: Callable[[Any], None], tx: Any) -> None:
        """On another thread, once the call is abandoned."""
        with self._ending:
            if not self._is_over:
                self._is_over = True
                abort(tx)

    def _require_counted(self) -> None:
        if self._run.abandoned:
            self._refuse()

    @staticmethod
    def _refuse() -> NoReturn:
        raise Abandoned("the record has timed out, so nothing that was done for it counts; roll it back")


def plain_transaction(
    stage: ConsumerInbox, subject: Any, run: Run, enter: Callable[[CallTransaction], None]
) -> Iterator[Any]:
    """A step of a call, as a generator: it yields the transaction, or SKIPPED, and commits when it is resumed. `enter`
    is called before it yields, if some records are skipped.
    """
    inbox: Any = stage.inbox
    call = CallTransaction(stage, subject, run)
    run.waits = stage.gate is not None  # an abandoned handler, or another process, may have its transaction still
    try:
        tx, new = inbox.begin(call.asked)
    finally:
        run.waits = False
    call.may_abort(tx)
    try:
        any_new = call.begun(new)
        if any_new and call.narrows:
            enter(call)
        yield tx if any_new else SKIPPED
        outgoing = call.sent()
        if outgoing:
            inbox.publish(tx, outgoing)
        call.end()
    except BaseException:
        call.close()
        inbox.rollback(tx)
        raise
    inbox.commit(tx) if any_new else inbox.rollback(tx)


async def async_transaction(
    stage: ConsumerInbox, subject: Any, run: Run, enter: Callable[[CallTransaction], None]
) -> AsyncIterator[Any]:
    """As `plain_transaction`, for an inbox whose methods are coroutines."""
    inbox: Any = stage.inbox
    call = CallTransaction(stage, subject, run)
    tx, new = await inbox.begin(call.asked)
    try:
        any_new = call.begun(new)
        if any_new and call.narrows:
            enter(call)
        yield tx if any_new else SKIPPED
        outgoing = call.sent()
        if outgoing:
            await inbox.publish(tx, outgoing)
    except BaseException:
        await inbox.rollback(tx)
        raise
    await (inbox.commit(tx) if any_new else inbox.rollback(tx))

"""The transaction of an inbox around a handler: identity first, what was sent last, COMMIT; records that were processed
before are not handed over.

Annotations are evaluated here when a function is defined, because they name what is local to a test.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime
from typing import Annotated, Any

import pytest

from keepfast import BatchContext, BatchError, Context, Provide, RawRecord
from keepfast.core.batches import Batch
from keepfast.core.errors import Abandoned, ConfigError, Fault, SinkError
from keepfast.core.inbox import RecordIdentity, RecordOrigin
from keepfast.core.records import Outgoing, TopicPartition
from keepfast.core.runs import Partition, Run
from keepfast.decode.signature import inspect_handler, inspect_provider
from keepfast.engine.calls import Filter, Handler
from keepfast.engine.inbox import consumer_inbox
from keepfast.engine.middleware import Around
from keepfast.telemetry.metrics import Tally
from tests.support.fakes import FakeSink, refuse
from tests.support.messages import message


class Tx:
    """The transaction of a handler."""


class MemoryInbox:
    """Implements `core.inbox.OutboxInbox`; `steps` is what happened."""

    transaction = Tx
    key: Any = None

    def __init__(self, *, outbox: bool = False, steps: list[str] | None = None) -> None:
        self.outbox = outbox
        self.done: set[RecordIdentity] = set()
        self.rows: list[Outgoing] = []
        self.steps: list[str] = [] if steps is None else steps
        self.commit_error: Exception | None = None
        self._open: dict[Tx, tuple[set[RecordIdentity], list[Outgoing]]] = {}

    def begin(self, identities: Sequence[RecordIdentity]) -> tuple[Tx, Collection[RecordIdentity]]:
        tx, new = Tx(), [one for one in identities if one not in self.done]
        self._open[tx] = set(new), []
        self.steps.append("begin")
        return tx, new

    def publish(self, tx: Tx, outgoing: Sequence[Outgoing]) -> None:
        self.steps.append("publish")
        self._open[tx][1].extend(outgoing)

    def commit(self, tx: Tx) -> None:
        new, rows = self._open.pop(tx)
        self.steps.append("commit")
        if self.commit_error is not None:
            raise self.commit_error
        self.done |= new
        self.rows += rows

    def rollback(self, tx: Tx) -> None:
        del self._open[tx]
        self.steps.append("rollback")

    def prune(self, before: datetime) -> int:
        return 0


class AsyncMemoryInbox:
    """The same with coroutines."""

    transaction = Tx
    key: Any = None

    def __init__(self, inner: MemoryInbox) -> None:
        self.inner = inner
        self.outbox = inner.outbox

    async def begin(self, identities: Sequence[RecordIdentity]) -> Any:
        return self.inner.begin(identities)

    async def publish(self, tx: Tx, outgoing: Sequence[Outgoing]) -> None:
        self.inner.publish(tx, outgoing)

    async def commit(self, tx: Tx) -> None:
        self.inner.commit(tx)

    async def rollback(self, tx: Tx) -> None:
        self.inner.rollback(tx)

    async def prune(self, before: datetime) -> int:
        return self.inner.prune(before)


def handler_of(
    function: Callable[..., Any], inbox: Any, *middleware: Callable[..., Any], passes: Filter | None = None
) -> Handler:
    shape = inspect_handler(function, context_type=Context, batch_context_type=BatchContext)
    if shape.is_async and isinstance(inbox, MemoryInbox):
        inbox = AsyncMemoryInbox(inbox)
    stage = consumer_inbox(inbox, "g", handler_is_async=shape.is_async, where=f"handler {shape.name}()")
    around = Around([inspect_provider(one, "middleware") for one in middleware], None, {}, stage)
    return Handler(function, shape, order="none", tombstones="dead-letter", group="g", around=around, passes=passes)


def partition(topic_id: str = "id", number: int = 0) -> Partition:
    return Partition(TopicPartition("orders", number), epoch=1, start=0, topic_id=topic_id)


def run_of(*values: bytes, topic_id: str = "id") -> Run:
    messages = [message(offset, b"k", value=value) for offset, value in enumerate(values)]
    return Run(partition(topic_id), messages, range(len(messages)), {})


def batch_of(*values: bytes) -> Batch:
    batch = Batch([run_of(*values)])
    batch.muster(0.0)
    return batch


def walked(handler: Handler, run: Run, sink: FakeSink | None = None) -> Run:
    sink = sink or FakeSink()
    if handler.shape.is_async:
        asyncio.run(handler.call_async(sink).walk(run, Tally(), lambda: 0.0))
    else:
        handler.call(sink).walk(run, Tally(), lambda: 0.0)
    return run


def identity(offset: int, source: str = "id") -> RecordIdentity:
    return RecordIdentity("g", source, 0, offset)


def test_the_identity_is_first_the_events_are_last_and_everything_is_inside_providers() -> None:
    inbox = MemoryInbox(outbox=True)

    def middleware() -> Iterator[None]:
        inbox.steps.append("middleware in")
        yield
        inbox.steps.append("middleware out")

    def provider() -> Iterator[str]:
        inbox.steps.append("provider in")
        yield "given"
        inbox.steps.append("provider out")

    def handle(value: bytes, tx: Tx, ctx: Context, given: Annotated[str, Provide(provider)]) -> None:
        ctx.send("out", b"1")
        inbox.steps.append("handler")

    run = walked(handler_of(handle, inbox, middleware), run_of(b"1"))
    assert run.done == 1
    assert inbox.steps == [
        *("middleware in", "provider in", "begin", "handler", "publish", "commit", "provider out", "middleware out")
    ]
    assert inbox.done == {identity(0)}
    assert [row.topic for row in inbox.rows] == ["out"]


def kinds(function: Callable[[bytes, Tx, Context], None]) -> list[Any]:
    def handle(value: bytes, tx: Tx, ctx: Context) -> None:
        function(value, tx, ctx)

    async def handle_async(value: bytes, tx: Tx, ctx: Context) -> None:
        await asyncio.sleep(0)
        function(value, tx, ctx)

    return [handle, handle_async]


@pytest.mark.parametrize("which", [0, 1], ids=["def", "async def"])
def test_a_record_that_was_processed_is_skipped_counted_and_finished(which: int) -> None:
    seen: list[bytes] = []
    inbox = MemoryInbox()
    inbox.done.add(identity(1))
    handler = handler_of(kinds(lambda value, tx, ctx: seen.append(value))[which], inbox)
    run = walked(handler, run_of(b"0", b"1", b"2"))
    assert seen == [b"0", b"2"]
    assert (run.done, list(run.skipped), run.skipped_count) == (3, [1], 1)
    assert inbox.done == {identity(offset) for offset in range(3)}


@pytest.mark.parametrize("which", [0, 1], ids=["def", "async def"])
def test_a_failed_attempt_is_rolled_back_and_what_it_sent_is_dropped(which: int) -> None:
    def fail(value: bytes, tx: Tx, ctx: Context) -> None:
        ctx.send("out", b"1")
        raise LookupError

    inbox = MemoryInbox(outbox=True)
    run = walked(handler_of(kinds(fail)[which], inbox), run_of(b"0"))
    assert isinstance(run.failure, LookupError)
    assert (inbox.steps, inbox.done, inbox.rows) == (["begin", "rollback"], set(), [])


@pytest.mark.parametrize("which", [0, 1], ids=["def", "async def"])
def test_a_commit_that_fails_fails_the_attempt(which: int) -> None:
    inbox = MemoryInbox()
    inbox.commit_error = ConnectionError("lost")
    run = walked(handler_of(kinds(lambda value, tx, ctx: None)[which], inbox), run_of(b"0"))
    assert (run.done, run.failure) == (0, inbox.commit_error)


def test_without_an_outbox_what_was_sent_is_acknowledged_before_the_commit() -> None:
    inbox, sink = MemoryInbox(), FakeSink(refuse(Fault.TOO_LARGE))

    def handle(value: bytes, tx: Tx, ctx: Context) -> None:
        ctx.send("out", b"1")

    run = walked(handler_of(handle, inbox), run_of(b"0"), sink)
    assert isinstance(run.failure, SinkError)
    assert inbox.steps == ["begin", "rollback"]


def test_an_abandoned_call_commits_nothing() -> None:
    inbox = MemoryInbox(outbox=True)

    def handle(value: bytes, tx: Tx) -> None:
        run.abandoned = True

    run = run_of(b"0")
    walked(handler_of(handle, inbox), run)
    assert inbox.steps == ["begin", "rollback"]


@pytest.mark.parametrize("which", [0, 1], ids=["def", "async def"])
def test_a_call_that_timed_out_while_it_waited_for_its_transaction_calls_nothing(which: int) -> None:
    class Slow(MemoryInbox):
        def begin(self, identities: Sequence[RecordIdentity]) -> tuple[Any, Collection[RecordIdentity]]:
            run.abandoned = True
            return super().begin(identities)

    called = []
    inbox, run = Slow(), run_of(b"0")
    walked(handler_of(kinds(lambda value, tx, ctx: called.append(value))[which], inbox), run)
    assert (inbox.steps, called, run.done) == (["begin", "rollback"], [], 0)


class AbortedInbox(MemoryInbox):
    """Its transactions can be ended from another thread."""

    def abort(self, tx: Tx) -> None:
        self.steps.append("abort")


def test_the_transaction_of_an_abandoned_call_is_aborted_and_never_committed() -> None:
    inbox = AbortedInbox()

    def handle(value: bytes, tx: Tx) -> None:
        assert run.abort is not None
        run.abort()  # and `abandoned` is looked at before that is set

    run = run_of(b"one")
    assert isinstance(walked(handler_of(handle, inbox), run).failure, Abandoned)
    assert inbox.steps == ["begin", "abort", "rollback"]


@pytest.mark.parametrize("fails", [False, True])
def test_a_call_whose_handler_has_ended_has_its_transaction_for_itself(fails: bool) -> None:
    inbox, aborts = AbortedInbox(), list[Callable[[], None]]()

    def handle(value: bytes, tx: Tx) -> None:
        assert run.abort is not None
        aborts.append(run.abort)
        if fails:
            raise ValueError

    run = run_of(b"one")
    walked(handler_of(handle, inbox), run)
    assert run.abort is None
    [abort] = aborts
    abort()  # by a thread that was late
    assert inbox.steps == ["begin", "rollback" if fails else "commit"]


@pytest.mark.parametrize("is_async", [False, True], ids=["def", "async def"])
def test_a_batch_is_one_transaction_and_the_handler_gets_what_is_new(is_async: bool) -> None:
    inbox, got = MemoryInbox(), []
    inbox.done |= {identity(0), identity(2)}

    def handle(values: list[bytes], tx: Tx, ctx: BatchContext) -> None:
        got.append((values, [one.offset for one in ctx]))

    async def handle_async(values: list[bytes], tx: Tx, ctx: BatchContext) -> None:
        handle(values, tx, ctx)

    batch = batch_of(b"0", b"1", b"2", b"3")
    walked(handler_of(handle_async if is_async else handle, inbox), batch)
    assert got == [([b"1", b"3"], [1, 3])]
    assert (batch.done, list(batch.skipped)) == (4, [0, 2])
    assert inbox.steps == ["begin", "commit"]


def test_a_batch_of_which_all_were_processed_calls_nothing() -> None:
    inbox = MemoryInbox()
    inbox.done |= {identity(0), identity(1)}

    def handle(values: list[bytes], tx: Tx) -> None:
        raise AssertionError

    batch = batch_of(b"0", b"1")
    walked(handler_of(handle, inbox), batch)
    assert (batch.done, batch.failure, inbox.steps) == (2, None, ["begin", "rollback"])


def test_an_index_that_a_batch_handler_names_is_that_of_the_list_it_got() -> None:
    inbox = MemoryInbox()
    inbox.done.add(identity(0))

    def handle(values: list[bytes], tx: Tx) -> None:
        raise BatchError({1: ValueError(values[1])})

    batch = batch_of(b"0", b"1", b"2")
    walked(handler_of(handle, inbox), batch)
    assert batch.given == [1, 2], "so that position 1 means the record at offset 2"


def test_duplicates_inside_a_batch_are_handed_over_once() -> None:
    inbox, got = MemoryInbox(), []
    inbox.key = lambda record: record.value

    def handle(values: list[bytes], tx: Tx) -> None:
        got.extend(values)

    batch = batch_of(b"a", b"b", b"a")
    walked(handler_of(handle, inbox), batch)
    assert got == [b"a", b"b"]
    assert list(batch.skipped) == [2]


def test_a_business_key_identifies_the_event_in_every_topic() -> None:
    inbox, seen = MemoryInbox(), []

    def key(record: RawRecord) -> str:
        return (record.value or b"").decode()

    inbox.key = key

    def handle(value: bytes, tx: Tx) -> None:
        seen.append(value)

    handler = handler_of(handle, inbox)
    walked(handler, run_of(b"event-1", topic_id="a"))
    walked(handler, run_of(b"event-1", topic_id="b"))
    assert seen == [b"event-1"]


@pytest.mark.parametrize("bad", [None, "", 5])
def test_a_business_key_that_is_none_fails_the_attempt(bad: Any) -> None:
    inbox = MemoryInbox()
    inbox.key = lambda record: bad

    def handle(value: bytes, tx: Tx) -> None:
        raise AssertionError

    run = walked(handler_of(handle, inbox), run_of(b"1"))
    assert isinstance(run.failure, TypeError)
    assert inbox.steps == []


def test_a_topic_that_was_recreated_has_other_records() -> None:
    inbox, seen = MemoryInbox(), []

    def handle(value: bytes, tx: Tx) -> None:
        seen.append(value)

    handler = handler_of(handle, inbox)
    walked(handler, run_of(b"old", topic_id="one"))
    walked(handler, run_of(b"new", topic_id="two"))
    assert seen == [b"old", b"new"]


def test_a_replayed_record_is_skipped_and_a_derived_one_is_not() -> None:
    inbox, seen = MemoryInbox(), []

    def handle(value: bytes, tx: Tx) -> None:
        seen.append(value)

    handler = handler_of(handle, inbox)
    walked(handler, run_of(b"v"))
    header = RecordOrigin("id", 0, 0).header("orders", b"v")
    again = message(1, b"k", value=b"v", headers=(header,))
    derived = message(2, b"k", value=b"derived", headers=(header,))
    run = Run(partition(), [again, derived], range(2), {})
    walked(handler, run)
    assert seen == [b"v", b"derived"]
    assert list(run.skipped) == [0]


def test_the_transaction_is_known_by_its_type_and_not_for_providers() -> None:
    def provider(tx: Tx) -> str:
        return "x"

    def handle(value: bytes, given: Annotated[str, Provide(provider)]) -> None: ...

    with pytest.raises(ConfigError, match="the transaction begins after middleware and providers"):
        handler_of(handle, MemoryInbox())


def test_what_cannot_be_had_is_refused_with_what_can() -> None:
    def handle(value: bytes, other: dict[str, str]) -> None: ...

    with pytest.raises(ConfigError, match="Tx \\(the inbox's transaction\\)"):
        handler_of(handle, MemoryInbox())


@pytest.mark.parametrize(
    ("inbox", "text"),
    [(object(), "it lacks begin"), (AsyncMemoryInbox(MemoryInbox()), "make the handler async def")],
)
def test_what_is_no_inbox_for_the_handler_is_refused(inbox: Any, text: str) -> None:
    def handle(value: bytes, tx: Tx) -> None: ...

    with pytest.raises(ConfigError, match=text):
        consumer_inbox(inbox, "g", handler_is_async=False, where="handler handle()")


def test_an_inbox_that_blocks_is_refused_for_coroutines() -> None:
    with pytest.raises(ConfigError, match="would block the event loop"):
        consumer_inbox(MemoryInbox(), "g", handler_is_async=True, where="handler handle()")

"""`dlq_publisher` in place of letters of ours: what it is called with, and what its word is worth."""

from __future__ import annotations

import asyncio
import json
import threading
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any

import pytest
from kafka.producer.future import FutureProduceResult, FutureRecordMetadata

from keepfast.app.sends import SendFuture
from keepfast.core.errors import DecodeError, Fault, SinkError
from keepfast.core.records import Outgoing, Receipt
from keepfast.core.runs import Attempt, FailedRecord, Partition
from keepfast.core.verdicts import DeadLetter
from keepfast.runner.hooks import Hooks, MessageRefused
from keepfast.runner.publishing import HookPublisher, NoSink
from tests.runner.test_hooks import PLACE, hooks, record, run_of
from tests.support.waiting import DEADLINE_S

Outcome = Receipt | SinkError
VERDICT = DeadLetter("because", "X")


def failed_record(value: bytes | None = b'{"n": 1}', failures: int = 1) -> FailedRecord:
    made = FailedRecord(Partition(PLACE, epoch=1, start=0), 0, record(value), (), 0.0)
    for _ in range(failures):
        made.note(Attempt(0.0, "ValueError"))
    return made


def publisher(publish: Any, made: Hooks | None = None) -> HookPublisher:
    return HookPublisher(publish, made or hooks(), NoSink(), group="g", handler="app:process")


def outcome_of(
    publish: Any, one: FailedRecord | None = None, error: BaseException | None = None, made: Hooks | None = None
) -> Outcome:
    reported: SimpleQueue[Outcome] = SimpleQueue()
    letters = publisher(publish, made)
    letters.send(letters.letter(one or failed_record(), error or ValueError("x"), VERDICT), reported.put)
    return reported.get(timeout=DEADLINE_S)


def future(word: object) -> Future[object]:
    made: Future[object] = Future()
    made.set_exception(word) if isinstance(word, Exception) else made.set_result(word)
    return made


def kafka_python_future(word: object) -> Any:
    made = FutureRecordMetadata(FutureProduceResult(("t", 0)), 0, 0, None, 0, 0, 0)
    made.failure(word) if isinstance(word, Exception) else made.success(word)
    return made


async def coroutine(word: object) -> object:
    await asyncio.sleep(0)
    if isinstance(word, Exception):
        raise word
    return word


AS_IT_IS = pytest.param(lambda word: word, id="as it is")
AWAITED = [future, kafka_python_future, coroutine, lambda word: SendFuture(future(word))]  # type: ignore[arg-type]


@pytest.mark.parametrize("made", [AS_IT_IS, *AWAITED])
@pytest.mark.parametrize("word", [None, True, 0, 1, "sent", [], {}])
def test_everything_but_false_means_published(made: Any, word: object) -> None:
    assert outcome_of(lambda message, error, retry_count: made(word)) == Receipt("dlq_publisher", 3, -1)


@pytest.mark.parametrize("made", [AS_IT_IS, *AWAITED])
def test_false_means_not_published(made: Any) -> None:
    outcome = outcome_of(lambda message, error, retry_count: made(False))
    assert isinstance(outcome, SinkError)
    assert (outcome.fault, outcome.code) == (Fault.RETRY, "NOT_PUBLISHED")


@pytest.mark.parametrize("made", AWAITED)
def test_a_future_that_fails_means_not_published(made: Any) -> None:
    outcome = outcome_of(lambda message, error, retry_count: made(ConnectionError("4111111111111111")))
    assert isinstance(outcome, SinkError)
    assert "ConnectionError" in str(outcome)
    assert "4111" not in str(outcome)


def test_the_future_of_another_event_loop_is_awaited_there() -> None:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def sent() -> asyncio.Future[bool]:
        made: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.05, made.set_result, False)
        return made

    waiting = asyncio.run_coroutine_threadsafe(sent(), loop).result(DEADLINE_S)
    assert isinstance(outcome_of(lambda message, error, retry_count: waiting), SinkError)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(DEADLINE_S)
    loop.close()


@pytest.mark.parametrize("error", [RuntimeError("4111111111111111"), SystemExit(1)])
def test_an_exception_means_not_published_and_is_not_quoted(error: BaseException) -> None:
    def publish(message: object, cause: object, retry_count: int) -> None:
        raise error

    outcome = outcome_of(publish)
    assert isinstance(outcome, SinkError)
    assert type(error).__name__ in str(outcome)
    assert "4111" not in str(outcome)


def test_it_gets_the_message_the_error_and_how_often_it_was_retried() -> None:
    calls: list[tuple[object, object, int]] = []

    def publish(message: object, error: object, retry_count: int = -1) -> None:
        calls.append((message, error, retry_count))

    final, cause = ValueError("final"), LookupError("unknown to all")
    refused = MessageRefused("message_factory failed")
    refused.__cause__ = cause
    outcome_of(publish, failed_record(failures=4), final)
    outcome_of(publish, failed_record(b"{"), refused)
    assert calls == [({"n": 1}, final, 3), (b"{", cause, 0)]


def test_it_gets_what_the_consumers_own_deserialiser_raised() -> None:
    """So that `type(error).__name__` in a letter is the user's type."""
    calls: list[tuple[object, str]] = []
    made = hooks(deserialise=lambda topic, headers, data: json.loads(data or b""))
    refused = failed_record(b"no JSON")
    with pytest.raises(DecodeError) as caught:
        made.data(refused.message)
    outcome_of(
        lambda message, error, retry_count: calls.append((message, type(error).__name__)), refused, caught.value, made
    )
    assert calls == [(b"no JSON", "JSONDecodeError")]


def test_it_runs_on_a_worker_and_never_beside_process_message() -> None:
    began, may_end, order = threading.Event(), threading.Event(), SimpleQueue[str]()

    def process(message: object) -> None:
        began.set()
        may_end.wait(DEADLINE_S)
        order.put("processed")

    def publish(message: object, error: object, retry_count: int) -> None:
        order.put(f"published on {threading.current_thread().name}")

    made = hooks(process)
    message = record()
    reported: SimpleQueue[Outcome] = SimpleQueue()
    worker = threading.Thread(target=made.call, args=(message, run_of(message)))
    worker.start()
    assert began.wait(DEADLINE_S)
    letters = publisher(publish, made)
    letters.send(letters.letter(failed_record(), ValueError(), VERDICT), reported.put)
    with pytest.raises(Empty):
        reported.get(timeout=0.2)
    may_end.set()
    reported.get(timeout=DEADLINE_S)
    worker.join(DEADLINE_S)
    assert [order.get(timeout=DEADLINE_S), order.get(timeout=DEADLINE_S)] == ["processed", "published on runner-dlq"]


def test_records_that_are_no_letters_go_the_usual_way() -> None:
    letters = publisher(lambda message, error, retry_count: True)
    reported: list[Outcome] = []
    letters.send(Outgoing("orders.retry", b"v"), reported.append)
    assert isinstance(reported[0], SinkError)

"""The user's functions on the way of a record: what their results mean, what is handed to them, what is logged."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from keepfast.classify.classification import classify
from keepfast.core.errors import ConfigError, DecodeError, Halt, Reject
from keepfast.core.events import RetryScheduled
from keepfast.core.records import Message, TopicPartition
from keepfast.core.runs import Partition, Run
from keepfast.engine.calls import RecordCall
from keepfast.runner import KafkaConsumerRunner, NonRetryableException, ProcessingFailed, RetryableException
from keepfast.runner.hooks import Hooks, MessageRefused
from keepfast.telemetry.metrics import Tally
from keepfast.testing.fakes.log import FakeMessage
from tests.support.log_capture import LogCapture
from tests.support.waiting import DEADLINE_S, wait_until

PLACE = TopicPartition("orders.payment.v1", 3)


def record(value: bytes | None = b'{"n": 1}') -> Message:
    return FakeMessage(PLACE, 7, key=None, value=value)


def run_of(message: Message) -> Run:
    return Run(Partition(PLACE, epoch=1, start=0), [message], (0,), {})


def hooks(process: Callable[[Any], Any] = lambda message: None, **more: Any) -> Hooks:
    reported: dict[str, Any] = {
        "message_factory": None,
        "message_context": None,
        "rate_limit_min_delay_ms": None,
        "logger": None,
        "one_at_a_time": True,
    }
    return Hooks(process_message=process, **reported | more)


def call(made: Hooks, value: bytes | None = b'{"n": 1}') -> None:
    message = record(value)
    made.call(message, run_of(message))


class Broken(Exception):
    """Known to nobody."""


@pytest.mark.parametrize("result", [None, True, {"success": True}, {"success": True, "error": "of no interest"}])
def test_these_results_mean_success(result: object) -> None:
    call(hooks(lambda message: result))


@pytest.mark.parametrize(
    ("result", "kind", "text"),
    [
        ({"success": False, "error": ConnectionError("away")}, ConnectionError, "away"),
        ({"success": False, "error": "no such account"}, ProcessingFailed, "no such account"),
        ({"success": False, "error": None}, ProcessingFailed, "there is no error"),
        ({"success": False}, ProcessingFailed, "there is no error"),
        (False, ProcessingFailed, "returned False"),
    ],
)
def test_these_results_mean_failure_with_that_error(result: object, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        call(hooks(lambda message: result))


def test_an_error_given_as_text_is_retried_like_every_unknown_one() -> None:
    assert classify(ProcessingFailed("no such account")).kind == "retryable"


async def later() -> None: ...


@pytest.mark.parametrize("result", [0, "done", {}, {"success": "yes"}, {"error": "x"}, object()])
def test_a_result_that_says_neither_stops_the_app_instead_of_losing_a_record(result: object) -> None:
    with pytest.raises(Halt, match="neither success nor failure"):
        call(hooks(lambda message: result))


def test_a_coroutine_is_no_result_either() -> None:
    with pytest.raises(Halt, match="coroutine"):
        call(hooks(lambda message: later()))


def test_what_process_message_raises_is_the_error() -> None:
    def process(message: object) -> None:
        raise Broken

    with pytest.raises(Broken):
        call(hooks(process))


def test_the_message_is_what_the_factory_makes_of_the_json_object() -> None:
    seen: list[object] = []
    call(hooks(seen.append, message_factory=lambda data: ("made of", data)))
    call(hooks(seen.append))
    assert seen == [("made of", {"n": 1}), {"n": 1}]


@pytest.mark.parametrize("value", [b"{not json", b"[1]", b"\xff", None])
def test_bytes_that_are_no_json_object_are_final(value: bytes | None) -> None:
    with pytest.raises(DecodeError):
        call(hooks(), value)


def test_the_consumers_own_deserialiser_is_asked_instead_and_its_failure_does_not_quote_the_payload() -> None:
    seen: list[object] = []
    made = hooks(seen.append, deserialise=lambda topic, headers, data: (topic, headers, json.loads(data or b"")))
    call(made)
    assert seen == [(PLACE.topic, [], {"n": 1})]
    with pytest.raises(DecodeError, match="JSONDecodeError") as caught:
        call(made, b"4111111111111111 is no JSON")
    assert "4111" not in str(caught.value)
    assert caught.value.__context__ is None
    with pytest.raises(DecodeError, match="tombstone"):
        call(made, None)


def test_a_factory_that_fails_is_final_whatever_it_raises() -> None:
    def refuse(error: Exception) -> Callable[[object], None]:
        def factory(data: object) -> None:
            raise error

        return factory

    with pytest.raises(KeyError):
        call(hooks(message_factory=refuse(KeyError("id"))))
    with pytest.raises(MessageRefused) as caught:
        call(hooks(message_factory=refuse(Broken())))
    assert isinstance(caught.value.__cause__, Broken)
    assert classify(caught.value).kind == "non-retryable"
    with pytest.raises(Reject):
        call(hooks(message_factory=refuse(Reject("old version"))))


def test_what_is_known_of_a_record_is_the_message_or_the_data_or_the_bytes() -> None:
    def factory(data: Any) -> Any:
        return data["n"] * 10

    made = hooks(message_factory=factory)
    assert made.as_far_as_known(record()) == 10
    assert made.as_far_as_known(record(b'{"m": 1}')) == {"m": 1}
    assert made.as_far_as_known(record(b"{")) == b"{"
    assert made.as_far_as_known(record(None)) is None


def test_the_least_delay_is_asked_for_on_the_worker_after_each_call_of_process_message() -> None:
    asked: list[str] = []

    def rate() -> float:
        asked.append(threading.current_thread().name)
        if len(asked) == 2:
            raise Broken
        return 1500.0 * len(asked)

    made = hooks(lambda message: {"success": len(asked) > 2}, rate_limit_min_delay_ms=rate)
    spacing = made.spacing
    assert spacing is not None
    assert (spacing.min_delay_s, spacing.calls, spacing.overlapping) == (0.0, 0, False)
    floors = []
    for _ in range(3):
        with pytest.raises(ProcessingFailed):
            call(made)
        floors.append(spacing.min_delay_s)
    call(made)
    with pytest.raises(DecodeError):
        call(made, b"{")
    assert floors == [1.5, 1.5, 4.5], "one that cannot be told leaves the last one"
    assert (spacing.min_delay_s, spacing.calls) == (6.0, 4), "a record that cannot be read has called nothing"
    assert hooks().spacing is None
    parallel = hooks(rate_limit_min_delay_ms=rate, one_at_a_time=False).spacing
    assert parallel is not None
    assert parallel.overlapping


def scheduled(made: Hooks, value: bytes = b'{"n": 1}') -> None:
    """An attempt that fails, and the statement about its retry."""
    with pytest.raises((ProcessingFailed, DecodeError)):
        call(made, value)
    known = {"attempt": 1, "error_type": "ProcessingFailed", "kind": "retryable", "code": "X", "rule": "unknown"}
    place = {"topic": PLACE.topic, "partition": PLACE.partition, "offset": 7}
    event = RetryScheduled("runner", "g", **place, **known, error=None, delay_s=1.5)  # type: ignore[arg-type]
    made.record_log.retry_scheduled(event)


def test_statements_about_records_go_to_the_users_logger_with_their_fields_and_context() -> None:
    logger, log = logging.getLogger("tests.runner.mine"), LogCapture("tests.runner.mine")
    log.attach()
    adapter: Any = logging.LoggerAdapter(logger, {"tenant": "t1"})
    for printed in (logger, adapter):
        scheduled(hooks(lambda message: False, logger=printed, message_context=lambda message: f"n={message['n']}\nx"))
    scheduled(hooks(lambda message: False, logger=logger, message_context=lambda message: message["m"]))
    scheduled(hooks(logger=logger, message_context=lambda message: "of what?"), b"{")
    log.detach()
    entries = log.entries
    assert {(entry.level, entry.event) for entry in entries} == {("warning", "retry_scheduled")}
    assert [entry.fields.get("context") for entry in entries[2:]] == ["(message_context failed: KeyError)", None]
    assert "\n" not in str(entries[0].fields["context"])
    assert entries[1].fields == {**entries[0].fields, "tenant": "t1"}
    required = {
        "retry_count": 1,
        "error_type": "ProcessingFailed",
        "error_classification": "retryable",
        "backoff_delay_ms": 1500,
        "consumer_group": "g",
        "partition": 3,
        "offset": 7,
    }
    assert {**entries[0].fields, **required} == entries[0].fields


def test_the_fields_are_attributes_of_the_users_log_records_too(caplog: pytest.LogCaptureFixture) -> None:
    scheduled(hooks(lambda message: False, logger=logging.getLogger("tests.runner.mine")))
    [record] = [one for one in caplog.records if one.name == "tests.runner.mine"]
    assert (vars(record)["retry_count"], vars(record)["consumer_group"]) == (1, "g")
    assert "retry_scheduled retry_count=1" in record.getMessage()


@pytest.mark.parametrize(
    ("error", "kind"), [(RetryableException("later"), "retryable"), (NonRetryableException("never"), "non-retryable")]
)
@pytest.mark.parametrize("hook", ["process", "message_factory"])
def test_the_exceptions_of_the_pattern_say_whether_to_retry(hook: str, error: Exception, kind: str) -> None:
    def fail(_: object) -> object:
        raise error

    made = hooks(fail) if hook == "process" else hooks(message_factory=fail)
    with pytest.raises(type(error)) as caught:
        call(made)
    assert classify(caught.value).kind == kind
    assert classify(type("Mine", (type(error),), {})()).kind == kind


def nothing() -> None: ...


async def asleep(message: object) -> None: ...


def test_every_problem_of_the_hooks_is_reported_before_anything_starts() -> None:
    wrong: dict[str, Any] = {
        "consumer_factory": lambda config: config,
        "process_message": asleep,
        "message_factory": nothing,
        "dlq_publisher": lambda message, error: None,
        "running_flag_setter": nothing,
        "cleanup_callback": 3,
        "logger": "log",
    }
    with pytest.raises(ConfigError) as caught:
        KafkaConsumerRunner(**wrong)
    printed = " ".join(caught.value.problems)
    assert len(caught.value.problems) == 7
    for part in (
        "consumer_factory cannot be called as consumer_factory()",
        "process_message is async def",
        "message_factory cannot be called as message_factory(data)",
        "dlq_publisher cannot be called as dlq_publisher(message, error, retry_count=0)",
        "running_flag_setter cannot be called as running_flag_setter(True)",
        "cleanup_callback must be a function; got something of type int",
        "logger must be a logging.Logger",
    ):
        assert part in printed


def test_functions_with_an_unknown_signature_are_accepted() -> None:
    KafkaConsumerRunner(consumer_factory=dict, process_message=print, message_factory=dict)


def test_an_abandoned_one_blocks_no_other_and_the_others_still_take_turns() -> None:
    began, ends, at_work, most = threading.Event(), threading.Event(), [0], [0]

    def process(message: dict[str, Any]) -> None:
        if message.get("hangs"):
            began.set()
            ends.wait(DEADLINE_S)
            return
        at_work[0] += 1
        most[0] = max(most[0], at_work[0])
        ends.wait(0.01)
        at_work[0] -= 1

    made = hooks(process)
    hanging = record(b'{"hangs": true}')
    run = run_of(hanging)
    threads = [threading.Thread(target=made.call, args=(hanging, run))]
    threads[0].start()
    assert began.wait(DEADLINE_S)
    waiting = [threading.Thread(target=call, args=(made,)) for _ in range(5)]
    for one in waiting:
        one.start()
    waiting[0].join(0.3)
    assert (waiting[0].is_alive(), most) == (True, [0]), "it is the first one's turn"
    run.abandoned = True
    for one in waiting:
        one.join(DEADLINE_S)
    assert (most, at_work, threads[0].is_alive()) == ([1], [0], True)
    ends.set()
    threads[0].join(DEADLINE_S)
    call(made)
    assert most == [1]


def test_a_record_that_waits_for_its_turn_is_not_begun_once_its_run_is_to_stop() -> None:
    begun: list[Any] = []
    made, message = hooks(begun.append), record()
    run = run_of(message)
    with made.turn.of(None):  # as the thread does that calls dlq_publisher
        walker = threading.Thread(
            target=RecordCall(made.call).walk, args=(run, Tally(), time.perf_counter), daemon=True
        )
        walker.start()
        wait_until(lambda: run.waits, "it waits for its turn")
        run.stop = True
        walker.join(DEADLINE_S)
        assert not walker.is_alive(), "it does not wait for its turn any longer"
    assert (begun, run.done, run.failure, run.waits) == ([], 0, None, False)

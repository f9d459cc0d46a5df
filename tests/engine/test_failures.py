"""Records in trouble: which policy holds, what is counted under which labels, and what the log says at which level."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from keepfast.classify.classification import Rule, RuleBook
from keepfast.core.errors import BatchError, Discard, Fault, Halt, HandlerTimeout, Reject, SinkError
from keepfast.core.guards import CallSpacing
from keepfast.core.lanes import lanes_for
from keepfast.core.policies import RetryPolicy
from keepfast.core.records import TopicPartition
from keepfast.core.runs import FailedRecord, InFlight, Partition
from keepfast.deadletters.publisher import Publisher
from keepfast.engine.counts import MAX_LABELS, OTHER, Counts, FailureCounts, Labels
from keepfast.engine.events import Events
from keepfast.engine.failures import Failures
from keepfast.engine.forwarding import Settled
from keepfast.engine.guards import Guards, Holds
from keepfast.engine.mailbox import QueueMailbox
from keepfast.engine.plan import Plan
from keepfast.redact.sensitive import CardNumbers, SensitiveData
from keepfast.telemetry.event_log import EventLog
from keepfast.testing.fakes.log import FakeMessage
from tests.support.fakes import FakeSink, ManualClock
from tests.support.log_capture import LogCapture

PLACE = TopicPartition("orders", 2)
PAN = b'{"payment":{"card":"4111111111111111"}}'


class Bench:
    """Cases with nothing around them."""

    def __init__(self, **plan: Any) -> None:
        self.finished: list[FailedRecord] = []
        self.halted: list[str] = []
        self.mailbox = QueueMailbox()
        names: dict[str, Any] = {"topics": {PLACE.topic: "orders.dlq"}, "partitions": {"orders.dlq": 3}}
        publisher = Publisher(FakeSink(), group="g", handler="app:charge", app_version="1", **names)
        whole = Plan(name="charge", group="g", topics=(PLACE.topic,), **plan)
        events = Events(whole.name, whole.group, (EventLog(),))
        holds = Holds(ManualClock(0.0), events)
        self.guards = Guards(whole, lanes_for(whole.order), holds, InFlight(), events)
        self._counts = Counts(whole.topics, whole.tiers)
        self.failed_records = Failures(
            whole,
            publisher,
            self.mailbox,
            ManualClock(0.0),
            Random(1),
            guards=self.guards,
            finished=self.finished.append,
            halt=self.halted.append,
            counts=self._counts,
            events=events,
        )

    @property
    def counts(self) -> FailureCounts:
        return self._counts.total()

    def failed_record(self, value: bytes = b"v") -> FailedRecord:
        message = FakeMessage(PLACE, 7, key=b"k", value=value)
        return FailedRecord(Partition(PLACE, epoch=1, start=0), 0, message, (), 0.0)

    def fail(self, *errors: BaseException, failed_record: FailedRecord | None = None) -> FailedRecord:
        """One attempt after another, and what the sink answers."""
        one = failed_record or self.failed_record()
        for error in errors:
            self.failed_records.failed(one, error, 0.0)
            for word in self.mailbox.collect(0):
                assert isinstance(word, Settled)
                self.failed_records.forwarder.settled(word, 0.0)
        return one


def test_no_retry_waits_less_than_the_plan_says_at_that_moment() -> None:
    spacing = CallSpacing()
    bench = Bench(retry=RetryPolicy(jitter=False), spacing=spacing)
    for floor_s in (0.0, 7.0, 2.0):
        spacing.min_delay_s = floor_s
        bench.fail(TimeoutError())
    assert sorted(due for due, _, _ in bench.failed_records._timers._heap) == [1.0, 2.0, 7.0]


def test_the_policy_of_the_error_that_came_last_decides() -> None:
    none, two = RetryPolicy(max_retries=0), RetryPolicy(max_retries=2)
    bench = Bench(
        retry=none,
        retry_by_error=(("builtins.TimeoutError", two),),
        rules=RuleBook([Rule("builtins.KeyError", "retryable")]),
    )
    bench.fail(RuntimeError())
    assert (bench.counts.retries, bench.counts.dead_lettered) == (0, 1)
    bench.fail(TimeoutError(), TimeoutError())
    assert (bench.counts.retries, bench.counts.dead_lettered) == (2, 1)
    bench.fail(TimeoutError(), TimeoutError(), TimeoutError())
    assert (bench.counts.retries, bench.counts.dead_lettered) == (4, 2)
    bench.fail(TimeoutError(), KeyError())
    assert (bench.counts.retries, bench.counts.dead_lettered) == (5, 3)


def test_what_an_error_means_is_decided_by_the_users_rules_before_anything_is_retried() -> None:
    bench = Bench(rules=RuleBook([Rule("builtins.KeyError", "retryable"), Rule("builtins.OSError", "non-retryable")]))
    bench.fail(KeyError())
    assert (bench.counts.retries, bench.counts.dead_lettered) == (1, 0)
    bench.fail(ConnectionError())
    assert (bench.counts.retries, bench.counts.dead_lettered) == (1, 1)


def test_failures_are_counted_by_type_classification_and_code() -> None:
    bench = Bench(retry=RetryPolicy(max_retries=1))
    bench.fail(TimeoutError(), TimeoutError())
    bench.fail(TimeoutError(), ValueError())
    bench.fail(Discard("a test"))
    timeout = Labels("TimeoutError", "retryable", "TIMEOUT")
    value = Labels("ValueError", "non-retryable", "VALUE_INVALID")
    discard = Labels("Discard", "discard", "DISCARDED")
    assert bench.counts.errors_by.counts == {timeout: 3, value: 1, discard: 1}
    assert bench.counts.dead_lettered_by.counts == {timeout: 1, value: 1}
    assert bench.counts.discarded_by.counts == {discard: 1}
    assert (bench.counts.errors, bench.counts.retries, bench.counts.dead_lettered, bench.counts.discarded) == (
        5,
        2,
        2,
        1,
    )
    assert bench.counts.retries_by_attempt[:3] == [0, 2, 0]


def test_retries_are_counted_by_their_number_with_an_end() -> None:
    bench = Bench(retry=RetryPolicy(max_retries=None))
    bench.fail(*(RuntimeError() for _ in range(14)))
    assert bench.counts.retries_by_attempt == [0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 5]


def test_labels_do_not_grow_without_end() -> None:
    bench = Bench(retry=RetryPolicy(max_retries=0))
    for number in range(MAX_LABELS + 30):
        bench.fail(type(f"Made{number}", (Exception,), {})())
    assert len(bench.counts.errors_by.counts) == MAX_LABELS + 1
    assert bench.counts.errors_by.counts[OTHER] == 30
    assert sum(bench.counts.dead_lettered_by.counts.values()) == bench.counts.dead_lettered == MAX_LABELS + 30


def test_the_log_says_what_the_standard_asks_for_at_its_levels(log: LogCapture) -> None:
    bench = Bench(retry=RetryPolicy(max_retries=1, jitter=False))
    bench.fail(TimeoutError(), TimeoutError())
    bench.fail(Reject("no account", code="NO_ACCOUNT"))
    bench.fail(Discard("a test"))
    bench.fail(Halt("no disk"))
    assert bench.halted == ["no disk"]
    reported = [
        (entry.level, entry.event, entry.fields["error_classification"], entry.fields["retry_count"])
        for entry in log.entries
        if entry.logger == "keepfast.consumer"
    ]
    assert reported == [
        ("warning", "retry_scheduled", "retryable", 1),
        ("error", "dead_lettering", "retryable", 1),
        ("info", "dead_lettered", "retryable", 1),
        ("warning", "dead_lettering", "non-retryable", 0),
        ("info", "dead_lettered", "non-retryable", 0),
        ("warning", "record_discarded", "discard", 0),
        ("error", "halting", "halt", 0),
    ]
    retry = log.entries[0].fields
    assert (retry["backoff_delay_ms"], retry["error_type"], retry["rule"]) == (1000, "TimeoutError", "timeout")
    place = (retry["consumer_group"], retry["topic"], retry["partition"], retry["offset"])
    assert place == ("g", "orders", 2, 7)
    [halted] = log.fields("consumer_halted")
    assert halted.items() >= {"topic": "orders", "partition": 2, "offset": 7, "reason": "no disk"}.items()
    assert log.entries[3].fields["code"] == "NO_ACCOUNT"
    assert log.entries[4].fields["dead_letter_topic"] == "orders.dlq"


def test_sensitive_data_is_a_security_event_and_has_a_counter_of_its_own(log: LogCapture) -> None:
    bench = Bench()
    found = CardNumbers().scan(None, PAN)
    assert found is not None
    bench.fail(SensitiveData(found), failed_record=bench.failed_record(PAN))
    bench.fail(Discard("a test"))
    assert (bench.counts.discarded, bench.counts.sensitive, bench.counts.dead_lettered) == (2, 1, 0)
    [entry, _] = log.entries
    assert (entry.logger, entry.level, entry.event) == ("keepfast.security", "error", "sensitive_data_discarded")
    fields = entry.fields
    assert (fields["code"], fields["place"], fields["part"]) == ("PAN_DETECTED", "$.payment.card", "value")
    assert "4111" not in str(fields)


class DiskFull(Exception):
    """The user's own; a rule of the user's says halt."""


def not_sent(raised: BaseException | None) -> SinkError:
    """As a worker hands it back when a record was not acknowledged that the handler sent before it raised this."""
    failure = SinkError("no answer", fault=Fault.RETRY)
    failure.raised = raised
    return failure


@pytest.mark.parametrize("raised", [None, ValueError(), Reject("no"), Discard("no"), HandlerTimeout(1.0)])
def test_a_failed_send_replaces_what_the_handler_raised(raised: BaseException | None, log: LogCapture) -> None:
    bench = Bench(rules=RuleBook([Rule("builtins.ValueError", "discard")]))
    bench.fail(not_sent(raised))
    assert (bench.counts.retries, bench.finished, bench.halted) == (1, [], [])
    assert log.fields("retry_scheduled")[0]["error_type"] == "SinkError"


@pytest.mark.parametrize("raised", [Halt("stop"), SystemExit(), DiskFull(), BatchError({0: KeyError(), 3: DiskFull()})])
def test_a_failed_send_never_replaces_a_halt(raised: BaseException) -> None:
    bench = Bench(rules=RuleBook([Rule(DiskFull, "halt")]))
    assert bench.failed_records.decisive(not_sent(raised)) is raised
    if not isinstance(raised, BatchError):
        bench.fail(not_sent(raised))
        assert (bench.counts.retries, bench.finished, len(bench.halted)) == (0, [], 1)

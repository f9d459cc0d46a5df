"""One event of each type, for tests of what is made of them."""

from __future__ import annotations

from typing import Any

from keepfast.core import events
from keepfast.core.errors import Fault
from keepfast.core.records import RecordPlace, TopicPartition
from keepfast.core.verdicts import DeadLetter, RetryAfter

SOURCE = ("charge", "payments.charge")
SECRET = "tok_51Hx"
ORDERS = TopicPartition("orders", 2)
PLACE: dict[str, Any] = {"topic": "orders", "partition": 2, "offset": 17}
RECORD: dict[str, Any] = {
    **PLACE,
    "attempt": 2,
    "error": ValueError(SECRET),
    "error_type": "ValueError",
    "kind": "non-retryable",
    "code": "VALUE_INVALID",
    "rule": "value",
}
BATCH: dict[str, Any] = {name: value for name, value in RECORD.items() if name != "error_type"}
LETTER: dict[str, Any] = {"reason": "ValueError is final", "letter_topic": "orders.dlq"}

SAMPLES: tuple[events.Event, ...] = (
    events.RunFinished(*SOURCE, records=(RecordPlace("orders", 2, 17), RecordPlace("orders", 2, 18))),
    events.RecordFailed(*SOURCE, **RECORD, verdict=DeadLetter("ValueError is final", "VALUE_INVALID")),
    events.RetryScheduled(*SOURCE, **RECORD, delay_s=1.5, raised_at="app.py:7", error_message="no", took_s=0.0123),
    events.RetrySucceeded(*SOURCE, **RECORD),
    events.DeadLettered(*SOURCE, **RECORD | LETTER, letter_partition=0, letter_offset=4),
    events.Spooled(*SOURCE, **RECORD | LETTER),
    events.Moved(*SOURCE, **RECORD, reason="failed 3 times", moved_to="orders.g.retry.5m", delay_s=300.0),
    events.Discarded(*SOURCE, **RECORD, reason="a test order"),
    events.PublishFailed(
        *SOURCE,
        **RECORD,
        target="dead-letter-topic",
        publish_topic="orders.dlq",
        message="not authorised",
        next_step="retry",
        fault=Fault.REFUSED,
        retry_in_s=0.5,
    ),
    events.BatchFailed(*SOURCE, **BATCH, partitions=(ORDERS,), records=5, verdict=RetryAfter(1.0)),
    events.HandlerTimedOut(*SOURCE, **PLACE, attempt=1, timeout_s=10.0, given_up=True, abandoned=1),
    events.HandlerAbandoned(*SOURCE, **PLACE, attempt=1, waited_s=30.0, abandoned=2),
    events.LockExpired(*SOURCE, **PLACE, records=3, in_flight=1, lock_s=30.0),
    events.Assigned(*SOURCE, partitions=(ORDERS,)),
    events.Revoked(*SOURCE, partitions=(ORDERS,), unconfirmed=(ORDERS,)),
    events.Lost(*SOURCE, partitions=(ORDERS,)),
    events.PartitionReset(*SOURCE, **PLACE, reason="topic_recreated", policy="earliest"),
    events.Sought(*SOURCE, **PLACE, to=5),
    events.SubscriptionChanged(*SOURCE, added=("audit.b",), removed=("audit.c",), topics=("audit.a", "audit.b")),
    events.TopicRecreated(*SOURCE, topic="orders", old_id="a@c", new_id="b@c"),
    events.PreviousOwnerCrashed(*SOURCE, **PLACE, in_flight=3, in_flight_below=None, suspected=False),
    events.ProbationStarted(*SOURCE, **PLACE, suspects=3),
    events.ProbationEnded(*SOURCE, topic="orders", partition=2, handed_over=False),
    events.Committed(*SOURCE, offsets={ORDERS: 18}),
    events.CommitFailed(*SOURCE, **PLACE, fault=Fault.REBALANCING, code="REBALANCE_IN_PROGRESS"),
    events.Held(*SOURCE, hold="commit_refused", topic="orders", partition=2, code="TOPIC_AUTHORIZATION_FAILED"),
    events.Released(*SOURCE, hold="operator", by="operator"),
    events.BreakerOpened(*SOURCE, outages=8, attempts=10, rule="network", next_probe_s=5.0),
    events.BreakerClosed(*SOURCE, by="probe", held_s=12.5),
    events.StormGuardTripped(*SOURCE, dead_lettered=50, records=60, next_probe_s=60.0),
    events.StormGuardReleased(*SOURCE, by="operator", held_s=90.0),
    events.Halted(*SOURCE, **PLACE, kind="halted", reason="the disk is full", error=ValueError(SECRET)),
    events.DrainStarted(*SOURCE, in_flight=4),
    events.DrainFinished(*SOURCE, unfinished=0),
)
"""The error of each has a text that nothing may show."""

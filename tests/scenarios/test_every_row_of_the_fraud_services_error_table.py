"""The fraud service's decision on errors, row by row, on a real broker: its topic, its dead-letter pattern, its letter,
its error codes. One run for all; each row is looked at by itself.

| error type           | retry? | DLQ? |
|----------------------|--------|------|
| Validation Error     | no     | yes  |
| Database Unavailable | yes    | no   |
| PAN Detected         | no     | no   |
| Business Logic Error | no     | yes  |

And what its code says beside the table: an unexpected error goes to the dead-letter topic at once.
"""

from __future__ import annotations

import json
import uuid
from collections import defaultdict
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import psycopg
import pytest
from pydantic import BaseModel

from keepfast import CardNumbers, Context, DeadLetterPolicy, RetryPolicy
from keepfast.testing.loopback import free_ports
from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import Client
from tests.support.log_capture import LogEntry
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import wait_until


class Decision(StrEnum):
    APPROVE = "APPROVE"
    DECLINE = "DECLINE"


class DecisionEvent(BaseModel):
    transaction_id: str
    decision: Decision
    act: str = ""


class LimitExceeded(Exception):
    """A business error of the service's own."""


@dataclass(frozen=True, slots=True)
class Row:
    """A record, and what must become of it."""

    value: bytes
    attempts: int
    code: str = ""
    """Of its letter; empty: there is none."""
    discarded: bool = False


def event(act: str = "", **fields: object) -> bytes:
    return json.dumps({"transaction_id": "t-1", "decision": "APPROVE", "act": act} | fields).encode()


ROWS = {
    "row 1, validation error: a value of the wrong type": Row(event(transaction_id=17), 0, "SCHEMA_INVALID"),
    "row 1, validation error: a required field is missing": Row(b'{"act":""}', 0, "MISSING_REQUIRED_FIELD"),
    "row 1, validation error: none of the allowed values": Row(event(decision="MAYBE"), 0, "ENUM_INVALID"),
    "row 1, validation error: not JSON at all": Row(b"\xff{", 0, "DECODE_FAILED"),
    "row 2, database unavailable: refused twice, then there": Row(event("refused"), 3),
    "row 2, database unavailable: a deadlock, then none": Row(event("deadlock"), 2),
    "row 2, database unavailable: too slow once": Row(event("slow"), 2),
    "row 3, PAN detected: in the value": Row(event(card="4111 1111 1111 1111"), 0, discarded=True),
    "row 4, business logic error: of the service's own": Row(event("limit"), 1, "LIMIT_EXCEEDED"),
    "row 4, business logic error: a bug": Row(event("bug"), 1, "VALUE_INVALID"),
    "row 4, business logic error: a constraint": Row(event("constraint"), 1, "DB_CONSTRAINT_VIOLATION"),
    "beside the table: an unexpected error": Row(event("odd"), 1, "UNHANDLED_EXCEPTION"),
    "beside the table: nothing wrong": Row(event(), 1),
}


def act(name: str, attempt: int, closed_port: int) -> None:
    match name:
        case "refused" if attempt < 3:
            psycopg.connect(host="127.0.0.1", port=closed_port, connect_timeout=2)
        case "deadlock" if attempt < 2:
            raise psycopg.errors.DeadlockDetected
        case "slow" if attempt < 2:
            raise psycopg.errors.QueryCanceled
        case "limit":
            raise LimitExceeded("too much for one day")
        case "bug":
            _ = 1 // 0
        case "constraint":
            raise psycopg.errors.UniqueViolation
        case "odd":
            raise RuntimeError("nobody knows")
        case _:
            pass


@dataclass(slots=True)
class Outcome:
    """What the run left behind, by offset."""

    topic: str
    group: str
    committed: int
    attempts: dict[int, int]
    letters: dict[int, list[dict[str, Any]]]
    discarded: list[LogEntry]
    retries: dict[int, list[LogEntry]] = field(default_factory=dict)


@pytest.fixture(scope="module")
def outcome(kafka: TopicAdmin) -> Outcome:
    unique = uuid.uuid4().hex[:6]
    name, group = f"fraud.card.decisions-{unique}.v1", f"card-fraud-transaction-management-{unique}"
    kafka.create_topic(name)
    client, app, attempts = Client(kafka), app_for(kafka), defaultdict[int, int](int)
    (closed_port,) = free_ports(1)

    @app.consumer(
        name,
        group=group + ".{env}",
        dead_letter=DeadLetterPolicy(topic="{topic}.dlq.{env}", format="nested"),
        retry=RetryPolicy(max_retries=5, initial_delay_ms=10),
        unknown_errors="dead-letter",
        rules={LimitExceeded: "non-retryable"},
        sensitive=CardNumbers(),
    )
    def ingest(decision: DecisionEvent, ctx: Context) -> None:
        attempts[ctx.offset] += 1
        act(decision.act, ctx.attempt, closed_port)

    client.produce(name, [row.value for row in ROWS.values()])
    with RunningApp(app) as running:
        wait_until(lambda: client.committed(f"{group}.local", name)[0] == len(ROWS), "all rows are committed")
    count = client.edges(f"{name}.dlq.local")[1]
    letters = defaultdict[int, list[dict[str, Any]]](list)
    for letter in client.read(f"{name}.dlq.local", count):
        fields = json.loads(letter.value())
        letters[fields["metadata"]["original_offset"]].append(fields)
    retries = defaultdict[int, list[LogEntry]](list)
    for printed in running.log.of("retry_scheduled"):
        retries[printed.fields["offset"]].append(printed)
    discarded = running.log.of("sensitive_data_discarded")
    return Outcome(name, f"{group}.local", len(ROWS), attempts, letters, discarded, retries)


@pytest.mark.parametrize("name", ROWS)
def test_what_becomes_of_it(outcome: Outcome, name: str) -> None:
    row, offset = ROWS[name], list(ROWS).index(name)
    assert outcome.attempts[offset] == row.attempts
    assert len(outcome.retries[offset]) == max(0, row.attempts - 1), "each retry is a line of the log"
    assert [printed.fields["offset"] for printed in outcome.discarded].count(offset) == row.discarded
    letters = outcome.letters[offset]
    if not row.code:
        assert letters == []
        return
    [letter] = letters
    assert letter["error"]["code"] == row.code
    assert letter["error"]["classification"] == "non-retryable"
    assert {"type", "message", "timestamp"} <= set(letter["error"])
    assert letter["reason"]
    assert (
        letter["metadata"]
        | {
            "original_topic": outcome.topic,
            "original_partition": 0,
            "original_offset": offset,
            "consumer_group": outcome.group,
            "retry_count": 0,
        }
        == letter["metadata"]
    )


def test_a_card_number_is_in_no_letter_and_in_no_line_of_the_log(outcome: Outcome) -> None:
    offset = next(number for number, row in enumerate(ROWS.values()) if row.discarded)
    assert not outcome.letters[offset]
    [printed] = outcome.discarded
    assert (printed.level, printed.fields["code"]) == ("error", "PAN_DETECTED")
    assert "1111" not in str(printed.fields)

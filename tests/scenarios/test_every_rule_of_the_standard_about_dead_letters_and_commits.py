"""The consumer standard, §2.1 (what goes to the dead-letter topic, and what must not) and §4 (when offsets are
committed), rule by rule. §4.2's last rule, commits that fail, has a scenario of its own:
`test_commits_that_fail_for_a_while_are_retried`.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import pytest

from keepfast import Context, Reject, RetryPolicy
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.scenarios.dead_letter_topic import limit
from tests.scenarios.history import read_history
from tests.support.broker_client import Client, numbered
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import DEADLINE_S, wait_until

RETRIES = 2
RULES: dict[str, tuple[bytes, int, str]] = {
    # name: what is sent, how often the handler runs, the classification in its letter ("": there is none)
    "2.1 must 1: a non-retryable error goes there at once": (b"invalid", 1, "non-retryable"),
    "2.1 must 2: a retryable error goes there after its last retry": (b"refused", RETRIES + 1, "retryable"),
    "2.1 must 3: a handler that exceeds its time goes there": (b"hangs", 1, "non-retryable"),
    "2.1 must not 1: nothing goes there while retries remain": (b"refused twice", RETRIES + 1, ""),
    "2.1 must not 2: nothing goes there that was processed": (b"good", 1, ""),
}


@dataclass(frozen=True, slots=True)
class Routed:
    attempts: dict[bytes, int]
    letters: list[dict[str, Any]]
    committed: int | None


@pytest.fixture(scope="module")
def routed(kafka: TopicAdmin) -> Routed:
    """One run with a record for each rule."""
    name = kafka.create_topic(f"standard.routing-{uuid.uuid4().hex[:6]}.v1")
    client, app, attempts, over = Client(kafka), app_for(kafka), defaultdict[bytes, int](int), threading.Event()
    policy = RetryPolicy(max_retries=RETRIES, initial_delay_ms=10)

    @app.consumer(name, name=name, retry=policy, timeout_s=0.5, dead_letter="{topic}.dlq")
    def work(value: bytes, ctx: Context) -> None:
        attempts[value] += 1
        match value:
            case b"invalid":
                raise ValueError("no number")
            case b"refused":
                raise ConnectionRefusedError
            case b"refused twice" if ctx.attempt <= RETRIES:
                raise ConnectionRefusedError
            case b"hangs":
                over.wait(DEADLINE_S)
            case _:
                pass

    client.produce(name, [value for value, _, _ in RULES.values()])
    with RunningApp(app):
        wait_until(lambda: client.committed(f"scenario.{name}", name)[0] == len(RULES), "all are committed")
        over.set()
    count = client.edges(f"{name}.dlq")[1]
    letters = [json.loads(letter.value()) for letter in client.read(f"{name}.dlq", count)]
    return Routed(attempts, letters, client.committed(f"scenario.{name}", name)[0])


@pytest.mark.parametrize("rule", RULES)
def test_it_is_kept(routed: Routed, rule: str) -> None:
    value, attempts, classification = RULES[rule]
    assert routed.attempts[value] == attempts
    letters = [one for one in routed.letters if one["original_offset"] == list(RULES).index(rule)]
    if not classification:
        assert letters == []
        return
    [letter] = letters
    assert (letter["error_classification"], letter["retry_count"]) == (classification, attempts - 1)
    assert {"original_message", "error_type", "error_message", "failed_at", "stack_trace"} <= set(letter)


def test_4_1_commits_are_synchronous_and_come_at_once_after_success_and_after_a_dead_letter(
    kafka: TopicAdmin, topic: TopicFactory
) -> None:
    """§4.1 and §4.2: when a record starts, the commit of the one before it is confirmed, be it processed or
    dead-lettered.
    """
    name, client, app = topic(), Client(kafka), app_for(kafka)
    committed_at_start, letters_at_start = list[int](), list[int]()

    @app.consumer(name, name=name, dead_letter="{topic}.dlq")
    def work(value: bytes, ctx: Context) -> None:
        committed_at_start.append(client.committed(f"scenario.{name}", name)[0] or 0)
        letters_at_start.append(client.edges(f"{name}.dlq")[1])
        if ctx.offset % 3 == 1:
            raise Reject("no")

    client.produce(name, numbered(9))
    with RunningApp(app):
        wait_until(lambda: client.committed(f"scenario.{name}", name)[0] == 9, "all are committed")
    assert committed_at_start == list(range(9)), "all before it, and never itself"
    assert letters_at_start == [0, 0, 1, 1, 1, 2, 2, 2, 3], "the letter was there before the commit"


def test_4_1_nothing_is_committed_by_itself(kafka: TopicAdmin, topic: TopicFactory) -> None:
    """§4.1, manual commits only: what was fetched and not finished is not committed, not even at the end."""
    name, client, app = topic(), Client(kafka), app_for(kafka)
    policy = RetryPolicy(initial_delay_ms=30_000, max_delay_ms=30_000)

    @app.consumer(name, name=name, retry=policy)
    def work(value: bytes, ctx: Context) -> None:
        if ctx.offset == 3:
            raise TimeoutError

    client.produce(name, numbered(50))
    with RunningApp(app) as running:
        wait_until(lambda: running.log.of("retry_scheduled"), "a record waits, those behind it are fetched")
        wait_until(lambda: client.committed(f"scenario.{name}", name)[0] == 3, "those before it are committed")
    assert client.committed(f"scenario.{name}", name)[0] == 3


def test_4_1_nothing_is_committed_while_the_dead_letter_cannot_be_published(
    kafka: TopicAdmin, topic: TopicFactory
) -> None:
    """§4.1: the record stays, also over a restart, and is delivered again by Kafka."""
    name, client = topic(), Client(kafka)
    letters = kafka.create_topic(f"{name}.dlq")
    limit(kafka, letters, 100)
    starts = list[int]()

    def run(*, until_committed: bool) -> None:
        app = app_for(kafka, shutdown_s=2.0)

        @app.consumer(name, name=name, dead_letter="{topic}.dlq")
        def work(value: bytes, ctx: Context) -> None:
            starts.append(ctx.offset)
            if ctx.offset == 1:
                raise Reject("no")

        with RunningApp(app, code=0 if until_committed else 5) as running:
            if until_committed:
                wait_until(lambda: client.committed(f"scenario.{name}", name)[0] == 3, "all are committed")
            else:
                wait_until(lambda: len(running.log.of("dead_letter_publish_failed")) >= 2, "the letter is refused")
                assert client.committed(f"scenario.{name}", name)[0] == 1

    client.produce(name, numbered(3))
    run(until_committed=False)
    assert client.committed(f"scenario.{name}", name)[0] == 1
    limit(kafka, letters, 1_000_000)
    run(until_committed=True)
    assert starts == [0, 1, 1, 2], "delivered again after the restart"
    assert client.edges(letters) == (0, 1)


def test_4_2_commits_are_not_batched_across_records(kafka: TopicAdmin, topic: TopicFactory) -> None:
    """§4.2: unless the processing is idempotent, each record of a partition is committed by itself."""
    name, client, app = topic(), Client(kafka), app_for(kafka)

    @app.consumer(name, name=name)
    def work(value: bytes) -> None: ...

    client.produce(name, numbered(30))
    with RunningApp(app):
        wait_until(lambda: client.committed(f"scenario.{name}", name)[0] == 30, "all are committed")
    history = read_history(kafka.bootstrap, f"scenario.{name}")
    offsets = [commit.offset for commit in history.commits if commit.topic == name]
    # The crash guard's mark is one more commit at the first offset, and so is its going at the last.
    assert list(dict.fromkeys(offsets)) == list(range(31)), "one after another, none left out"

"""A process that uses KafkaConsumerRunner as the consumer pattern shows it. Everything it does goes into a journal.

What `process_message` does with a record is in the record:
{"n": 1, "do": "wait" | "fail" | "hang" | "nonsense" | "reject" | "stop"}. `dlq_publisher` waits for the gate.
"""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from typing import Any

from keepfast import Reject
from keepfast.runner import KafkaConsumerRunner, RetryConfig
from keepfast.testing.topics import ExistingBroker
from tests.scenarios.runners import Kind, factory_of

JOURNAL = Path(os.environ["RUNNER_JOURNAL"])
GATE = Path(os.environ["RUNNER_GATE"])
TOPIC = os.environ["RUNNER_TOPIC"]
KIND: Kind = os.environ["RUNNER_KIND"]  # type: ignore[assignment]


def note(text: str) -> None:
    with JOURNAL.open("a") as journal:
        journal.write(f"{text}\n")


RUNNERS: list[KafkaConsumerRunner] = []


def wait_for_gate() -> None:
    while not GATE.exists():
        time.sleep(0.01)


def publish(message: dict[str, Any], error: Exception, retry_count: int) -> None:
    note("dlq_publisher")
    wait_for_gate()
    note("published")


def process_message(message: dict[str, Any]) -> object:
    note(f"start {message['n']}")
    match message.get("do"):
        case "wait":
            wait_for_gate()
        case "hang":
            time.sleep(3600)
        case "fail":
            return {"success": False, "error": "later"}
        case "nonsense":
            return "done"
        case "reject":
            raise Reject("as asked")
        case "stop":
            RUNNERS[0].stop()
            note("stopped")
            wait_for_gate()
        case _:
            pass
    note(f"end {message['n']}")
    return {"success": True, "error": None}


def main() -> None:
    made = factory_of(KIND, ExistingBroker(os.environ["RUNNER_BROKER"]), TOPIC)

    def create_consumer() -> object:
        note("consumer_factory")
        return made()

    def create_producer() -> object:
        note("producer_factory")
        return {"bootstrap.servers": os.environ["RUNNER_BROKER"]}

    logging.basicConfig(level=logging.INFO)
    runner = KafkaConsumerRunner(
        consumer_factory=create_consumer,
        producer_factory=create_producer,
        retry_config=RetryConfig(initial_retry_delay_ms=30_000),
        process_message=process_message,
        dlq_publisher=publish,
        health_server_start=lambda: note("health_server_start"),
        health_server_stop=lambda: note("health_server_stop"),
        running_flag_setter=lambda running: note(f"running {running}"),
        cleanup_callback=lambda: note("cleanup_callback"),
        topics=None if KIND == "kafka-python" else TOPIC,
        settings={"shutdown": {"timeout_s": float(os.environ.get("RUNNER_TIMEOUT_S", "20"))}},
    )
    RUNNERS.append(runner)
    runner.run()


if __name__ == "__main__":
    main()

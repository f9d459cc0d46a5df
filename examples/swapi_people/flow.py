"""The producer flow: all people of the API into the topic. Run it with `python -m examples.swapi_people.flow`.

It ends with 0 only if every person was acknowledged by the broker; run it again as often as you like.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import click
import httpx
from confluent_kafka import Producer

from keepfast.runner import RetryConfig, calculate_backoff, is_retryable_error

TOPIC = "swapi.people.v1"
FLUSH_S = 30.0


def fetch(
    client: httpx.Client, url: str, retry: RetryConfig, sleep: Callable[[float], None] = time.sleep
) -> dict[str, Any]:
    """One page. Errors that may pass are tried again, by the same rules as the consumer's, and not sooner than the API
    asks for.
    """
    retry_count = 0
    while True:
        try:
            answer = client.get(url)
            answer.raise_for_status()
            page: dict[str, Any] = answer.json()
            return page
        except httpx.HTTPError as error:
            if retry_count == retry.max_retries or not is_retryable_error(error):
                raise
            sleep(max(calculate_backoff(retry_count, retry) / 1000, asked_s(error)))
            retry_count += 1


def asked_s(error: httpx.HTTPError) -> float:
    """What `Retry-After` says, if it says seconds."""
    delay = error.response.headers.get("Retry-After", "") if isinstance(error, httpx.HTTPStatusError) else ""
    return float(delay) if delay.isdecimal() else 0.0


def people(client: httpx.Client, retry: RetryConfig) -> Iterator[dict[str, Any]]:
    url: str | None = "/people/?page=1"
    while url:
        page = fetch(client, url, retry)
        yield from page["results"]
        url = page["next"]


def publish(producer: Producer, found: Iterator[dict[str, Any]]) -> tuple[int, int]:
    """Returns how many were sent, and how many of them acknowledged."""
    acknowledged: list[str] = []
    sent = 0
    for person in found:
        url = str(person["url"])
        producer.produce(
            TOPIC,
            json.dumps(person).encode(),
            url,
            on_delivery=lambda error, _, url=url: acknowledged.append(url) if error is None else None,  # type: ignore[misc]
        )
        producer.poll(0)
        sent += 1
    producer.flush(FLUSH_S)
    return sent, len(acknowledged)


def main() -> int:
    brokers = os.environ.get("KAFKA_BROKERS", "localhost:9092")
    producer = Producer({"bootstrap.servers": brokers, "acks": "all", "enable.idempotence": True, "linger.ms": 5})
    url = os.environ.get("SWAPI_URL", "https://swapi.dev/api")
    with httpx.Client(base_url=url, timeout=float(os.environ.get("SWAPI_TIMEOUT_S", "10"))) as client:
        sent, acknowledged = publish(producer, people(client, RetryConfig()))
    click.echo(f"sent {sent}, acknowledged {acknowledged}")
    return 0 if sent == acknowledged else 1


if __name__ == "__main__":
    sys.exit(main())

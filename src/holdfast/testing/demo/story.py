"""What happens in the demo, in order. Nothing of its result is scripted: the books are read from the topics."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from holdfast.core.errors import StartError
from holdfast.testing.demo.shop import ORDERS, SHIPMENTS, app

CUSTOMERS = 200
PATIENCE_S = 60.0
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Stage:
    """Where the demo plays."""

    brokers: str
    orders: int
    say: Say

    @property
    def letters(self) -> str:
        [topic] = app.settings(environ={}).consumers["ship"].dead_letter_topics.values()
        return topic


def play(stage: Stage) -> dict[str, Any]:
    """Send, consume, kill, consume on, close the books. Raises StartError if the consumer does not get through."""
    stage.say(f"sending {stage.orders:,} orders of {CUSTOMERS} customers: good, flaky, not to be shipped, and garbage")
    _send(stage)
    member = _start(stage)
    try:
        _wait_for(stage, member, share=0.3)
        stage.say("kill -9 in the middle of the work")
        member.kill()
        member.wait()
        stage.say("a new member takes over as soon as the group notices (6 s here)")
        member = _start(stage)
        _wait_for(stage, member, share=1.0)
        member.send_signal(signal.SIGTERM)
        stage.say(f"SIGTERM: drained, exit code {member.wait(30)}")
    finally:
        if member.poll() is None:
            member.kill()
            member.wait()
    return _books(stage)


def orders(count: int) -> Iterator[tuple[bytes, bytes]]:
    """Key and value of each order; the same every time."""
    rng = random.Random(7)
    for number in range(count):
        customer = f"customer-{rng.randrange(CUSTOMERS)}".encode()
        if rng.random() < 0.005:
            yield customer, f"\x00 not an order {number}".encode()
            continue
        kind = rng.choices(("good", "flaky", "unshippable"), (0.95, 0.04, 0.01))[0]
        order = {"id": f"order-{number}", "kind": kind, "failures": rng.randint(1, 2), "city": "Zürich"}
        yield customer, json.dumps(order, ensure_ascii=False, separators=(",", ":")).encode()


def _send(stage: Stage) -> None:
    producer = Producer({"bootstrap.servers": stage.brokers, "linger.ms": 5})
    for key, value in orders(stage.orders):
        producer.produce(ORDERS, value, key)
        producer.poll(0)
    producer.flush(30)


def _start(stage: Stage) -> subprocess.Popen[bytes]:
    environ = {
        **os.environ,
        "KAFKA_BROKERS": stage.brokers,
        "HOLDFAST_LOG_LEVEL": "ERROR",
        "HOLDFAST_HEALTH_ENABLED": "false",
    }
    return subprocess.Popen([sys.executable, "-m", "holdfast", "run", "holdfast.testing.demo.shop:app"], env=environ)


def _wait_for(stage: Stage, member: subprocess.Popen[bytes], *, share: float) -> None:
    """Until the group has committed this share of all orders."""
    group = app.settings(environ={}).consumers["ship"].group
    client = Consumer({"bootstrap.servers": stage.brokers, "group.id": group, "enable.auto.commit": False})
    places = [
        TopicPartition(ORDERS, number) for number in client.list_topics(ORDERS, timeout=10).topics[ORDERS].partitions
    ]
    deadline, told_at, told = time.monotonic() + PATIENCE_S, 0.0, 0
    try:
        while True:
            done = sum(max(0, one.offset) for one in client.committed(places, timeout=10))
            if done >= share * stage.orders:
                stage.say(f"{done:,} of {stage.orders:,} orders finished and committed")
                return
            if member.poll() is not None:
                raise StartError(f"The consumer of the demo ended by itself, with exit code {member.returncode}.")
            if time.monotonic() > deadline:
                raise StartError(f"The consumer finished only {done} of {stage.orders} orders in {PATIENCE_S:g} s.")
            if time.monotonic() - told_at > 1.0 and done > told:
                told_at, told = time.monotonic(), done
                stage.say(f"{done:,} of {stage.orders:,}")
            time.sleep(0.05)
    finally:
        client.close()


def _books(stage: Stage) -> dict[str, Any]:
    command = [sys.executable, "-m", "holdfast.testing.demo.books", stage.brokers, stage.letters]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise StartError(f"The books could not be read: {done.stderr.strip()}")
    books: dict[str, Any] = json.loads(done.stdout)
    return books


def make_topics(create: Callable[[str], object], stage: Stage) -> None:
    """Everything the demo needs, on a broker that makes topics only when asked."""
    for topic in (ORDERS, SHIPMENTS, stage.letters):
        create(topic)

"""The loop that everybody writes first. Do not copy it: it is here to lose messages.

It commits by hand and only after success, and loses messages nevertheless: after a failure the next poll does not
bring the failed message again, and the commit of a later one passes it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import psycopg
from confluent_kafka import Consumer

from examples.worker_loop.articles import decode
from examples.worker_loop.service import TOPIC

GROUP = "articles.naive"


def naive_worker(consumer: Consumer, save: Callable[[bytes], None], running: Callable[[], bool]) -> None:
    while running():
        message = consumer.poll(0.2)
        if message is None or message.error() is not None:
            continue
        try:
            save(message.value() or b"")
        except Exception:  # noqa: BLE001, S112 - this is the bug
            continue  # "it will come again": it will not
        consumer.commit(message=message, asynchronous=False)


def main() -> None:
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    url = os.environ["DATABASE_URL"]

    def save(value: bytes) -> None:
        with psycopg.connect(url) as connection:
            connection.execute("INSERT INTO naive_articles VALUES (%s) ON CONFLICT DO NOTHING", (decode(value).id,))

    settings = {"enable.auto.commit": False, "auto.offset.reset": "earliest", "log_level": 0}
    consumer = Consumer({"bootstrap.servers": os.environ["KAFKA_BROKERS"], "group.id": GROUP, **settings})
    consumer.subscribe([TOPIC])
    naive_worker(consumer, save, lambda: not stopped)
    consumer.close()


if __name__ == "__main__":
    main()

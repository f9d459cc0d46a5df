"""A program: a member is assigned partitions, does not serve the callback and closes, while the main thread of its
client gets a processor only when no other thread of the process wants it. It does that several times, and prints what
the listener has heard each time.

`close` hangs in native code if it hangs, where no timeout of a test interrupts it: so it runs in a process of its own.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

from confluent_kafka import ConsumerGroupState, KafkaException
from confluent_kafka.admin import AdminClient

from tests.support.members import connection, kafka_member
from tests.support.waiting import DEADLINE_S, wait_until

CLIENT_THREAD = "rdk:main"
"""The name that librdkafka gives it."""

SESSION_MS = 30_000

ROUNDS = 8
"""In about two of three, the threads come to run in the order that is looked for."""


def starve_client_threads() -> None:
    """All threads of this process share a processor, and the client's runs last: what it wakes up runs before it. Where
    the system is not Linux, they run as always.
    """
    if not hasattr(os, "SCHED_IDLE"):
        return
    processor = min(os.sched_getaffinity(0))
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            os.sched_setaffinity(int(task.name), {processor})
            if (task / "comm").read_text().strip() == CLIENT_THREAD:
                os.sched_setscheduler(int(task.name), os.SCHED_IDLE, os.sched_param(0))


def is_stable(admin: AdminClient, group: str) -> bool:
    """Whether its members have been sent their partitions."""
    [asked] = admin.describe_consumer_groups([group]).values()
    try:
        return bool(asked.result(DEADLINE_S).state == ConsumerGroupState.STABLE)
    except KafkaException:  # there is no such group yet
        return False


def main(bootstrap: str, topic: str, group: str, consuming: str, leave: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    timings = {"session_timeout_ms": SESSION_MS, "max_poll_interval_ms": SESSION_MS}
    for number in range(ROUNDS):
        name = f"{group}-{number}"
        member = kafka_member(connection(bootstrap), topic, name, **timings | json.loads(consuming))
        for _ in range(2):  # the second answer comes after what the client was sent before the first one
            wait_until(partial(is_stable, admin, name))
        starve_client_threads()
        member.source.close(leave=json.loads(leave))
        sys.stdout.write(json.dumps(member.calls) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])

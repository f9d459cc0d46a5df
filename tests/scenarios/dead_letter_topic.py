"""A dead-letter topic in a scenario: made unusable and usable again, and what lies in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from confluent_kafka.admin import (  # type: ignore[attr-defined] # all of them public, says its docstring
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from keepfast.core.records import Record
from keepfast.deadletters.letter import Letter
from keepfast.deadletters.reading import read
from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import Client
from tests.support.waiting import DEADLINE_S, wait_until

NOTHING, PLENTY = 10, 10**6


def limit(broker: TopicAdmin, topic: str, size: int) -> None:
    """From now on the topic takes batches up to this size. A broker applies one change after another, each first to
    what it says of itself and last to the log: once it shows a second change, the first is in force.
    """
    for setting in ("max.message.bytes", "delete.retention.ms"):
        entry = ConfigEntry(setting, str(size), incremental_operation=AlterConfigOpType.SET)
        change = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        for future in broker.admin.incremental_alter_configs([change]).values():
            future.result(DEADLINE_S)
        wait_until(partial(_shows, broker, topic, setting, str(size)), f"the broker applies {setting}={size}")


def _shows(broker: TopicAdmin, topic: str, setting: str, value: str) -> bool:
    (future,) = broker.admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    return bool(future.result(DEADLINE_S)[setting].value == value)


def letters(broker: TopicAdmin, topic: str, partitions: int = 1) -> list[Letter]:
    """Everything that lies in the topic now."""
    client = Client(broker)
    count = sum(client.edges(topic, partition)[1] for partition in range(partitions))
    return [read(Record.of(message)) for message in client.read(topic, count, partitions=partitions)]


def copies(found: list[Letter]) -> int:
    """Letters that are there more than once, beyond the first."""
    return sum(count - 1 for count in Counter(letter.identity for letter in found).values())


@contextmanager
def small_disk(folder: Path, size_kib: int) -> Iterator[Path]:
    """A disk of this size, mounted at the folder; gone at the end."""
    import ctypes
    import os

    libc = ctypes.CDLL(None, use_errno=True)
    folder.mkdir()
    options = f"size={size_kib}k,mode=0700".encode()
    if libc.mount(b"keepfast-test", str(folder).encode(), b"tmpfs", 0, options):
        why = os.strerror(ctypes.get_errno())
        raise AssertionError(
            f"This test needs a small disk of its own and may not mount one here ({why})."
            " Run it as root, or in a container with CAP_SYS_ADMIN."
        )
    try:
        yield folder
    finally:
        detach = 2  # even if somebody still has a file open there
        assert libc.umount2(str(folder).encode(), detach) == 0, os.strerror(ctypes.get_errno())

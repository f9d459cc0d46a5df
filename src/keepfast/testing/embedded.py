"""The mock cluster inside librdkafka: no dependencies, boots in milliseconds, not a real broker. For demos."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException, Producer

from keepfast.core.errors import StartError

PARTITIONS = 4

LIMITS: tuple[str, ...] = (
    "Topics are created by `--topic NAME` of this command, by `keepfast dev`, or by a plain producer's first record.",
    "A topic always has 4 partitions; admin clients such as kafka-topics.sh can neither create nor delete one.",
    "A partition keeps about its last 5 MB and drops what is older, read or not.",
    "Everything is in memory and ends with the process that started it.",
    "The first member of a group waits about 3 s for its partitions; further members may get none.",
    "A member that restarts, static or not, is a new one: it waits for the session of the old one, about 4 s.",
    "Offsets are not found by time: `replay-from --since`, `offsets reset` and `ctl seek` with a time are refused.",
    "`offsets reset` moves only a group that has had no members; `ctl seek` moves one whose app runs.",
    "Topics have no id, records cannot be deleted, and nothing is compacted or retained by age.",
    "No authentication, no ACLs, no TLS.",
)
"""Its limits. None of keepfast's promises is tested on it."""


class EmbeddedBroker:
    """A cluster that lives inside this process and serves other processes by its address; see LIMITS.

    Every topic has 4 partitions: the client offers no setting for it. Any thread may use it.
    """

    def __init__(self, *, nodes: int = 1) -> None:
        if nodes < 1:
            raise StartError(f"nodes must be 1 or more; got {nodes}")
        self._nodes = nodes
        self._handle: Producer | None = None
        self._bootstrap = ""

    @property
    def bootstrap(self) -> str:
        if not self._bootstrap:
            raise StartError("This broker has not been started: call start(), or use it in a `with` statement.")
        return self._bootstrap

    def start(self) -> Self:
        """Raises StartError."""
        if self._handle is not None:
            return self
        # The cluster belongs to a client handle and lives as long as that does. This handle produces nothing.
        handle = Producer({"test.mock.num.brokers": self._nodes, "log_level": 0})
        try:
            brokers = handle.list_topics(timeout=10).brokers.values()
        except KafkaException as error:
            raise StartError(f"The cluster inside librdkafka does not answer: {error}") from error
        self._bootstrap = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
        self._handle = handle
        return self

    def create_topic(self, name: str) -> None:
        """Create a topic by requesting its metadata; always with 4 partitions. Raises StartError."""
        if self._handle is None:
            raise StartError("This broker has not been started: call start(), or use it in a `with` statement.")
        _ask_for(self._handle, name)

    def stop(self) -> None:
        """Stop it; all data is lost. Idempotent."""
        handle, self._handle, self._bootstrap = self._handle, None, ""
        if handle is not None:
            handle.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def make_topics(bootstrap: str, names: Iterable[str]) -> None:
    """Create topics from another process: each missing one with 4 partitions. Raises StartError."""
    handle = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for name in names:
        _ask_for(handle, name)
    handle.close()


def _ask_for(handle: Producer, name: str) -> None:
    try:
        handle.list_topics(name, timeout=10)
    except KafkaException as error:
        raise StartError(f"The cluster inside librdkafka did not create topic {name}: {error}") from error

"""What the conformance suite needs of a world in which ports are tried: a broker to write to, and clients to try."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from keepfast.core.ports import Mailbox, Sink, Source
from keepfast.core.records import Headers, TopicPartition


class Backend(Protocol):
    """One world. Groups and topics are new ones for every test."""

    def topic(self, partitions: int = 1) -> str:
        """Make a topic and tell its name."""

    def missing_topic(self) -> str:
        """The name of a topic that does not exist and is not made on demand."""

    def produce(
        self, place: TopicPartition, value: bytes | None, *, key: bytes | None = None, headers: Headers = ()
    ) -> int:
        """Write one record and tell its offset."""

    def fill(self, place: TopicPartition, count: int) -> None:
        """Write so many records, numbered from 0, with five keys in turn."""

    def produce_transaction(self, place: TopicPartition, values: Sequence[bytes], *, commit: bool = True) -> None:
        """Write a transaction, which leaves a marker behind; without `commit` it is aborted."""

    def delete_records(self, place: TopicPartition, before: int) -> None:
        """Move the start of the log."""

    def source(self, group: str) -> Source:
        """A new member of the group, not yet subscribed. Evicted when it does not poll for `eviction_s`."""

    def sink(self) -> Sink:
        """A producing client that takes records up to about a megabyte."""

    def mailbox(self) -> Mailbox:
        """A mailbox whose `collect` waits in this world's time."""

    def later(self, delay_s: float, action: Callable[[], None]) -> None:
        """Do something from outside the loop's thread after a while."""

    def group(self) -> str:
        """The name of a new group."""

    def now(self) -> float:
        """This world's monotonic clock."""

    def until(self, ready: Callable[[], object], timeout_s: float) -> bool:
        """Let time pass until `ready()`; no source is polled meanwhile."""

    def close(self) -> None:
        """Close what the test left open."""

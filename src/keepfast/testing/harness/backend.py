"""Where a harness runs its app: in memory, or on a broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from keepfast.core.ports import Outgoing, Receipt
from keepfast.core.records import Record, TopicPartition


class Backend(Protocol):
    """An app that runs. Owner: the test."""

    @property
    def groups(self) -> Mapping[str, tuple[str, ...]]:
        """Each consumer group and everything that it reads, retry topics too."""

    async def produce(self, outgoing: Outgoing) -> Receipt:
        """Into the topic, acknowledged; says where."""

    async def records(self, topic: str) -> list[Record]:
        """What has come into the topic since the harness began, oldest first in each partition."""

    def unfinished(self) -> dict[TopicPartition, int]:
        """Partitions with records that no commit covers yet, and how many those are. Empty: nothing is left to do."""

    async def go_on(self) -> float:
        """Let it work for a moment; returns how many seconds passed on its own clock. Raises what ended the app."""

    async def close(self) -> None:
        """End the app."""

"""Access to internals of kafka-python, in one place and verified before anything depends on it.

- `auto_offset_reset`: a position outside the log must be our decision and be reported; the library resets silently.
- Deserialisers: they run inside `poll`, where a record that they reject blocks the consumer forever; and a letter
  needs the original bytes. They are removed from the client and called when the value is decoded.
- The answer to a commit: it would wait for the next `poll`, and be polled for by two threads at a time.
- The positions of partitions: the public call asks the broker in some states.
- The leader epoch of a position: `seek` takes none.
- Waking its I/O thread, and closing the sockets that it leaves open.
"""

from __future__ import annotations

import inspect
import socket
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from kafka.protocol.consumer import OffsetResetStrategy

from keepfast.core.errors import ConfigError
from keepfast.kafka.kafka_python.records import RawRecords

Deserialise = Callable[[str, Any, bytes | None], Any]
"""(topic, headers, bytes) → what the consumer's own deserialiser makes of them."""


@dataclass(frozen=True, slots=True)
class Adopted:
    """The original configuration of a consumer whose behaviour was changed."""

    group: str
    topics: tuple[str, ...]
    reset: str
    max_poll_records: int
    value_deserialiser: Deserialise | None


def adopt(client: Any) -> Adopted:
    """Take over a KafkaConsumer that was not polled yet. Raises ConfigError, with all problems."""
    config = client.config
    problems = []
    if config["enable_auto_commit"]:
        problems.append(
            "consumer_factory: the KafkaConsumer commits automatically, before its records are finished, so a crash"
            " would lose them; create it with enable_auto_commit=False."
        )
    if config["group_id"] is None:
        problems.append(
            "consumer_factory: the KafkaConsumer has no group, so nothing could be committed; set group_id=…"
        )
    if client.assignment():
        problems.append(
            "consumer_factory: the KafkaConsumer has partitions assigned by hand; let it subscribe to topics, so that"
            " its group shares them."
        )
    if problems:
        raise ConfigError(*problems)
    try:
        fetcher, subscription = client._fetcher, client._subscription  # noqa: SLF001
        wake(client)
        client._coordinator.completed_offset_commits.clear()  # noqa: SLF001
        client._coordinator.completed_offset_commits = _ImmediateCallbacks()  # noqa: SLF001
        deserialiser = fetcher.config["value_deserializer"]
        fetcher.PartitionRecords = RawRecords
        subscription._default_offset_reset_strategy = OffsetResetStrategy.NONE  # noqa: SLF001
        positions_of(client)
        decided_here = not subscription.has_default_offset_reset_policy()
    except (AttributeError, KeyError, TypeError) as error:
        raise _unknown_version(str(error)) from error
    if not decided_here:
        raise _unknown_version("its auto_offset_reset cannot be switched off")
    return Adopted(
        group=config["group_id"],
        topics=tuple(sorted(client.subscription() or ())),
        reset=config["auto_offset_reset"],
        max_poll_records=config["max_poll_records"],
        value_deserialiser=None if deserialiser is None else _deserialise(deserialiser),
    )


class _ImmediateCallbacks:
    """Replaces the queue of answered commits: each callback is called at once, on the I/O thread."""

    def __bool__(self) -> bool:
        return False

    def appendleft(self, answered: tuple[Callable[[Any, Any], None], Any, Any]) -> None:
        callback, offsets, outcome = answered
        callback(offsets, outcome)


def wake(client: Any) -> None:
    """Wake the I/O thread."""
    client._net.wakeup()  # noqa: SLF001


def positions_of(client: Any) -> dict[Any, int]:
    """The next offset of each partition, as far as it is known, without a request. After `poll`, on its thread: every
    record below was returned.
    """
    states = client._subscription.assignment  # noqa: SLF001
    found = {}
    for place in client.assignment():
        position = getattr(states.get(place), "position", None)
        if position is not None:
            found[place] = position.offset
    return found


def seek_in_epoch(client: Any, place: Any, offset: Any) -> None:
    """As the client's `seek`, with the leader epoch of an OffsetAndMetadata: the library compares it with the log."""
    client._subscription.assignment[place].seek(offset)  # noqa: SLF001


def sockets_of(client: Any) -> list[socket.socket]:
    """Its connections; none if they cannot be found."""
    try:
        connections = list(client._manager._conns.values())  # noqa: SLF001
        return [connection.transport._sock for connection in connections if connection.transport]  # noqa: SLF001
    except AttributeError:
        return []


def _deserialise(deserialiser: Any) -> Deserialise:
    call: Deserialise = deserialiser.deserialize
    if len(inspect.signature(call).parameters) == 3:
        return call
    return lambda topic, headers, data: deserialiser.deserialize(topic, data)  # noqa: ARG005 - as before version 3


def _unknown_version(what: str) -> ConfigError:
    return ConfigError(
        f"kafka-python {version('kafka-python')} is not supported ({what}); install kafka-python 3.0, or let"
        " consumer_factory return a dict of configuration."
    )

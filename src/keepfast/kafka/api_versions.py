"""Versions of requests that the brokers support, as the client learns them when it connects.

The client has no call that returns them. It logs them for each connection if `debug` has `feature`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka.admin import AdminClient

from keepfast.kafka.faults import CLIENT_ERRORS

CONSUMER_GROUP_HEARTBEAT: Final = 68
JOINABLE_VERSION: Final = 1
"""The version of ConsumerGroupHeartbeat that the client sends. Kafka 3.7 to 3.9 have 0, a preview of KIP-848."""

_VERSIONS: Final = re.compile(r"(\S+): +ApiKey \S+ \((\d+)\) Versions \d+\.\.(\d+)$")
_COMPLETE: Final = re.compile(r"(\S+): +Feature ")
"""Follows the list of a connection."""


class ReportedVersions:
    """Collects the versions from the client's log. Owner: the thread that polls the client."""

    def __init__(self) -> None:
        self._connections: dict[str, dict[int, int]] = {}
        self._complete: set[str] = set()

    def log(self, _level: int, _pattern: str, *arguments: object) -> None:
        """Implements the part of `logging.Logger` that the client uses."""
        line = str(arguments[-1]) if arguments else ""
        if (found := _VERSIONS.search(line)) is not None:
            name, request, highest = found.groups()
            self._connections.setdefault(name, {})[int(request)] = int(highest)
        elif (found := _COMPLETE.search(line)) is not None:
            self._complete.add(found[1])

    def has(self, request: int, version: int) -> bool | None:
        """Return True if every connected broker supports this version of a request; None if none has reported."""
        reported = [versions for name, versions in self._connections.items() if name in self._complete]
        return all(versions.get(request, -1) >= version for versions in reported) if reported else None


def has_new_protocol(properties: Mapping[str, Any], timeout_s: float) -> bool | None:
    """Ask the brokers whether they support the group protocol of KIP-848. Blocks for at most timeout_s and a moment.

    Returns None if that is unknown: no broker has answered, or the client has another log format than is known here.
    `properties`: see `config.admin_properties`.
    """
    reported = ReportedVersions()
    options: dict[str, Any] = {**properties, "debug": "feature", "log_level": 7, "logger": reported}
    try:
        client = AdminClient(options)
        client.list_topics("", timeout=timeout_s)
        client.poll(0)  # serves the log
    except CLIENT_ERRORS:
        return None
    return reported.has(CONSUMER_GROUP_HEARTBEAT, JOINABLE_VERSION)

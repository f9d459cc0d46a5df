"""Whether the brokers answer, by the client's own statistics: that costs no request.

A broker that is frozen, or behind a network that drops its packets, keeps its connections. The client reports it only
when requests have timed out on all of them, after `socket.timeout.ms`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

SILENT_S: Final = 15.0
"""A broker that answers nothing for longer, and for as long as a fetch may wait, is reported."""

_CONNECTING: Final = frozenset(
    {"CONNECT", "SSL_HANDSHAKE", "APIVERSION_QUERY", "AUTH_HANDSHAKE", "AUTH_LEGACY", "AUTH_REQ", "REAUTH"}
)
"""Waiting for an answer to an attempt to connect."""


class _Window(msgspec.Struct):
    """Values of the last interval. `max` is in milliseconds."""

    max: float = 0


class _Broker(msgspec.Struct):
    """A connection. `nodename`: the address. `rx`: answers so far. `toppars`: the partitions that are read from it.
    `throttle`: for how long the broker delayed its answers by a quota. `txretries`: requests so far that were sent
    again.
    """

    nodename: str
    source: str
    state: str
    rx: int
    waitresp_cnt: int
    toppars: dict[str, msgspec.Raw]
    throttle: _Window = msgspec.field(default_factory=_Window)
    txretries: int = 0


class _Statistics(msgspec.Struct):
    brokers: dict[str, _Broker]


class BrokerWatch:
    """Owner: the loop's thread. Counts the statistics in which a connection has had no answer since the last ones,
    though one is awaited: an interval in which this process did not run counts once.

    The connection to the coordinator counts only while it is being made: joining the group may take minutes.
    """

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._every_s = int(properties.get("statistics.interval.ms", 0)) / 1000
        self._limit_s = SILENT_S + int(properties.get("fetch.wait.max.ms", 500)) / 1000
        self._decode = msgspec.json.Decoder(_Statistics).decode
        self._answers: dict[str, int] = {}
        self._silent: dict[str, int] = {}  # in how many intervals
        self._awaited: frozenset[str] = frozenset()  # at the last statistics
        self.throttled: dict[str, float] = {}
        """The brokers, by address, that delayed answers in the last interval, and for how many seconds at most."""
        self._retries = 0  # of requests to the coordinator, by then
        self.repeated = False
        """Whether a request to the coordinator was sent once more, by the last statistics: of those that a consumer
        makes there, the client repeats commits when their connection breaks.
        """

    def observe(self, statistics: str) -> dict[str, float]:
        """The brokers, by address, that owe an answer for too long, and for how many seconds at least. None of them, if
        the client has another format than it is known here.
        """
        self.throttled = {}
        try:
            brokers = self._decode(statistics).brokers
        except msgspec.MsgspecError:
            return {}
        self.throttled = {one.nodename: one.throttle.max / 1000 for one in brokers.values() if one.throttle.max > 0}
        retries = sum(broker.txretries for broker in brokers.values() if broker.source == "logical")
        self.repeated, self._retries = retries > self._retries, retries
        awaited = frozenset(name for name, broker in brokers.items() if _is_awaited(broker))
        before, self._silent = self._silent, {}
        for name, broker in brokers.items():
            if broker.rx != self._answers.get(name) or (broker.state == "UP" and name not in awaited):
                continue
            if name in awaited:
                self._silent[name] = before.get(name, 0) + 1
            elif name in before and name in self._awaited:  # between two attempts to connect
                self._silent[name] = before[name]
        self._answers = {name: broker.rx for name, broker in brokers.items()}
        self._awaited = awaited
        found: dict[str, float] = {}
        for name, intervals in self._silent.items():
            if intervals * self._every_s > self._limit_s:
                address = brokers[name].nodename
                found[address] = max(found.get(address, 0.0), intervals * self._every_s)
        return found


def _is_awaited(broker: _Broker) -> bool:
    if broker.state in _CONNECTING:
        return broker.source == "logical" or bool(broker.toppars)
    return broker.state == "UP" and broker.source == "learned" and bool(broker.toppars) and broker.waitresp_cnt > 0

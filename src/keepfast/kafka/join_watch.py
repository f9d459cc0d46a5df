"""Detects a member that has silently given up joining its group, by the client's own statistics.

If the coordinator does not support the heartbeat of KIP-848, the client sends none, reports no error and never tries
again (librdkafka 2.16).
"""

from __future__ import annotations

from typing import Final

import msgspec

from keepfast.core.errors import Fault, SourceError

QUIET_S: Final = 4.0
"""The client sends its first heartbeat within 1.2 s after it has subscribed and connected to the coordinator."""

NO_NEW_PROTOCOL: Final = SourceError(
    "The broker does not support the group protocol of KIP-848 (Kafka 4.0 or newer does)."
    " Set group_protocol=auto or classic.",
    fault=Fault.FATAL,
    code="UNSUPPORTED_VERSION",
)


class _Group(msgspec.Struct):
    """`stateage` is in milliseconds."""

    state: str
    join_state: str
    stateage: int


class _Broker(msgspec.Struct):
    """A connection. `tx`: requests that were sent so far; `req`: by their kind, but for heartbeats of KIP-848, which
    are not listed. `stateage` is in microseconds.
    """

    source: str
    state: str
    stateage: int
    tx: int
    outbuf_cnt: int
    waitresp_cnt: int
    req: dict[str, int]


class _Statistics(msgspec.Struct):
    brokers: dict[str, _Broker]
    cgrp: _Group


def has_given_up(statistics: str) -> bool:
    """Return True if a KIP-848 member has been connected to its coordinator for `QUIET_S` and never sent a heartbeat.

    A slow, frozen or loading coordinator owes or has given an answer, so it is never taken for one that does not
    support KIP-848. False if `statistics` has an unknown format. The member must be subscribed for as long.
    """
    try:
        found = msgspec.json.decode(statistics, type=_Statistics)
    except msgspec.MsgspecError:
        return False
    group = found.cgrp
    # A member that has joined and got no partitions remains in `init`, too.
    if (group.state, group.join_state) != ("up", "init") or group.stateage < QUIET_S * 1e3:
        return False
    return any(_never_asked(broker) for broker in found.brokers.values() if broker.source == "logical")


def _never_asked(coordinator: _Broker) -> bool:
    listed = sum(count for name, count in coordinator.req.items() if name != "ConsumerGroupHeartbeat")
    idle = not coordinator.outbuf_cnt and not coordinator.waitresp_cnt
    quiet = coordinator.state == "UP" and coordinator.stateage >= QUIET_S * 1e6
    return quiet and idle and coordinator.tx <= listed
